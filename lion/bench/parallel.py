"""`lion bench parallel`: one sequence over several processes of one thread each, beside one process of one thread."""

import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from statistics import median

import torch

from lion.bench.peak_memory import peak_memory
from lion.bench.results import save
from lion.models.long_range import LongConfig, LongModel
from lion.ops.checks import one_of
from lion.parallel import cost
from lion.terminal import duration, table

VOCABULARY = 8


def run(
    *,
    processes: Sequence[int] = (1, 2),
    lengths: Sequence[int] = (65536,),
    variant: str = "lion_s",
    rounds: int = 3,
    training: bool = True,
    inference: bool = True,
    json_path: Path | None = None,
) -> list[dict]:
    """Print time and memory of each process, and what the model of cost says of the same."""
    from lion.nn.variants import VARIANTS

    one_of("variant", variant, [name for name, x in VARIANTS.items() if not x.softmax])
    records, rows = [], []
    for passes in [name for name, wanted in (("training", training), ("inference", inference)) if wanted]:
        for length in lengths:
            alone: dict | None = None
            for count in processes:
                found = measured(count, {"variant": variant, "length": length, "passes": passes, "rounds": rounds})
                alone = alone or found
                times, memory = (alone[x] / found[x] for x in ("seconds", "peak_bytes"))
                predicted = _predicted(alone, found)
                records.append({**found, "times": times, "memory": 1 / memory, "predicted_seconds": predicted})
                peak = f"{found['peak_bytes'] / 2**20:,.0f} MiB"
                shown = duration(found["seconds"]), f"{times:.2f}", duration(predicted), peak, f"{1 / memory:.2f}"
                rows.append((passes, f"{length:,}", count, *shown))
    header = ("pass", "tokens", "processes", "time", "times as fast", "by the model", "memory of each", "share")
    print(table(header, rows))
    save(json_path, {"results": records})
    return records


def measured(count: int, what: dict) -> dict:
    """The slowest process's time, the best of the rounds, and the largest memory."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = str(free.getsockname()[1])
    every = {**os.environ, "OMP_NUM_THREADS": "1", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
    command = [sys.executable, "-m", "lion.bench.parallel", json.dumps(what)]
    own = [{"RANK": str(rank), "WORLD_SIZE": str(count)} for rank in range(count)]
    running = [subprocess.Popen(command, env={**every, **x}, stdout=subprocess.PIPE, text=True) for x in own]
    outputs = [process.communicate()[0] for process in running]  # one after the other, they end together
    if any(process.returncode for process in running):
        raise RuntimeError("a process of the measurement has failed; see what it said.")
    results = [json.loads(x.splitlines()[-1]) for x in outputs]
    seconds = min(max(of_round) for of_round in zip(*(x["seconds"] for x in results), strict=True))
    about = {**results[0], "seconds": seconds, "peak_bytes": max(x["peak_bytes"] for x in results)}
    return {**about, "processes": count, **what}


def _predicted(alone: dict, found: dict) -> float:
    """By the time of one process, and what this process group's all-gather takes."""
    layer = cost.Layer(dim=128, heads=4, mlp=2, bytes_of_activations=4)
    passes = cost.TRAINING if found["passes"] == "training" else cost.FORWARD
    machine = cost.Machine(1.0, 1.0, 0.0)  # whose arithmetic alone is asked for
    one, many = (cost.lion(layer, machine, x["length"], x["processes"], passes).compute for x in (alone, found))
    return alone["seconds"] * many / one + found["gather_seconds"] * found["gathers"]


def work(variant: str, length: int, passes: str, rounds: int) -> dict:
    """What one of the processes does."""
    import torch.distributed as dist
    from torch.distributed.device_mesh import init_device_mesh

    from lion import parallel
    from lion.parallel import exchange

    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    config = LongConfig(variant, dim=128, depth=4, heads=4, stem=9, vocab_size=VOCABULARY, classes=4, answer="token")
    model = LongModel(config).train(passes == "training")
    ids = torch.randint(0, VOCABULARY, (1, length))
    rank, size = dist.get_rank(), dist.get_world_size()
    if size > 1:
        mesh = init_device_mesh("cpu", (size,), mesh_dim_names=("sequence",))
        parallel.sequence_parallel(model, mesh)
        ids = parallel.piece_of(ids, mesh)
    sent: list[int] = []
    ordinary = exchange.all_gather

    def counted(rows: torch.Tensor, row: torch.Tensor, **options: object) -> object:
        sent.append(len(row))
        return ordinary(rows, row, **options)

    exchange.all_gather = counted

    def step() -> None:
        with torch.set_grad_enabled(passes == "training"):
            y = model(ids)
            if passes == "training":
                y.float().square().mean().backward()
                model.zero_grad()

    peak = peak_memory(step)
    seconds = []
    sent.clear()
    for _ in range(rounds):
        dist.barrier()
        begun = time.perf_counter()
        step()
        seconds.append(time.perf_counter() - begun)
    largest = torch.zeros(max(sent, default=1), dtype=torch.uint8)
    rows, gathers = largest.new_empty(size * len(largest)), []
    for _ in range(20):
        dist.barrier()
        begun = time.perf_counter()
        ordinary(rows, largest)
        gathers.append(time.perf_counter() - begun)
    dist.barrier()
    dist.destroy_process_group()
    about = {"gathers": len(sent) // rounds, "gather_bytes": len(largest), "gather_seconds": median(gathers)}
    return {"rank": rank, "seconds": seconds, "peak_bytes": peak, **about}


if __name__ == "__main__":
    print(json.dumps(work(**json.loads(sys.argv[1]))))
