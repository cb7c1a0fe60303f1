"""`lion reproduce`: the tables and figures of the paper."""

import argparse
import shlex
import sys
import textwrap
from pathlib import Path
from typing import TYPE_CHECKING

from lion.cli.arguments import Ended, add_number
from lion.limits import Parts
from lion.progress import working

if TYPE_CHECKING:
    from lion.reproduce.exhibits import Exhibit, Named
    from lion.reproduce.plan import Plan
    from lion.reproduce.steps import Workplace

DESCRIPTION = """\
Make a table or a figure of the paper again: run what it needs, and write a page with the paper's numbers, ours beside
them, and whether what the paper claims shows. Without NAME, list all. What is finished is not run again; an
interrupted run goes on. Options behind `--` are given to every `lion train`, as `-- --data /data/imagenet`."""


def add_reproduce(commands) -> None:
    parser = commands.add_parser(
        "reproduce",
        help="make a table or a figure of the paper again",
        description=DESCRIPTION,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("names", nargs="*", metavar="NAME", help="table2, figure4, ...; all")
    parser.add_argument("--scale", default="laptop", help="laptop: minutes to hours on two cores; paper: as printed")
    parser.add_argument("--dry-run", action="store_true", help="print the plan and its time, and stop")
    parser.add_argument("--page-only", action="store_true", help="write the pages of what is finished, and run nothing")
    parser.add_argument("--rows", nargs="+", default=[], metavar="ROW", help="these rows of its tables only")
    parser.add_argument("--out", type=Path, default=Path("runs/reproduce"), help="folder of all runs (runs/reproduce)")
    parser.add_argument("--pages", type=Path, help="folder of the pages and of the record (OUT/SCALE)")
    parser.add_argument(
        "--results",
        type=Path,
        help="the record: a line for each finished run, read and added to (PAGES/results.jsonl)",
    )
    add_number(parser, "--at-once", Parts, help="trainings at once, each with its share of the cores (on CPUs: 2)")
    parser.add_argument(
        "--launch", default="", metavar="COMMAND", help="starts each training, as 'torchrun --nproc-per-node 8'"
    )
    parser.set_defaults(run=_run)


def _run(args: argparse.Namespace) -> None:
    from lion.ops.checks import one_of
    from lion.reproduce.exhibits import SCALES

    one_of("scale", args.scale, SCALES)
    with working("loading PyTorch"):
        from lion.reproduce.exhibits import exhibits
        from lion.reproduce.index import write_index
        from lion.reproduce.plan import Plan

        known = exhibits()
    if not args.names:
        print(listing(known, _place(args, "laptop")))
        return
    names = list(known) if "all" in args.names else [_known(name, known) for name in args.names]
    place = _place(args, args.scale)
    chosen = {name: _chosen(known[name].make(args.scale), args.rows, name) for name in names}
    launch = shlex.split(args.launch) or [sys.executable]
    plan = Plan(_together(list(chosen.values())), place, args.at_once or _usual(args.launch), launch)
    if args.dry_run:
        print(plan.words())
        return
    if not args.page_only:
        _carry_out(plan)
    pages = args.pages or place.root
    for name, exhibit in chosen.items():
        _write(known[name], exhibit, args.scale, place, pages / name)
    print(f"all: {write_index(known, args.scale, place, pages)}")
    if plan.failed:
        lost = "".join(f"\n  - {name}: {reason}" for name, reason in plan.failed.items())
        count = f"{len(plan.failed)} of {len(plan.steps)} steps"
        raise ValueError(f"{count} failed; the same command tries them again:{lost}")


def _known(name: str, known: "dict[str, Named]") -> str:
    import difflib

    if name in known:
        return name
    near = difflib.get_close_matches(name.lower(), known, n=1)
    hint = f"did you mean {near[0]!r}? " if near else ""
    raise ValueError(f"name is {name!r}; {hint}`lion reproduce` lists them; `all` is all of them.")


def _place(args: argparse.Namespace, scale: str) -> "Workplace":
    from lion.reproduce.steps import RESULTS, Workplace

    results = args.results or (args.pages / RESULTS if args.pages else None)
    return Workplace(args.out / scale, tuple(args.extra), results)


def _usual(launch: str) -> int:
    """Two small models train faster side by side on two cores than one after the other."""
    import torch

    from lion.machine import processors

    return 1 if launch or torch.accelerator.is_available() else min(2, processors())


def _carry_out(plan: "Plan") -> None:
    from lion.terminal import duration, plural

    left = plan.left
    if left:
        known = plan.seconds_left()
        time = f", about {duration(known)}" if known else ""
        print(f"{plural(len(left), 'step')} of {len(plan.steps)} to do{time}", flush=True)
    try:
        plan.run()
    except KeyboardInterrupt:
        raise Ended("stopped; the same command goes on", 2) from None


def _write(named: "Named", exhibit: "Exhibit", scale: str, place, folder: Path) -> None:
    from lion.reproduce.page import judged, summary, write_pages

    page = write_pages(named, exhibit, scale, place, folder)
    print(" ".join(filter(None, (f"{named.name}:", summary(judged(exhibit, place)), f"{page}"))))


def _chosen(exhibit: "Exhibit", rows: list[str], name: str) -> "Exhibit":
    if not rows:
        return exhibit
    known = list(dict.fromkeys(row for table in exhibit.tables for row in table.rows))
    for row in rows:
        if row not in known:
            raise ValueError(f"--rows is {row!r}; {name} has the rows {', '.join(map(repr, known)) or 'of no table'}.")
    return exhibit.only(rows)


def _together(chosen: "list[Exhibit]") -> list:
    from lion.reproduce.steps import in_order

    return in_order([step for exhibit in chosen for step in exhibit.steps])


def listing(known: "dict[str, Named]", place: "Workplace") -> str:
    """A line or two for every exhibit: its name, what it claims, and its time."""
    from lion.reproduce.plan import Plan
    from lion.terminal import duration, width

    lines = ["The paper's tables and figures. Times: what is left to run at laptop scale,", "on two cores.", ""]
    for name, named in known.items():
        plan = Plan(named.make("laptop").steps, place, 2)
        left = duration(plan.seconds_left()) if plan.left else "done" if plan.steps else "no runs"
        begin = f"{name:9} {left:>11}  "
        lines += textwrap.wrap(
            f"{named.title} {named.claim[:1].upper()}{named.claim[1:]}",
            width(),
            initial_indent=begin,
            subsequent_indent=" " * len(begin),
        )
    lines += [
        "",
        "lion reproduce table2 --dry-run    its plan",
        "lion reproduce table2              run it, and write its page",
    ]
    return "\n".join(lines)
