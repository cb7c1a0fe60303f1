"""The command line. Each command imports what it needs when it runs, so that `lion --help` is quick."""

import argparse
import sys
from collections.abc import Callable, Sequence
from pathlib import Path


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="lion", description="Bidirectional linear attention for PyTorch.")
    parser.add_argument("--version", action="store_true", help="print the version and stop")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND")
    for add in (_demo, _bench, _list, _doctor):
        add(commands)
    args = parser.parse_args(argv)
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
    except KeyboardInterrupt:
        print("\ninterrupted", file=sys.stderr)
        return 130
    return 0


def _demo(commands) -> None:
    parser = commands.add_parser("demo", help="check that all forms agree, and measure what each costs")
    parser.add_argument("--out", type=Path, default=Path("runs/demo"), help="folder for the picture (runs/demo)")
    parser.add_argument("--max-length", type=int, default=65536, help="the longest sequence to measure (65536)")

    def run(args: argparse.Namespace) -> None:
        _need("matplotlib")
        from lion.bench import demo

        lengths = tuple(T for T in demo.LENGTHS if args.max_length >= T)
        if not lengths:
            raise ValueError(f"--max-length is {args.max_length}; expected at least {demo.LENGTHS[0]}.")
        demo.run(args.out, lengths)

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
    parser.add_argument("what", nargs="?", choices=("variants", "forms", "decays", "backends", "kernels"))
    parser.add_argument("--draw", type=Path, metavar="FILE", help="a picture of the variants, as PNG, SVG or PDF")

    def run(args: argparse.Namespace) -> None:
        from lion.doctor import listing

        print(listing(args.what))
        if args.draw:
            _need("matplotlib")
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


def _need(package: str) -> None:
    try:
        __import__(package)
    except ImportError as missing:
        raise ImportError(f"{package} is needed for this: pip install 'lion-attention[cli]'") from missing


if __name__ == "__main__":
    sys.exit(main())
