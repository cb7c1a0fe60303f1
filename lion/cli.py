"""The command line. Each command imports what it needs when it runs, so that `lion --help` is quick."""

import argparse
import contextlib
import os
import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from lion import amx
from lion.arguments import Refused, add_number
from lion.bench.command import add_bench
from lion.cli_data import add_data
from lion.limits import Batch, Beams, Count, CountOrAll, Epochs, Heat, Seed, Tokens
from lion.optional import need

TRAINING = ("train", "distill")
RUN_OPTIONS = ("--help", "--list", "--show", "--out", "--resume", "--accept")  # of them; all others are fields


def main(argv: Sequence[str] | None = None) -> int:
    os.environ.setdefault("THP_MEM_ALLOC_ENABLE", "1")  # torch: pages of 2 MiB, or long sequences wait for the system
    parser = argparse.ArgumentParser(prog="lion", description="Bidirectional linear attention for PyTorch.")
    parser.add_argument("--version", action="store_true", help="print the version and stop")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND")
    for add in (_demo, _train, _distill, _eval, _predict, _generate, add_bench, add_data, _list, _doctor):
        add(commands)
    given, fields = _apart(sys.argv[1:] if argv is None else argv)
    try:
        args, rest = parser.parse_known_args(given)
    except Refused as problem:
        print(_in_one_line(problem), file=sys.stderr)
        return 1
    if rest and args.command not in TRAINING:
        parser.error(f"unrecognized arguments: {' '.join(rest)}")
    args.fields = [*fields, *rest]
    if args.version:
        from lion._version import __version__

        print(f"lion {__version__}")
        return 0
    if args.command is None:
        parser.print_help()
        return 2
    run: Callable[[argparse.Namespace], None] = args.run
    if args.command in (*TRAINING, "bench") and amx.avoid():  # before they import torch
        print(f"this processor traps on its AMX instructions: {amx.SETTING} is set for this run", file=sys.stderr)
    try:
        run(args)
    except BrokenPipeError:  # whoever reads has seen enough, as `| head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 128 + signal.SIGPIPE
    except (ValueError, ImportError, OSError) as problem:
        print(f"lion {args.command}: {_in_one_line(problem)}", file=sys.stderr)
        return 1
    except (MemoryError, RuntimeError) as problem:
        if not _of_memory(problem):
            raise
        print(f"lion {args.command}: there is not enough memory; expected smaller sizes.", file=sys.stderr)
        return 1
    except _Ended as end:
        print(f"\n{end}", file=sys.stderr)
        return 128 + end.signum
    except KeyboardInterrupt:
        print("\ninterrupted", file=sys.stderr)
        return 130
    return 0


def _apart(argv: Sequence[str]) -> tuple[list[str], list[str]]:
    """Arguments, and of the commands that train the fields of the run: argparse would take their values for others."""
    given: list[str] = []
    fields: list[str] = []
    rest = list(argv)
    while rest:
        name, *_ = rest[0].partition("=")
        its_own = any(option.startswith(name) for option in RUN_OPTIONS)
        if argv[0] not in TRAINING or not name.startswith("--") or its_own:
            given.append(rest.pop(0))
            continue
        fields.append(rest.pop(0))
        if "=" not in fields[-1] and rest and not rest[0].startswith("--"):
            fields.append(rest.pop(0))
    return given, fields


def _in_one_line(problem: Exception) -> str:
    return " ".join(str(problem).splitlines()) or type(problem).__name__


def _of_memory(problem: Exception) -> bool:
    """Whether it is memory that was lacking, which torch tells by words."""
    words = ("not enough memory", "can't allocate memory", "out of memory", "Storage size calculation overflowed")
    return isinstance(problem, MemoryError) or any(part in str(problem) for part in words)


class _Ended(Exception):
    """By a signal, in good order."""

    def __init__(self, message: str, signum: int):
        super().__init__(message)
        self.signum = signum


@contextlib.contextmanager
def _stopping(words: str | None = None) -> Iterator[None]:
    """A training that a signal has stopped is saved, and says how to go on; or these words are said."""
    from lion.train.ending import Stopped

    try:
        yield
    except Stopped as stop:
        raise _Ended(words or str(stop), stop.signum) from None


def _demo(commands) -> None:
    parser = commands.add_parser("demo", help="train on digits, compare the forms, measure, and write a report")
    parser.add_argument("--out", type=Path, default=Path("runs/demo"), help="folder for the report (runs/demo)")
    add_number(parser, "--max-length", Tokens, default=32768, help="the longest sequence to measure (32768)")
    add_number(parser, "--epochs", Epochs, help="how long to train each model (as the recipe says)")

    def run(args: argparse.Namespace) -> None:
        for module, package in {
            "accelerate": "accelerate",
            "sklearn": "scikit-learn",
            "matplotlib": "matplotlib",
        }.items():
            need(module, package, "train")
        from lion.bench import demo

        lengths = tuple(T for T in demo.LENGTHS if args.max_length >= T)
        if not lengths:
            raise ValueError(f"--max-length is {args.max_length}; expected at least {demo.LENGTHS[0]}.")
        with _stopping("stopped; `lion demo` begins anew"):
            demo.run(args.out, lengths, {} if args.epochs is None else {"epochs": str(args.epochs)})

    parser.set_defaults(run=run)


def _train(commands) -> None:
    parser = commands.add_parser(
        "train",
        help="train a model by a recipe, or on your own images",
        description="Any field of the run can be set: --optim.lr 1e-3 --epochs 5 --model.depth 6. "
        "`lion train NAME --show` prints them all.",
    )
    parser.add_argument("recipe", nargs="?", metavar="RECIPE", help="digits.lion_s, images, ... (--list shows all)")
    parser.add_argument("--list", action="store_true", help="list the recipes and stop")
    _add_run_options(parser)


def _distill(commands) -> None:
    parser = commands.add_parser(
        "distill",
        help="replace the attention of a trained BERT, and teach the model what the BERT says",
        description="`lion train` by the recipe distill.text: its fields can be set, as --variant lion_d "
        "--data 'corpus/*.txt' --teacher FOLDER.",
    )
    parser.add_argument("what", choices=("text",))
    _add_run_options(parser)
    parser.set_defaults(list=False)

    def run(args: argparse.Namespace) -> None:
        args.recipe = f"distill.{args.what}"
        _run_training(args)

    parser.set_defaults(run=run)


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
    parser.set_defaults(run=_run_training)


def _run_training(args: argparse.Namespace) -> None:
    import json

    from lion import recipes

    if args.list:
        print(recipes.listing())
        return
    need("accelerate", "accelerate", "train")
    from lion.train.folder import saved_run
    from lion.train.loop import train

    if args.recipe is None and not (args.resume and args.out):
        raise ValueError("there is no RECIPE; `lion train --list` has them all, --resume --out RUN goes on with one.")
    folder = args.out or Path("runs") / args.recipe
    run = saved_run(folder, args.recipe) if args.resume else None
    if run is None:
        if args.recipe is None:
            raise ValueError(f"there is no run in {folder} to resume.")
        run = recipes.recipe(args.recipe)
    run = run.changed(dict(_fields(args.fields)))
    if args.show:
        print(json.dumps(run.to_json(), indent=2))
        return
    with _stopping():
        metrics = train(run, folder, resume=args.resume, accept=args.accept, recipe=args.recipe)
    if os.environ.get("RANK", "0") == "0":  # of several processes, the first
        print(", ".join(f"{name} {x:.4g}" for name, x in metrics.items()) + f"\nthe run is in {folder}")


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


def _eval(commands) -> None:
    parser = commands.add_parser("eval", help="evaluate a finished run, in any form")
    parser.add_argument("folder", type=Path, metavar="RUN", help="folder of the run")
    parser.add_argument("--form", default="auto", help="auto, full, rnn, chunk or scan: never what, only how (auto)")
    add_number(parser, "--batch", Batch, help="examples at once (as in training)")
    parser.add_argument(
        "--test",
        default="",
        metavar="FILE",
        help="texts or DNA: evaluate on this; mnli: on 'mismatched'; lra: on 'test'",
    )

    def run(args: argparse.Namespace) -> None:
        from lion.ops.checks import one_of
        from lion.ops.kernels import FORMS
        from lion.train.using import evaluate

        one_of("form", args.form, ("auto", *FORMS))
        metrics = evaluate(args.folder, form=args.form, batch=args.batch, test=args.test)
        print(", ".join(f"{name} {x:.4g}" for name, x in metrics.items()))

    parser.set_defaults(run=run)


def _predict(commands) -> None:
    parser = commands.add_parser("predict", help="classify images, texts or DNA, or fill a gap, with a finished run")
    parser.add_argument("folder", type=Path, metavar="RUN", help="folder of the run")
    parser.add_argument(
        "inputs", nargs="+", metavar="INPUT", help="files of images; texts or DNA, with a [MASK] for `mlm` and `dna`"
    )
    parser.add_argument("--form", default="auto", help="auto, full, rnn, chunk or scan (auto)")
    add_number(parser, "--best", Count, default=3, help="so many of the likeliest classes (3)")

    def run(args: argparse.Namespace) -> None:
        from lion.ops.checks import one_of
        from lion.ops.kernels import FORMS
        from lion.terminal import table
        from lion.train.using import predict

        one_of("form", args.form, ("auto", *FORMS))
        guesses = predict(args.folder, args.inputs, form=args.form, best=args.best)
        rows = [
            (given if n == 0 else "", guess.label, f"{guess.probability:.1%}")
            for given, best in zip(args.inputs, guesses, strict=True)
            for n, guess in enumerate(best)
        ]
        print(table(("input", "class", "probability"), rows))

    parser.set_defaults(run=run)


def _generate(commands) -> None:
    parser = commands.add_parser("generate", help="go on with a text, by a run of `lion train causal`")
    parser.add_argument("folder", type=Path, metavar="RUN", help="folder of the run")
    parser.add_argument("--prompt", default="", help="how the text begins")
    add_number(parser, "--tokens", Count, default=200, help="how much is added, at most (200)")
    parser.add_argument("--mode", default="recurrence", help="recurrence, cache or attention: the same tokens")
    add_number(parser, "--temperature", Heat, default=0.8, help="0: always the likeliest token (0.8)")
    add_number(parser, "--top-k", CountOrAll, default=50, help="of so many of the likeliest, 0: of all (50)")
    add_number(parser, "--beams", Beams, default=1, help="beams to search with (1)")
    add_number(parser, "--seed", Seed, default=0, help="(0)")

    def run(args: argparse.Namespace) -> None:
        from lion.train.generating import Sampling, generate

        def show(piece: str) -> None:
            print(piece, end="", flush=True)

        sampling = Sampling(args.temperature, args.top_k, args.beams, args.seed)
        generate(args.folder, args.prompt, tokens=args.tokens, mode=args.mode, sampling=sampling, show=show)
        print()

    parser.set_defaults(run=run)


def _list(commands) -> None:
    parser = commands.add_parser("list", help="what there is: variants, forms, decays, backends, kernels")
    parser.add_argument("what", nargs="?", choices=("models", "variants", "forms", "decays", "backends", "kernels"))
    parser.add_argument("--flops", action="store_true", help="of the models: what a forward pass costs")
    parser.add_argument("--draw", type=Path, metavar="FILE", help="a picture of the variants, as PNG, SVG or PDF")

    def run(args: argparse.Namespace) -> None:
        if args.what == "models":
            from lion.models import listing as models

            print(models.listing(flops=args.flops))
            return
        from lion.doctor import listing

        print(listing(args.what))
        if args.draw:
            need("matplotlib", "matplotlib", "cli")
            from lion.nn.pictures import draw

            draw(args.draw)
            print(f"\npicture saved to {args.draw}")

    parser.set_defaults(run=run)


def _doctor(commands) -> None:
    parser = commands.add_parser("doctor", help="what is installed, and which kernels can run here")

    def run(args: argparse.Namespace) -> None:
        from lion.doctor import doctor

        print(doctor())

    parser.set_defaults(run=run)


if __name__ == "__main__":
    sys.exit(main())
