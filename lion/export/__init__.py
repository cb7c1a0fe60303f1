"""Models for where they run: ONNX files. `lion.export.onnx(model, "model.onnx")`"""

from lion.export.onnx_files import onnx as onnx
