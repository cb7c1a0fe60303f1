"""The activations of a sequence, by block: in memory up to a limit, the rest in files."""

import os
import shutil
import tempfile
from pathlib import Path

import torch
from torch import Tensor

from lion import files

Block = tuple[Tensor, Tensor | None]  # tokens and their mask


class Store:
    """What one layer has made of each block. With a folder of its own all of it is there, and outlives the process."""

    def __init__(self, limit: int, folder: Path | None, spill: Path):
        self.limit, self.folder, self.used = 0 if folder is not None else limit, folder or spill, 0
        self.kept: dict[int, Block] = {}

    def __setitem__(self, i: int, block: Block) -> None:
        size = sum(x.numel() * x.element_size() for x in block if x is not None)
        if self.used + size <= self.limit:
            self.kept[i] = block
            self.used += size
            return
        tensors = {"x": block[0]} if block[1] is None else {"x": block[0], "mask": block[1]}
        self.folder.mkdir(parents=True, exist_ok=True)
        unfinished = self.path(i).with_suffix(".unfinished")
        files.write_tensors(unfinished, {name: x.contiguous().cpu() for name, x in tensors.items()})
        os.replace(unfinished, self.path(i))

    def __contains__(self, i: int) -> bool:
        return i in self.kept or self.path(i).exists()

    def __getitem__(self, i: int) -> Block:
        if i in self.kept:
            return self.kept[i]
        tensors = files.read_tensors(self.path(i))
        return tensors["x"], tensors.get("mask")

    def path(self, i: int) -> Path:
        return self.folder / f"{i:08d}.safetensors"

    def remove(self) -> None:
        self.kept.clear()
        shutil.rmtree(self.folder, ignore_errors=True)


class Rows:
    """Messages of the blocks, rows of bytes of one length: in memory up to a limit, or in a file."""

    def __init__(self, count: int, limit: int, folder: Path):
        self.count, self.limit, self.folder = count, limit, folder
        self.rows: Tensor | None = None

    def __setitem__(self, i: int, row: Tensor) -> None:
        if self.rows is None:
            size = self.count * len(row)
            if size <= self.limit:
                self.rows = row.new_empty(size)
            else:
                self.folder.mkdir(parents=True, exist_ok=True)
                with tempfile.NamedTemporaryFile(dir=self.folder) as file:  # the name goes, the mapping stays
                    self.rows = torch.from_file(file.name, shared=True, size=size, dtype=torch.uint8)
            self.rows = self.rows.view(self.count, len(row))
        self.rows[i] = row

    def __getitem__(self, i: int) -> Tensor:
        assert self.rows is not None
        return self.rows[i]
