"""`make torture`: every campaign at full length, and a table of what was tried, what survived and what was lost."""

import argparse
import importlib
import sys
import time

from lion.text import table
from tests.torture import Campaign

FULL = {  # attempts of each campaign
    "lost_runs": 210,
    "shared_runs": 20,
    "model_files": 2000,
    "command_line": 2000,
    "json_files": 2000,
    "raw_operators": 5000,
    "sanitizers": 2000,
    "data_files": 2000,  # of each format
}


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.torture")
    parser.add_argument("names", nargs="*", metavar="CAMPAIGN", help=f"{', '.join(FULL)} (all)")
    parser.add_argument("--count", type=int, help="attempts of each (as many as take an hour in all)")
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    rows, lost = [], []
    for name in args.names or FULL:
        began = time.perf_counter()
        print(f"{name} ...", file=sys.stderr, flush=True)
        done: list[Campaign] = importlib.import_module(f"tests.torture.{name}").run(args.count or FULL[name], args.seed)
        minutes = (time.perf_counter() - began) / 60
        for campaign in done:
            rows.append((campaign.name, str(campaign.tried), str(campaign.survived), str(len(campaign.lost))))
            lost += [f"{campaign.name}, {what}" for what in campaign.lost]
        print(f"{name}: {sum(x.tried for x in done):,} in {minutes:.1f} min", file=sys.stderr, flush=True)
    print(table(("campaign", "tried", "survived", "lost"), rows))
    for what in lost:
        print(f"\nlost: {what}")
    return 1 if lost else 0


if __name__ == "__main__":
    sys.exit(main())
