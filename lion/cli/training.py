"""`lion train` and `lion distill`."""

import argparse
import os
from collections.abc import Sequence
from pathlib import Path

from lion.cli.arguments import add_device, stopping
from lion.optional import need

RUN_OPTIONS = ("--help", "--list", "--show", "--out", "--resume", "--accept", "--device")  # all others are fields


def add_train(commands) -> None:
    parser = commands.add_parser(
        "train",
        help="train a model by a recipe, or on your own data",
        description="Any field of the run can be set: --optim.lr 1e-3 --epochs 5 --model.depth 6. "
        "`lion train NAME --show` prints them all.",
    )
    parser.add_argument("recipe", nargs="?", metavar="RECIPE", help="digits.lion_s, images, ... (--list shows all)")
    parser.add_argument("--list", action="store_true", help="list the recipes and stop")
    _add_run_options(parser)


def add_distill(commands) -> None:
    parser = commands.add_parser(
        "distill",
        help="replace the attention of a trained BERT, and train the model to give the BERT's hidden states",
        description="`lion train` by the recipe distill.text: its fields can be set, as --variant lion_d "
        "--data 'corpus/*.txt' --teacher FOLDER.",
    )
    parser.add_argument("what", choices=("text",))
    _add_run_options(parser)
    parser.set_defaults(list=False, recipe="distill.text")


def _add_run_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--show", action="store_true", help="print the run as JSON and stop")
    parser.add_argument("--out", type=Path, help="folder of the run (runs/RECIPE)")
    parser.add_argument("--resume", action="store_true", help="go on where the run in that folder stopped")
    parser.add_argument(
        "--accept",
        type=lambda text: [name.strip() for name in text.split(",") if name.strip()],
        default=[],
        metavar="WHAT",
        help="with --resume: go on though this has changed, as data,seed,model.dropout",
    )
    add_device(parser)
    parser.set_defaults(run=_run)


def _run(args: argparse.Namespace) -> None:
    import json

    from lion import recipes

    if args.list:
        print(recipes.listing())
        return
    need("accelerate", "accelerate", "train")
    from lion.pages.run import PAGE
    from lion.train.folder import saved_run
    from lion.train.loop import train

    if args.recipe is None and not (args.resume and args.out):
        raise ValueError("there is no RECIPE; `lion train --list` has them all, --resume --out RUN goes on with one.")
    folder = args.out or Path("runs") / args.recipe
    saved = saved_run(folder, args.recipe) if args.resume else None
    if saved is None and args.recipe is None:
        raise ValueError(f"there is no run in {folder} to resume.")
    run = saved.run if saved is not None else recipes.recipe(args.recipe)
    run = run.changed(dict(_fields(args.fields)))
    if args.show:
        print(json.dumps(run.to_json(), indent=2))
        return
    with stopping():
        names = {"recipe": args.recipe, "command": args.words}
        metrics = train(run, folder, resume=args.resume, accept=args.accept, device=args.device, **names)
    if os.environ.get("RANK", "0") == "0":  # of several processes, the first
        print(", ".join(f"{name} {x:.4g}" for name, x in metrics.items()))
        print(f"the run is in {folder}; use it: {run.task.usage.format(run=folder)}")
        if (folder / PAGE).exists():
            print(f"see how it went: {folder / PAGE}")


def split_fields(argv: Sequence[str]) -> tuple[list[str], list[str]]:
    """Arguments of the command, and fields of the run: argparse would take the fields' values for arguments."""
    given: list[str] = []
    fields: list[str] = []
    rest = list(argv)
    while rest:
        name, *_ = rest[0].partition("=")
        if not name.startswith("--") or any(option.startswith(name) for option in RUN_OPTIONS):
            given.append(rest.pop(0))
            continue
        fields.append(rest.pop(0))
        if "=" not in fields[-1] and rest and not rest[0].startswith("--"):
            fields.append(rest.pop(0))
    return given, fields


def _fields(arguments: Sequence[str]) -> list[tuple[str, str]]:
    """--optim.lr 1e-3 or --optim.lr=1e-3, each."""
    found = []
    rest = list(arguments)
    while rest:
        name, equals, value = rest.pop(0).partition("=")
        if not name.startswith("--"):
            raise ValueError(f"{name!r} is neither an option nor its value; expected --field value.")
        if not equals:
            if not rest or rest[0].startswith("--"):
                raise ValueError(f"{name} has no value; expected {name} VALUE.")
            value = rest.pop(0)
        found.append((name[2:].replace("-", "_"), value))
    return found
