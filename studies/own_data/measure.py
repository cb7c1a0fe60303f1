"""The recipes for people's own data, at their defaults, on the public sets that sets.py lays out.

    python studies/own_data/measure.py                         # every set: lion_s with two seeds, softmax with one
    python studies/own_data/measure.py splice imdb --seeds 0
    python studies/own_data/measure.py --table                 # what has been measured so far, as Markdown

Every run is `lion train RECIPE --data ... --test ...` in a process of its own with one thread, as many at a time as
there are processors. Runs that are finished are not run again: results.jsonl beside this file has a line for each.
"""

import argparse
import json
import os
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path("own-data-sets")
RESULTS = Path(__file__).with_name("results.jsonl")
HELD_OUT = (  # never tuned on
    "solar_cells",
    "newsgroups",
    "product_review_scores",
    "fly_promoters",
    "PhalangesOutlinesCorrect",
    "JapaneseVowels",
)
KINDS = ("images", "text", "dna", "series")
OTHERS = {"softmax": "--model.variant softmax", "two_sided": "--model.two_sided true"}
TITLES = {"dna": "DNA"}
HEADER = (
    "| set | what is measured | ours (seed) | softmax | simple | ahead by | minutes |",
    "|---|---|---|---|---|---|---|",
)


def arguments(kind: str, name: str) -> list[str]:
    """The recipe, and where its data is."""
    folder = ROOT / kind / name
    if kind == "images":
        return ["images", "--data", f"{folder}"]
    if kind == "series":
        return ["series", "--data", f"{folder / name}_TRAIN.ts", "--test", f"{folder / name}_TEST.ts"]
    recipe = {"text": "text", "dna": "dna.classify"}[kind]
    return [recipe, "--data", f"{folder / 'train.csv'}", "--test", f"{folder / 'test.csv'}"]


def measure(kind: str, name: str, variant: str, seed: int) -> dict[str, Any]:
    out = ROOT / "runs" / f"{name}-{variant}-{seed}"
    options = OTHERS[variant].split() if variant in OTHERS else []
    command = ["lion", "train", *arguments(kind, name), *options, "--seed", f"{seed}"]
    again = ["--resume"] if (out / "run.json").exists() else []
    began = time.perf_counter()
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONWARNINGS": "ignore"}
    started = [sys.executable, "-m", "lion.cli", *command[1:], "--out", f"{out}", *again]
    done = subprocess.run(started, env=environment, capture_output=True, text=True, check=False)
    found: dict[str, Any] = {"kind": kind, "set": name, "variant": variant, "seed": seed, "command": " ".join(command)}
    found["commit"] = _commit()
    if done.returncode:
        return found | {"error": done.stderr[-2000:]}
    result, simple = (json.loads((out / file).read_text()) for file in ("result.json", "baseline.json"))
    minutes = (time.perf_counter() - began) / 60
    return found | {
        "metric": simple["metric"],
        "score": result[simple["metric"]],
        "baseline": simple["score"],
        "simple": simple["name"],
        "metrics": result,
        "baseline_metrics": simple["metrics"],
        "minutes": round(minutes, 2),
    }


def _commit() -> str:
    """The code that is measured; "" outside of a clone."""

    def git(*words: str) -> "subprocess.CompletedProcess[str]":
        return subprocess.run(["git", *words], capture_output=True, text=True, check=False)

    changed = "-dirty" if git("status", "--porcelain", "--", "lion").stdout else ""
    return f"{git('describe', '--always').stdout.strip()}{changed}"


def measured() -> list[dict[str, Any]]:
    if not RESULTS.exists():
        return []
    return [x for x in map(json.loads, RESULTS.read_text().splitlines()) if "error" not in x]


def table() -> str:
    found = measured()
    sets = sorted({(x["kind"], x["set"]) for x in found})
    parts = [[x for x in sets if (x[1] in HELD_OUT) == held] for held in (False, True)]
    tables = ["\n".join([*HEADER, *filter(None, (row(found, *x) for x in part))]) for part in parts]
    return "\n\nSets that no default was chosen by:\n\n".join(tables)


def row(found: list[dict[str, Any]], kind: str, name: str) -> str:
    """A set's row of the table; "" if ours is not measured."""
    of_set = sorted((x for x in found if x["set"] == name), key=lambda x: x["seed"])
    ours = [x for x in of_set if x["variant"] not in OTHERS]
    if not ours:
        return ""
    scores, simple = [x["score"] for x in ours], ours[0]["baseline"]
    softmax = ", ".join(f"{x['score']:.3f}" for x in of_set if x["variant"] == "softmax") or "-"
    metric = {"spearman": "rank correlation"}.get(ours[0]["metric"], ours[0]["metric"])
    minutes = np.mean([x["minutes"] for x in ours])
    ours_by_seed = ", ".join(f"{x['score']:.3f} ({x['seed']})" for x in ours)
    shown = (f"{TITLES.get(kind, kind)}: {name}", metric, ours_by_seed, softmax, f"{simple:.3f}")
    return f"| {' | '.join(shown)} | {np.mean(scores) - simple:+.3f} | {minutes:.1f} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sets", nargs="*")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1])
    parser.add_argument("--variants", nargs="+", default=["lion_s", "softmax"])
    parser.add_argument("--at-once", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--table", action="store_true")
    asked = parser.parse_args()
    if asked.table:
        print(table())
        return
    kinds = {
        folder.name: folder.parent.name for folder in sorted(ROOT.glob("[a-z]*/*")) if folder.parent.name != "runs"
    }
    known = {(x["set"], x["variant"], x["seed"]) for x in measured()}
    seeds = {variant: asked.seeds[:1] if variant in OTHERS else asked.seeds for variant in asked.variants}
    names = asked.sets or list(kinds)
    plan = [(name, variant, seed) for variant in asked.variants for name in names for seed in seeds[variant]]
    with ThreadPoolExecutor(asked.at_once) as pool:
        jobs = [pool.submit(measure, kinds[x[0]], *x) for x in plan if x not in known]
        for job in as_completed(jobs):
            found = job.result()
            with RESULTS.open("a") as file:
                file.write(json.dumps(found) + "\n")
            said = found.get("error") or f"{found['score']:.3f}, simple {found['baseline']:.3f}, {found['minutes']} min"
            print(f"{found['set']}, {found['variant']}, seed {found['seed']}: {said}", flush=True)


if __name__ == "__main__":
    main()
