"""`lion demo`."""

import argparse
from pathlib import Path

from lion.cli.arguments import add_number, stopping
from lion.limits import Epochs, Tokens
from lion.optional import need

PACKAGES = {"accelerate": "accelerate", "sklearn": "scikit-learn", "matplotlib": "matplotlib"}  # by module


def add_demo(commands) -> None:
    parser = commands.add_parser("demo", help="train on digits, compare the forms, measure, and write a report")
    parser.add_argument("--out", type=Path, default=Path("runs/demo"), help="folder for the report (runs/demo)")
    add_number(parser, "--max-length", Tokens, default=32768, help="the longest sequence to measure (32768)")
    add_number(parser, "--epochs", Epochs, help="how long to train each model (as the recipe says)")
    parser.set_defaults(run=_run)


def _run(args: argparse.Namespace) -> None:
    for module, package in PACKAGES.items():
        need(module, package, "train")
    from lion.bench import demo

    lengths = tuple(T for T in demo.LENGTHS if args.max_length >= T)
    if not lengths:
        raise ValueError(f"--max-length is {args.max_length}; expected at least {demo.LENGTHS[0]}.")
    with stopping("stopped; `lion demo` begins anew"):
        demo.run(args.out, lengths, {} if args.epochs is None else {"epochs": str(args.epochs)})
