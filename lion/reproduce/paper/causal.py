"""Causal language modelling: perplexity, also on longer texts than those of training, and costs of the next token."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from lion.bench import lengths
from lion.bench.plots import Panel, draw_lines, lines_of
from lion.reproduce.exhibits import Cell, Claim, Exhibit, Figure, ScaleName, Table, register_exhibit
from lion.reproduce.readings import recorded
from lion.reproduce.steps import Step, measuring, seeds

# Perplexity on texts.

GPT, LINATT, LION = "GPT-2", "LinAtt", "LION-S (1D)"
MODELS = {GPT: "softmax", LINATT: "linatt_scaled", LION: "lion_s"}  # rows, and variants
PRINTED = {GPT: 17.42, LINATT: 21.07, LION: 18.16}
PERPLEXITY = "perplexity"
SEEDS = {"laptop": 2, "paper": 1}
TIMES = (1, 2, 4, 8, 16)  # the training length
SMALL = ("--model.dim 128", "--epochs 1")  # of the recipes for own texts: minutes on one core
NEAR, AS_LONG = 1.1, 1.05  # times a perplexity, that are "similar" and "no worse"
ABOUT = {
    "laptop": "GPT-2's architecture with 4 layers of 128 channels on 12 MB of speeches (`causal.*`), one epoch; "
    "texts of 256 tokens, a vocabulary of 4,096.",
    "paper": "GPT-2's small size on OpenWebText as nanoGPT trains it, 600,000 steps of 480 texts of 1,024 tokens "
    "(`causal.openwebtext_*`).",
}
LINES = (
    " LION-S has no positions, the others learned ones. Perplexity on the evaluation set; at other lengths on the same "
    "text, cut into fewer pieces. The paper prints ± 1.11, 1.32 and 1.16, and not what of."
)
NO_FURTHER = (
    "GPT-2 and LinAtt beyond the training length: positions that were never trained. Of perplexity against length the "
    "paper prints no numbers, only curves."
)


def trainings(variant: str, scale: ScaleName) -> tuple[Step, ...]:
    if scale == "paper":
        return seeds(SEEDS[scale], f"causal.openwebtext_{variant}")
    return seeds(SEEDS[scale], f"causal.{variant}", *SMALL, minutes=6)


def column(times: int) -> str:
    return f"{times} x the length"


def draw_lengths(results: Sequence[Any], path: Path) -> bool:
    """A line for each model, through the means over the seeds."""
    found: dict[tuple[str, int], list[dict]] = {}
    for record in (x for result in results if result is not None for x in result["results"]):
        if record[PERPLEXITY] is not None:
            found.setdefault((record["variant"], record["length"]), []).append(record)
    if not found:
        return False
    mean = [{**same[0], PERPLEXITY: sum(x[PERPLEXITY] for x in same) / len(same)} for same in found.values()]
    rows = {variant: row for row, variant in MODELS.items()}
    draw_lines([[lengths.panel(lengths.KINDS["causal"], mean, lambda x: rows[x["variant"]])]], path)
    return True


@register_exhibit(
    "figure5",
    "Causal language modelling: perplexity, and perplexity against the length of texts.",
    label="fig:owt",
    claim="LION-S is better than LinAtt, near GPT-2, and goes on to texts longer than those of training.",
)
def figure5(scale: ScaleName) -> Exhibit:
    runs = {row: trainings(variant, scale) for row, variant in MODELS.items()}
    options = f"--times {' '.join(map(str, TIMES))}"
    measured = tuple(
        measuring("lengths", options, *same, minutes=3 if scale == "laptop" else 0, alone=False)
        for same in zip(*runs.values(), strict=True)
    )
    perplexity = {row: [Cell(PRINTED[row], runs[row], lambda result: result[PERPLEXITY])] for row in MODELS}
    further = {
        row: [Cell(None, measured, recorded(PERPLEXITY, variant=x, times=times)) for times in TIMES]
        for row, x in MODELS.items()
    }
    first, last = column(TIMES[0]), column(TIMES[-1])
    claims = (
        Claim(
            "LION-S has a lower perplexity than LinAtt", lambda n: [n(LINATT, PERPLEXITY).minus(n(LION, PERPLEXITY))]
        ),
        Claim(
            "LION-S is similar to GPT-2: at most a tenth above it",
            lambda n: [n(GPT, PERPLEXITY).times(NEAR).minus(n(LION, PERPLEXITY))],
        ),
        Claim(
            f"LION-S goes on to longer texts: at {TIMES[-1]} times the training length its perplexity is at most a "
            "twentieth above that at the training length",
            lambda n: [n(LION, first).times(AS_LONG).minus(n(LION, last))],
        ),
    )
    tables = (
        Table((PERPLEXITY,), perplexity, "{:.2f}"),
        Table(tuple(map(column, TIMES)), further, "{:.2f}", "Perplexity on texts longer than those of training."),
    )
    figure = Figure("lengths", "Perplexity against the length of the texts.", measured, draw_lengths)
    return Exhibit(ABOUT[scale] + LINES, tables, claims, (figure,), NO_FURTHER)


# The cost of the next token.

MODES = {"Recurrence": "recurrence", "Attention + KV cache": "cache", "Attention": "attention"}  # rows, and modes
RECURRENCE, CACHE, ATTENTION = MODES
POSITIONS = (64, 256, 1024, 4096, 16384)
SIZE = {"laptop": "small", "paper": "base"}
MIB = 2**20
CONSTANT, GROWS = 1.25, 2.0  # times the cost early in a text: at most, and at least
SAME = "the same in all modes"


def ms(position: int) -> str:
    return f"ms at {position:,}"


def mib(position: int) -> str:
    return f"MiB at {position:,}"


def milliseconds(record: dict) -> float | None:
    return None if record["seconds"] is None else 1e3 * record["seconds"]


def memory(record: dict) -> float | None:
    """Of the state or the cache, and of what generating takes beside it."""
    return None if record["kept_bytes"] is None else (record["kept_bytes"] + (record["peak_bytes"] or 0)) / MIB


def same_tokens(found: Any) -> float | None:
    """How many tokens were generated, if they are the same in all modes; else 0."""
    return next((float(x["same"] and x["tokens"]) for x in found["agreement"]), None)


def draw_costs(results: Sequence[Any], path: Path) -> bool:
    records = [x for result in results if result is not None for x in result["results"]]
    if not records:
        return False
    rows = {mode: row for row, mode in MODES.items()}
    axes = (("latency", "ms per token", milliseconds), ("memory", "MiB", memory))
    panels = [
        Panel(title, "tokens so far", label, lines_of(records, lambda x: rows[x["mode"]], "position", read))
        for title, label, read in axes
    ]
    draw_lines([panels], path)
    return True


@register_exhibit(
    "figure6",
    "Latency and memory of the next token of LION-S, as attention, attention with a cache, and recurrence.",
    label="fig:memory_latency_LM",
    claim="All three give the same tokens; the recurrence is the most efficient, with constant latency and memory.",
)
def figure6(scale: ScaleName) -> Exhibit:
    options = (
        f"--sizes {SIZE[scale]} --variants lion_s --modes {' '.join(MODES.values())} "
        f"--positions {' '.join(map(str, POSITIONS))} --no-softmax"
    )
    step = measuring("generate", options, minutes=1 if scale == "laptop" else 0)
    times, memories = (
        {
            row: [Cell(None, (step,), recorded("mode", read, mode=mode, position=x)) for x in POSITIONS]
            for row, mode in MODES.items()
        }
        for read in (milliseconds, memory)
    )
    tables = (
        Table(tuple(map(ms, POSITIONS)), times, "{:.3g}", "Latency of the next token, ms, after so many tokens."),
        Table(
            tuple(map(mib, POSITIONS)),
            memories,
            "{:.3g}",
            "Memory, MiB: the state or the cache, and what generating takes beside it and the weights.",
        ),
        Table((SAME,), {"LION-S": [Cell(None, (step,), same_tokens)]}, "{:.0f}", "Tokens generated after a prompt."),
    )
    early, late = POSITIONS[0], POSITIONS[-1]

    def constant(words: str, row: str, unit: Callable[[int], str]) -> Claim:
        text = f"{words} is constant: after {late:,} tokens at most a quarter above that after {early:,}"
        return Claim(text, lambda n: [n(row, unit(early)).times(CONSTANT).minus(n(row, unit(late)))])

    def grows(words: str, row: str, unit: Callable[[int], str]) -> Claim:
        text = f"{words} grows: after {late:,} tokens more than twice that after {early:,}"
        return Claim(text, lambda n: [n(row, unit(late)).minus(n(row, unit(early)).times(GROWS))])

    def least(words: str, unit: Callable[[int], str]) -> Claim:
        here = unit(late)
        others = (CACHE, ATTENTION)
        return Claim(words, lambda n: [n(x, here).minus(n(RECURRENCE, here)) for x in others])

    claims = (
        Claim("all modes give the same tokens", lambda n: [n("LION-S", SAME).minus(0.5)]),
        constant("the latency of the recurrence", RECURRENCE, ms),
        constant("the memory of the recurrence", RECURRENCE, mib),
        grows("the memory of the cache", CACHE, mib),
        grows("the latency of attention", ATTENTION, ms),
        least(f"after {late:,} tokens the recurrence has the lowest latency", ms),
        least(f"after {late:,} tokens the recurrence takes the least memory", mib),
    )
    about = (
        f"A causal LION-S with random weights (the size {SIZE[scale]} of `lion bench generate`) that reads a text, and "
        "then generates. As attention it reads the whole text again for every token; with the compiled kernel that is "
        "linear in the length. The paper prints no numbers, only curves."
    )
    figure = Figure("costs", "Latency and memory of the next token.", (step,), draw_costs)
    return Exhibit(about, tables, claims, (figure,))
