"""Data that changes between a run's end and its resumption: it is noticed, or it is the same data to the run.

Of each kind of task that reads files, a run is stopped half-way, one of the files is changed, and the run is resumed.
That is refused, or ends with the weights that it would have had, bit for bit.
"""

import os
import random
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path

from PIL import Image

from tests.torture import Campaign
from tests.torture.children import Children, Done
from tests.torture.lost_runs import same
from tests.torture.mutations import mutated
from tests.torture.small_runs import TRAINED, commands, write_data

KINDS = ("images", "mlm", "causal", "text", "text_distill", "dna", "dna_classes")
IMAGES = ["images", "--image_size", "16", "--model.patch_size", "8", *TRAINED]
HALF, WHOLE = (["--steps", steps, "--save_every", "1", "--ema", "0.9"] for steps in ("2", "4"))
REFUSED = "would become another one"


def run(numbers: range, seed: int) -> list[Campaign]:
    """By turns of all kinds of task."""
    found = []
    with tempfile.TemporaryDirectory() as name:
        children = Children(Path(name) / "work")
        for place, kind in enumerate(KINDS):
            if turns := [number for number in numbers if number % len(KINDS) == place]:
                found.append(_of_task(kind, Path(name) / kind, children, turns, seed))
    return found


def _of_task(kind: str, home: Path, children: Children, numbers: list[int], seed: int) -> Campaign:
    data, kept = home / "data", home / "kept"
    _write(data)
    argv = [*IMAGES, "--data", f"{data}/images"] if kind == "images" else commands(data)[kind]
    for steps, folder in ((HALF, home / "half"), (WHOLE, home / "whole")):
        if steps is WHOLE:
            shutil.copytree(home / "half", folder)
        done = _train(children, [*argv, *steps], folder)
        assert done.code == 0, done.stderr
    shutil.copytree(data, kept)
    campaign = Campaign(f"changed data: {kind}")
    for number in numbers:
        draw = random.Random(f"{seed} {number}")
        folder = home / "run"
        for old, new in ((kept, data), (home / "half", folder)):
            shutil.rmtree(new, ignore_errors=True)
            shutil.copytree(old, new)
        path, change = draw.choice(_read_by(kind, data)), draw.choice(CHANGES)
        with campaign.attempt(f"number {number}: {path.relative_to(data)} {change.__name__}"):
            before = path.stat()
            change(path, draw)
            if path.exists() and draw.random() < 0.3:  # as if it had not been touched
                os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
            done = _train(children, [*argv, *WHOLE], folder)
            done.check()
            if done.code == 0:
                same(folder, home / "whole")
            else:
                assert REFUSED in done.stderr or str(data) in done.stderr, done.stderr
                assert _content(folder) == _content(home / "half"), "the run that was refused is another now"
    return campaign


def _content(folder: Path) -> dict[str, bytes]:
    paths = (path for path in folder.rglob("*") if path.is_file() and path.name != ".lock")
    return {str(path.relative_to(folder)): path.read_bytes() for path in paths}


def _write(data: Path) -> None:
    data.mkdir(parents=True)
    write_data(data)
    for n in range(16):
        path = data / "images" / "ab"[n % 2] / f"{n}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.effect_noise((16, 16), 40 + n).save(path)


def _read_by(kind: str, data: Path) -> list[Path]:
    patterns = {"images": "images/*/*.png", "text": "texts/reviews.csv", "dna": "genome.fa", "dna_classes": "genes.csv"}
    teacher = [data / "teacher" / "model.safetensors"] if kind == "text_distill" else []
    return [*teacher * 5, *sorted(data.glob(patterns.get(kind, "texts/*.txt")))]


def _train(children: Children, argv: list[str], folder: Path) -> Done:
    given = ["train", *argv, "--out", str(folder), "--resume"]
    return children.run("tests.torture.children:command", given, seconds=120)


# Changes


def _damaged(path: Path, draw: random.Random) -> None:
    path.write_bytes(mutated(path.read_bytes(), draw))


def _halved(path: Path, draw: random.Random) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def _with_another_letter(path: Path, draw: random.Random) -> None:
    content = bytearray(path.read_bytes())
    letters = [place for place, x in enumerate(content) if chr(x).isalpha()]
    content[draw.choice(letters or [0])] = ord(draw.choice("acgtACGTxyz"))
    path.write_bytes(content)


def _with_lines_exchanged(path: Path, draw: random.Random) -> None:
    lines = path.read_bytes().splitlines(keepends=True)
    if len(lines) > 2:
        a, b = draw.sample(range(1, len(lines)), 2)  # after the header, where there is one
        lines[a], lines[b] = lines[b], lines[a]
    path.write_bytes(b"".join(lines))


def _with_a_line_more(path: Path, draw: random.Random) -> None:
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join([*lines, draw.choice(lines)]))


def _with_a_line_less(path: Path, draw: random.Random) -> None:
    lines = path.read_bytes().splitlines(keepends=True)
    del lines[draw.randrange(len(lines))]
    path.write_bytes(b"".join(lines))


def _exchanged(path: Path, draw: random.Random) -> None:
    """With another file beside it, if there is one: of images, another class's label, too."""
    others = sorted(x for x in path.parent.parent.rglob(f"*{path.suffix}") if x != path)
    if others:
        other = draw.choice(others)
        mine, its = path.read_bytes(), other.read_bytes()
        path.write_bytes(its)
        other.write_bytes(mine)


def _removed(path: Path, draw: random.Random) -> None:
    path.unlink()


def _copied(path: Path, draw: random.Random) -> None:
    path.with_stem(path.stem + "-copy").write_bytes(path.read_bytes())


def _touched(path: Path, draw: random.Random) -> None:
    path.write_bytes(path.read_bytes())


CHANGES: tuple[Callable[[Path, random.Random], None], ...] = (
    *(_damaged, _halved, _with_another_letter, _with_lines_exchanged, _with_a_line_more, _with_a_line_less),
    *(_exchanged, _removed, _copied, _touched),
)
