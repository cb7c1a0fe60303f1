"""ListOps: what an independent evaluator makes of the text, and the arena's rules, of every expression."""

import re
import statistics
from random import Random

import numpy as np
import pytest

from lion.data.long_range.listops import (
    VOCABULARY,
    ListOpsRules,
    draw_expressions,
    from_text,
    to_text,
    write_listops,
)
from lion.data.long_range.sequences import SPLITS, Counts, Kind, Sequences
from tests import SEED

SMALL = ListOpsRules(min_length=10, max_length=100, max_depth=5, max_args=5)


def fails(message):
    return pytest.raises(ValueError, match=f"^{re.escape(message)}$")


def pieces(rows):
    return [x.copy() for x in np.split(rows.tokens, np.cumsum(rows.lengths)[:-1])]


def evaluated(words):
    """The digit or list that comes next: its value, its depth and the most arguments in it; None for a bracket."""
    word = next(words)
    if word == "]":
        return None
    if word.isdigit():
        return int(word), 1, 0
    inner = list(iter(lambda: evaluated(words), None))
    values = [value for value, _, _ in inner]
    results = {
        "[MIN": min(values),
        "[MAX": max(values),
        "[MED": int(statistics.median(values)) if word == "[MED" else None,
        "[SM": sum(values) % 10,
    }
    return results[word], 1 + max(x[1] for x in inner), max(len(inner), *(x[2] for x in inner))


def nested(text):
    """Of the arena's text, what its pairs of parentheses hold: (((operator, argument), argument), "]")."""
    stack = [[]]
    for word in text.split():
        if word == "(":
            stack.append([])
        elif word == ")":
            pair = stack.pop()
            assert len(pair) == 2
            stack[-1].append(tuple(pair))
        else:
            stack[-1].append(word)
    ((found,),) = stack
    return found


def flat(pair):
    return [word for x in pair for word in (flat(x) if isinstance(x, tuple) else [x])]


@pytest.mark.parametrize("rules", [ListOpsRules(), SMALL], ids=["arena", "small"])
def test_a_thousand_expressions_agree_with_an_evaluator(rules):
    rows = draw_expressions(rules, seed=3, draw=0)
    depths, most = [], []
    for tokens, label in list(zip(pieces(rows), rows.labels, strict=True))[:1000]:
        text = to_text(tokens)
        words = text.replace("(", "").replace(")", "").split()
        assert words == [VOCABULARY[x] for x in tokens]
        if len(depths) < 50:
            assert flat(nested(text)) == words
            assert from_text(text) == from_text(" ".join(words)) == tokens.tobytes()
        rest = iter(words)
        value, depth, args = evaluated(rest)
        assert not list(rest)
        assert value == label
        depths.append(depth)
        most.append(args)
    assert len(depths) == 1000
    assert max(depths) == rules.max_depth
    assert max(most) == rules.max_args
    assert rules.min_length < rows.lengths.min() <= rows.lengths.max() < rules.max_length
    assert np.bincount(rows.labels, minlength=10).min() > 0.03 * len(rows.labels)
    counts = np.bincount(rows.tokens, minlength=16)
    assert counts[0] == 0
    for kinds in (counts[1:11], counts[11:15]):  # digits and operators alike
        assert kinds.max() < 1.2 * kinds.min()


def test_an_argument_is_a_list_one_time_in_four():
    rows = draw_expressions(ListOpsRules(1, 10**6, 3, 10), seed=0, draw=0)
    below = [tokens[1:-1] for tokens in pieces(rows)]
    inside = [np.cumsum((x >= 11).astype(int) - 2 * (x == 15)) for x in below]
    lists = sum(int(((x >= 11) & (x < 15)).sum()) for x in below)
    digits = sum(int(((x < 11) & (depth == 0)).sum()) for x, depth in zip(below, inside, strict=True))
    assert abs(lists / (lists + digits) - 0.25) < 0.01


def grown(random, rules, depth=1):
    """An expression the plain way, as nested lists: tokens it has, and what it comes to."""
    if depth == rules.max_depth or random.random() >= 0.25:
        return 1, random.randrange(10)
    inner = [grown(random, rules, depth + 1) for _ in range(random.randint(2, rules.max_args))]
    values = [value for _, value in inner]
    kinds = (min, max, lambda x: int(statistics.median(x)), lambda x: sum(x) % 10)
    return 2 + sum(size for size, _ in inner), random.choice(kinds)(values)


def test_lengths_and_classes_are_as_frequent_as_when_grown_one_by_one():
    rows, random, wanted = draw_expressions(SMALL, seed=5, draw=0), Random(SEED), []
    while len(wanted) < 6000:
        size, value = grown(random, SMALL)
        if SMALL.min_length < size < SMALL.max_length:
            wanted.append((size, value))
    lengths, labels = np.array(wanted).T
    count = min(len(rows.labels), len(labels))
    assert count > 2000
    for got, want, bins in (
        (rows.lengths, lengths, np.quantile(lengths, np.arange(1, 10) / 10)),
        (rows.labels, labels, None),
    ):
        if bins is not None:
            got, want = np.digitize(got, bins), np.digitize(want, bins)
        shares, others = (np.bincount(x, minlength=10) / len(x) for x in (got, want))
        error = np.sqrt(2 * shares * (1 - shares) / count)
        assert (np.abs(shares - others) < 4 * error).all()


def test_the_same_bytes_from_one_process_or_two(tmp_path):
    counts = Counts(3000, 40, 50)
    for name, options in {"one": (0, 1), "two": (0, 2), "other": (1, 1)}.items():
        (tmp_path / name).mkdir()
        write_listops(tmp_path / name, SMALL, counts, *options)
    files = [{path.name: path.read_bytes() for path in (tmp_path / name).iterdir()} for name in ("one", "two", "other")]
    assert files[0] == files[1]
    assert files[0]["test.tokens"] != files[2]["test.tokens"]
    sets = {split: Sequences(tmp_path / "one", split, Kind(10, 100, 16)) for split in SPLITS}
    assert [len(x) for x in sets.values()] == list(counts)
    every = [x.row(i)[0].tobytes() for x in sets.values() for i in range(len(x))]
    assert len({*every}) == len(every)
    (tmp_path / "fewer").mkdir()
    write_listops(tmp_path / "fewer", SMALL, Counts(10, 40, 50), 0, 1)
    assert (tmp_path / "fewer" / "test.tokens").read_bytes() == files[0]["test.tokens"]


def test_rules_and_texts_that_are_wrong(tmp_path):
    got = "lengths are to be between 500 and 2000 tokens; expected numbers with some between them, of 4 to 122, which "
    with fails(got + "is the longest with max_depth 3 and max_args 10."):
        ListOpsRules(max_depth=3)
    with fails(
        "max_depth is 50, max_args 10, which is 1.3e+09 tokens of an expression, on average; expected less "
        "deep or shorter lists."
    ):
        ListOpsRules(max_depth=50)
    with pytest.raises(ValueError, match="and all together none; expected enough for all parts: ask for other lengths"):
        write_listops(tmp_path, ListOpsRules(1900, 2000, 4, 20), Counts(10, 1, 1), 0, 1)
    with fails("max_args is 1; expected a whole number from 2 to 100."):
        ListOpsRules(max_args=1)
    with fails("has '[FIRST'; expected digits, [MIN [MAX [MED [SM and ]"):
        from_text("[FIRST 1 2 ]")
    for text in ("[MIN 1 2", "[MIN 1 ] 2 ]", "[MIN 1 2 ] ]", "[MIN 1 ] [MIN 2 ]", ""):
        with pytest.raises(ValueError, match="brackets that do not match; expected one list, closed at the end"):
            from_text(text)
    with pytest.raises(ValueError, match="and all together hardly more than 400; expected enough"):
        write_listops(tmp_path, ListOpsRules(3, 5, 2, 2), Counts(1000, 1, 1), 0, 1)
