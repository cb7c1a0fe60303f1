"""`lion export`."""

import argparse
from pathlib import Path

DESCRIPTION = """\
Write the model of a finished run for where it is to run, into a new folder (RUN/onnx): the file, a README.md that says
what its inputs are, model.json for programs, and the tokenizer or the scales of pixels. Before that, the file is run at
several sizes and compared with torch. docs/deploy.md has a server."""


def add_export(commands) -> None:
    parser = commands.add_parser(
        "export",
        help="write a run's model for ONNX Runtime, AOTInductor or torch.export",
        description=DESCRIPTION,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("folder", type=Path, metavar="RUN", help="folder of the run")
    parser.add_argument("--to", default="onnx", help="onnx, aoti (compiled for this processor) or pt2 (onnx)")
    parser.add_argument("--out", type=Path, metavar="FOLDER", help="a new folder (RUN/onnx, and the like)")
    parser.add_argument(
        "--int8", action="store_true", help="with onnx: weights of 8 bits, and what that costs in accuracy"
    )
    parser.set_defaults(run=_export)


def _export(args: argparse.Namespace) -> None:
    from lion.export.runs import export_run

    found = export_run(args.folder, args.to, out=args.out, int8=args.int8)
    print(f"exported: {found.file} ({found.file.stat().st_size / 1e6:.1f} MB)")
    print(f"checked: {found.checked}")
    for precision, metrics in found.metrics.items():
        print(f"{precision}: {', '.join(f'{name} {x:.4g}' for name, x in metrics.items())}")
