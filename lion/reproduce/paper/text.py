"""Masked language modelling: accuracy, GLUE and training time; longer sequences and memory."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from lion.bench.plots import Panel, draw_lines, lines_of
from lion.reproduce.exhibits import (
    Cell,
    Claim,
    Exhibit,
    Figure,
    Numbers,
    ScaleName,
    Table,
    Value,
    above,
    register_exhibit,
)
from lion.reproduce.paper.text_runs import (
    GLUE,
    IMDB,
    LAPTOP,
    LIONS,
    MLM,
    MODELS,
    NO_GLUE,
    ON_IMDB,
    PAPER,
    average_cell,
    fine_tuned,
    glue_steps,
    on_imdb,
    pretraining,
    stand_in,
)
from lion.reproduce.readings import Reading, accuracy, recorded, time_of
from lion.reproduce.steps import Step, measuring

TIME = "training time"
OTHERS = "hydra lion_lit lion_d lion_s"  # than BERT, which `lion bench text` always has
NEAR = 3.0  # points that "close" and "comparable" are taken for
TIMES = 2.5  # what "3 times" is rounded from


def _close(column: Callable[[Numbers, str], Value], to: str) -> Callable[[Numbers], list[Value]]:
    """All variants of LION are at most NEAR points below a model."""
    return lambda n: [column(n, row).minus(column(n, to)).minus(-NEAR) for row in LIONS]


def _claims(scale: ScaleName) -> list[Claim]:
    def mlm(n: Numbers, row: str) -> Value:
        return n(row, MLM)

    def glue(n: Numbers, row: str) -> Value:
        return fine_tuned(n, row, GLUE)

    def faster(row: str) -> Callable[[Numbers], list[Value]]:
        return lambda n: [n("Hydra", TIME).minus(n(row, TIME).times(TIMES))]

    known = stand_in(scale)
    return [
        Claim("LION closely matches BERT in MLM accuracy: all variants within 3 points", _close(mlm, "BERT")),
        Claim(f"LION closely matches BERT on GLUE: all variants within 3 points{known}", _close(glue, "BERT")),
        Claim("LION is comparable with Hydra in MLM accuracy: all variants within 3 points", _close(mlm, "Hydra")),
        Claim(f"LION is comparable with Hydra on GLUE: all variants within 3 points{known}", _close(glue, "Hydra")),
        *(Claim(f"{row} trains about 3 times as fast as Hydra: 2.5 times or more", faster(row)) for row in LIONS),
        Claim("LION-LIT trains faster than BERT", lambda n: [n("BERT", TIME).minus(n("LION-LIT", TIME))]),
        above(
            MLM, "LION-S", "LION-D", "LION-LIT", words="MLM accuracy: LION-S is above LION-D, and LION-D above LION-LIT"
        ),
        above(MLM, "Hydra", "BERT", "LION-S", words="MLM accuracy: Hydra is best, and BERT second"),
    ]


@register_exhibit(
    "table3",
    "Masked language modelling and GLUE at large size: accuracy and training time.",
    label="tab:mlm",
    claim="LION closely matches BERT and Hydra, and trains about 3 times as fast as Hydra.",
)
def table3(scale: ScaleName) -> Exhibit:
    printed = {
        "BERT": (69.88, 82.95, 1.0), "Hydra": (71.18, 81.77, 3.13), "LION-LIT": (67.11, 80.76, 0.95),
        "LION-D": (68.64, 81.34, 1.10), "LION-S": (69.16, 81.58, 1.32),
    }  # fmt: skip
    timing = measuring("text", f"--sizes large --lengths 128 --no-inference --models {OTHERS}", minutes=12)
    rows = {}
    for row, (mlm, glue, times) in printed.items():
        variant = MODELS[row]
        runs = pretraining(variant, "large", scale)
        tasks = glue_steps("modified", runs[0]) if scale == "paper" else {}
        own = time_of("BERT" if row == "BERT" else variant, "large", "times_faster")
        cells = [Cell(mlm, runs, accuracy), average_cell(glue, tasks), Cell(times, (timing,), own)]
        rows[row] = cells if scale == "paper" else [*cells, Cell(None, on_imdb(variant, runs), accuracy)]
    columns = (MLM, GLUE, TIME) if scale == "paper" else (MLM, GLUE, TIME, IMDB)
    words = "Training time: a forward and a backward pass of the large models on 8 texts of 128 tokens, of BERT's."
    models = PAPER if scale == "paper" else f"{LAPTOP} {ON_IMDB}"
    about = f"{models} {words} (The weights of its six models take 8 GB.)"
    table = Table(columns, rows, "{:.2f}", "Accuracies in percent.")
    return Exhibit(about, (table,), tuple(_claims(scale)), not_run="" if scale == "paper" else NO_GLUE)


# Longer sequences.

TRAINED = 128  # tokens
LONGER = (128, 256, 512, 1024, 2048, 4096)


def memory_at(name: str, length: int) -> Reading:
    """What `lion bench text` found, in MiB of a sequence."""
    return recorded("peak_bytes", lambda x: x["peak_bytes"] / x["batch"] / 2**20, name=name, length=length)


def _at(length: int, what: str) -> str:
    return f"{what} at {length:,}"


def _draw_accuracy(results: Sequence[Any], path: Path) -> bool:
    records = [x for found in results if found is not None for x in found["results"]]
    names = {variant: row for row, variant in MODELS.items()}
    y = lambda x: None if x["accuracy"] is None else 100 * x["accuracy"]  # noqa: E731
    lines = lines_of(records, lambda x: names[x["variant"]], "length", y)
    if not lines:
        return False
    draw_lines(
        [[Panel("dotted: training length", "tokens of a text", "MLM accuracy, %", lines, False, [TRAINED])]], path
    )
    return True


def _draw_memory(results: Sequence[Any], path: Path) -> bool:
    records = [x for found in results if found is not None for x in found["results"]]
    y = lambda x: x["peak_bytes"] / x["batch"] / 2**20 if x["peak_bytes"] else None  # noqa: E731
    lines = lines_of(records, lambda x: x["name"], "length", y)
    if not lines:
        return False
    draw_lines([[Panel("", "tokens", "peak memory, MiB per sequence", lines)]], path)
    return True


LOST = "accuracy"  # columns are "accuracy at 128", "MiB at 8,192"
MIB = "MiB"
LINEAR, SQUARE = (
    1.25,
    0.7,
)  # growth that counts as linear: at most, of the length's; as quadratic: at least, of its square


def _lengths_claims() -> list[Claim]:
    first = _at(TRAINED, LOST)

    def lost(n: Numbers, row: str, length: int) -> Value:
        return n(row, first).minus(n(row, _at(length, LOST)))

    return [
        Claim(
            "LION-S generalises to longer sequences: up to 32 times the training length it loses less than a point",
            lambda n: [lost(n, "LION-S", length).minus(1).times(-1) for length in LONGER[1:]],
        ),
        Claim(
            "at 4 times the training length LION-S has lost less than BERT, whose positions there were not trained",
            lambda n: [lost(n, "BERT", 4 * TRAINED).minus(lost(n, "LION-S", 4 * TRAINED))],
        ),
    ]


def _memory_claims(near: int, far: int, rows: Sequence[str], materialised: str) -> list[Claim]:
    def linear(row: str) -> Callable[[Numbers], list[Value]]:
        return lambda n: [n(row, _at(near, MIB)).times(LINEAR * far / near).minus(n(row, _at(far, MIB)))]

    def less(row: str) -> Callable[[Numbers], list[Value]]:
        return lambda n: [n(materialised, _at(far, MIB)).minus(n(row, _at(far, MIB)))]

    def squared(n: Numbers) -> list[Value]:
        least = SQUARE * (far / near) ** 2
        return [n(materialised, _at(far, MIB)).minus(n(materialised, _at(near, MIB)).times(least))]

    quadratic = Claim("the memory of BERT, as attention is written down, grows quadratically", squared)
    return [
        *(Claim(f"the memory of {row} grows linearly", linear(row)) for row in rows),
        quadratic,
        *(
            Claim(f"at {far:,} tokens {row} takes less memory than BERT as it is written down", less(row))
            for row in rows
        ),
    ]


@register_exhibit(
    "figure9",
    "MLM accuracy and memory of inference for different sequence lengths.",
    label="fig:bert_memory",
    claim="LION-S generalises to longer sequences; the memory of LION and Hydra grows linearly, BERT's quadratically.",
)
def figure9(scale: ScaleName) -> Exhibit:
    runs: dict[str, Step] = {row: pretraining(variant, "large", scale)[0] for row, variant in MODELS.items()}
    lengths = measuring("lengths", "", *runs.values(), minutes=6 if scale == "laptop" else 0, alone=False)
    accuracies = {
        row: [
            Cell(None, (lengths,), recorded("accuracy", accuracy, variant=MODELS[row], length=length))
            for length in LONGER
        ]
        for row in MODELS
    }
    first = Table(tuple(_at(x, LOST) for x in LONGER), accuracies, "{:.2f}", "Accuracy on masked tokens, percent.")

    size, tokens = ("base", (512, 2048, 8192)) if scale == "laptop" else ("large", (1024, 4096, 8192, 16384))
    options = f"--sizes {size} --lengths {' '.join(map(str, tokens))} --no-training --memory-only --models {OTHERS}"
    memory = measuring("text", options, minutes=8 if scale == "laptop" else 0)
    materialised = "BERT, materialised"
    names = {"BERT": "BERT", materialised: materialised, **{row: MODELS[row] for row in ("Hydra", *LIONS)}}
    taken = {row: [Cell(None, (memory,), memory_at(name, x)) for x in tokens] for row, name in names.items()}
    second = Table(tuple(_at(x, MIB) for x in tokens), taken, "{:.0f}", "Peak memory of inference, MiB of a sequence.")

    linear = ("Hydra", *LIONS)
    claims = [*_lengths_claims(), *_memory_claims(tokens[-2], tokens[-1], linear, materialised)]
    figures = (
        Figure("accuracy", "MLM accuracy over the length of the text.", (lengths,), _draw_accuracy),
        Figure("memory", "Peak memory of inference over the length of the text.", (memory,), _draw_memory),
    )
    models = LAPTOP if scale == "laptop" else PAPER
    about = (
        f"{models} Accuracy on texts of 128 to 4,096 tokens, the same text at every length. Memory: the {size} models "
        "on one sequence, in the form `auto`. BERT has torch's fused attention, which keeps no T x T matrix; "
        f"`{materialised}` keeps it, as the paper's. Memory is this process's, not a GPU's. "
        "The paper prints no numbers, only curves."
    )
    return Exhibit(about, (first, second), tuple(claims), figures)
