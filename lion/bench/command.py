"""The command line's `lion bench`. As in lion.cli, each command imports what it needs when it runs."""

import argparse
from pathlib import Path

from lion.cli.arguments import add_number
from lion.legacy import add_old_option
from lion.limits import Batch, Heads, Nesting, Pixels, Rounds, Threads, Tokens, Width


def add_bench(commands) -> None:
    parser = commands.add_parser("bench", help="measure speed and memory")
    what = parser.add_subparsers(dest="what", metavar="WHAT", required=True)
    op = what.add_parser("op", help="the forms of the operator beside torch's softmax attention")
    op.add_argument("--shapes", nargs="+", metavar="B,H,T,D", help="sizes to measure (a few of common use)")
    op.add_argument("--forms", nargs="+", metavar="FORM", help="forms to measure (all)")
    op.add_argument("--backend", default="auto", help="backend to measure (auto)")
    op.add_argument("--dtype", default="float32", help="float32, float64, bfloat16 or float16")
    op.add_argument("--decay", default="per-token", help="none, fixed, per-token or diagonal")
    add_number(op, "--threads", Threads, help="torch's number of threads (as it is)")
    add_number(op, "--rounds", Rounds, default=5, help="the best of so many rounds (5)")
    op.add_argument("--device", default="cpu", help="cpu, cuda, ... (cpu)")
    op.add_argument(
        "--no-softmax", action="store_true", help="leave out the softmax attention (slow on long sequences)"
    )
    op.add_argument(
        "--variants",
        action="store_true",
        help="the kinds of operator behind the variants instead (--shapes, --rounds, --threads)",
    )
    op.add_argument("--no-memory", action="store_true", help="leave out the peak memory")
    op.add_argument("--json", type=Path, default=Path("runs/bench/op.json"), help="where to write the numbers")
    op.set_defaults(run=_run_op)
    kernel = what.add_parser("kernel", help="the compiled kernels: threads, length, kinds of decay, cost of a call")
    add_number(kernel, "--rounds", Rounds, default=7, help="the best of so many rounds (7)")
    kernel.add_argument("--json", type=Path, default=Path("runs/bench/kernel.json"), help="where to write the numbers")
    kernel.set_defaults(run=_run_kernel)
    layer = what.add_parser("layer", help="whole layers of the paper's variants, training, beside softmax")
    sizes = {"batch": (Batch, 8), "tokens": (Tokens, 197), "dim": (Width, 384), "heads": (Heads, 6)}
    for name, (kind, default) in sizes.items():
        add_number(layer, f"--{name}", kind, default=default, help=f"({default})")
    layer.add_argument("--all", action="store_true", help="every variant")
    add_number(layer, "--rounds", Rounds, default=30, help="the best of so many rounds (30)")
    layer.add_argument("--json", type=Path, default=Path("runs/bench/layer.json"), help="where to write the numbers")
    layer.set_defaults(run=_run_layer)

    _add_vision(what)
    _add_text(what)
    _add_long(what)
    _add_lengths(what)
    _add_generate(what)
    _add_dna(what)


def _add_text(what) -> None:
    text = what.add_parser("text", help="encoders of text, training and inference, beside transformers' BERT")
    text.add_argument("--sizes", nargs="+", default=["base"], metavar="SIZE", help="small, base, large (base)")
    add_number(text, "--lengths", Tokens, nargs="+", metavar="T", help="tokens of a sequence (128 to 16384)")
    text.add_argument("--models", nargs="+", metavar="NAME", help="variants (lion_lit lion_d lion_s)")
    add_number(text, "--rounds", Rounds, default=3, help="the best of so many rounds (3)")
    text.add_argument("--no-training", action="store_true", help="leave out training")
    text.add_argument("--no-inference", action="store_true", help="leave out inference")
    text.add_argument("--memory-only", action="store_true", help="leave out times")
    text.add_argument("--json", type=Path, default=Path("runs/bench/text.json"), help="where to write the numbers")

    def run(args: argparse.Namespace) -> None:
        from lion.bench import text

        text.run(
            sizes=args.sizes,
            lengths=args.lengths or text.LENGTHS,
            models=args.models or text.USUAL,
            rounds=args.rounds,
            training=not args.no_training,
            inference=not args.no_inference,
            memory_only=args.memory_only,
            json_path=args.json,
        )

    text.set_defaults(run=run)


def _add_long(what) -> None:
    long = what.add_parser("long", help="long sequences, to a million tokens, beside softmax and Mamba-2")
    add_number(long, "--lengths", Tokens, nargs="+", metavar="T", help="tokens of a sequence (1024 to 1048576)")
    long.add_argument("--models", nargs="+", metavar="NAME", help="variants (lion_lit lion_d lion_s and diagonal ones)")
    add_number(long, "--rounds", Rounds, default=3, help="the best of so many rounds (3)")
    long.add_argument("--no-training", action="store_true", help="leave out training")
    long.add_argument("--no-inference", action="store_true", help="leave out inference")
    long.add_argument("--no-mamba", action="store_true", help="leave out transformers' Mamba-2")
    long.add_argument("--json", type=Path, default=Path("runs/bench/long.json"), help="where to write the numbers")

    def run(args: argparse.Namespace) -> None:
        from lion.bench import long

        long.run(
            lengths=args.lengths or long.LENGTHS,
            models=args.models or long.USUAL,
            rounds=args.rounds,
            training=not args.no_training,
            inference=not args.no_inference,
            mamba=not args.no_mamba,
            json_path=args.json,
        )

    long.set_defaults(run=run)


def _add_lengths(what) -> None:
    lengths = what.add_parser("lengths", help="runs of `lion train mlm` on texts longer than those they learned from")
    lengths.add_argument("folders", nargs="+", type=Path, metavar="RUN", help="folders of finished runs")
    add_number(lengths, "--times", Rounds, nargs="+", metavar="N", help="the training length so often (1 2 4 ... 32)")
    add_number(lengths, "--tokens", Tokens, help="of held-out text, at every length (65536)")
    lengths.add_argument(
        "--json", type=Path, default=Path("runs/bench/lengths.json"), help="where to write the numbers"
    )

    def run(args: argparse.Namespace) -> None:
        from lion.bench import lengths

        lengths.run(args.folders, times=args.times or lengths.TIMES, tokens=args.tokens, json_path=args.json)

    lengths.set_defaults(run=run)


def _add_generate(what) -> None:
    generate = what.add_parser("generate", help="the next token of causal models, early and late in a text")
    generate.add_argument("--sizes", nargs="+", default=["small"], metavar="SIZE", help="small, base (small)")
    generate.add_argument("--variants", nargs="+", metavar="NAME", help="variants (lion_s lion_d)")
    add_old_option(generate, "--mixers", "--variants", nargs="+")
    add_number(generate, "--positions", Tokens, nargs="+", metavar="T", help="tokens so far (64 1024 16384)")
    generate.add_argument("--modes", nargs="+", metavar="MODE", help="recurrence, cache, attention (recurrence cache)")
    generate.add_argument("--no-softmax", action="store_true", help="leave out softmax attention")
    add_number(generate, "--rounds", Rounds, default=20, help="the best of so many rounds (20)")
    generate.add_argument(
        "--json", type=Path, default=Path("runs/bench/generate.json"), help="where to write the numbers"
    )

    def run(args: argparse.Namespace) -> None:
        from lion.bench import generate

        generate.run(
            sizes=args.sizes,
            variants=args.variants or generate.USUAL,
            positions=args.positions or generate.POSITIONS,
            modes=args.modes or generate.MEMORIES,
            softmax=not args.no_softmax,
            rounds=args.rounds,
            json_path=args.json,
        )

    generate.set_defaults(run=run)


def _add_dna(what) -> None:
    dna = what.add_parser("dna", help="runs of `lion train dna` beside Markov models, tables of neighbours")
    dna.add_argument("folders", nargs="+", type=Path, metavar="RUN", help="folders of finished runs")
    add_number(dna, "--orders", Nesting, nargs="+", default=[5], metavar="N", help="neighbours of a table (5)")
    dna.add_argument("--json", type=Path, default=Path("runs/bench/dna.json"), help="where to write the numbers")

    def run(args: argparse.Namespace) -> None:
        from lion.bench import dna

        dna.run(args.folders, orders=args.orders, json_path=args.json)

    dna.set_defaults(run=run)


def _add_vision(what) -> None:
    vision = what.add_parser("vision", help="whole image models, training and inference, beside softmax")
    vision.add_argument("--sizes", nargs="+", default=["tiny", "small"], metavar="SIZE", help="(tiny small)")
    add_number(vision, "--pixels", Pixels, nargs="+", default=[224, 512, 1024], metavar="N", help="(224 512 1024)")
    vision.add_argument("--models", nargs="+", metavar="NAME", help="lion_s, gla_2scan, hydra, ... (the paper's)")
    vision.add_argument("--forms", nargs="+", default=["auto"], metavar="FORM", help="for inference (auto)")
    add_number(vision, "--batch", Batch, help="images at once (by the number of pixels)")
    add_number(vision, "--rounds", Rounds, default=3, help="the best of so many rounds (3)")
    vision.add_argument("--no-training", action="store_true", help="leave out training")
    vision.add_argument("--no-inference", action="store_true", help="leave out inference")
    vision.add_argument("--json", type=Path, default=Path("runs/bench/vision.json"), help="where to write the numbers")
    vision.set_defaults(run=_run_vision)


def _run_vision(args: argparse.Namespace) -> None:
    from lion.bench import vision

    vision.run(
        sizes=args.sizes,
        pixels=args.pixels,
        models=args.models or vision.USUAL,
        forms=args.forms,
        batch=args.batch,
        rounds=args.rounds,
        training=not args.no_training,
        inference=not args.no_inference,
        json_path=args.json,
    )


def _run_kernel(args: argparse.Namespace) -> None:
    from lion.bench import kernel

    kernel.run(args.rounds, args.json)


def _run_layer(args: argparse.Namespace) -> None:
    from lion.bench import layer

    sizes = {name: getattr(args, name) for name in ("batch", "tokens", "dim", "heads", "rounds")}
    layer.run(**sizes, every=args.all, json_path=args.json)


def _run_op(args: argparse.Namespace) -> None:
    import torch

    from lion.bench import op
    from lion.bench import op_variants as kinds
    from lion.devices import chosen
    from lion.ops.checks import one_of
    from lion.ops.kernels import BACKENDS, FORMS

    for form in args.forms or ():
        one_of("form", form, FORMS)
    one_of("backend", args.backend, ("auto", *BACKENDS))
    one_of("dtype", args.dtype, op.DTYPES)
    one_of("decay", args.decay, op.DECAYS)
    chosen(args.device)
    if args.threads is not None:
        torch.set_num_threads(args.threads)
    if args.variants:
        shapes = args.shapes or [str(kinds.USUAL)]
        if len(shapes) > 1:
            raise ValueError(f"--variants measures one shape; --shapes has {len(shapes)}.")
        kinds.run(op.Shape.parse(shapes[0]), rounds=args.rounds, json_path=args.json)
        return
    op.run(
        [op.Shape.parse(x) for x in args.shapes] if args.shapes else op.SHAPES,
        args.forms or tuple(FORMS),
        backend=args.backend,
        dtype=args.dtype,
        decay=args.decay,
        rounds=args.rounds,
        with_softmax=not args.no_softmax,
        with_memory=not args.no_memory,
        device=args.device,
        json_path=args.json,
    )
