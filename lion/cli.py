"""The command line. Each command imports what it needs when it runs, so that `lion --help` is quick."""

import argparse
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from lion.optional import need


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="lion", description="Bidirectional linear attention for PyTorch.")
    parser.add_argument("--version", action="store_true", help="print the version and stop")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND")
    for add in (_demo, _train, _eval, _predict, _generate, _bench, _list, _doctor):
        add(commands)
    args, rest = parser.parse_known_args(argv)
    if rest and args.command != "train":  # where they are fields of the run
        parser.error(f"unrecognized arguments: {' '.join(rest)}")
    args.fields = rest
    if args.version:
        from lion._version import __version__

        print(f"lion {__version__}")
        return 0
    if args.command is None:
        parser.print_help()
        return 2
    run: Callable[[argparse.Namespace], None] = args.run
    try:
        run(args)
    except (ValueError, ImportError, OSError) as problem:
        print(f"lion {args.command}: {problem}", file=sys.stderr)
        return 1
    except _Ended as end:
        print(f"\n{end}", file=sys.stderr)
        return 128 + end.signum
    except KeyboardInterrupt:
        print("\ninterrupted", file=sys.stderr)
        return 130
    return 0


class _Ended(Exception):
    """By a signal, in good order."""

    def __init__(self, message: str, signum: int):
        super().__init__(message)
        self.signum = signum


def _demo(commands) -> None:
    parser = commands.add_parser("demo", help="train on digits, compare the forms, measure, and write a report")
    parser.add_argument("--out", type=Path, default=Path("runs/demo"), help="folder for the report (runs/demo)")
    parser.add_argument("--max-length", type=int, default=32768, help="the longest sequence to measure (32768)")
    parser.add_argument("--epochs", type=float, help="how long to train each model (as the recipe says)")

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
    parser.add_argument("--show", action="store_true", help="print the run as JSON and stop")
    parser.add_argument("--out", type=Path, help="folder of the run (runs/RECIPE)")
    parser.add_argument("--resume", action="store_true", help="go on where the run in that folder stopped")
    parser.set_defaults(run=_run_training)


def _run_training(args: argparse.Namespace) -> None:
    import json

    from lion import recipes

    if args.list:
        print(recipes.listing())
        return
    need("accelerate", "accelerate", "train")
    from lion.train.loop import Stopped, saved_run, train

    if args.recipe is None and not (args.resume and args.out):
        raise ValueError("there is no RECIPE; `lion train --list` has them all, --resume --out RUN goes on with one.")
    folder = args.out or Path("runs") / args.recipe
    run = saved_run(folder, args.recipe) if args.resume else None
    if run is None:
        if args.recipe is None:
            raise ValueError(f"there is no run in {folder} to resume.")
        run = recipes.recipe(args.recipe)
    for path, text in _fields(args.fields):
        run = run.changed(path, text)
    if args.show:
        print(json.dumps(run.to_json(), indent=2))
        return
    try:
        metrics = train(run, folder, resume=args.resume, recipe=args.recipe)
    except Stopped as stop:
        raise _Ended(str(stop), stop.signum) from None
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
    parser.add_argument("--batch", type=int, default=64, help="images at once (64)")

    def run(args: argparse.Namespace) -> None:
        from lion.ops.checks import one_of
        from lion.ops.kernels import FORMS
        from lion.train.using import evaluate

        one_of("form", args.form, ("auto", *FORMS))
        metrics = evaluate(args.folder, form=args.form, batch=args.batch)
        print(", ".join(f"{name} {x:.4g}" for name, x in metrics.items()))

    parser.set_defaults(run=run)


def _predict(commands) -> None:
    parser = commands.add_parser("predict", help="classify images or texts, or fill a gap, with a finished run")
    parser.add_argument("folder", type=Path, metavar="RUN", help="folder of the run")
    parser.add_argument(
        "inputs", nargs="+", metavar="INPUT", help="files of images; or texts, for a run of `mlm` with [MASK] in them"
    )
    parser.add_argument("--form", default="auto", help="auto, full, rnn, chunk or scan (auto)")
    parser.add_argument("--best", type=int, default=3, help="so many of the likeliest classes (3)")

    def run(args: argparse.Namespace) -> None:
        from lion.ops.checks import one_of
        from lion.ops.kernels import FORMS
        from lion.text import table
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
    parser.add_argument("--tokens", type=int, default=200, help="how much is added, at most (200)")
    parser.add_argument("--mode", default="recurrence", help="recurrence, cache or attention: the same tokens")
    parser.add_argument("--temperature", type=float, default=0.8, help="0: always the likeliest token (0.8)")
    parser.add_argument("--top-k", type=int, default=50, help="of so many of the likeliest, 0: of all (50)")
    parser.add_argument("--beams", type=int, default=1, help="beams to search with (1)")
    parser.add_argument("--seed", type=int, default=0, help="(0)")

    def run(args: argparse.Namespace) -> None:
        from lion.train.generating import Sampling, generate

        def show(piece: str) -> None:
            print(piece, end="", flush=True)

        sampling = Sampling(args.temperature, args.top_k, args.beams, args.seed)
        generate(args.folder, args.prompt, tokens=args.tokens, mode=args.mode, sampling=sampling, show=show)
        print()

    parser.set_defaults(run=run)


def _bench(commands) -> None:
    parser = commands.add_parser("bench", help="measure speed and memory")
    what = parser.add_subparsers(dest="what", metavar="WHAT", required=True)
    op = what.add_parser("op", help="the forms of the operator beside torch's softmax attention")
    op.add_argument("--shapes", nargs="+", metavar="B,H,T,D", help="sizes to measure (a few of common use)")
    op.add_argument("--forms", nargs="+", metavar="FORM", help="forms to measure (all)")
    op.add_argument("--backend", default="auto", help="backend to measure (auto)")
    op.add_argument("--dtype", default="float32", help="float32, float64, bfloat16 or float16")
    op.add_argument("--decay", default="per-token", help="none, fixed, per-token or diagonal")
    op.add_argument("--threads", type=int, help="torch's number of threads (as it is)")
    op.add_argument("--rounds", type=int, default=5, help="the best of so many rounds (5)")
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
    op.set_defaults(run=_bench_op)
    kernel = what.add_parser("kernel", help="the compiled kernels: threads, length, kinds of decay, cost of a call")
    kernel.add_argument("--rounds", type=int, default=7, help="the best of so many rounds (7)")
    kernel.add_argument("--json", type=Path, default=Path("runs/bench/kernel.json"), help="where to write the numbers")
    kernel.set_defaults(run=_bench_kernel)
    layer = what.add_parser("layer", help="whole layers of the paper's variants, training, beside softmax")
    for name, default in {"batch": 8, "tokens": 197, "dim": 384, "heads": 6}.items():
        layer.add_argument(f"--{name}", type=int, default=default, help=f"({default})")
    layer.add_argument("--all", action="store_true", help="every variant")
    layer.add_argument("--rounds", type=int, default=30, help="the best of so many rounds (30)")
    layer.add_argument("--json", type=Path, default=Path("runs/bench/layer.json"), help="where to write the numbers")
    layer.set_defaults(run=_bench_layer)

    _add_bench_vision(what)
    _add_bench_text(what)


def _add_bench_text(what) -> None:
    text = what.add_parser("text", help="encoders of text, training and inference, beside transformers' BERT")
    text.add_argument("--sizes", nargs="+", default=["base"], metavar="SIZE", help="small, base, large (base)")
    text.add_argument("--lengths", nargs="+", type=int, metavar="T", help="tokens of a sequence (128 to 16384)")
    text.add_argument("--models", nargs="+", metavar="NAME", help="variants (lion_lit lion_d lion_s)")
    text.add_argument("--rounds", type=int, default=3, help="the best of so many rounds (3)")
    text.add_argument("--no-training", action="store_true", help="leave out training")
    text.add_argument("--no-inference", action="store_true", help="leave out inference")
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
            json_path=args.json,
        )

    text.set_defaults(run=run)


def _add_bench_vision(what) -> None:
    vision = what.add_parser("vision", help="whole image models, training and inference, beside softmax")
    vision.add_argument("--sizes", nargs="+", default=["tiny", "small"], metavar="SIZE", help="(tiny small)")
    vision.add_argument("--pixels", nargs="+", type=int, default=[224, 512, 1024], metavar="N", help="(224 512 1024)")
    vision.add_argument("--models", nargs="+", metavar="NAME", help="lion_s, gla_2scan, hydra, ... (the paper's)")
    vision.add_argument("--forms", nargs="+", default=["auto"], metavar="FORM", help="for inference (auto)")
    vision.add_argument("--batch", type=int, help="images at once (by the number of pixels)")
    vision.add_argument("--rounds", type=int, default=3, help="the best of so many rounds (3)")
    vision.add_argument("--no-training", action="store_true", help="leave out training")
    vision.add_argument("--no-inference", action="store_true", help="leave out inference")
    vision.add_argument("--json", type=Path, default=Path("runs/bench/vision.json"), help="where to write the numbers")
    vision.set_defaults(run=_bench_vision)


def _bench_vision(args: argparse.Namespace) -> None:
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


def _bench_kernel(args: argparse.Namespace) -> None:
    from lion.bench import kernel

    if args.rounds < 1:
        raise ValueError(f"--rounds is {args.rounds}; expected at least 1.")
    kernel.run(args.rounds, args.json)


def _bench_layer(args: argparse.Namespace) -> None:
    from lion.bench import layer

    sizes = {name: getattr(args, name) for name in ("batch", "tokens", "dim", "heads", "rounds")}
    for name, size in sizes.items():
        if size < 1:
            raise ValueError(f"--{name} is {size}; expected at least 1.")
    layer.run(**sizes, every=args.all, json_path=args.json)


def _bench_op(args: argparse.Namespace) -> None:
    import torch

    from lion.bench import kinds, op
    from lion.doctor import devices
    from lion.ops.checks import one_of
    from lion.ops.kernels import BACKENDS, FORMS

    for form in args.forms or ():
        one_of("form", form, FORMS)
    one_of("backend", args.backend, ("auto", *BACKENDS))
    one_of("dtype", args.dtype, op.DTYPES)
    one_of("decay", args.decay, op.DECAYS)
    reason = devices().get(args.device.split(":")[0], "torch knows no such device")
    if reason:
        raise ValueError(f"--device {args.device} cannot be used: {reason}.")
    if args.rounds < 1 or (args.threads is not None and args.threads < 1):
        raise ValueError("--rounds and --threads are at least 1.")
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
