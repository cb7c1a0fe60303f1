"""The recipes for people's own data, at their defaults, on the public sets that sets.py lays out.

    python studies/own_data/measure.py                         # every set: lion_s with two seeds, softmax with one
    python studies/own_data/measure.py splice imdb --seeds 0
    python studies/own_data/measure.py --table                 # what has been measured so far, as Markdown

Every run is `lion train RECIPE --data ... --test ...` in a process of its own with one thread, as many at a time as
there are processors. Runs that are finished are not run again: own-data-sets/results.jsonl has a line for each.
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
RESULTS = ROOT / "results.jsonl"
HELD_OUT = ("solar_cells", "newsgroups", "product_review_scores", "fly_promoters", "FordA")  # never tuned on
KINDS = ("images", "text", "dna", "series")
OTHERS = {"softmax": "--model.variant softmax"}


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


def measured() -> list[dict[str, Any]]:
    if not RESULTS.exists():
        return []
    return [x for x in map(json.loads, RESULTS.read_text().splitlines()) if "error" not in x]


def table() -> str:
    rows = ["| set | ours, by seed | softmax | simple | ahead | minutes |", "|---|---|---|---|---|---|"]
    found = measured()
    for kind, name in sorted({(x["kind"], x["set"]) for x in found}):
        of_set = [x for x in found if x["set"] == name]
        ours = sorted((x for x in of_set if x["variant"] not in OTHERS), key=lambda x: x["seed"])
        others = [x["score"] for x in of_set if x["variant"] == "softmax"]
        if not ours:
            continue
        scores, simple = [x["score"] for x in ours], ours[0]["baseline"]
        ahead = np.mean(scores) - simple
        shown = (", ".join(f"{s:.3f}" for s in scores), ", ".join(f"{s:.3f}" for s in others), f"{simple:.3f}")
        minutes = np.mean([x["minutes"] for x in ours])
        held = " (held out)" if name in HELD_OUT else ""
        rows.append(f"| {kind}: {name}{held} | {' | '.join(shown)} | {ahead:+.3f} | {minutes:.1f} |")
    return "\n".join(rows)


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
