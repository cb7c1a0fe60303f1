"""`lion bench generate`: the cost of a causal model's next token, early and late in a text, by generation mode."""

import functools
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor

from lion.bench import results
from lion.bench.peak_memory import peak_memory
from lion.bench.plots import Panel, draw_lines, lines_of
from lion.bench.results import LARGE, best_of, check_choices, left_out, save_with_plot, setting
from lion.bench.timing import Work, interleaved, seconds
from lion.devices import CPU, chosen
from lion.machine import available_memory
from lion.models.causal import MEMORIES, CausalConfig, CausalModel, States
from lion.nn.variants import VARIANTS
from lion.progress import Bar, progress
from lion.terminal import milliseconds, ratio

SIZES: dict[str, CausalConfig] = {
    "tiny": CausalConfig(vocab_size=256, dim=32, depth=2, heads=2),  # for tests
    "small": CausalConfig(vocab_size=8192, dim=256, depth=4, heads=4),
    "base": CausalConfig(),  # GPT-2's smallest
}
SOFTMAX = "softmax"
USUAL = ("lion_s", "lion_d")
MODES = (*MEMORIES, "attention")
POSITIONS = (64, 1024, 16384)
STEPS = 8  # steps timed together
SLOW_STEP = 0.25  # seconds of a step that is timed alone
SLOW_ROUNDS = 3  # of the mode "attention", which reads the whole text again
SHARE = 0.6  # of the available memory


class Contender(NamedTuple):
    variant: str
    mode: str

    @property
    def name(self) -> str:
        return f"{self.variant}, {self.mode}"


class Piece(NamedTuple):
    """Work that generates tokens after a text, always the same ones."""

    run: Work
    steps: int
    twice: Work  # two steps, which are enough to measure memory
    kept_bytes: int


def contenders(variants: Sequence[str], modes: Sequence[str], softmax: bool) -> list[Contender]:
    """Ordered by mode, so that a mode is timed together. Softmax has no recurrence."""
    found = [Contender(variant, mode) for mode in dict.fromkeys(modes) for variant in dict.fromkeys(variants)]
    if softmax:
        found += [Contender(SOFTMAX, mode) for mode in dict.fromkeys(("cache", *modes))]
    return [x for x in dict.fromkeys(found) if (x.variant, x.mode) != (SOFTMAX, "recurrence")]


def make_model(variant: str, size: str) -> CausalModel:
    """A model with random weights and without positions."""
    torch.manual_seed(0)
    return CausalModel(replace(SIZES[size], variant=variant)).eval()


def prepare(model: CausalModel, mode: str, ids: Tensor) -> Piece:
    """Generation after ids [1, T]."""

    @torch.no_grad()
    def read_again() -> Tensor:
        return model.logits(model(ids)[:, -1]).argmax(-1)

    if mode == "attention":
        return Piece(read_again, 1, read_again, 0)
    with torch.no_grad():
        _, states = model.prefill(ids[:, :-2], memory=mode)
        # One more step: the states after a prompt are views of larger tensors, a step's are not.
        _, states = model.step(ids[:, -2], states)

    @torch.no_grad()
    def go_on(steps: int) -> Tensor:
        token, now = ids[:, -1], states
        for _ in range(steps):
            hidden, now = model.step(token, now)
            token = model.logits(hidden).argmax(-1)
        return token

    steps = STEPS if seconds(functools.partial(go_on, 1)) < SLOW_STEP else 1
    return Piece(functools.partial(go_on, steps), steps, functools.partial(go_on, 2), kept_bytes(states))


def kept_bytes(states: States) -> int:
    return sum(x.numel() * x.element_size() for layer in states.layers for x in layer.tensors().values())


def too_large(x: Contender, config: CausalConfig, position: int) -> bool:
    """Whether keys and values would not fit, which every new token copies."""
    need = 4 * 2 * 4 * position * config.dim * config.depth
    return x.mode == "cache" and need > SHARE * available_memory()


def measure(
    size: str, what: Sequence[Contender], positions: Sequence[int], rounds: int, bar: Bar, device: torch.device = CPU
) -> list[dict]:
    config = SIZES[size]
    ids = torch.randint(config.vocab_size, (1, max(positions)), generator=torch.Generator().manual_seed(0)).to(device)
    models = {variant: make_model(variant, size).to(device) for variant in dict.fromkeys(x.variant for x in what)}
    cases = [(x, position) for x in what for position in positions]
    pieces: dict[tuple[Contender, int], Piece] = {}
    for x, position in cases:
        bar.describe(f"{size}, {x.name}: {position:,} tokens")
        if not too_large(x, config, position):
            pieces[x, position] = prepare(models[x.variant], x.mode, ids[:, :position])
        bar.advance()
    bar.describe(f"{size}, token by token")
    times: dict[tuple[Contender, int], float] = {}
    tries: dict[tuple[Contender, int], int] = {}
    for slow in (False, True):
        some = {case: piece for case, piece in pieces.items() if (case[0].mode == "attention") == slow}
        works = {str(i): work.run for i, work in enumerate(some.values())}
        found, fair = interleaved(works, rounds=min(rounds, SLOW_ROUNDS) if slow else rounds, tick=bar.advance)
        for i, (case, work) in enumerate(some.items()):
            times[case], tries[case] = found[str(i)] / work.steps, fair
    records = []
    for case in cases:
        x, position = case
        piece, here, first = pieces.get(case), times.get(case), times.get((x, positions[0]))
        records.append(
            {
                "size": size,
                "variant": x.variant,
                "mode": x.mode,
                "position": position,
                "steps": piece.steps if piece else None,
                "best_of": tries.get(case),
                "seconds": here,
                "of_first": here / first if here and first else None,
                "kept_bytes": piece.kept_bytes if piece else None,
                "peak_bytes": peak_memory(piece.twice, device) if piece else None,
                "left_out": None if piece else LARGE,
            }
        )
    return records


class Agreement(NamedTuple):
    variant: str
    same: bool  # in all modes
    tokens: int
    different: int  # number of different tokens: it would be easy to agree on one


def agreement(variant: str, size: str, prompt: int = 24, tokens: int = 16) -> Agreement:
    """Whether greedy generation by transformers' `generate` gives the same tokens in every mode."""
    from lion.integrations.hf import LionCausalConfig, LionForCausalLM

    torch.manual_seed(0)
    # With tied embeddings, the most likely next token would be the last token itself.
    config = LionCausalConfig.of(replace(SIZES[size], variant=variant), tie_word_embeddings=False)
    model = LionForCausalLM(config).eval()
    ids = torch.randint(SIZES[size].vocab_size, (1, prompt), generator=torch.Generator().manual_seed(1))
    found = []
    for mode in MODES:
        model.generation_mode = mode
        out = model.generate(
            ids, attention_mask=torch.ones_like(ids), max_new_tokens=tokens, do_sample=False, pad_token_id=0
        )
        found.append(out[0, prompt:].tolist())
    return Agreement(variant, all(x == found[0] for x in found), len(found[0]), len(set(found[0])))


def run(
    *,
    sizes: Sequence[str] = ("small",),
    variants: Sequence[str] = USUAL,
    positions: Sequence[int] = POSITIONS,
    modes: Sequence[str] = MEMORIES,
    softmax: bool = True,
    rounds: int = 20,
    device: str = "cpu",
    json_path: Path | None = None,
) -> list[dict]:
    """Measure, print a table, write the JSON and draw a picture beside it."""
    check_choices(sizes=(sizes, SIZES), variants=(variants, VARIANTS), modes=(modes, MODES))
    if not positions or min(positions) < 3 or rounds < 1:
        raise ValueError(
            f"positions is {list(positions)}, rounds {rounds}; expected positions of 3 tokens or more, and at least 1 "
            "round."
        )
    there = chosen(device)
    places, what = sorted(set(positions)), contenders(variants, modes, softmax)
    if not what:
        raise ValueError("softmax has no recurrence; expected the modes 'cache' or 'attention', or other variants.")
    quick = sum(x.mode != "attention" for x in what)
    turns = quick * (rounds + 2) + (len(what) - quick) * (min(rounds, SLOW_ROUNDS) + 2)
    records: list[dict] = []
    with progress(total=len(set(sizes)) * len(places) * turns, unit="run") as bar:
        for size in dict.fromkeys(sizes):
            records += measure(size, what, places, rounds, bar, there)
    variants = list(dict.fromkeys(x.variant for x in what))
    try:
        agreed = [agreement(variant, sizes[0]) for variant in variants]
        words = agreement_words(agreed)
    except ImportError as missing:
        agreed, words = [], f"tokens of the modes not compared: {missing}"
    about = setting(device=device)
    print(report(records, about))
    print(words)
    found = {"setting": about, "results": records, "agreement": [x._asdict() for x in agreed]}
    save_with_plot(json_path, found, draw)
    return records


def agreement_words(agreed: Sequence[Agreement]) -> str:
    return "\n".join(
        f"{x.variant}: the {x.tokens} most likely tokens after a prompt ({x.different} of them different) are "
        f"{'the same' if x.same else 'NOT THE SAME'} in the modes {', '.join(MODES)}"
        for x in agreed
    )


def report(records: Sequence[dict], about: dict) -> str:
    rows = []
    for x in records:
        memory = (_mebibytes(x[key]) for key in ("kept_bytes", "peak_bytes"))
        cells = (f"{x['position']:,}", milliseconds(x["seconds"]), ratio(x["of_first"]), *memory)
        rows.append(((x["size"], x["mode"], x["variant"]), cells))
    first = min(x["position"] for x in records)
    header = ("size", "mode", "model", "tokens so far", "ms per token", f"of that at {first:,}", "kept MiB", "peak MiB")
    notes = [
        "kept MiB: the model's state, or its cache of keys and values",
        "peak MiB: memory for generating, beside that and the weights, as the process grows",
    ]
    heading = f"{about['dtype']}, {about['threads']} threads{best_of(records)}"
    return results.report(heading, header, rows, [*notes, *left_out(records)])


def _mebibytes(count: int | None) -> str:
    if count is None:
        return "-"
    return f"{count / 2**20:,.0f}" if count >= 100 * 2**20 else f"{count / 2**20:.3g}"


def draw(records: Sequence[dict], path: Path) -> None:
    """Latency and kept memory against the position, a row of panels for every size."""

    def panel(size: str, key: str, factor: float, label: str) -> Panel:
        some = [x for x in records if x["size"] == size]
        y = lambda x: x[key] * factor if x[key] else None  # noqa: E731
        lines = lines_of(some, lambda x: f"{x['variant']}, {x['mode']}", "position", y)
        return Panel(f"{size}, the next token", "tokens so far", label, lines)

    axes = (("seconds", 1e3, "ms per token"), ("kept_bytes", 2**-20, "kept, MiB"))
    draw_lines([[panel(size, *axis) for axis in axes] for size in dict.fromkeys(x["size"] for x in records)], path)
