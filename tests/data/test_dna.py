"""DNA to learn from: windows that are kept apart, hidden nucleotides, labelled sequences, and a baseline."""

import gzip
import pickle
import re
from collections import Counter, defaultdict

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader

from lion.data import FETCHED, lion_data_folder, markov
from lion.data.batches import IGNORED
from lion.data.fasta import CLS, MASK, PAD, A, Genome, N, T, decode, encode, reverse_complement
from lion.data.genomes import MaskedNucleotides, Windows
from lion.data.labelled_dna import LabelledDna, LabelledSequences, labelled_sequences, splice, split_sequences
from lion.data.markov import PRIOR, count_contexts, markov_accuracy
from lion.train.sampler import Sampler
from tests import SEED

SPLICE = FETCHED["splice"].file


def fails(kind, message):
    return pytest.raises(kind, match=f"^{re.escape(message)}$")


def same(batch):
    return batch


def random_bases(length, seed=0):
    return "".join(np.random.default_rng(seed).choice(list("ACGT"), length))


@pytest.fixture
def genome(tmp_path):
    """Three records, with gaps, single N, and one too short for a window."""
    first = random_bases(3000) + "N" * 150 + random_bases(2000, 1) + "NN" + random_bases(500, 2)
    path = tmp_path / "x.fa"
    path.write_text(f">I\n{first}\n>short\nACGTACGT\n>II\n{'N' * 120}{random_bases(2500, 3)}\n")
    return Genome(path, folder=tmp_path / "kept")


def windows(genome, split="train", length=64, **options):
    return Windows(genome, length, split, **{"block": 256, "holdout": 0.2} | options)


def keys(count, epoch=0):
    return [(epoch, index) for index in range(count)]


def covered(found, epochs=20):
    """How often windows have each nucleotide [len(genome)]."""
    counts = np.zeros(len(found.genome), np.int64)
    for epoch in range(epochs):
        shifts = np.random.default_rng(epoch).random(len(found))
        for start in found.starts(np.arange(len(found)), shifts):
            counts[start : start + found.length] += 1
    return counts


# Windows.


@pytest.mark.parametrize("length", [1, 17, 64, 200])
@pytest.mark.parametrize("seed", [0, 1])
def test_parts_do_not_overlap(genome, length, seed):
    train, held = (covered(windows(genome, split, length, seed=seed)) for split in ("train", "validation"))
    assert train.any()
    assert held.any()
    assert not ((train > 0) & (held > 0)).any()
    gap = np.zeros(len(genome), bool)
    for start, end in genome.gaps:
        gap[start:end] = True
    assert gap.sum() == 270
    assert not (train + held)[gap].any()
    assert set(held.tolist()) == {0, 20}  # side by side
    assert ((train + held)[~gap] > 0).mean() > (0.7 if length > 17 else 0.95)


def test_windows_are_within_a_record(genome):
    for split in ("train", "validation"):
        found = windows(genome, split)
        starts = found.starts(np.arange(len(found)), np.linspace(0, 1, len(found), endpoint=False))
        record = np.searchsorted(genome.bounds, starts, side="right")
        np.testing.assert_array_equal(record, np.searchsorted(genome.bounds, starts + 63, side="right"))
        rows = found.tokens(starts)
        assert (rows.dtype, rows.shape) == (np.uint8, (len(found), 64))
        for row, start in zip(rows, starts, strict=True):
            np.testing.assert_array_equal(row, genome.tokens[start : start + 64])


def test_training_is_at_any_offset(genome):
    found = windows(genome, length=100)
    first, last = (found.starts(np.array([i]), np.array([u]))[0] for i, u in ((0, 0.0), (len(found) - 1, 1 - 1e-12)))
    assert first == found.parts[0, 0]
    assert last == found.parts[-1, 1] - 100
    indices = np.arange(len(found))
    starts = {int(x) for u in np.linspace(0, 1, 400) for x in found.starts(indices, np.full(len(found), u))}
    every = {x for start, end in found.parts for x in range(start, end - 99)}
    assert starts <= every
    assert len(starts) > 0.9 * len(every)
    assert len(found) == sum(end - start for start, end in found.parts) // 100
    spread = found.starts(indices, np.full(len(found), 0.5))
    assert (np.diff(spread) > 0).all()  # each index has its share of the genome


def test_what_is_held_out(genome):
    held = {length: windows(genome, "validation", length).parts for length in (1, 64)}
    inside = {tuple(x) for x in held[64].tolist()} <= {tuple(x) for x in held[1].tolist()}
    assert inside  # the same for any length
    other = windows(genome, "validation", seed=1).parts
    assert other.tolist() != held[64].tolist()
    sizes = [windows(genome, "validation", 1, holdout=x).nucleotides / len(genome) for x in (0.1, 0.2, 0.5)]
    assert all(abs(got - want) < 0.06 for got, want in zip(sizes, (0.1, 0.2, 0.5), strict=True)), sizes
    none = windows(genome, holdout=0, length=1)
    assert none.nucleotides == len(genome) - 270
    np.testing.assert_array_equal(np.concatenate(list(none.stretches())), genome.tokens[covered(none, 1) > 0])


def test_one_of_every_few_blocks_is_held_out(tmp_path):
    path = tmp_path / "x.fa"
    path.write_text(">x\n" + random_bases(10_000))
    genome = Genome(path, folder=tmp_path)
    for seed in range(5):
        found = Windows(genome, 100, "validation", holdout=0.1, block=100, seed=seed)
        starts = found.starts(np.arange(len(found)), np.zeros(len(found)))
        assert (starts // 1000).tolist() == list(range(10))


def test_windows_that_are_wrong(genome, tmp_path):
    with fails(ValueError, "split is 'test'; expected one of 'train', 'validation'."):
        windows(genome, "test")
    with fails(ValueError, "holdout is 1; expected a number from 0 to below 1."):
        windows(genome, holdout=1)
    with fails(ValueError, "holdout is 0, so nothing is held out to evaluate on; expected a share above 0."):
        windows(genome, "validation", holdout=0)
    with fails(ValueError, "length is 0; expected a whole number from 1 to 1,073,741,824."):
        windows(genome, length=0)
    with fails(ValueError, "block is 0; expected a whole number from 1 to 1,073,741,824."):
        windows(genome, block=0)
    got = f"validation of {genome.name} has no stretch of 10,000 nucleotides without a gap; the longest has "
    with pytest.raises(ValueError, match=re.escape(got)):
        windows(genome, "validation", length=10_000)
    path = tmp_path / "small.fa"
    path.write_text(">x\nACGT\n")
    small = Genome(path, folder=tmp_path)
    got = f"validation of {path} has no stretch of 2 nucleotides without a gap; the longest has 0 (holdout is 0.1, "
    with fails(ValueError, f"{got}block is 262,144, of 4): take a smaller block, so that there are several."):
        Windows(small, 2, "validation")
    assert len(Windows(small, 2)) == 2


# Hidden nucleotides.


def test_berts_shares(genome):
    found = MaskedNucleotides(windows(genome, length=100), 0.3, reverse_complement=False)
    batch = found.__getitems__([key for epoch in range(40) for key in keys(len(found), epoch)])
    inputs, labels = batch["input_ids"], batch["labels"]
    assert (inputs.dtype, labels.dtype) == (torch.int64, torch.int64)
    assert inputs.shape == labels.shape == (40 * len(found), 100)
    target = labels != IGNORED
    assert ((labels[target] >= A) & (labels[target] <= T)).all()
    assert (inputs == N).any()

    def near(got, want):
        assert abs(got.float().mean() - want) < 5 * (want * (1 - want) / got.numel()) ** 0.5

    near(target[inputs != N], 0.3)
    masked, kept = inputs[target] == MASK, inputs[target] == labels[target]
    near(masked, 0.8)
    near(kept, 0.1 + 0.1 / 4)
    others = inputs[target][~masked & ~kept]
    assert others.unique().tolist() == [1, 2, 3, 4]
    near(others <= 2, 0.5)
    assert not (inputs[~target] == MASK).any()


def test_n_is_no_target(genome):
    found = MaskedNucleotides(windows(genome), 1.0, hidden=1.0)
    batch = found.__getitems__([key for epoch in range(10) for key in keys(len(found), epoch)])
    assert (batch["input_ids"] == N).any()
    assert torch.equal(batch["labels"] == IGNORED, batch["input_ids"] == N)
    assert ((batch["input_ids"] == N) | (batch["input_ids"] == MASK)).all()


def test_validation_is_fixed_and_hides_every_target(genome):
    held = windows(genome, "validation")
    found = MaskedNucleotides(held, seed=3)
    first, later = (found.__getitems__(keys(len(found), epoch)) for epoch in (0, 7))
    assert all(torch.equal(first[name], later[name]) for name in first)
    target = first["labels"] != IGNORED
    assert (first["input_ids"][target] == MASK).all()
    true = torch.where(target, first["labels"], first["input_ids"])
    starts = held.starts(np.arange(len(held)), np.zeros(len(held)))
    np.testing.assert_array_equal(true.numpy(), held.tokens(starts))  # in order, from the strand that is in the file
    some = MaskedNucleotides(held, hidden=0.0).__getitems__(keys(len(found)))
    assert not (some["input_ids"] == MASK).any()
    assert not torch.equal(some["input_ids"], true)


def test_half_of_the_windows_are_from_the_other_strand(genome):
    plain, turned = (MaskedNucleotides(windows(genome), 1e-9, reverse_complement=x) for x in (False, True))
    a, b = (x.__getitems__(keys(len(plain)))["input_ids"].numpy() for x in (plain, turned))
    other = (reverse_complement(a.astype(np.uint8)) == b).all(1)
    assert ((a == b).all(1) ^ other).all()
    assert 0.3 < other.mean() < 0.7
    again = turned.__getitems__(keys(len(plain), 1))["input_ids"].numpy()
    assert not np.array_equal(again, b)


def labelled_set(**options):
    sequences = [encode(random_bases(3 + i, i)) for i in range(12)]
    return LabelledSequences(LabelledDna(sequences, np.arange(12) % 2, ["a", "b"]), **options)


@pytest.mark.parametrize("kind", ["masked", "labelled"])
def test_an_example_depends_on_its_key_alone(genome, kind):
    def make(seed):
        if kind == "masked":
            return MaskedNucleotides(windows(genome), seed=seed)
        return labelled_set(reverse_complement=True, seed=seed)

    found = make(3)
    every = [(epoch, index) for epoch in (0, 7) for index in range(6)]
    alone = {key: found.__getitems__([key]) for key in every}
    orders = [every, every[::-1], every[3:9]]
    for workers in (0, 2):
        loader = DataLoader(found, batch_sampler=orders, num_workers=workers, collate_fn=same)
        for order, batch in zip(orders, loader, strict=True):
            for row, key in enumerate(order):
                for part, x in batch.items():
                    want = alone[key][part][0]
                    assert torch.equal(x[row][: len(want)] if want.dim() else x[row], want)
    other = make(4)
    assert any(not torch.equal(other.__getitems__([key])["input_ids"], alone[key]["input_ids"]) for key in every)
    assert any(not torch.equal(alone[0, i]["input_ids"], alone[7, i]["input_ids"]) for i in range(6))
    assert len(pickle.dumps(found)) < 10_000
    stream = Sampler(len(found), 4, seed=0, steps=range(3))
    assert [len(x["input_ids"]) for x in DataLoader(found, batch_sampler=stream, collate_fn=same)] == [4] * 3


def test_what_cannot_be_masked(genome):
    with fails(ValueError, "rate is 0; expected a number above 0 and up to 1."):
        MaskedNucleotides(windows(genome), 0)
    with fails(ValueError, "hidden is 2; expected a number from 0 to 1."):
        MaskedNucleotides(windows(genome), hidden=2)


# The baseline.


def naive_counts(rows, left, right):
    counts = Counter()
    for row in map(decode, rows):
        for i in range(left, len(row) - right):
            if "N" not in row[i - left : i + right + 1]:
                counts[row[i - left : i], row[i + 1 : i + 1 + right], row[i]] += 1
    return counts


def naive_accuracy(train, held_out, order, sides, peek):
    """One by one, from the definition."""
    rows = list(train)
    left, right = (defaultdict(Counter) for _ in range(2))  # by the length of a context; all are from whole ones
    for k in range(order + 1):
        for (before, _, base), count in naive_counts(rows, order, 0).items():
            left[k][before[order - k :], "", base] += count
        for (_, after, base), count in naive_counts(rows, 0, order).items():
            right[k]["", after[:k], base] += count
    both = naive_counts(rows, order, order)
    batch = held_out.__getitems__(keys(len(held_out)))
    hits = []
    for ids, labels in zip(batch["input_ids"], batch["labels"], strict=True):
        text = "".join("?" if x == MASK else "NACGTN"[x] for x in ids.tolist())
        true = "".join("NACGT"[y] if y != IGNORED else x for x, y in zip(text, labels.tolist(), strict=True))
        text = true if peek else text
        for i in np.flatnonzero(labels != IGNORED):
            before = re.search(r"[ACGT]*$", text[max(i - order, 0) : i])[0]
            after = re.match(r"[ACGT]*", text[i + 1 : i + 1 + order])[0]
            scores = np.array(shares(left, before, ""))
            if sides == "both":
                scores = scores * shares(right, "", after) / shares(left, "", "")
                scores *= PRIOR / scores.sum()
                if len(before) == len(after) == order:
                    scores += [both[before, after, base] for base in "ACGT"]
            hits.append("ACGT"[int(np.argmax(scores))] == true[i])
    return sum(hits) / len(hits)


def shares(tables, before, after):
    while True:
        counts = [tables[len(before or after)][before, after, base] for base in "ACGT"]
        if sum(counts):
            return np.array([(x + 1) / (sum(counts) + 4) for x in counts])
        if not (before or after):
            return np.full(4, 0.25)
        before, after = before[1:], after[:-1]


@pytest.fixture
def wordy(tmp_path):
    """There is something to be learned from neighbours."""
    generator = np.random.default_rng(SEED)
    words = ["".join(generator.choice(list("ACGTN"), 9, p=[0.4, 0.2, 0.2, 0.19, 0.01])) for _ in range(12)]
    path = tmp_path / "words.fa"
    path.write_text(">x\n" + "".join(generator.choice(words, 900)))
    return Genome(path, folder=tmp_path)


@pytest.mark.parametrize("sides", ["left", "both"])
@pytest.mark.parametrize("peek", [True, False])
@pytest.mark.parametrize("order", [0, 1, 3, 5])
def test_markov_accuracy_is_that_of_a_loop(wordy, monkeypatch, sides, peek, order):
    monkeypatch.setattr(markov, "AT_ONCE", 97)
    train = windows(wordy, holdout=0.3).stretches()
    held = MaskedNucleotides(windows(wordy, "validation", holdout=0.3), hidden=0.8)
    rows = list(train)
    got = markov_accuracy(iter(rows), held, order, sides=sides, peek=peek)
    assert got == naive_accuracy(rows, held, order, sides, peek)


def test_neighbours_help(wordy):
    train = list(windows(wordy).stretches())
    held = MaskedNucleotides(windows(wordy, "validation"))
    none, left = (markov_accuracy(train, held, order) for order in (0, 5))
    both = markov_accuracy(train, held, 5, sides="both")
    assert none < 0.5 < left - 0.1 < both - 0.2
    assert markov_accuracy(train, held, 5, peek=False) < left
    assert markov_accuracy([], held, 5) == markov_accuracy([encode("AAA")], held, 5) < 0.5  # it says A


@pytest.mark.parametrize(("left", "right"), [(0, 0), (2, 0), (0, 2), (2, 1), (3, 3)])
def test_contexts_are_counted(genome, monkeypatch, left, right):
    monkeypatch.setattr(markov, "AT_ONCE", 100)
    rows = [genome.tokens[:700], genome.tokens[2900:3300], genome.tokens[5000:5001], genome.tokens[:0]]
    got = count_contexts(rows, left, right)
    want = np.zeros_like(got)
    for (before, after, base), count in naive_counts(rows, left, right).items():
        digits = before + after[::-1]
        want[int("0" + "".join(str("ACGT".index(x)) for x in digits), 4), "ACGT".index(base)] = count
    np.testing.assert_array_equal(got, want)


def test_baselines_that_are_wrong(genome):
    held = MaskedNucleotides(windows(genome, "validation"))
    with fails(ValueError, "sides is 'right'; expected one of 'left', 'both'."):
        markov_accuracy([], held, sides="right")
    with fails(ValueError, "order is 7; expected from 0 to 6 neighbours, with sides='both'."):
        markov_accuracy([], held, 7, sides="both")
    with fails(ValueError, "held_out has no targets; expected some: take a higher rate, or more windows."):
        markov_accuracy([], MaskedNucleotides(windows(genome, "validation"), 1e-12))


@pytest.mark.skipif(not (lion_data_folder() / "chromosome").exists(), reason="lion.data.fetch('chromosome')")
def test_the_chromosome():
    genome = Genome("chromosome")
    train, held = (Windows(genome, 16_384, split) for split in ("train", "validation"))
    assert (len(train), len(held), held.nucleotides) == (823, 96, 6 << 18)
    assert round(markov_accuracy(train.stretches(), MaskedNucleotides(held)), 4) == 0.4125


# Labelled sequences.


TABLE = {"Sequence": ["ACGT", "aacc", "GGTTN"], "label": ["yes", "no", "yes"]}


@pytest.mark.parametrize("ending", [".csv", ".tsv", ".csv.gz"])
def test_tables(tmp_path, ending):
    path = tmp_path / f"x{ending}"
    mark = "\t" if ending == ".tsv" else ","
    text = "\n".join(mark.join(row) for row in [[*TABLE], *zip(*TABLE.values(), strict=True)])
    path.write_bytes(gzip.compress(text.encode()) if ending.endswith(".gz") else text.encode())
    found = labelled_sequences(path)
    assert [decode(x) for x in found.tokens] == ["ACGT", "AACC", "GGTTN"]
    assert (found.classes, found.labels.tolist()) == (["no", "yes"], [1, 0, 1])
    assert labelled_sequences(path, "Sequence", "label", classes=["yes", "no"]).labels.tolist() == [0, 1, 0]


@pytest.mark.parametrize(
    "headers",
    [
        ["a|x|yes", "b|no", "c|yes"],
        ["a some yes", "b no", "c yes"],
        ["a label=yes", "b|label=no other", "Class:yes;c"],
        ['a label="yes" x', 'b class="no"', 'c;label="yes"'],
        ["a\tyes", "b\tno ", "c\tyes"],
    ],
)
def test_labels_in_headers(tmp_path, headers):
    path = tmp_path / "x.fa"
    path.write_text("".join(f">{h}\nAC\nGT\n" for h in headers))
    found = labelled_sequences(path)
    assert [decode(x) for x in found.tokens] == ["ACGT"] * 3
    assert (found.classes, found.labels.tolist()) == (["no", "yes"], [1, 0, 1])


def test_labels_of_several_words_in_headers(tmp_path):
    path = tmp_path / "x.fa"
    path.write_text('>a label="not coding"\nACGT\n>b label=coding here\nACGT\n')
    found = labelled_sequences(path)
    assert found.classes == ["coding", "not coding"]
    assert found.notes["columns"].endswith("a word, or several in double quotes")


def test_numbers_as_labels(tmp_path):
    path = tmp_path / "x.fa"
    path.write_text("".join(f">{i}|{i / 2}\n{random_bases(10, i)}\n" for i in range(10)))
    found = labelled_sequences(path)
    assert found.classes is None
    assert found.labels.dtype == np.float32
    train, test = split_sequences(found, 0.3)
    assert (len(train.tokens), len(test.tokens)) == (7, 3)
    assert LabelledSequences(test).__getitems__(keys(1))["label"].dtype == torch.float32


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        (
            "x.csv",
            "read,label\nACGT,1\n",
            "{path} has no column with a usual name for its sequences (sequence, sequences, seq, dna, ...); its "
            "columns are 'read', 'label': say which: --sequence_column NAME.",
        ),
        ("x.csv", "", "{path} has no rows; expected sequences with labels."),
        (
            "x.csv",
            "seq,label\nACGT,1\n\nAXGT,0\n",
            "{path}, line 4 has 'X', which is no nucleotide; expected A, C, G, T or U, or IUPAC's letters for several "
            "of them (RYSWKMBDHVN): is this a protein, or no FASTA?",
        ),
        (
            "x.csv",
            "seq,label\nACGT,1\n,0\n",
            "{path}, line 3 has an empty text in 'seq'; expected some text: fill it in, or leave the row out.",
        ),
        (
            "x.fa",
            ">a\nACGT\n",
            "{path}, line 1 has no label in its header, 'a'; expected '>label=...', '>name|label', '>name label'.",
        ),
        (
            "x.fa",
            ">a|1\nACGT\n>b 2\nA\n",
            "{path}, line 3 has no label in its header, 'b 2'; expected '>name|label', as the first has it.",
        ),
        (
            "x.fa",
            ">a|1\n>b|2\nA\n",
            "{path}, line 1 has a header without a sequence; expected one: leave it out.",
        ),
        (
            "x.fa",
            ">a|1\nC\n>b|1\nA\n",
            "{path} has '1' in every row of 'its header'; expected two classes or more.",
        ),
    ],
)
def test_labels_that_are_wrong(tmp_path, name, text, message):
    path = tmp_path / name
    path.write_text(text)
    with fails(ValueError, message.format(path=path)):
        labelled_sequences(path)


def test_copies_are_on_one_side():
    some = [encode(random_bases(20, i)) for i in range(60)]
    copies = [*some, *some[:30], *(reverse_complement(x) for x in some[20:40])]
    labels = np.arange(len(copies)) % 3  # copies may differ in it
    found = LabelledDna(copies, labels, ["a", "b", "c"])
    for seed in range(5):
        train, test = split_sequences(found, 0.25, seed)
        assert len(train.tokens) + len(test.tokens) == len(copies)
        sides = [{x.tobytes() for x in part.tokens} for part in (train, test)]
        turned = {reverse_complement(x).tobytes() for x in train.tokens}
        assert not (sides[0] | turned) & sides[1]
        assert 0.15 < len(test.tokens) / len(copies) < 0.35
        assert len(np.unique(test.labels)) == 3
        again = split_sequences(found, 0.25, seed)[1]
        assert [x.tobytes() for x in again.tokens] == [x.tobytes() for x in test.tokens]
    with fails(ValueError, "holdout is 1; expected a number between 0 and 1."):
        split_sequences(found, 1)


def test_padding():
    found = labelled_set()
    batch = found.__getitems__([(0, 2), (5, 0), (0, 11)])
    assert {name: tuple(x.shape) for name, x in batch.items()} == {"input_ids": (3, 15), "mask": (3, 15), "label": (3,)}
    assert [x.dtype for x in batch.values()] == [torch.int64, torch.bool, torch.int64]
    assert batch["label"].tolist() == [0, 0, 1]
    for ids, mask, i in zip(batch["input_ids"], batch["mask"], (2, 0, 11), strict=True):
        assert ids[0] == CLS
        assert decode(ids[mask][1:]) == random_bases(3 + i, i)
        assert (ids[~mask] == PAD).all()
    assert found.__getitems__([(0, 0)])["input_ids"].shape == (1, 8)
    cut = labelled_set(max_length=6).__getitems__([(0, 11)])
    assert decode(cut["input_ids"][0, 1:]) == random_bases(14, 11)[:5]


def test_the_other_strand_of_labelled_sequences():
    found, plain = labelled_set(reverse_complement=True), labelled_set()
    turned = 0
    for key in [(epoch, index) for epoch in range(10) for index in range(12)]:
        got, want = (x.__getitems__([key]) for x in (found, plain))
        assert torch.equal(got["mask"], want["mask"])
        ids, row = (x["input_ids"][0][x["mask"][0]].numpy() for x in (got, want))
        assert ids[0] == CLS
        other = decode(ids[1:]) == decode(reverse_complement(row[1:]))
        assert other or np.array_equal(ids, row)
        turned += other
    assert 40 < turned < 85


def test_labelled_sets_that_are_wrong():
    with fails(ValueError, "there are 0 sequences and 0 labels; expected one label each."):
        LabelledSequences(LabelledDna([], np.zeros(0, np.int64), ["a"]))
    with fails(ValueError, "max_length is 1; expected a whole number from 2 to 1,073,741,824."):
        labelled_set(max_length=1)


def splice_file(folder, rows):
    path = folder / SPLICE
    lines = ["@relation splice", "@attribute Class {EI, IE, N}", "@data"]
    path.write_text("\r\n".join([*lines, *(", ".join([*bases, label]) for bases, label in rows)]) + "\r\n")
    return path


def test_splice(tmp_path, monkeypatch):
    monkeypatch.setenv("LION_DATA", str(tmp_path))
    home = tmp_path / "splice"
    with fails(FileNotFoundError, f"splice is not in {home}; expected {SPLICE}: lion.data.fetch('splice')."):
        splice("train")
    home.mkdir()
    rows = [(random_bases(59, i) + "D", ("EI", "IE", "N")[i % 3]) for i in range(60)]
    path = splice_file(home, rows)
    train, test = splice("train"), splice("test", data=path)
    assert np.bincount(train.labels).tolist() == [16] * 3
    assert np.bincount(test.labels).tolist() == [4] * 3
    assert {decode(x) for x in [*train.tokens, *test.tokens]} == {bases[:-1] + "N" for bases, _ in rows}
    with fails(ValueError, "split is 'validation'; expected one of 'train', 'test'."):
        splice("validation")
    splice_file(home, [*rows, ("ACGT", "EI")])
    got = f"{path}, line 64 has 4 nucleotides and the class 'EI'"
    with fails(ValueError, f"{got}; expected 60 and one of 'EI', 'IE', 'N': get it again."):
        splice("train")
    splice_file(home, [])
    with fails(ValueError, f"{path} has no sequences; expected {SPLICE} as fetched."):
        splice("train")


@pytest.mark.skipif(not (lion_data_folder() / "splice").exists(), reason="lion.data.fetch('splice')")
def test_the_splice_junctions():
    parts = [splice("train"), splice("test")]
    assert [np.bincount(part.labels).tolist() for part in parts] == [[598, 610, 1323], [169, 158, 332]]
    texts = [{x.tobytes() for x in part.tokens} for part in parts]
    assert not texts[0] & texts[1]
    assert {len(x) for part in parts for x in part.tokens} == {60}
