"""Processes of a group, started once for many cases: an import of torch takes seconds."""

import contextlib
import multiprocessing
import socket
import time
import traceback

CONTEXT = multiprocessing.get_context("forkserver")
CONTEXT.set_forkserver_preload(["tests.parallel.cases"])
PATIENCE = 60  # seconds until a case that hangs is an error


class Processes:
    """`run(function, *args)` calls `function(mesh, *args)` in the first processes of them, and returns all results."""

    def __init__(self, count):
        with socket.create_server(("127.0.0.1", 0)) as free:
            port = free.getsockname()[1]
        self.pipes = []
        self.running = []
        for rank in range(count):
            ours, theirs = CONTEXT.Pipe()
            process = CONTEXT.Process(target=work, args=(rank, count, port, theirs), daemon=True)
            process.start()
            self.pipes.append(ours)
            self.running.append(process)

    def run(self, function, *args, ranks):
        pipes = self.pipes[:ranks]
        for pipe in pipes:
            pipe.send((function, args, ranks))
        deadline = time.monotonic() + PATIENCE
        results = [pipe.recv() if pipe.poll(max(0, deadline - time.monotonic())) else None for pipe in pipes]
        for rank, result in enumerate(results):
            assert result is None or result[0], f"process {rank}: {result[1]}"
        assert None not in results, f"process {results.index(None)} hangs"
        return [result for _, result in results]

    def close(self):
        for process in self.running:
            process.kill()
            process.join()


def work(rank, count, port, pipe):
    import torch
    import torch.distributed as dist

    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=count)
    groups = {}
    for n in range(1, count + 1):  # all processes take part in making a group
        groups[n] = dist.new_group(range(n))
    with contextlib.suppress(EOFError):
        while True:
            function, args, ranks = pipe.recv()
            torch.manual_seed(0)
            try:
                pipe.send((True, function(groups[ranks], *args)))
            except BaseException:
                pipe.send((False, traceback.format_exc()))
