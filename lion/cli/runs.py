"""`lion eval`, `lion report` and `lion generate`."""

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from lion.cli.arguments import add_number, add_run, checked_algorithm
from lion.limits import Batch, Beams, Count, CountOrAll, Heat, Seed
from lion.terminal import plural

COLUMNS = ("text", "sequence", "label", "id", "time")  # of tables, as `lion train` has them: --text_column

if TYPE_CHECKING:
    from lion.train.evaluate import Examined


def add_eval(commands) -> None:
    parser = commands.add_parser("eval", help="evaluate a run, in any form")
    _add_evaluation(parser)
    parser.set_defaults(run=_eval)


def _add_evaluation(parser: argparse.ArgumentParser) -> None:
    add_run(parser)
    add_number(parser, "--batch", Batch, help="examples at once (as in training)")
    parser.add_argument(
        "--test",
        default="",
        metavar="PATH",
        help="evaluate on this: a file of texts or DNA, a folder of images with a subfolder for each class; mnli: "
        "'mismatched', lra: 'test'",
    )
    for name in COLUMNS:
        field = f"{name}_column"
        words = f"of --test: its column of the {name} (the run's own)"
        parser.add_argument(f"--{field}", f"--{name}-column", dest=field, default="", metavar="NAME", help=words)
    parser.add_argument("--skip-bad", "--skip_bad", action="store_true", help="leave out rows of --test that are bad")


def _eval(args: argparse.Namespace) -> None:
    found = _examined(args)
    print(f"evaluated {plural(len(found.examples), found.task.unit)}", file=sys.stderr)  # programs read the metrics
    print(", ".join(f"{name} {x:.4g}" for name, x in found.metrics.items()))


def _examined(args: argparse.Namespace) -> "Examined":
    from lion.train.evaluate import examine

    form, backend = checked_algorithm(args)
    columns = {field: name for field in (f"{x}_column" for x in COLUMNS) if (name := getattr(args, field))}
    for option in (["--skip-bad"] if args.skip_bad else []) + [f"--{field}" for field in columns]:
        if not args.test:
            raise ValueError(f"{option} is given without --test; expected both: the run decided about its own data.")
    how = {"form": form, "backend": backend, "batch": args.batch, "device": args.device}
    return examine(args.folder, test=args.test, skip_bad=args.skip_bad, columns=columns, **how)


def add_report(commands) -> None:
    parser = commands.add_parser("report", help="write the page of a finished run again: classes, mistakes, curves")
    _add_evaluation(parser)
    parser.add_argument("--out", type=Path, metavar="FILE", help="where to write it (RUN/report.html)")
    parser.set_defaults(run=_report)


def _report(args: argparse.Namespace) -> None:
    from lion.pages.run import write_page

    print(f"page: {write_page(_examined(args), args.out)}")


def add_generate(commands) -> None:
    parser = commands.add_parser("generate", help="continue a text with a run of `lion train causal`")
    add_run(parser, form=False)
    parser.add_argument("--prompt", default="", help="how the text begins")
    add_number(parser, "--tokens", Count, default=200, help="the most tokens to add (200)")
    parser.add_argument("--mode", default="recurrence", help="recurrence, cache or attention: the same tokens")
    add_number(parser, "--temperature", Heat, default=0.8, help="0: always the most likely token (0.8)")
    add_number(parser, "--top-k", CountOrAll, default=50, help="sample from the k most likely, 0: from all (50)")
    add_number(parser, "--beams", Beams, default=1, help="beams to search with (1)")
    add_number(parser, "--seed", Seed, default=0, help="(0)")
    parser.set_defaults(run=_generate)


def _generate(args: argparse.Namespace) -> None:
    from lion.tasks.causal import Sampling, generate

    def show(piece: str) -> None:
        print(piece, end="", flush=True)

    sampling = Sampling(args.temperature, args.top_k, args.beams, args.seed)
    options = {"tokens": args.tokens, "mode": args.mode, "device": args.device}
    generate(args.folder, args.prompt, sampling=sampling, show=show, **options)
    print()
