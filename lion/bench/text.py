"""`lion bench text`: encoders of text beside transformers' own BERT with softmax attention, training and inference."""

import functools
import os
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor, nn

import lion
from lion.bench.memory import peak_memory
from lion.bench.op import available_memory, cpu_model
from lion.bench.pictures import Panel, draw_lines, picture_beside
from lion.bench.saving import save
from lion.bench.timing import interleaved
from lion.bench.vision import per_second
from lion.models.encoder import ENCODERS, Encoder, EncoderConfig
from lion.nn.variants import VARIANTS
from lion.ops.checks import one_of
from lion.optional import need_transformers
from lion.progress import progress
from lion.text import mebibytes, ratio, table
from lion.train.allocation import keep_memory

BERT = "BERT"
USUAL = ("lion_lit", "lion_d", "lion_s")
LENGTHS = (128, 512, 2048, 8192, 16384)
TRAINED_TO = 8192  # tokens of a sequence, in training
TOKENS = 1024  # of a batch, at least
PATIENCE = 240.0  # seconds that a run may be expected to take
SHARE = 0.6  # of the memory there is


class Case(NamedTuple):
    size: str
    length: int
    training: bool

    @property
    def batch(self) -> int:
        return max(1, TOKENS // self.length)


def make_model(name: str, size: str, length: int) -> nn.Module:
    """Without dropout, which torch's softmax attention on CPUs has no fast kernel for."""
    config = replace(ENCODERS[size], dropout=0.0, max_tokens=max(512, length))
    return bert(config) if name == BERT else Encoder(_with_mixer(config, name))


def _with_mixer(config: EncoderConfig, mixer: str) -> EncoderConfig:
    config = replace(config, mixer=mixer)
    return config if config.tells_order else replace(config, positions="learned")


def bert(config: EncoderConfig) -> nn.Module:
    """transformers' own, of the same size."""
    need_transformers()
    from transformers import BertConfig, BertModel

    model = BertModel(
        BertConfig(
            vocab_size=config.vocab_size,
            hidden_size=config.dim,
            num_hidden_layers=config.depth,
            num_attention_heads=config.heads,
            intermediate_size=config.mlp_dim,
            max_position_embeddings=config.max_tokens,
            hidden_dropout_prob=0.0,
            attention_probs_dropout_prob=0.0,
            attn_implementation="sdpa",
        ),
        add_pooling_layer=False,
    )
    assert model.config._attn_implementation == "sdpa"
    return model


def work(model: nn.Module, ids: Tensor, training: bool) -> Callable[[], object]:
    parameters = [p for p in model.train(training).parameters() if p.requires_grad]

    def last_state() -> Tensor:
        output = model(ids)
        return output if isinstance(output, Tensor) else output.last_hidden_state

    def train() -> object:
        return torch.autograd.grad(last_state().sum(), parameters, allow_unused=True)

    def infer() -> object:
        with torch.no_grad():
            return last_state()

    return train if training else infer


def measure(
    case: Case,
    models: Sequence[str],
    known: Sequence[dict],
    rounds: int,
    tick: Callable[[int], object] = lambda steps: None,
) -> list[dict]:
    ids = torch.randint(1000, ENCODERS[case.size].vocab_size, (case.batch, case.length))
    left_out = {name: reason for name in models if (reason := _too_much(name, case, known))}
    works = {
        name: work(make_model(name, case.size, case.length), ids, case.training)
        for name in models
        if name not in left_out
    }
    times, tries = interleaved(works, rounds=rounds, tick=lambda: tick(1))
    tick((rounds + 1) * len(left_out))
    return [
        {
            **case._asdict(),
            "batch": case.batch,
            "name": name,
            "best_of": tries,
            "seconds": times.get(name),
            "tokens_per_second": case.batch * case.length / times[name] if name in times else None,
            "times_faster_than_bert": times[BERT] / times[name] if BERT in times and name in times else None,
            "peak_bytes": peak_memory(works[name]) if name in works else None,
            "left_out": left_out.get(name),
        }
        for name in models
    ]


def _too_much(name: str, case: Case, known: Sequence[dict]) -> str:
    """Why something is left out: told from what it took at the length before, BERT's time growing with the square."""
    of_same = [r for r in known if (r["name"], r["training"], r["size"]) == (name, case.training, case.size)]
    if not of_same or of_same[-1]["seconds"] is None:
        return of_same[-1]["left_out"] if of_same else ""
    before = of_same[-1]
    longer = case.length / before["length"]
    tokens = case.batch * case.length / (before["batch"] * before["length"])
    if before["seconds"] * tokens * (longer if name == BERT else 1) > PATIENCE:
        return "expected to take too long"
    if before["peak_bytes"] * tokens > SHARE * available_memory():
        return "would not fit into memory"
    return ""


def run(
    *,
    sizes: Sequence[str] = ("base",),
    lengths: Sequence[int] = LENGTHS,
    models: Sequence[str] = USUAL,
    rounds: int = 3,
    training: bool = True,
    inference: bool = True,
    json_path: Path | None = None,
) -> list[dict]:
    """Measure, print a table, write the JSON and draw a picture of inference beside it."""
    for size in sizes:
        one_of("sizes", size, ENCODERS)
    for name in models:
        one_of("models", name, VARIANTS)
    if not lengths or min(lengths) < 1 or rounds < 1 or not (training or inference):
        raise ValueError(
            f"lengths is {list(lengths)}, rounds {rounds}; expected lengths and rounds of 1 or more, and training or "
            "inference."
        )
    what = (BERT, *dict.fromkeys(models))
    cases = [
        Case(size, length, way)
        for size in sizes
        for way in (True, False)
        for length in sorted(set(lengths))
        if (training if way else inference) and not (way and length > TRAINED_TO)
    ]
    keep_memory()  # as `lion train` does; or pages that come and go would be a part of all times
    records: list[dict] = []
    with progress(total=len(cases) * len(what) * (rounds + 1), unit="run") as bar:
        for case in cases:
            bar.describe(f"{case.size}, {case.length} tokens, {'training' if case.training else 'inference'}")
            records += measure(case, what, records, rounds, bar.advance)
    setting = current_setting()
    print(report(records, setting))
    save(json_path, {"setting": setting, "results": records})
    if inference:
        picture_beside(json_path, functools.partial(draw, records))
    return records


def current_setting() -> dict:
    return {
        "dtype": "float32",
        "threads": torch.get_num_threads(),
        "torch": torch.__version__,
        "lion": lion.__version__,
        "machine": f"{cpu_model()}, {os.cpu_count()} cores, {torch.backends.cpu.get_cpu_capability()}",
    }


def report(records: Sequence[dict], setting: dict) -> str:
    rows, last = [], None
    for x in records:
        place = (x["size"], "training" if x["training"] else "inference", f"{x['length']:,}", x["batch"])
        cells = (
            per_second(x["tokens_per_second"]),
            "-" if x["times_faster_than_bert"] is None else f"{1 / x['times_faster_than_bert']:.2f}",
            ratio(x["times_faster_than_bert"]),
            mebibytes(x["peak_bytes"]),
        )
        rows.append([*(place if place != last else [""] * 4), x["name"], *cells])
        last = place
    header = ("size", "pass", "tokens", "batch", "model", "tokens/s", "of BERT's time", "faster", "MiB")
    tries = sorted({x["best_of"] for x in records})
    words = f"{setting['dtype']}, {setting['threads']} threads, best of {' to '.join(map(str, tries))}"
    notes = [
        f"{BERT}: transformers' BertModel with torch's fused softmax attention; all without dropout",
        "MiB: peak memory of a batch, beside that of the weights; in training with the gradients",
    ]
    reasons = dict.fromkeys(x["left_out"] for x in records if x["left_out"])
    notes += [f"-: left out, {reason}" for reason in reasons]
    return "\n".join([words, "", table(header, rows), "", *notes])


def draw(records: Sequence[dict], path: Path) -> None:
    """Inference: peak memory and time of a sequence against its length, a row of panels for every size."""
    found = [x for x in records if not x["training"]]
    rows = []
    for size in dict.fromkeys(x["size"] for x in found):
        panels = []
        for key, factor, label in (("peak_bytes", 2**-20, "peak memory, MiB"), ("seconds", 1, "seconds")):
            lines: dict[str, list[tuple[float, float]]] = {}
            for x in found:
                if x["size"] == size and x[key]:
                    lines.setdefault(x["name"], []).append((x["length"], x[key] * factor / x["batch"]))
            panels.append(Panel(f"{size}, inference", "tokens", f"{label} per sequence", lines))
        rows.append(panels)
    draw_lines(rows, path)
