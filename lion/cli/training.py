"""`lion train` and `lion distill`."""

import argparse
import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from lion.cli.arguments import add_device, stopping
from lion.optional import need
from lion.progress import working

if TYPE_CHECKING:
    from lion.train.config import Run

RUN_OPTIONS = (
    "--help",
    "--list",
    "--show",
    "--json",
    "--out",
    "--resume",
    "--accept",
    "--device",
)  # all others are fields


def add_train(commands) -> None:
    parser = commands.add_parser(
        "train",
        help="train a model by a recipe, or on your own data",
        description="Any field of the run can be set: --optim.lr 1e-3 --epochs 5 --model.depth 6. "
        "`lion train RECIPE --help` has them all.",
        add_help=False,
    )
    parser.add_argument("recipe", nargs="?", metavar="RECIPE", help="digits.lion_s, images, ... (--list shows all)")
    parser.add_argument("-h", "--help", action="store_true", help="show this, and the fields of RECIPE, and stop")
    parser.add_argument(
        "--list", nargs="?", const="", metavar="FAMILY", help="list the recipes, or a family's, and stop"
    )
    _add_run_options(parser)


def add_distill(commands) -> None:
    parser = commands.add_parser(
        "distill",
        help="replace the attention of a trained BERT, and train the model to give the BERT's hidden states",
        description="`lion train` by the recipe distill.text: its fields can be set, as --variant lion_d "
        "--data 'corpus/*.txt' --teacher FOLDER. `lion train distill.text --help` has them all.",
    )
    parser.add_argument("what", choices=("text",))
    _add_run_options(parser)
    parser.set_defaults(list=None, help=False, recipe="distill.text")


def _add_run_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--show", action="store_true", help="print the run's fields, with what they are, and stop")
    parser.add_argument("--json", action="store_true", help="with --show: as JSON")
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
    parser.set_defaults(run=_run, usage=parser.format_help)


def _run(args: argparse.Namespace) -> None:
    import json

    if args.help:
        print(args.usage().rstrip())
        if args.recipe is None:
            return
    if args.list is not None:
        print(_listing(args.list or args.recipe or ""))
        return
    if args.recipe is None and not (args.resume and args.out):
        raise ValueError("there is no RECIPE; `lion train --list` has them all, --resume --out RUN goes on with one.")
    folder = args.out or Path("runs") / args.recipe
    with working("loading PyTorch"):
        run = _asked(args, folder)
    if args.help or (args.show and not args.json):
        from lion.fields import described

        if args.help:
            print(f"\nfields of {args.recipe}, their values, and what they are:")
        print(described(run))
        return
    if args.show:
        print(json.dumps(run.to_json(), indent=2))
        return
    with working("loading PyTorch"):
        need("accelerate", "accelerate", "text" if hasattr(run.task, "text_tokenizer") else "train")
        from lion.pages.run import PAGE
        from lion.train.loop import train

    with stopping():
        names = {"recipe": args.recipe, "command": args.words}
        metrics = train(run, folder, resume=args.resume, accept=args.accept, device=args.device, **names)
    if os.environ.get("RANK", "0") == "0":  # of several processes, the first
        print(", ".join(f"{name} {x:.4g}" for name, x in metrics.items()))
        print(f"the run is in {folder}; use it: {run.task.usage.format(run=folder)}")
        if (folder / PAGE).exists():
            print(f"see how it went: {folder / PAGE}")


def _listing(family: str) -> str:
    with working("loading PyTorch"):
        from lion import recipes

        return recipes.listing(family)


def _asked(args: argparse.Namespace, folder: Path) -> "Run":
    """The recipe's run, or the one to go on with, with the fields that were given."""
    from lion import recipes
    from lion.train.folder import saved_run

    saved = saved_run(folder, args.recipe) if args.resume else None
    if saved is None and args.recipe is None:
        raise ValueError(f"there is no run in {folder} to resume.")
    run = saved.run if saved is not None else recipes.recipe(args.recipe)
    return run.changed(dict(_fields(args.fields, run)))


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


def _fields(arguments: Sequence[str], run: "Run") -> list[tuple[str, str]]:
    """--optim.lr 1e-3 or --optim.lr=1e-3, each; --recompute alone is true."""
    from lion.fields import every

    flags = {field.path for field in every(run) if field.hint in (bool, bool | None)}
    found = []
    rest = list(arguments)
    while rest:
        name, equals, value = rest.pop(0).partition("=")
        if not name.startswith("--"):
            raise ValueError(f"{name!r} is neither an option nor its value; expected --field value.")
        path = name[2:].replace("-", "_")
        alone = not equals and (not rest or rest[0].startswith("--"))
        if alone and path in flags:
            value = "true"
        elif not equals:
            if alone:
                raise ValueError(f"{name} has no value; expected {name} VALUE.")
            value = rest.pop(0)
        found.append((path, value))
    return found
