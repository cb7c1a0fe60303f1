"""`lion data`."""

import argparse
from pathlib import Path

from lion.cli.arguments import add_number
from lion.limits import Count, Nesting, Pixels, Seed, Threads, Tokens

HELP = {
    "listops": "ListOps: basic_train.tsv, basic_val.tsv and basic_test.tsv",
    "pathfinder": "Pathfinder, 32 x 32: folders of PNGs and lists of them",
    "pathx": "Pathfinder, 128 x 128: the same",
    "text": "IMDB's reviews, byte by byte: arrays",
    "image": "CIFAR-10 in grey, pixel by pixel: arrays",
    "retrieval": "AAN's pairs of articles, byte by byte, from the arena's TSV files: arrays",
}
MADE = ("listops", "pathfinder", "pathx")  # to the arena's rules
LISTOPS = {  # types, and defaults
    "min-length": (Tokens, 500),
    "max-length": (Tokens, 2000),
    "max-depth": (Nesting, 10),
    "max-args": (Nesting, 10),
}


def add_data(commands) -> None:
    parser = commands.add_parser("data", help="make the Long Range Arena's data, and write it to files")
    what = parser.add_subparsers(dest="what", metavar="TASK", required=True)
    for task, text in HELP.items():
        one = what.add_parser(task, help=text)
        one.add_argument("--out", type=Path, required=True, help="folder for the files")
        if task == "retrieval":
            one.add_argument("--data", type=Path, required=True, help="folder with the arena's files")
        else:
            one.add_argument("--data", type=Path, help="folder with the original files (made, or as fetched)")
        if task in MADE:
            parts = ("TRAIN", "VALIDATION", "TEST")
            add_number(one, "--counts", Count, nargs=3, metavar=parts, help="(the arena's)")
            add_number(one, "--processes", Threads, help="processes (one for each processor)")
            one.add_argument("--arrays", action="store_true", help="write arrays instead")
        if task in (*MADE, "text"):
            add_number(one, "--seed", Seed, help="(0)")
        if task == "pathfinder":
            add_number(one, "--size", Pixels, default=32, help="height and width: 32, 64, 128 or 256 (32)")
            add_number(one, "--contour-length", Count, default=14, help="6, 9 or 14: easy to hard (14)")
        for name, (kind, default) in LISTOPS.items() if task == "listops" else ():
            add_number(one, f"--{name}", kind, help=f"({default})")
    parser.set_defaults(run=_run)


def _run(args: argparse.Namespace) -> None:
    from lion.data.long_range import arena_files as files
    from lion.data.long_range import long_range
    from lion.data.long_range.sequences import SPLITS
    from lion.terminal import table

    if args.out.exists() and (not args.out.is_dir() or any(args.out.iterdir())):
        raise ValueError(f"--out is {args.out}, which is not empty; expected a new or empty folder.")
    given = {name.replace("-", "_") for name in (*LISTOPS, "counts", "processes", "seed", "size", "contour_length")}
    options = {name: x for name, x in vars(args).items() if name in given and x is not None}
    if args.data and "max_length" in options:
        raise ValueError("--max-length is given, but --data is, too; expected one of them: files are written whole.")
    sets = {split: long_range(args.what, split, args.data, **options) for split in SPLITS}
    if args.what not in MADE or args.arrays:
        files.write_arrays(args.out, sets)
    elif args.what == "listops":
        files.write_listops_files(args.out, sets)
    else:
        side = 128 if args.what == "pathx" else args.size
        files.write_pathfinder_files(args.out, sets, side, options.get("contour_length", 14))
    rows = [
        (split, f"{len(x):,}", f"{x.lengths.min():,}", f"{x.lengths.mean():,.0f}", f"{x.lengths.max():,}")
        for split, x in sets.items()
    ]
    print(table(("part", "examples", "shortest", "mean", "longest"), rows) + f"\nwritten to {args.out}")
