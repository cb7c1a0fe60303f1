"""`lion list` and `lion doctor`."""

import argparse
from pathlib import Path

from lion.optional import need


def add_list(commands) -> None:
    parser = commands.add_parser("list", help="the variants, forms, decays, backends, kernels and models there are")
    parser.add_argument("what", nargs="?", choices=("models", "variants", "forms", "decays", "backends", "kernels"))
    parser.add_argument("--flops", action="store_true", help="with models: the cost of a forward pass")
    parser.add_argument("--draw", type=Path, metavar="FILE", help="draw the variants, as PNG, SVG or PDF")
    parser.set_defaults(run=_list)


def _list(args: argparse.Namespace) -> None:
    if args.what == "models":
        from lion.models import listing as models

        print(models.listing(flops=args.flops))
        return
    from lion.cli.doctor import listing

    print(listing(args.what))
    if args.draw:
        need("matplotlib", "matplotlib", "cli")
        from lion.nn.pictures import draw

        draw(args.draw)
        print(f"\npicture saved to {args.draw}")


def add_doctor(commands) -> None:
    parser = commands.add_parser("doctor", help="what is installed, and which kernels can run here")
    parser.set_defaults(run=_doctor)


def _doctor(args: argparse.Namespace) -> None:
    from lion.cli.doctor import doctor

    print(doctor())
