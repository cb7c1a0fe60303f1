"""Examples chosen, split into two parts, and written. Every random choice has the seed 0."""

import csv
import os
import random
import shutil
from collections import defaultdict

from archives import ROOT

TRAIN_CAP, TEST_CAP = 4000, 1500


def take(examples, count):
    """At most count examples, at random with seed 0."""
    examples = list(examples)
    random.Random(0).shuffle(examples)
    return examples[:count]


def split(examples, label=lambda e: e[-1], test=0.2, train_cap=TRAIN_CAP, test_cap=TEST_CAP):
    """A fixed split, the same share of every class in the test part."""
    groups = defaultdict(list)
    for example in examples:
        groups[label(example)].append(example)
    train, held = [], []
    for name in sorted(groups, key=str):
        group = take(groups[name], len(groups[name]))
        cut = round(len(group) * test)
        held += group[:cut]
        train += group[cut:]
    return take(train, train_cap), take(held, test_cap)


def unique(examples):
    """Each input once; inputs that occur with two labels are left out."""
    labels = defaultdict(set)
    for x, y in examples:
        labels[x].add(y)
    return [(x, next(iter(y))) for x, y in labels.items() if len(y) == 1]


def capped(train, test):
    """Both parts of a set that is split already: without what both have, and within the caps."""
    seen = {x for x, _ in train}
    return take(train, TRAIN_CAP), take([e for e in test if e[0] not in seen], TEST_CAP)


def fresh(kind, name):
    folder = os.path.join(ROOT, kind, name)
    shutil.rmtree(folder, ignore_errors=True)
    os.makedirs(folder)
    return folder


def write_csv(kind, name, header, train, test):
    folder = fresh(kind, name)
    for part, examples in (("train", train), ("test", test)):
        with open(os.path.join(folder, part + ".csv"), "w", newline="", encoding="utf-8") as f:
            out = csv.writer(f)
            out.writerow(header)
            out.writerows(examples)
