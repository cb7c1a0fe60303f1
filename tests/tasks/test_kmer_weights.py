"""The linear model of k-mers that a network for DNA is trained beside."""

import json
from collections import Counter

import numpy as np
import pytest

pytest.importorskip("accelerate")

import torch

import lion
from lion import recipes
from lion.cli import main
from lion.data import fasta
from lion.data.alignment import aligned_sequences, either_strand
from lion.models import kmers as module
from lion.models.kmers import KmerWeights, kmers, vocabulary
from lion.models.long_range import LongConfig, LongModel
from lion.tasks import _token_weights
from lion.tasks._token_weights import LONGEST, count_kmers, fit, longest_kmers

COMPLEMENT = str.maketrans("ACGT", "TGCA")


def random_sequences(count, length, seed=0, letters="ACGT"):
    generator = np.random.default_rng(seed)
    return ["".join(generator.choice(list(letters), length)) for _ in range(count)]


def with_words(count=80, length=60):
    """Sequences whose class is told by how often which word stands in them, anywhere."""
    labels = np.arange(count) % 2
    rest = random_sequences(count, length)
    places = np.random.default_rng(1).integers(0, length - 8, (count, 3))
    found = []
    for text, label, row in zip(rest, labels, places, strict=True):
        for at in row:
            text = text[:at] + ("GATTACA", "CCGGTTA")[label] + text[at + 7 :]
        found.append(text)
    return found, labels


def write(path, sequences, labels):
    names = ("one", "other")
    rows = (f"{text},{names[label]}" for text, label in zip(sequences, labels, strict=True))
    path.write_text("sequence,label\n" + "\n".join(rows) + "\n")
    return path


def test_the_tokens_are_those_of_fasta():
    assert (module.FIRST, module.BASES) == (fasta.A, fasta.BASES)


@pytest.mark.parametrize("both", [False, True])
def test_counts_are_those_of_the_words(both):
    text = "ACGTNNACGGTACCATGN"
    found = Counter(kmers(torch.tensor(fasta.encode(text))[None], 4, both_strands=both).flatten().tolist())
    del found[0]
    words = [text[i : i + k] for k in range(1, 5) for i in range(len(text) - k + 1)]
    words = [word for word in words if "N" not in word]
    if both:
        words = [min(word, word.translate(COMPLEMENT)[::-1]) for word in words]
    assert sorted(found.values()) == sorted(Counter(words).values())
    assert max(found) < vocabulary(4)
    assert sum(found.values()) == len(words)


def test_every_word_has_a_number_of_its_own():
    every = torch.cartesian_prod(*[torch.arange(1, 5)] * 3)
    assert sorted(kmers(every, 3)[:, 0, 2].tolist()) == list(range(1 + 4 + 16, vocabulary(3)))
    assert kmers(every[:, :2], 3)[..., 2].sum() == 0  # too short for any


def test_the_other_strand_has_the_same_words():
    tokens = np.stack([fasta.encode(x) for x in random_sequences(3, 40)])
    turned = fasta.reverse_complement(tokens).copy()
    one, other = (
        torch.from_numpy(np.sort(kmers(torch.from_numpy(x), 5, both_strands=True).numpy(), 1)) for x in (tokens, turned)
    )
    np.testing.assert_array_equal(np.sort(one.flatten(1)), np.sort(other.flatten(1)))


@pytest.mark.parametrize("both", [False, True])
def test_counts_and_model_agree_in_pieces_too(both, monkeypatch):
    sequences, labels = with_words()
    tokens = [fasta.encode(x[: 60 - i % 7]) for i, x in enumerate(sequences)]
    whole = count_kmers(tokens, 4, both_strands=both)
    monkeypatch.setattr(_token_weights, "AT_ONCE", 1000)
    assert (count_kmers(tokens, 4, both_strands=both) != whole).nnz == 0
    found = fit(whole, labels, 2)
    assert found.score > 0.9
    weights = KmerWeights(4, 2, both_strands=both)
    found.whole.fill(weights)
    ids = torch.nn.utils.rnn.pad_sequence([torch.tensor(x).long() for x in tokens], batch_first=True)
    wanted = _token_weights._logits(found.whole, whole)
    torch.testing.assert_close(weights(ids).numpy(), wanted.astype(np.float32), atol=1e-4, rtol=1e-4)
    ids[ids == 0] = 3  # which the mask hides
    mask = torch.arange(60) < torch.tensor([len(x) for x in tokens])[:, None]
    torch.testing.assert_close(weights(ids, mask).numpy(), wanted.astype(np.float32), atol=1e-4, rtol=1e-4)


def test_many_long_sequences_have_shorter_words():
    assert longest_kmers(np.full(4_000, 200)) == LONGEST
    assert longest_kmers(np.full(1_000_000, 200)) == 3
    assert longest_kmers(np.full(30_000_000, 200)) == 0


def test_places_are_found_to_mean_something_or_nothing():
    sequences, labels = with_words(200)
    assert not aligned_sequences([fasta.encode(x) for x in sequences], labels)
    sites = [("GATTACA", "CATGAGA")[label] + text for text, label in zip(random_sequences(200, 8), labels, strict=True)]
    assert aligned_sequences([fasta.encode(x) for x in sites], labels)
    numbers = np.random.default_rng(0).normal(size=200).astype(np.float32)
    assert aligned_sequences([fasta.encode(x) for x in random_sequences(200, 30)], numbers)  # nothing says otherwise


def test_strands_are_found_to_matter_or_not():
    one = [fasta.encode(x[: 60 - i % 5]) for i, x in enumerate(random_sequences(100, 60))]
    near = [x[3:] for x in one]  # the nearest neighbours, if they are read from the same strand
    labels = np.tile(np.random.default_rng(0).integers(0, 2, 100), 2)
    assert not either_strand(one + near, labels)
    assert either_strand(one + [fasta.reverse_complement(x) for x in near], labels)


def test_the_logits_are_added():
    model = LongModel(LongConfig("lion_s", dim=16, depth=1, heads=2, vocab_size=8, classes=2, kmers=3)).eval()
    model.kmer_weights.idf.fill_(1)
    model.kmer_weights.weight.normal_()
    ids, given = torch.randint(1, 5, (3, 20)), torch.randn(3, 2)
    with torch.no_grad():
        whole, replaced = model(ids), model(ids, None, given)
    torch.testing.assert_close(whole - replaced, model.kmer_weights(ids) - given)
    with pytest.raises(ValueError, match=r"kmers is 3; expected 0, or the tokens of DNA"):
        LongConfig("lion_s", kmers=3)


TINY = ["--model.dim", "16", "--model.depth", "1", "--model.heads", "2", "--steps", "2", "--min_steps", "0"]


@pytest.mark.parametrize("turned", [False, True])
def test_a_run_saves_it_and_uses_it(tmp_path, capsys, turned):
    data = write(tmp_path / "genes.csv", *with_words(160))
    assert recipes.recipe("dna.classify").task.kmer_weights
    arguments = ["train", "dna.classify", "--data", str(data), *TINY]
    more = ["--reverse_complement"] if turned else []
    assert main([*arguments, *more, "--out", str(tmp_path / "run")]) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "a base means nothing by its place (--aligned true: the other way)" in said
    assert "a linear model of k-mers of up to 7 bases, fitted first (" in said
    model = lion.load_model(tmp_path / "run" / "model").eval()
    assert model.kmer_weights.both_strands == turned
    result, simple = (json.loads((tmp_path / "run" / x).read_text()) for x in ("result.json", "baseline.json"))
    assert result["accuracy"] >= 0.9  # after two steps, when the network knows nothing yet
    assert simple["name"] == "logistic regression on k-mers"


def test_not_where_places_mean_something_or_it_is_not_wanted(tmp_path, capsys):
    sequences, labels = random_sequences(160, 41), np.arange(160) % 2
    told = [
        x[:20] + "AC"[label] + x[21:] for x, label in zip(sequences, labels, strict=True)
    ]  # by one base, at one place
    sites, words = write(tmp_path / "sites.csv", told, labels), write(tmp_path / "words.csv", *with_words(160))
    for name, data, more in (("sites", sites, []), ("alone", words, ["--kmer_weights", "false"])):
        arguments = ["train", "dna.classify", "--data", str(data), *TINY, *more, "--out", str(tmp_path / name)]
        assert main(arguments) == 0
        assert "beside" not in capsys.readouterr().out
        assert lion.load_model(tmp_path / name / "model").kmer_weights is None
    simple = json.loads((tmp_path / "sites" / "baseline.json").read_text())
    assert (simple["name"], simple["score"]) == ("logistic regression on letters", 1.0)
