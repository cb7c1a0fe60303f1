"""`python -m lion.parallel.scale`: what the model of cost says of many GPUs, and long sequences."""

from lion.parallel.cost import Layer, Machine, all_to_all, lion, ring
from lion.terminal import table

GPU = Machine(flops=400e12, bandwidth=50e9, latency=20e-6, operator=0.25)
LAYER = Layer()
TOKENS = (1 << 20, 1 << 23, 1 << 26)
PROCESSES = (8, 64, 256, 1024)


def main() -> None:
    print(
        f"one layer of {LAYER.dim} channels and {LAYER.heads} heads with an MLP, forward and backward; each process: "
        f"{GPU.flops / 1e12:.0f} TFLOP/s in matrix products, {GPU.operator:.0%} of that in linear attention, "
        f"{GPU.bandwidth / 1e9:.0f} GB/s, {GPU.latency * 1e6:.0f} us a message; nothing overlapped\n"
    )
    rows = []
    for tokens in TOKENS:
        for count in PROCESSES:
            found = [way(LAYER, GPU, tokens, count) for way in (lion, ring, all_to_all)]
            cells = []
            for x in found:
                cells += ["-", "-"] if x is None else [_time(x.seconds), f"{x.sent / 2**20:,.1f}"]
            share = found[0].communication / found[0].seconds if found[0] else 0.0
            rows.append((f"{tokens >> 20}M", f"{count:,}", *cells[:2], f"{share:.0%}", *cells[2:]))
    print(table(("tokens", "processes", "LION", "MiB", "waiting", "ring", "MiB", "all-to-all", "MiB"), rows))


def _time(seconds: float) -> str:
    return f"{seconds:,.2f} s" if seconds >= 1 else f"{1000 * seconds:,.2f} ms"


if __name__ == "__main__":
    main()
