"""Gates with a decay per channel, compiled: lion.ops.torch.gates makes costs of both, and the scan does the rest."""

from typing import Any

from torch import Tensor

from lion.ops.cpu.library import DIRECTIONS, NONE, RAW
from lion.ops.cpu.problem import Arguments
from lion.ops.cpu.scan import scanned
from lion.ops.torch.options import Options


def scan(q: Tensor, k: Tensor, v: Tensor, f: Tensor, b: Tensor, options: Options) -> tuple[Tensor, Any]:
    """num and den of decays by channel, as `lowered` asks for them: gates are in the costs, keys and queries."""
    B, T, H, D = q.shape
    q, k, v = (x.to(f.dtype) for x in (q, k, v))
    f, b = (x.expand(B, T, H, D) for x in (f, b))
    # Exponents of gates that one walk brings make the costs of the other, which is not taken, any number.
    costs = {"both": (f, b), "forward": (f, None), "reverse": (b, None)}[options.direction]
    weight = None if options.include_self else q.new_zeros(H)
    norm, way, chunk = RAW if options.with_den else NONE, DIRECTIONS[options.direction], options.chunk_size or 0
    x = Arguments(q, k, v, *costs, None, weight, None, None, None, norm, way, chunk, wide=False, gates_absorbed=True)
    num, den, _ = scanned(x)
    return num, den.unsqueeze(-1) if options.with_den else None
