"""The command line. Commands import what they need when they run, so that `lion --help` is quick."""

import argparse
import os
import shlex
import signal
import sys
from collections.abc import Callable, Sequence

from lion import amx

FREE_OPTIONS = ("train", "distill")  # commands with options that are fields of the run


def main(argv: Sequence[str] | None = None) -> int:
    from lion.cli.arguments import Ended, Refused

    os.environ.setdefault("THP_MEM_ALLOC_ENABLE", "1")  # torch: pages of 2 MiB, or long sequences wait for the system
    try:
        args = parsed(sys.argv[1:] if argv is None else argv)
    except Refused as problem:
        return _failed(str(problem))
    if args.version:
        from lion._version import __version__

        print(f"lion {__version__}")
        return 0
    if args.command is None:
        print(args.usage(), end="")
        return 2
    run: Callable[[argparse.Namespace], None] = args.run
    if args.command in (*FREE_OPTIONS, "bench") and amx.avoid():  # before they import torch
        print(f"this processor traps on its AMX instructions: {amx.SETTING} is set for this run", file=sys.stderr)
    try:
        run(args)
    except BrokenPipeError:  # the reader has seen enough, as `| head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 128 + signal.SIGPIPE
    except (ValueError, ImportError, OSError) as problem:
        return _failed(f"lion {args.command}: {problem if str(problem) else type(problem).__name__}")
    except (MemoryError, RuntimeError) as problem:
        if not _lacks_memory(problem):
            raise
        return _failed(f"lion {args.command}: there is not enough memory; expected smaller sizes.")
    except Ended as end:
        print(f"\n{end}", file=sys.stderr)
        return 128 + end.signum
    except KeyboardInterrupt:
        print("\ninterrupted", file=sys.stderr)
        return 130
    return 0


def parsed(argv: Sequence[str]) -> argparse.Namespace:
    """A command's words as its options, checked; its `run` takes them."""
    from lion.bench.command import add_bench
    from lion.cli.data import add_data
    from lion.cli.demo import add_demo
    from lion.cli.embed import add_embed
    from lion.cli.export import add_export
    from lion.cli.info import add_doctor, add_list
    from lion.cli.predict import add_predict
    from lion.cli.reproduce import add_reproduce
    from lion.cli.runs import add_eval, add_generate, add_report
    from lion.cli.training import add_distill, add_train, split_fields

    parser = argparse.ArgumentParser(prog="lion", description="Bidirectional linear attention for PyTorch.")
    parser.add_argument("--version", action="store_true", help="print the version and stop")
    parser.set_defaults(usage=parser.format_help)
    commands = parser.add_subparsers(dest="command", metavar="COMMAND")
    for add in (add_demo, add_train, add_distill, add_eval, add_report, add_predict, add_embed, add_generate):
        add(commands)
    for add in (add_bench, add_data, add_export, add_reproduce, add_list, add_doctor):
        add(commands)
    given, fields = list(argv), list[str]()
    extra: list[str] = []
    if "--" in given and given[0] == "reproduce":  # what follows is for `lion train`
        given, extra = given[: given.index("--")], given[given.index("--") + 1 :]
    if given and given[0] in FREE_OPTIONS:
        given, fields = split_fields(given)
    args, rest = parser.parse_known_args(given)
    if hasattr(args, "inputs") and not any(word.startswith("-") and word != "-" for word in rest):
        args.inputs, rest = args.inputs + rest, []  # argparse leaves those that follow an option
    if rest and args.command not in FREE_OPTIONS:
        parser.error(f"unrecognized arguments: {' '.join(rest)}")
    args.fields, args.words, args.extra = [*fields, *rest], shlex.join(["lion", *argv]), extra
    return args


def _failed(message: str) -> int:
    """Print an error in one line; what it lists has a line each."""
    head, *items = message.split("\n  - ")
    print("\n  - ".join(" ".join(part.splitlines()) for part in (head, *items)), file=sys.stderr)
    return 1


def _lacks_memory(problem: Exception) -> bool:
    """Whether memory was lacking, which torch says in words only."""
    words = ("not enough memory", "can't allocate memory", "out of memory", "Storage size calculation overflowed")
    return isinstance(problem, MemoryError) or any(part in str(problem) for part in words)
