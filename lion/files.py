"""Atomic files: written beside their place, then moved into it in one step. A file is complete or does not exist."""

import contextlib
import errno
import json
import os
import re
import shutil
import zlib
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from torch import Tensor


class DamagedFile(ValueError):
    """A file whose content is not what was written."""


# Errors of the file system in words, and the remedy.
TROUBLE = {
    errno.ENOSPC: ("the disk is full", "make room"),
    errno.EDQUOT: ("the quota is used up", "make room"),
    errno.EFBIG: ("a file may not be as large as that", "raise the limit"),
    errno.EROFS: ("the file system can only be read", "have it mounted for writing, or choose another folder"),
    errno.EACCES: ("there is no permission to write", "change that, or choose another folder"),
    errno.EPERM: ("there is no permission to write", "change that, or choose another folder"),
    errno.ENOTDIR: ("a part of its path is a file", "choose another folder"),
    errno.ENAMETOOLONG: ("its name is too long", "choose another folder"),
    errno.EIO: ("the disk has failed", "look after the disk"),
    errno.ESTALE: ("the file server has lost it", "look after the server"),
    errno.EMFILE: ("too many files are open", "raise the limit: ulimit -n"),
}


@contextlib.contextmanager
def writing(what: str, folder: Path, kept: str = "") -> Iterator[None]:
    """Adds the folder, the object that was being written and a remedy to errors; `kept` says what is safe."""
    try:
        yield
    except OSError as problem:
        if problem.errno is None:  # the message is complete already
            raise
        words, remedy = TROUBLE.get(problem.errno, (problem.strerror, "look after that"))
        safe = f" {kept}" if kept else ""
        message = f"{what} could not be written to {folder}: {words}.{safe} Remedy: {remedy}."
        raise OSError(message) from problem


def clean(folder: Path) -> None:
    """Remove the unfinished files of killed processes. The caller must be the only process in the folder.

    `replace` and `replace_folder` write to .NAME.PID, and move a folder that is replaced to .NAME.old.
    """
    for left in folder.glob(".*"):
        match = re.fullmatch(r"\.(.+)\.(\d+|old)", left.name)
        if match is None:
            continue
        if match[2] == "old" and not (folder / match[1]).exists():
            os.rename(left, folder / match[1])
        elif left.is_dir():
            shutil.rmtree(left)
        else:
            left.unlink()


def write_json(path: Path, content: Any) -> None:
    text = json.dumps(content, indent=2) + "\n"
    replace(path, lambda temporary: temporary.write_text(text))


def read_json(path: Path) -> Any:
    try:
        return json.loads(path.read_bytes())
    except RecursionError:
        raise DamagedFile(f"{path} is damaged: its lists and objects are nested too deep.") from None
    except ValueError as problem:  # not JSON, not UTF-8, or a number of thousands of digits
        raise DamagedFile(f"{path} is damaged: it is no JSON ({problem}).") from None


def read_object(path: Path) -> dict[str, Any]:
    content = read_json(path)
    if not isinstance(content, dict):
        raise DamagedFile(f"{path} is damaged: it has a {type(content).__name__}; expected an object.")
    return content


def apart(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The tensors on the CPU, contiguous, without shared storage."""
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

    path.touch()
    mode = path.stat().st_mode  # by the umask; safetensors makes files that only the owner can read
    try:
        save_file(apart(tensors), path)
        path.chmod(mode)
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
    """Names the file in errors of safetensors; for a folder, the model in it."""
    from safetensors import SafetensorError

    try:
        yield
    except SafetensorError as problem:
        inside = Path(path) / "model.safetensors"
        raise DamagedFile(f"{inside if inside.exists() else path} is damaged: {problem}; get it again.") from None


def replace(path: Path, write: Callable[[Path], object]) -> None:
    """Write a file so that readers see the old one or the new one, even after a power cut."""
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
    """The same for a folder; an existing one is moved away first."""
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


def check(folder: Path, files: Any) -> None:
    """Compare files with their checksums."""
    if not isinstance(files, Mapping):
        raise DamagedFile(f"{folder} has no list of its files.")
    for name, wanted in files.items():
        path = folder / name
        if not isinstance(wanted, Mapping) or not isinstance(wanted.get("bytes"), int):
            raise DamagedFile(f"{path} has no checksum.")
        if not path.is_file() or path.parent != folder:
            raise DamagedFile(f"{path} is missing.")
        got = checksum(path)
        if got["bytes"] != wanted["bytes"]:
            raise DamagedFile(f"{path} is damaged: it has {got['bytes']:,} bytes; expected {wanted['bytes']:,}.")
        if got != wanted:
            raise DamagedFile(f"{path} is damaged: its checksum is wrong.")


def stamp(path: Path) -> tuple[int, int] | None:
    """Size and time of a file, which tell whether it has changed; None if it does not exist."""
    with contextlib.suppress(OSError):
        status = path.stat()
        return status.st_size, status.st_mtime_ns
    return None


def make_once(folder: Path, write: Callable[[Path], object]) -> None:
    """Make a folder with `write`, unless it exists. One of several processes does it, the others wait."""
    if folder.exists():
        return
    folder.parent.mkdir(parents=True, exist_ok=True)
    with _alone(folder.with_suffix(".lock")) as alone:
        if not folder.exists():  # another process may have made it meanwhile
            for left in folder.parent.glob(f".{folder.name}.*") if alone else ():  # from a killed process
                shutil.rmtree(left, ignore_errors=True)
            replace_folder(folder, write)


@contextlib.contextmanager
def _alone(path: Path) -> Iterator[bool]:
    """One process at a time, and whether that is certain: where files cannot be locked, processes do not wait."""
    with path.open("w") as file:
        locked = False
        with contextlib.suppress(ImportError, OSError):
            import fcntl

            fcntl.flock(file, fcntl.LOCK_EX)  # until the file is closed
            locked = True
        yield locked
