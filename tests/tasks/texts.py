"""Small files of text, and small runs on them."""

import random
from dataclasses import replace

from lion import recipes
from lion.data import FETCHED
from lion.data.glue import GLUE
from tests import SEED

GOOD, BAD = ["great", "lovely", "superb", "fine", "wonderful"], ["awful", "poor", "dull", "boring", "terrible"]
WORDS = ["the", "a", "film", "movie", "actor", "scene", "of", "and", "was", "very"]
SMALL = {"dim": 16, "depth": 1, "heads": 2}


def write_texts(folder, count=60):
    """Documents, and reviews of two kinds."""
    generator = random.Random(SEED)
    folder.mkdir(parents=True, exist_ok=True)
    for n in range(count):
        kind = GOOD if n % 2 else BAD
        (folder / f"{n}.txt").write_text(" ".join(generator.choices(WORDS + kind, k=80)) + ".")
    rows = ["review,sentiment"]
    for n in range(3 * count):
        kind = GOOD if n % 2 else BAD
        words = generator.choices(kind, k=4) + generator.choices(WORDS, k=6)
        generator.shuffle(words)
        rows.append(f"{' '.join(words)},{'pos' if n % 2 else 'neg'}")
    (folder / "reviews.csv").write_text("\n".join(rows) + "\n")
    return folder


def shrunk(name, **task):
    run = recipes.recipe(name)
    config = run.task.model
    small = {**SMALL, "mlp_dim": 32} if hasattr(config, "mlp_dim") else {**SMALL, "mlp_ratio": 2.0}
    if hasattr(run.task, "length"):
        task = {"length": 16, "holdout": 0.3, "vocab_size": 300, **task}
    else:
        task = {"max_length": 24, "vocab_size": 300, "start": "", **task}
    return replace(run, task=replace(run.task, model=replace(config, **small), **task), workers=0)


def write_glue(folder, name):
    asked = GLUE[name]
    home = folder / asked.folder
    home.mkdir(parents=True)
    width = max(*asked.fields, asked.label, 11 if name == "mnli" else 0) + 1
    matched = ("dev_matched.tsv", "dev_mismatched.tsv")
    for split in ("train.tsv", *(matched if name == "mnli" else ("dev.tsv",))):
        rows = [[f"f{i}" for i in range(width)]] if asked.header else []
        for n in range(8):
            row = ["x"] * width
            for field in asked.fields:
                row[field] = f"the film was {(GOOD + BAD)[n]}"
            names = asked.classes
            numbered = name in ("cola", "sst2", "mrpc", "qqp")
            row[asked.label] = str(n / 2) if names is None else str(n % 2) if numbered else names[n % len(names)]
            rows.append(row)
        (home / split).write_text("\n".join("\t".join(row) for row in rows) + "\n")
    return str(home)


def write_imdb(folder):
    rows = [f"{'good' if n % 2 else 'bad'} film number {n},{n % 2},imdb" for n in range(40)]
    (folder / FETCHED["imdb"].file).write_text("text,label,source\n" + "\n".join(rows) + "\n")
    return str(folder)
