"""The command line's `lion bench`: a module of lion.bench for each command, which is imported when it runs."""

import argparse
import functools
import importlib
import inspect
from pathlib import Path
from typing import Any, NamedTuple

from lion.cli.arguments import add_number
from lion.legacy import add_old_option
from lion.limits import Batch, Count, Heads, Nesting, Pixels, Rounds, Threads, Tokens, Width


class Option(NamedTuple):
    """An argument of a command, and of the same name of the module's `run`, whose default is the option's."""

    name: str  # "--no-x" sets x to False
    help: str
    kind: Any = str  # or Path, bool, or a number's type in lion.limits
    values: str = ""  # the metavar, where it takes several values

    def add_to(self, parser: argparse.ArgumentParser) -> None:
        many = {"nargs": "+", "metavar": self.values} if self.values else {}
        if self.kind is bool:
            name = self.name.removeprefix("--").removeprefix("no-").replace("-", "_")
            parser.add_argument(
                self.name, dest=name, action="store_const", const="--no-" not in self.name, help=self.help
            )
        elif self.kind in (str, Path):
            parser.add_argument(self.name, type=self.kind, help=self.help, **many)  # type: ignore[arg-type]
        else:
            add_number(parser, self.name, self.kind, help=self.help, **many)


PASSES = (
    Option("--no-training", "leave out training", bool),
    Option("--no-inference", "leave out inference", bool),
)
DEVICE = Option("--device", "cpu, cuda, ... (cpu)")
OF_RUNS = Option("--device", "cpu, cuda, ... (cuda if there is a GPU, otherwise cpu)")
RUNS = Option("folders", "folders of finished runs", Path, "RUN")


def rounds(count: int) -> Option:
    return Option("--rounds", f"the best of so many rounds ({count})", Rounds)


COMMANDS: dict[str, tuple[str, tuple[Option, ...]]] = {
    "op": (
        "the forms of the operator beside torch's softmax attention",
        (
            Option("--shapes", "sizes to measure (a few common ones)", values="B,H,T,D"),
            Option("--forms", "forms to measure (all)", values="FORM"),
            Option("--backend", "backend to measure (auto)"),
            Option("--dtype", "float32, float64, bfloat16 or float16 (float32)"),
            Option("--decay", "none, fixed, per-token or diagonal (per-token)"),
            Option("--threads", "torch's number of threads (unchanged)", Threads),
            rounds(5),
            DEVICE,
            Option("--no-softmax", "leave out the softmax attention, which is slow on long sequences", bool),
            Option("--variants", "the variants' operators instead (with --shapes, --rounds, --threads)", bool),
            Option("--no-memory", "leave out the peak memory", bool),
        ),
    ),
    "kernel": (
        "the compiled kernels: threads, length, kinds of decay, cost of a call",
        (
            rounds(7),
            Option("--tune", "instead, the sizes of chunks: the best here beside those the kernels take", bool),
        ),
    ),
    "compile": (
        "Triton's kernels compiled for GPUs that need not be there: registers, spills, bytes, the roofline",
        (
            Option("--architectures", "sm_80, sm_86, sm_90, sm_100, gfx942 (all)", values="NAME"),
            Option("--dtypes", "bfloat16, float16, float32 (bfloat16 float32)", values="DTYPE"),
            Option("--dims", "channels of a head (64 128)", Width, "D"),
            Option("--decays", "none, scalar, diagonal (all)", values="DECAY"),
            Option("--tokens", "of the roofline (1024 2048 4096 16384)", Tokens, "T"),
            Option("--forward-only", "leave out the kernels of the backward pass", bool),
        ),
    ),
    "layer": (
        "whole layers of the paper's variants, training, beside softmax",
        (
            Option("--batch", "(8)", Batch),
            Option("--tokens", "(197)", Tokens, "N"),
            Option("--dim", "(384)", Width),
            Option("--heads", "(6)", Heads),
            Option("--all", "every variant", bool),
            rounds(30),
            DEVICE,
        ),
    ),
    "agreement": (
        "how far the forms of every variant differ, and the operator from its definition",
        (
            Option("--variants", "(all with forms)", values="NAME"),
            Option("--batch", "(2)", Batch),
            Option("--tokens", "(197)", Tokens),
            Option("--dim", "(32)", Width),
            Option("--heads", "(4)", Heads),
            DEVICE,
        ),
    ),
    "vision": (
        "whole image models, training and inference, beside softmax",
        (
            Option("--sizes", "(tiny small)", values="SIZE"),
            Option("--pixels", "(224 512 1024)", Pixels, "N"),
            Option("--models", "lion_s, gla_2scan, hydra, ... (the paper's)", values="NAME"),
            Option("--forms", "for inference (auto)", values="FORM"),
            Option("--batch", "images at once (by the number of pixels)", Batch),
            rounds(3),
            *PASSES,
            DEVICE,
        ),
    ),
    "chunk": (
        "the size of chunks: an image model's inference",
        (
            Option("--model", "lion_d, lion_s_2scan, hydra, ... (lion_d)"),
            Option("--size", "(tiny)"),
            Option("--pixels", "(768)", Pixels),
            Option("--chunk-sizes", "tokens of a chunk (16 to 4096)", Tokens, "N"),
            Option("--batch", "images at once (1)", Batch),
            rounds(3),
            DEVICE,
        ),
    ),
    "text": (
        "text encoders, training and inference, beside transformers' BERT",
        (
            Option("--sizes", "small, base, large (base)", values="SIZE"),
            Option("--lengths", "tokens of a sequence (128 to 16384)", Tokens, "T"),
            Option("--models", "variants, hydra (lion_lit lion_d lion_s)", values="NAME"),
            rounds(3),
            *PASSES,
            Option("--memory-only", "leave out times", bool),
            DEVICE,
        ),
    ),
    "long": (
        "long sequences, up to a million tokens, beside softmax and Mamba-2",
        (
            Option("--lengths", "tokens of a sequence (1024 to 1048576)", Tokens, "T"),
            Option("--models", "variants (lion_lit lion_d lion_s and diagonal ones)", values="NAME"),
            rounds(3),
            *PASSES,
            Option("--no-mamba", "leave out transformers' Mamba-2", bool),
            DEVICE,
        ),
    ),
    "lengths": (
        "language models, masked or causal, on texts longer than those they were trained on",
        (
            RUNS,
            Option("--times", "multiples of the training length (1 2 4 ... 32)", Rounds, "N"),
            Option("--tokens", "of the evaluation set, at every length (65536)", Tokens),
            OF_RUNS,
        ),
    ),
    "export": (
        "exported models in ONNX Runtime, beside a BERT and a ViT there, and beside torch",
        (
            Option("--texts", "text encoders' variants (lion_s)", values="NAME"),
            Option("--images", "image models (lion_s_2scan)", values="NAME"),
            Option("--lengths", "tokens of a text (128 512 1000 4096 16384)", Tokens, "T"),
            Option("--pixels", "(224 512 1024)", Pixels, "N"),
            Option("--text-size", "small, minilm, base, ... (minilm)"),
            Option("--image-size", "tiny, small, base (tiny)"),
            Option("--threads", "of torch and of ONNX Runtime (1)", Threads),
            rounds(5),
        ),
    ),
    "generate": (
        "the next token of causal models, early and late in a text",
        (
            Option("--sizes", "small, base (small)", values="SIZE"),
            Option("--variants", "variants (lion_s lion_d)", values="NAME"),
            Option("--positions", "tokens so far (64 1024 16384)", Tokens, "T"),
            Option("--modes", "recurrence, cache, attention (recurrence cache)", values="MODE"),
            Option("--no-softmax", "leave out softmax attention", bool),
            rounds(20),
            DEVICE,
        ),
    ),
    "decays": (
        "the decays of runs, as half-lives by layer and head, beside those they began with",
        (RUNS, Option("--examples", "of the evaluation set, for decays that depend on the input (64)", Count), OF_RUNS),
    ),
    "stream": (
        "a chromosome through a DNA model, block by block: memory, speed, and whether blocks matter",
        (
            Option("--data", "a FASTA file (chromosome: the first of C. elegans, which is fetched)"),
            Option("--variant", "(lion_s)"),
            Option("--blocks", "tokens of a block (4096 65536)", Tokens, "N"),
            Option("--tokens", "so many bases of it (all)", Tokens),
            DEVICE,
        ),
    ),
    "parallel": (
        "one sequence over several processes beside one process: time, memory, and what the model of cost says",
        (
            Option("--processes", "(1 2)", Threads, "N"),
            Option("--lengths", "tokens of the sequence (65536)", Tokens, "T"),
            Option("--variant", "(lion_s)"),
            rounds(3),
            *PASSES,
        ),
    ),
    "dna": (
        "runs of `lion train dna` beside Markov models, tables of neighbours",
        (RUNS, Option("--orders", "neighbours of a table (5)", Nesting, "N"), OF_RUNS),
    ),
}


def add_bench(commands) -> None:
    parser = commands.add_parser("bench", help="measure speed and memory")
    what = parser.add_subparsers(dest="what", metavar="WHAT", required=True)
    for name, (text, options) in COMMANDS.items():
        one = what.add_parser(name, help=text)
        for option in options:
            option.add_to(one)
        path = Path(f"runs/bench/{name}.json")
        one.add_argument(
            "--json", dest="json_path", metavar="FILE", type=Path, default=path, help="where to write the numbers"
        )
        if name == "generate":
            add_old_option(one, "--mixers", "--variants", nargs="+")
        one.set_defaults(run=functools.partial(_run, name))


def _run(name: str, args: argparse.Namespace) -> None:
    run = importlib.import_module(f"lion.bench.{name}").run
    known = inspect.signature(run).parameters
    run(**{option: value for option, value in vars(args).items() if option in known and value is not None})
