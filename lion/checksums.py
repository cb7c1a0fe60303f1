"""Checksums inside safetensors files: a flipped bit is detected, and other readers can still read the file.

The entry KEY of a file's metadata is the CRC-32 of everything else: the header without it, as sorted JSON, and the
tensors' bytes. A file without the entry was written by another program, and is not checked.
"""

import json
import re
import shutil
import struct
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

from lion import files
from lion._version import __version__

KEY, METADATA = "lion_crc32", "__metadata__"
MARK = "lion"  # the entry that says who wrote the file: with it and without KEY, the metadata is damaged
BLOCK = 1 << 20  # bytes read at once
LARGEST_HEADER = 100_000_000  # safetensors' own limit
SHARD = re.compile(r"-\d{5}-of-\d{5}")  # in the names of a model's parts


def copy(source: BinaryIO, path: Path) -> None:
    """Write a copy of a safetensors file, with its checksum."""
    header = _read_header(source)
    data = source.tell()
    header.setdefault(METADATA, {}).setdefault(MARK, json.dumps({"lion": __version__}))
    header[METADATA][KEY] = _checksum(header, source)
    content = json.dumps(header, separators=(",", ":"), ensure_ascii=False).encode()
    content += b" " * (-len(content) % 8)  # tensors begin at a multiple of 8
    source.seek(data)
    with path.open("wb") as target:
        target.write(struct.pack("<Q", len(content)) + content)
        shutil.copyfileobj(source, target, BLOCK)


class Found(NamedTuple):
    """The content of a file."""

    shapes: dict[str, tuple[int, ...]]
    bytes: int  # of all tensors
    checked: bool  # the file has a checksum, and it is right


def check(path: Path) -> Found:
    """Compare a file with its checksum, if it has one."""
    with path.open("rb") as file:
        try:
            header = _read_header(file)
        except ValueError as problem:
            raise files.DamagedFile(f"{path} is damaged: {problem}; get it again.") from None
        metadata = header.get(METADATA, {})
        wanted = metadata.get(KEY)
        data = file.tell()
        lost = wanted is None and "crc32" not in str(metadata.get(MARK, "crc32"))  # (older models have theirs there)
        if lost or (wanted is not None and wanted != _checksum(header, file)):
            raise files.DamagedFile(f"{path} is damaged: its checksum is wrong; get it again.")
    shapes = {name: tuple(x["shape"]) for name, x in header.items() if name != METADATA}
    return Found(shapes, path.stat().st_size - data, wanted is not None)


def check_model(paths: list[Path], index: Mapping[str, Any] | None) -> dict[str, tuple[int, ...]]:
    """Check the files of a model, and that they match the index of its shards, if any; the tensors' shapes."""
    found = {path.name: check(path) for path in paths}
    if index and all(x.checked for x in found.values()):
        where = {tensor: name for name, x in found.items() for tensor in x.shapes}
        total = sum(x.bytes for x in found.values())
        if where != index["weight_map"] or total != index.get("total_size", total):
            folder = paths[0].parent
            raise files.DamagedFile(f"{folder} has an index of other weights than its files have; get it again.")
    return {name: shape for x in found.values() for name, shape in x.shapes.items()}


def times(folder: Path) -> dict[str, float]:
    """The modification times of a folder's files."""
    return {path.name: path.stat().st_mtime for path in folder.iterdir()} if folder.is_dir() else {}


def add(folder: Path, before: Mapping[str, float]) -> None:
    """Add checksums to the safetensors files that were written since `before`.

    An older model in one file is removed where its shards are new: it would be read instead of them.
    """
    new = [folder / name for name, time in times(folder).items() if before.get(name) != time]
    for path in new:
        if path.suffix == ".safetensors":
            _add(path)
            whole = path.with_name(SHARD.sub("", path.name))
            if whole not in new:
                whole.unlink(missing_ok=True)


def _add(path: Path) -> None:
    with path.open("rb") as source:
        if KEY in _read_header(source).get(METADATA, {}):
            return
        source.seek(0)
        files.replace(path, lambda temporary: copy(source, temporary))


def _read_header(file: BinaryIO) -> dict[str, Any]:
    start = file.read(8)
    size = struct.unpack("<Q", start)[0] if len(start) == 8 else 0
    content = file.read(size) if 0 < size <= LARGEST_HEADER else b""
    if not content or len(content) < size:
        raise ValueError("it ends within its header")
    try:
        header = json.loads(content)
    except (ValueError, RecursionError):
        header = None
    tensors = {name: x for name, x in header.items() if name != METADATA} if isinstance(header, dict) else {"": None}
    shaped = all(isinstance(x, dict) and isinstance(x.get("shape"), list) for x in tensors.values())
    if not shaped or not isinstance(header.get(METADATA, {}), dict):
        raise ValueError("its header is no JSON of tensors")
    return header


def _checksum(header: Mapping[str, Any], data: BinaryIO) -> str:
    metadata = {name: x for name, x in header.get(METADATA, {}).items() if name != KEY}
    crc = zlib.crc32(json.dumps({**header, METADATA: metadata}, sort_keys=True).encode())
    while block := data.read(BLOCK):
        crc = zlib.crc32(block, crc)
    return str(crc)
