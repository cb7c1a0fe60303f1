"""Embeddings of sequences of any length by the model of a run: chromosomes, books."""

import hashlib
import json
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from lion import files
from lion.data import fasta
from lion.data.tables import ending, text_blocks
from lion.models.blocks import Backbone
from lion.streaming.stream import MEMORY, stream
from lion.tasks import Trained

ABOUT = "about.json"
NUMBERS = np.float32


class Sequence(NamedTuple):
    name: str
    tokens: np.ndarray  # of any integers; a file that is mapped


class Embedded(NamedTuple):
    name: str
    path: Path
    shape: tuple[int, int]
    tokens: int


def backbone_of(model: nn.Module) -> Backbone:
    """The part of a model that makes vectors of tokens."""
    for module in model.modules():
        if isinstance(module, Backbone) and type(module).stages is not Backbone.stages:
            return module
    raise ValueError(f"a {type(model).__name__} cannot be run block by block; expected a model of DNA or of text.")


def sequences(trained: Trained, path: Path) -> Iterator[Sequence]:
    """The records of FASTA, or one text."""
    if trained.task.reads == "sequence":
        genome = fasta.Genome([path])
        for i, name in enumerate(genome.names):
            yield Sequence(name or f"record-{i + 1}", genome.tokens[genome.bounds[i] : genome.bounds[i + 1]])
        return
    if not hasattr(trained.task, "text_tokenizer") or ending(path) in fasta.FASTA:
        raise ValueError(f"the run in {trained.folder} is of {trained.task.unit}s; expected one of DNA, or a text.")
    from lion.tasks._tokenized import tokenizer_of

    (ids,) = tokenizer_of(trained).encode(["".join(text_blocks(path))], specials=True)
    yield Sequence(path.stem, np.array(ids, np.int32))


def embed(
    trained: Trained,
    path: Path,
    out: Path,
    *,
    every: int = 1,
    block: int = 65536,
    memory: int = MEMORY,
    progress: Callable[[str, float], None] = lambda name, share: None,
) -> list[Embedded]:
    """The embeddings of each record of a FASTA file, or of a text, as `out`/NAME.npy: float32 [rows, dim].

    The results are those of the whole sequence at once, to rounding, whatever the block is. A call that was stopped
    goes on where it was, if it is repeated.

    Args:
        every: a row is the mean of so many tokens.
        block: tokens that are worked on at a time. Memory grows with it, and not with the sequence.
        memory: bytes of activations that may be kept in memory. Those of longer sequences are in `out` meanwhile.
        progress: is told the share of a sequence's work that is done.
    """
    model = backbone_of(trained.model)
    found = []
    for sequence in sequences(trained, path):
        target = out / f"{_file_name(sequence.name)}.npy"
        about = _about(model, sequence, every=every, block=block)
        done = target.with_suffix(".json")
        if not (target.exists() and done.exists() and files.read_json(done) == about):
            with files.writing(target.name, out):
                _embed(model, sequence, target, about, memory, progress)
        rows = np.load(target, mmap_mode="r")
        found.append(Embedded(sequence.name, target, rows.shape, len(sequence.tokens)))
    return found


def _embed(
    model: Backbone,
    sequence: Sequence,
    target: Path,
    about: dict[str, Any],
    memory: int,
    progress: Callable[[str, float], None],
) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    unfinished = target.with_name(f".{target.stem}.unfinished")
    if not (unfinished / ABOUT).exists() or files.read_json(unfinished / ABOUT) != about:
        shutil.rmtree(unfinished, ignore_errors=True)
        unfinished.mkdir()
        files.write_json(unfinished / ABOUT, about)
    block, every, length = about["block"], about["every"], len(sequence.tokens)
    layers = 2 * len(getattr(model, "blocks", getattr(model, "layers", [1])))

    def tell(layer: int, done: int, blocks: int) -> None:
        progress(sequence.name, min(1.0, (2 * layer + 2 * done / blocks) / (layers + 4)))

    def blocks() -> Iterator[Tensor]:
        for first in range(0, length, block):
            yield torch.from_numpy(sequence.tokens[first : first + block].astype(np.int32))[None]

    config: Any = model.config
    dim = config.dim
    rows = -(-length // every)
    begun = unfinished / "rows.npy"
    out = np.lib.format.open_memmap(begun, "w+", NUMBERS, (rows, dim))
    first = 0
    folder = unfinished / "layers" if 4 * dim * length > memory else None
    for x in stream(model, blocks(), memory=memory, folder=folder, progress=tell):
        place = np.arange(first, first + x.shape[1]) // every
        sums = np.add.reduceat(x[0].double().cpu().numpy(), np.flatnonzero(np.diff(place, prepend=-1)), 0)
        sizes = np.minimum(every, length - every * np.arange(place[0], place[-1] + 1))
        out[place[0] : place[-1] + 1] += (sums / sizes[:, None]).astype(NUMBERS)
        first += x.shape[1]
    out.flush()
    del out
    begun.replace(target)
    files.write_json(target.with_suffix(".json"), about)
    shutil.rmtree(unfinished, ignore_errors=True)


def _about(model: Backbone, sequence: Sequence, *, every: int, block: int) -> dict[str, Any]:
    """What a result depends on."""
    weights = hashlib.sha256()
    for name, x in sorted(model.state_dict().items()):
        weights.update(name.encode())
        weights.update(x.detach().cpu().contiguous().view(-1).view(torch.uint8).numpy())
    tokens = hashlib.sha256(np.ascontiguousarray(sequence.tokens).data)
    described = {"model": weights.hexdigest(), "tokens": tokens.hexdigest(), "length": len(sequence.tokens)}
    return json.loads(json.dumps({**described, "every": every, "block": block}))


def _file_name(name: str) -> str:
    return "".join(x if x.isalnum() or x in "-_." else "_" for x in name) or "sequence"
