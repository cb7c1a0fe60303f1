"""ListOps by the Long Range Arena's rules: nested lists of digits, `[MAX 4 [MIN 2 3 ] 1 0 ]`, and their values."""

import itertools
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from hashlib import blake2b
from pathlib import Path
from typing import NamedTuple

import numpy as np

from lion.configs import check
from lion.data.long_range.sequences import Counts, Rows, in_order, write_drawn
from lion.limits import SomeNesting
from lion.terminal import brief

OPERATORS = ("[MIN", "[MAX", "[MED", "[SM")  # the last: the sum's last digit
MIN, MAX, MED, SUM = range(4)
VOCABULARY = ("", *"0123456789", *OPERATORS, "]")  # 0 is padding
DIGIT, OPERATOR, END = 1, 11, 15  # the first token of each kind
NESTED = 0.25  # the probability that an argument is a list itself
COUNTS = Counts(96_000, 2_000, 2_000)
NODES = 2_000_000  # tokens of all expressions that are drawn at once, roughly
GIVE_UP = 64  # draws in a row without a new expression


@dataclass(frozen=True)
class ListOpsRules:
    """Tokens are counted without parentheses. The defaults are the arena's; (10, 100, 5, 5) is laptop scale."""

    min_length: int = 500  # expressions have more tokens than this
    max_length: int = 2000  # and fewer than this
    max_depth: SomeNesting = 10  # of digits: lists are nested at most 9 deep
    max_args: SomeNesting = 10  # of a list, which has at least 2

    def __post_init__(self) -> None:
        check(self)
        longest = 1
        for _ in range(self.max_depth - 1):
            longest = 2 + self.max_args * longest
        if self.min_length < 1 or max(self.min_length + 1, 4) > min(self.max_length - 1, longest):
            raise ValueError(
                f"lengths are to be between {self.min_length} and {self.max_length} tokens; expected numbers with "
                f"some between them, of 4 to {longest}, which is the longest with max_depth {self.max_depth} and "
                f"max_args {self.max_args}."
            )
        if self.mean_length > NODES:
            raise ValueError(
                f"max_depth is {self.max_depth}, max_args {self.max_args}, which is {self.mean_length:.1e} tokens of "
                "an expression, on average; expected less deep or shorter lists."
            )

    @property
    def mean_length(self) -> float:
        """The mean length of all expressions that are drawn, roughly."""
        growth = NESTED * (2 + self.max_args) / 2  # of the number of arguments, from a level to the next
        return sum(growth**depth for depth in range(self.max_depth))


class _Level(NamedTuple):
    """All arguments at one depth of many expressions."""

    is_list: np.ndarray  # bool [N]
    args: np.ndarray  # [lists]: the number of arguments of each list, in the next level
    sizes: np.ndarray  # [N], in tokens

    @property
    def first(self) -> np.ndarray:
        """The place of each list's first argument in the next level [lists]."""
        return np.cumsum(self.args) - self.args


def draw_expressions(rules: ListOpsRules, seed: int, draw: int) -> Rows:
    """Many expressions, drawn at once, level by level; those that fit the rules."""
    generator = np.random.default_rng((seed % 2**64, draw))
    levels = _sized(_grown(generator, rules, tries=int(np.clip(NODES / rules.mean_length, 1, 1 << 14))))
    sizes = levels[0].sizes
    levels = _chosen(levels, (sizes > rules.min_length) & (sizes < rules.max_length))
    tokens = [
        np.where(
            level.is_list,
            generator.integers(OPERATOR, OPERATOR + len(OPERATORS), len(level.sizes), dtype=np.uint8),
            generator.integers(DIGIT, DIGIT + 10, len(level.sizes), dtype=np.uint8),
        )
        for level in levels
    ]
    return Rows(_written(levels, tokens), levels[0].sizes, _evaluated(levels, tokens))


def _grown(generator: np.random.Generator, rules: ListOpsRules, tries: int) -> list[_Level]:
    """Random levels, without their sizes."""
    levels = []
    count = tries
    for depth in range(1, rules.max_depth + 1):
        is_list = generator.random(count, np.float32) < NESTED if depth < rules.max_depth else np.zeros(count, bool)
        args = generator.integers(2, rules.max_args + 1, int(is_list.sum()))
        levels.append(_Level(is_list, args, np.ones(count, np.int64)))
        count = int(args.sum())
    return levels


def _sized(levels: list[_Level]) -> list[_Level]:
    for level, inner in _from_within(levels):
        level.sizes[level.is_list] = 2 + np.add.reduceat(inner.sizes, level.first)
    return levels


def _from_within(levels: list[_Level]) -> Iterator[tuple[_Level, _Level]]:
    """Every level that has lists, with the next level; the deepest first."""
    return ((level, inner) for level, inner in reversed(list(itertools.pairwise(levels))) if len(level.args))


def _chosen(levels: list[_Level], keep: np.ndarray) -> list[_Level]:
    """The expressions to keep, in all levels."""
    found = []
    for level in levels:
        of_lists = keep[level.is_list]
        found.append(_Level(level.is_list[keep], level.args[of_lists], level.sizes[keep]))
        keep = np.repeat(of_lists, level.args)
    return found


def _written(levels: list[_Level], tokens: list[np.ndarray]) -> np.ndarray:
    """The tokens of all expressions, end to end."""
    written = np.zeros(levels[0].sizes.sum(), np.uint8)
    places = np.cumsum(levels[0].sizes) - levels[0].sizes
    for depth, level in enumerate(levels):
        written[places] = tokens[depth]
        lists = places[level.is_list]
        written[lists + level.sizes[level.is_list] - 1] = END
        if len(lists):
            before = np.cumsum(levels[depth + 1].sizes) - levels[depth + 1].sizes
            places = before + np.repeat(lists + 1 - before[level.first], level.args)
        else:
            places = lists
    return written


def _evaluated(levels: list[_Level], tokens: list[np.ndarray]) -> np.ndarray:
    """The value of each expression."""
    values = [np.where(level.is_list, 0, x - DIGIT) for level, x in zip(levels, tokens, strict=True)]
    for depth in reversed(range(len(levels) - 1)):
        level, inner = levels[depth], values[depth + 1]
        if not len(level.args):
            continue
        first, last = level.first, level.first + level.args - 1
        operators = tokens[depth][level.is_list] - OPERATOR
        # Sorted within their lists, the smallest, middle and largest arguments are at known places. The median of an
        # even number of arguments is the mean of the two in the middle, rounded down.
        owner = np.repeat(np.arange(len(first), dtype=np.int32) * 16, level.args)
        ordered = np.sort(owner + inner) - owner
        middle = (ordered[(first + last) // 2] + ordered[(first + last + 1) // 2]) // 2
        total = np.add.reduceat(inner, first, dtype=np.int64) % 10
        results = np.stack([ordered[first], ordered[last], middle, total])
        values[depth][level.is_list] = results[operators, np.arange(len(operators))]
    return values[0].astype(np.uint8)


def write_listops(folder: Path, rules: ListOpsRules, counts: Counts, seed: int, processes: int | None = None) -> None:
    """Write all splits, without duplicates. The bytes are the same for any number of processes."""
    with closing(in_order(partial(draw_expressions, rules, seed), itertools.count(), processes)) as draws:
        write_drawn(folder, "listops", _without_copies(draws), rules, counts, seed)


def _without_copies(draws: Iterator[Rows]) -> Iterator[Rows]:
    seen: set[bytes] = set()
    in_vain = 0
    for rows in draws:
        ends = np.cumsum(rows.lengths)
        text = rows.tokens.tobytes()
        new = np.zeros(len(ends), bool)
        for i, (end, length) in enumerate(zip(ends.tolist(), rows.lengths.tolist(), strict=True)):
            mark = blake2b(text[end - length : end], digest_size=16).digest()
            new[i] = mark not in seen
            seen.add(mark)
        in_vain = 0 if new.any() else in_vain + 1
        if in_vain == GIVE_UP:
            found, remedy = (
                (f"hardly more than {len(seen)}", "ask for fewer, or for longer and deeper ones")
                if seen
                else ("none", "ask for other lengths, or for deeper ones")
            )
            raise ValueError(
                f"{GIVE_UP} draws in a row had no new expression of the lengths asked for, and all together {found}; "
                f"expected enough for all parts: {remedy}."
            )
        if new.any():
            yield Rows(rows.tokens[np.repeat(new, rows.lengths)], rows.lengths[new], rows.labels[new])


# As text.


def to_text(tokens: np.ndarray) -> str:
    """An expression as in the arena's files: `( ( ( [MAX 1 ) 2 ) ] )`, a pair of parentheses for each argument."""
    words: list[str] = []  # in reverse
    counts: list[int] = []  # arguments so far of each open list
    for token in reversed(tokens.tolist()):
        if token == END:
            words.append(") )" if counts else ")")
            words.append("]")
            counts.append(0)
        elif token >= OPERATOR:
            words.append(VOCABULARY[token])
            words.extend("(" * (counts.pop() + 1))
            if counts:
                counts[-1] += 1
        else:
            words.append(f"{VOCABULARY[token]} )")
            counts[-1] += 1
    return " ".join(reversed(words))


def from_text(text: str) -> bytes:
    """The tokens of an expression, with or without parentheses."""
    try:
        tokens = bytes(map(TOKENS.__getitem__, text.replace("(", " ").replace(")", " ").split()))
    except KeyError as word:
        raise ValueError(f"has {brief(word, 40)}; expected digits, {' '.join(OPERATORS)} and ]") from None
    kinds = np.frombuffer(tokens, np.uint8)
    depth = np.cumsum((kinds >= OPERATOR).astype(np.int64) - 2 * (kinds == END))
    if len(depth) < 3 or depth[-1] != 0 or depth[:-1].min() < 1:
        raise ValueError(
            f"has {sum(kinds >= OPERATOR)} brackets that do not match; expected one list, closed at the end"
        )
    return tokens


TOKENS = {word: token for token, word in enumerate(VOCABULARY) if word}
