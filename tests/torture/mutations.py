"""Damaged copies of bytes: bits that have changed, pieces that are missing, doubled, moved, zero or hostile."""

import random
import zlib

EXTREMES = (b"\0", b"\xff", b"\x7f", b"\x80", b"\x01")
HOSTILE = (  # for what is text
    *(b"\0", b"\r", b"\n", b"\t", b'"', b"'", b",", b">", b"|", b"\\", b"{", b"[", b"\xef\xbb\xbf", b"\xc3"),
    *(b"null", b"[]", b"{}", b"-1", b"1e400", b"NaN", b"true", b'"\\ud800"', b"0x10", b"-0", b"\xed\xa0\x80"),
    *(b"9" * 400, b"9" * 5000, b"[" * 100_000, b" " * 1000, b"\n" * 1000, b"," * 1000, b"<br />" * 100),
    *("\u2028".encode(), "\U0001f600".encode()),
)


def mutated(content: bytes, draw: random.Random) -> bytes:
    """One to three mutations. They depend on `draw` alone."""
    found = bytearray(content)
    for _ in range(draw.choice((1, 1, 1, 2, 3))):
        draw.choice(MUTATIONS)(found, draw)
    return bytes(found)


def _piece(found: bytearray, draw: random.Random) -> slice:
    begin = draw.randrange(len(found) + 1)
    return slice(begin, min(begin + draw.choice((1, 2, 4, 8, 16, 64, 512, 4096)), len(found)))


def _flip(found: bytearray, draw: random.Random) -> None:
    for _ in range(draw.choice((1, 1, 2, 8)) if found else 0):
        found[draw.randrange(len(found))] ^= 1 << draw.randrange(8)


def _byte(found: bytearray, draw: random.Random) -> None:
    if found:
        found[draw.randrange(len(found))] = draw.randrange(256)


def _cut(found: bytearray, draw: random.Random) -> None:
    del found[draw.randrange(len(found) + 1) :]


def _remove(found: bytearray, draw: random.Random) -> None:
    del found[_piece(found, draw)]


def _double(found: bytearray, draw: random.Random) -> None:
    piece = _piece(found, draw)
    found[piece.stop : piece.stop] = found[piece]


def _move(found: bytearray, draw: random.Random) -> None:
    """Some other piece in place of one of the same length."""
    piece = _piece(found, draw)
    begin = draw.randrange(len(found) + 1)
    other = found[begin : begin + piece.stop - piece.start]
    found[piece.start : piece.start + len(other)] = other


def _extreme(found: bytearray, draw: random.Random) -> None:
    piece = _piece(found, draw)
    found[piece] = draw.choice(EXTREMES) * (piece.stop - piece.start)


def _number(found: bytearray, draw: random.Random) -> None:
    """A number of 4 or 8 bytes that is off by one, too large, or negative."""
    width = draw.choice((2, 4, 8))
    if len(found) >= width:
        begin = draw.randrange(len(found) - width + 1)
        order = draw.choice(("little", "big"))
        value = int.from_bytes(found[begin : begin + width], order) + draw.choice((-1, 1, 255, 1 << 15, -(1 << 15)))
        found[begin : begin + width] = (value % (1 << 8 * width)).to_bytes(width, order)


def _insert(found: bytearray, draw: random.Random) -> None:
    begin = draw.randrange(len(found) + 1)
    found[begin:begin] = draw.randbytes(draw.choice((1, 4, 64)))


def _hostile(found: bytearray, draw: random.Random) -> None:
    """Hostile text, added or in place of something."""
    piece = _piece(found, draw)
    found[piece.start : draw.choice((piece.start, piece.stop))] = draw.choice(HOSTILE)


MUTATIONS = (_flip, _byte, _cut, _remove, _double, _move, _extreme, _number, _insert, _hostile)


def mutated_png(content: bytes, draw: random.Random) -> bytes:
    """A PNG whose chunks are damaged, and have the checksums of what they hold now."""
    chunks, at = [], 8
    while at + 12 <= len(content):
        size = int.from_bytes(content[at : at + 4], "big")
        chunks.append((content[at + 4 : at + 8], content[at + 8 : at + 8 + size]))
        at += size + 12
    place = draw.randrange(len(chunks))
    kind, data = chunks[place]
    if kind == b"IDAT" and draw.random() < 0.5:  # in what is compressed
        data = zlib.compress(mutated(zlib.decompress(data), draw))
    else:
        data = mutated(data, draw)[: 1 << 20]
    chunks[place] = kind, data
    parts = [len(x).to_bytes(4, "big") + kind + x + zlib.crc32(kind + x).to_bytes(4, "big") for kind, x in chunks]
    return content[:8] + b"".join(parts)
