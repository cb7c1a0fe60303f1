"""`lion embed`."""

import argparse
from pathlib import Path

from lion.cli.arguments import add_device, add_number
from lion.limits import CountOrAll, Tokens

DESCRIPTION = """\
Embeddings of sequences of any length with a run of DNA or of text: a FASTA file with whole chromosomes, or a book.

OUT/NAME.npy has a row of numbers for each token, or for every --every tokens, for each record. Memory is that of a
block of tokens; the outputs are those of the whole sequence at once, whatever the block is. What was stopped goes on
where it was, if the command is repeated."""


def add_embed(commands) -> None:
    parser = commands.add_parser(
        "embed",
        help="vectors of a chromosome or a book, of any length",
        description=DESCRIPTION,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("folder", type=Path, metavar="RUN", help="folder of the run")
    parser.add_argument("input", type=Path, metavar="INPUT", help="a FASTA file, or a text")
    parser.add_argument("--out", type=Path, metavar="FOLDER", help="where to write (RUN/embeddings)")
    add_number(parser, "--every", Tokens, default=1, help="tokens whose mean is a row (1)")
    add_number(parser, "--block", Tokens, default=65536, help="tokens worked on at a time (65536)")
    add_number(parser, "--memory", CountOrAll, default=128, help="MiB of activations in memory, else on disk (128)")
    add_device(parser)
    parser.set_defaults(run=_embed)


def _embed(args: argparse.Namespace) -> None:
    import time

    from lion.progress import progress
    from lion.streaming.embedding import embed
    from lion.train.folder import load_run

    trained = load_run(args.folder, device=args.device)
    out = args.out or args.folder / "embeddings"
    begun = time.perf_counter()
    with progress(1000, "‰") as bar:
        shown = {"": 0}

        def tell(name: str, share: float) -> None:
            done = round(1000 * share)
            bar.describe(name)
            bar.advance(done - shown.get(name, 0))
            shown[name] = done

        how = {"every": args.every, "block": args.block, "memory": args.memory << 20}
        found = embed(trained, args.input, out, **how, progress=tell)
    seconds = time.perf_counter() - begun
    for one in found:
        print(f"{one.path}: {one.shape[0]:,} x {one.shape[1]} of {one.tokens:,} tokens")
    print(f"{sum(one.tokens for one in found) / seconds:,.0f} tokens per second")
