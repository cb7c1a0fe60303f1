"""Files that are whole or not there: written beside their place, then moved into it in one step."""

import contextlib
import errno
import json
import os
import shutil
import zlib
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from torch import Tensor


class DamagedFile(ValueError):
    """A file that is not what was written."""


def write_json(path: Path, content: Any) -> None:
    text = json.dumps(content, indent=2) + "\n"
    replace(path, lambda temporary: temporary.write_text(text))


def read_json(path: Path) -> Any:
    try:
        return json.loads(path.read_text())
    except (ValueError, RecursionError) as problem:  # of bytes that are no text, too
        raise DamagedFile(f"{path} is damaged: it is no JSON ({problem}).") from None


def apart(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """In the CPU's memory, each in one piece of its own."""
    found: dict[str, Tensor] = {}
    places: set[int] = set()
    for name, x in tensors.items():
        x = x.detach().cpu().contiguous()
        found[name] = x.clone() if x.untyped_storage().data_ptr() in places else x
        places.add(x.untyped_storage().data_ptr())
    return found


def write_tensors(path: Path, tensors: Mapping[str, Tensor]) -> None:
    from safetensors import SafetensorError
    from safetensors.torch import save_file

    try:
        save_file(apart(tensors), path)
    except SafetensorError as problem:
        if "No space left" in str(problem):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path)) from None
        raise


def read_tensors(path: Path) -> dict[str, Tensor]:
    from safetensors.torch import load_file

    with intact(path):
        return load_file(path)


@contextlib.contextmanager
def intact(path: Path | str) -> Iterator[None]:
    """What safetensors finds wrong, with the name of the file; of a folder, that of the model in it."""
    from safetensors import SafetensorError

    try:
        yield
    except SafetensorError as problem:
        inside = Path(path) / "model.safetensors"
        raise DamagedFile(f"{inside if inside.exists() else path} is damaged: {problem}; get it again.") from None


def replace(path: Path, write: Callable[[Path], object]) -> None:
    """Write a file so that whoever looks sees the old one or the new one, even after a power cut."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        write(temporary)
        sync(temporary)
        os.replace(temporary, path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    sync(path.parent)


def replace_folder(folder: Path, write: Callable[[Path], object]) -> None:
    """The same for a new folder; one that is there already is moved away first."""
    temporary = folder.with_name(f".{folder.name}.{os.getpid()}")
    shutil.rmtree(temporary, ignore_errors=True)
    temporary.mkdir(parents=True)
    try:
        write(temporary)
        for path in temporary.iterdir():
            sync(path)
        sync(temporary)
    except BaseException:
        shutil.rmtree(temporary, ignore_errors=True)
        raise
    if folder.exists():
        old = folder.with_name(f".{folder.name}.old")
        shutil.rmtree(old, ignore_errors=True)
        os.rename(folder, old)
        os.rename(temporary, folder)
        shutil.rmtree(old)
    else:
        os.rename(temporary, folder)
    sync(folder.parent)


def sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def checksum(path: Path) -> dict[str, int]:
    """Size and CRC-32 of a file."""
    crc = size = 0
    with path.open("rb") as file:
        while block := file.read(1 << 20):
            crc = zlib.crc32(block, crc)
            size += len(block)
    return {"bytes": size, "crc32": crc}


def check(folder: Path, files: Mapping[str, Mapping[str, int]]) -> None:
    """That files are as their checksums say."""
    for name, wanted in files.items():
        path = folder / name
        if not path.exists():
            raise DamagedFile(f"{path} is missing.")
        got = checksum(path)
        if got["bytes"] != wanted["bytes"]:
            raise DamagedFile(f"{path} is damaged: it has {got['bytes']:,} bytes; expected {wanted['bytes']:,}.")
        if got != wanted:
            raise DamagedFile(f"{path} is damaged: its checksum is wrong.")


def stamp(path: Path) -> tuple[int, int] | None:
    """What tells whether a file has changed; None if it is not there."""
    with contextlib.suppress(OSError):
        status = path.stat()
        return status.st_size, status.st_mtime_ns
    return None


def make_once(folder: Path, write: Callable[[Path], object]) -> None:
    """A folder that `write` fills, unless it is there already. Of several processes one does it, the others wait."""
    if folder.exists():
        return
    folder.parent.mkdir(parents=True, exist_ok=True)
    with _alone(folder.with_suffix(".lock")) as alone:
        if not folder.exists():  # another process may have done it meanwhile
            for left in folder.parent.glob(f".{folder.name}.*") if alone else ():  # by one that was killed
                shutil.rmtree(left, ignore_errors=True)
            replace_folder(folder, write)


@contextlib.contextmanager
def _alone(path: Path) -> Iterator[bool]:
    """One process at a time, and whether that is so: where files cannot be locked, none waits for another."""
    with path.open("w") as file:
        locked = False
        with contextlib.suppress(ImportError, OSError):
            import fcntl

            fcntl.flock(file, fcntl.LOCK_EX)  # until the file is closed
            locked = True
        yield locked
