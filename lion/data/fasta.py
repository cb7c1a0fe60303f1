"""DNA as tokens, one per nucleotide: single sequences, FASTA files, and genomes of any size, cached in files."""

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np

from lion.data.findings import Findings
from lion.data.sources.fetching import located
from lion.data.tables import check_file, ending, place, text_blocks
from lion.data.token_files import TokenFile, cached, load_numbers, reading_cache, stamps
from lion.files import DamagedFile, read_json, write_json
from lion.progress import progress
from lion.terminal import brief

VOCABULARY = ("[PAD]", "A", "C", "G", "T", "N", "[MASK]", "[CLS]")  # by token
PAD, A, C, G, T, N, MASK, CLS = range(len(VOCABULARY))
BASES = 4  # A, C, G and T, from A on
COMPLEMENT = np.array([PAD, T, G, C, A, N, MASK, CLS], np.uint8)  # by token
SEVERAL = "RYSWKMBDHVN"  # IUPAC's ambiguity codes
LETTERS = {"A": A, "C": C, "G": G, "T": T, "U": T, **dict.fromkeys(SEVERAL, N)}
LETTERS |= {letter.lower(): token for letter, token in LETTERS.items()}
SPACE = b" \t\n\r\v\f"
WRONG = 255
TABLE = bytes(LETTERS.get(chr(byte), WRONG) for byte in range(256))

FASTA = (".fa", ".fasta", ".fna", ".ffn", ".fas")  # endings of files; any also with .gz
NAMED = ("chromosome",)  # from `lion.data.fetch`
LAYOUT = 1  # version of the files of tokens
ABOUT, TOKENS, GAPS = "about.json", "tokens.bin", "gaps.npy"
GAP = 100  # shortest run of N that is a gap: assemblies write 100 where the number is unknown
AT_ONCE = 1 << 24  # tokens searched for gaps at a time
NO_NUCLEOTIDE = "with letters that are no nucleotides"  # a kind of problem


# Sequences.


def encode(sequence: str, at: str = "the sequence") -> np.ndarray:
    """The tokens of a sequence, uint8 [length]. Small letters are the same bases (soft-masked, in genomes), U is T,
    IUPAC's ambiguity codes are N, white space is skipped. `at` is the sequence's place, for errors."""
    return np.frombuffer(_translated(sequence, lambda _: at), np.uint8)


def decode(tokens: np.ndarray) -> str:
    return "".join(VOCABULARY[x] for x in tokens.tolist())


def reverse_complement(tokens: np.ndarray) -> np.ndarray:
    """The other strand in its own direction, [..., length]."""
    return COMPLEMENT[tokens[..., ::-1]]


def _translated(text: str, at: Callable[[int], str]) -> bytes:
    found = text.encode("ascii", "replace").translate(TABLE, SPACE)
    if WRONG in found:
        bad = next(i for i, x in enumerate(text) if x not in LETTERS and x not in SPACE.decode())
        remedy = "take gaps out." if text[bad] in "-." else "is this a protein, or no FASTA?"
        raise ValueError(
            f"{at(bad)} has {text[bad]!r}, which is no nucleotide; expected A, C, G, T or U, or IUPAC's letters for "
            f"several of them ({SEVERAL}): {remedy}"
        )
    return found


# Files.


class Record(NamedTuple):
    line: int  # of the header, from 1
    header: str  # without ">"
    tokens: np.ndarray  # uint8 [length]


def read_fasta(path: Path | str, findings: Findings | None = None) -> Iterator[Record]:
    """The records of a FASTA file, also as .gz, one after the other; each is read into memory. `findings` gets the
    lines of records with wrong letters, which are incomplete; by default they raise."""
    path = Path(path).expanduser()
    line, header, parts = 0, "", list[bytes]()
    for number, head, tokens in _pieces(path, findings):
        if head is None:
            parts.append(tokens)
            continue
        if line:
            yield Record(line, header, np.frombuffer(b"".join(parts), np.uint8))
        line, header, parts = number, head, []
    yield Record(line, header, np.frombuffer(b"".join(parts), np.uint8))


def _pieces(path: Path, findings: Findings | None = None) -> Iterator[tuple[int, str | None, bytes]]:
    """(line, header, b"") for a header line; (line, None, tokens) for sequence lines, several at once or a part of one:
    a whole chromosome may be a single line."""
    check_file(path, "a FASTA file")
    head: list[str] | None = None  # the parts of an unfinished header
    record = 0  # the line of the last header
    line, any_header, fresh = 1, False, True  # fresh: at the beginning of a line
    for text in text_blocks(path):
        at = 0
        while at < len(text):
            if head is not None:
                end = text.find("\n", at)
                head.append(text[at : end if end >= 0 else None])
                if end < 0:
                    break
                yield line, "".join(head).strip(), b""
                line, head, fresh, at = line + 1, None, True, end + 1
            mark = text.find(">", at)
            part = text[at : mark if mark >= 0 else None]
            if part:
                if not any_header:
                    _check_blank(path, line, part)
                try:
                    tokens = _translated(part, _line_of(path, line, part))
                except ValueError as problem:
                    if findings is None:
                        raise
                    findings.bad(record, NO_NUCLEOTIDE, str(problem))
                    tokens = b""
                yield line, None, tokens
                line, fresh = line + part.count("\n"), part.endswith("\n")
            if mark < 0:
                break
            if not fresh:
                raise ValueError(
                    f"{place(path, line)} has '>' within a sequence; expected it at the beginning of a line only: is "
                    "there a line end missing?"
                )
            head, any_header, record, at = [], True, line, mark + 1
    if head is not None:
        yield line, "".join(head).strip(), b""
    if not any_header:
        raise ValueError(f"{path} is empty; expected FASTA: lines of a header, '>' and a name, and of a sequence.")


def _line_of(path: Path, line: int, part: str) -> Callable[[int], str]:
    return lambda index: place(path, line + part.count("\n", 0, index))


def _check_blank(path: Path, line: int, part: str) -> None:
    """That there are only empty lines before the first header."""
    if content := part.lstrip():
        line += part[: len(part) - len(content)].count("\n")
        shown = brief(content.split("\n", 1)[0], 40)
        raise ValueError(
            f"{place(path, line)} is {shown!r}; expected '>' and a name before any sequence, as FASTA has it."
        )


class Genome(TokenFile):
    """The records of FASTA files as one row of tokens, end to end, uint8. The tokens are cached in a file, under a hash
    of the FASTA files' names, sizes and times.

    Args:
        paths: one file or several, also as .gz; "chromosome" is what `lion.data.fetch` gets by that name.
        folder: the folder of the cache; by default `lion_data_folder() / "genomes"`.

    Attributes:
        names: the first word of each record's header.
        bounds: int64 [records + 1]; record i is tokens[bounds[i] : bounds[i + 1]].
        gaps: int64 [gaps, 2], the begin and end of each long run of N.
    """

    def __init__(self, paths: str | Path | Iterable[str | Path], *, folder: Path | str | None = None):
        given = [paths] if isinstance(paths, str | Path) else list(paths)
        files = [located(str(x)) if x in NAMED else Path(x).expanduser() for x in given]
        if not files:
            raise ValueError("paths is empty; expected a FASTA file, or several.")
        for path in files:
            if ending(path) not in FASTA:
                raise ValueError(f"{path} ends in {ending(path)!r}; expected one of {', '.join(FASTA)}, also with .gz.")
            check_file(path, "a FASTA file")
        self.name = ", ".join(map(str, files))
        key = [LAYOUT, stamps(files)]
        self.folder = cached("genomes", key, lambda unfinished: _pack(unfinished, files), folder=folder)
        with reading_cache(self.folder):
            self._open()

    def _open(self) -> None:
        about = read_json(self.folder / ABOUT)
        self.names = [str(name) for name, _ in about["records"]]
        lengths = np.array([length for _, length in about["records"]])
        whole = np.issubdtype(lengths.dtype, np.integer) and lengths.ndim == 1
        self.bounds = np.concatenate([[0], np.cumsum(lengths if whole else -1)]).astype(np.int64)
        if (np.diff(self.bounds) < 0).any():  # negative, or so large that their sum overflows
            raise DamagedFile(f"{self.folder / ABOUT} is damaged: its records have no lengths.")
        self.gaps = load_numbers(self.folder / GAPS, (2,))
        self._open_tokens(self.folder / TOKENS, len(self), len(VOCABULARY))
        edges = self.gaps.ravel()  # begin, end, begin, end
        if self.gaps.shape[1] != 2 or (np.diff(edges) < 0).any() or edges.max(initial=0) > len(self):
            raise DamagedFile(f"{self.folder / GAPS} is damaged: its gaps are not in order.")

    def __len__(self) -> int:
        """The number of nucleotides."""
        return int(self.bounds[-1])


def _pack(folder: Path, files: list[Path]) -> None:
    records: list[tuple[str, int]] = []
    compressed = any(path.name.lower().endswith(".gz") for path in files)  # then the total is unknown
    total = 0 if compressed else sum(path.stat().st_size for path in files)
    with (folder / TOKENS).open("wb") as out, progress(total, "B") as bar:
        bar.describe("nucleotides")
        for path in files:
            for _, header, tokens in _pieces(path):
                if header is not None:
                    records.append((header.split(maxsplit=1)[0] if header else "", 0))
                elif records:
                    out.write(tokens)
                    records[-1] = records[-1][0], records[-1][1] + len(tokens)
                bar.advance(len(tokens) if header is None else len(header) + 2)
    if not any(length for _, length in records):
        raise ValueError(f"{', '.join(map(str, files))} has {len(records)} headers and no nucleotides; expected some.")
    np.save(folder / GAPS, _gaps(np.memmap(folder / TOKENS, np.uint8, mode="r")))
    write_json(folder / ABOUT, {"source": [str(path) for path in files], "records": records})


def _gaps(tokens: np.ndarray) -> np.ndarray:
    parts = [np.zeros((0, 2), np.int64)]
    for start in range(0, len(tokens), AT_ONCE):
        unknown = tokens[start : start + AT_ONCE] == N
        parts.append(np.flatnonzero(np.diff(unknown, prepend=False, append=False)).reshape(-1, 2) + start)
    runs = np.concatenate(parts)
    apart = runs[1:, 0] > runs[:-1, 1]  # not one run that was cut
    if len(runs):
        runs = np.stack([runs[np.append(True, apart), 0], runs[np.append(apart, True), 1]], 1)
    return runs[runs[:, 1] - runs[:, 0] >= GAP]
