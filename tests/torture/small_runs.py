"""Finished runs of a step or two, of every kind of task that needs nothing fetched, and the data they are of."""

from collections.abc import Iterable
from pathlib import Path

from lion.models.saving import quietly
from lion.optional import need_transformers
from tests.tasks.teachers import save_teacher
from tests.tasks.texts import write_texts
from tests.torture.children import Children
from tests.train.runs import as_options

MODEL = ["--model.dim", "16", "--model.depth", "1", "--model.heads", "2"]
BRIEFLY = ["--steps", "2", "--epochs", "0", "--batch", "4", "--workers", "0", "--precision", "float32"]
TRAINED = [*MODEL, *BRIEFLY]
LISTS = ["--min_length", "10", "--max_length", "24", "--max_depth", "3", "--counts", "16,8,8"]
CORPUS = ["--length", "16", "--vocab_size", "300", "--holdout", "0.3"]


def commands(home: Path) -> dict[str, list[str]]:
    """By kind of task, `lion train` without --out."""
    texts = home / "texts"
    return {
        "images": ["digits.lion_s", *as_options(steps="2")],
        "mlm": ["mlm", "--data", f"{texts}/*.txt", *TRAINED, *CORPUS],
        "causal": ["causal", "--data", f"{texts}/*.txt", *TRAINED, *CORPUS],
        "text": ["text", "--data", f"{texts}/reviews.csv", *TRAINED, "--max_length", "16", "--vocab_size", "300"],
        "text_distill": [
            *["distill.text", "--data", f"{texts}/*.txt", "--teacher", str(home / "teacher"), *BRIEFLY],
            *["--length", "32", "--holdout", "0.3"],
        ],
        "long_range": ["lra.listops.lion_s", *TRAINED, *LISTS],
        "dna": ["dna", "--data", str(home / "genome.fa"), *TRAINED, "--length", "32", "--block", "64"],
        "dna_classes": ["dna.classify", "--data", str(home / "genes.csv"), *TRAINED],
    }


def write_data(home: Path) -> None:
    need_transformers()
    from transformers import BertModel

    write_texts(home / "texts", count=20)
    with quietly():
        save_teacher(home / "teacher", BertModel, 64)
    (home / "genome.fa").write_text(">one\n" + "ACGTTGCATA" * 200 + "\n")
    genes = [f"{'ACGT' * (n % 5 + 2)},{'ab'[n % 2]}" for n in range(40)]
    (home / "genes.csv").write_text("\n".join(["sequence,label", *genes]) + "\n")


def make(home: Path, children: Children, kinds: Iterable[str]) -> None:
    """Those in `home` / "runs" that are not there yet."""
    if not (home / "texts").exists():
        write_data(home)
    for kind in kinds:
        folder = home / "runs" / kind
        if not folder.exists():
            argv = ["train", *commands(home)[kind], "--out", str(folder)]
            done = children.run("tests.torture.children:command", argv, seconds=120)
            assert done.code == 0, (kind, done.stderr)
