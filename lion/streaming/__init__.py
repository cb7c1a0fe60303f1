"""A sequence of any length through a model, block by block and layer by layer."""

from lion.streaming.stream import answered as answered
from lion.streaming.stream import stream as stream
