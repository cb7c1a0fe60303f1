"""`make torture`: every campaign at full length, and a table of what was tried, what survived and what was lost."""

import argparse
import importlib
import os
import sys
import time
from concurrent.futures import ThreadPoolExecutor, wait

from lion.terminal import table
from tests.torture import Campaign

FULL = {  # attempts of each campaign, the longest first: as many campaigns run at once as there are cores
    "data_files": 2000,  # of each format
    "json_files": 2000,  # of each file
    "model_files": 2000,  # of each kind of model
    "lost_runs": 240,
    "command_line": 2000,
    "changed_data": 700,
    "sanitizers": 2000,
    "shared_runs": 20,
    "raw_operators": 5000,
}

SECONDS = 30  # from one word on how far it is to the next


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.torture")
    parser.add_argument("names", nargs="*", metavar="CAMPAIGN", help=f"{', '.join(FULL)} (all)")
    parser.add_argument("--first", type=int, default=0, help="the number of the first attempt (0)")
    parser.add_argument("--count", type=int, help="attempts of each (as many as take an hour in all)")
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()

    def one(name: str) -> list[Campaign]:
        began = time.monotonic()
        print(f"{name} ...", file=sys.stderr, flush=True)
        count = args.count or FULL[name]
        campaign = importlib.import_module(f"tests.torture.{name}")
        done: list[Campaign] = []
        whole = Campaign(f"{name}, as a whole")
        with whole.attempt("set-up"):
            done += campaign.run(range(args.first, args.first + count), args.seed)
        done += [whole] if whole.lost else []
        tried, lost = (sum(x.tried for x in done), sum(len(x.lost) for x in done))
        minutes = (time.monotonic() - began) / 60
        print(f"{name}: {tried:,} in {minutes:.1f} min, {lost} lost", file=sys.stderr, flush=True)
        return done

    with ThreadPoolExecutor(os.cpu_count()) as pool:
        found = {name: pool.submit(one, name) for name in args.names or FULL}
        while wait(found.values(), timeout=SECONDS).not_done:
            tried, lost = sum(x.tried for x in Campaign.every), sum(len(x.lost) for x in Campaign.every)
            print(f"{tried:,} tried, {lost} lost", file=sys.stderr, flush=True)
    rows, all_lost = [], []
    for name, future in found.items():
        for x in future.result():
            rows.append((x.name, f"{x.tried:,}", f"{x.survived:,}", str(len(x.lost))))
            all_lost += [f"{name} (seed {args.seed}): {x.name}, {what}" for what in x.lost]
    print(table(("campaign", "tried", "survived", "lost"), rows))
    for what in all_lost:
        print(f"\nlost: {what}")
    return 1 if all_lost else 0


if __name__ == "__main__":
    sys.exit(main())
