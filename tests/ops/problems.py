"""Random inputs for the operator, and how two results are compared."""

import itertools

import torch
from torch import Tensor

from lion.ops import attention
from lion.ops.kernels import BACKENDS, KERNELS
from tests import SEED

DECAYS = ("none", "fixed", "fixed diagonal", "per token", "diagonal")


KINDS = {"fixed": "scalar", "per token": "scalar", "fixed diagonal": "diagonal"}


def kernels(
    decay: str, gain: bool = False, *, needs: tuple[str, ...] = (), dtype: torch.dtype = torch.float64
) -> list[dict[str, str]]:
    """Every kernel of the table for this kind of decay, as arguments of `lion.attention`: those whose backend says of
    itself that it can run here, in this dtype, and has what is needed (keys of kernels.NEEDS)."""
    wanted = KINDS.get(decay, decay)
    if gain and wanted == "diagonal":
        wanted = "gated diagonal"
    able = [
        name
        for name, backend in BACKENDS.items()
        if backend.missing(torch.device("cpu"), dtype) is None and not set(needs) & set(backend.lacks)
    ]
    return [{"backend": backend, "form": form} for backend, form, kind in KERNELS if kind == wanted and backend in able]


ALL_KERNELS = kernels("none")  # there is none that has only decays


def log_decays(kind: str, B: int, T: int, H: int, D: int, extremes: bool = True) -> Tensor | None:
    """Decays of a kind; per token they hold an exact 0, a tiny, a huge and an infinite one."""
    shape = {"none": None, "fixed": (H,), "fixed diagonal": (H, D), "per token": (B, T, H), "diagonal": (B, T, H, D)}
    if shape[kind] is None:
        return None
    x = -torch.rand(shape[kind], dtype=torch.float64)
    if extremes and len(x.shape) > 2:
        for token, value in zip(range(1, T, 2), itertools.cycle((0.0, -1e-8, -1e4, -torch.inf)), strict=False):
            x[:, token] = value
    return x


def packing(T: int) -> Tensor:
    """Borders of sequences of several lengths, an empty one among them."""
    return torch.tensor([0, T // 3, T // 3, T // 2, T])


def permutations(T: int, n: int, cu_seqlens: Tensor | None = None) -> Tensor:
    borders = [0, T] if cu_seqlens is None else cu_seqlens.tolist()
    orders = [torch.cat([torch.randperm(b - a) + a for a, b in itertools.pairwise(borders)]) for _ in range(n)]
    return torch.stack(orders)


def problem(
    decay,
    *,
    B=2,
    T=11,
    H=2,
    D=3,
    V=4,
    gain=False,
    self_weight=False,
    mask=False,
    packed=False,
    orders=0,
    per_order=False,
    two_sided=False,
):
    """Arguments of `lion.attention`, in float64; `per_order` gives each order decays of its own, `two_sided` each
    direction."""
    B = 1 if packed else B
    # Positive, as feature maps make them, so that dividing by den is no lottery.
    q, k = (torch.rand(B, T, H, D, dtype=torch.float64) + 0.1 for _ in range(2))
    kwargs = {"q": q, "k": k, "v": torch.randn(B, T, H, V, dtype=torch.float64)}
    heads = H * orders if per_order and orders else H
    kwargs["log_decay"] = log_decays(decay, B, T, heads, D)
    if two_sided and decay != "none":
        kwargs["log_decay"] = kwargs["log_decay"], log_decays(decay, B, T, heads, D).flip(0)
    kwargs["log_gain"] = torch.randn(B, T, H, dtype=torch.float64) if gain else None
    kwargs["self_weight"] = torch.rand(H, D, dtype=torch.float64) + 0.1 if self_weight else None
    kwargs["mask"] = torch.rand(B, T) > 0.3 if mask else None
    if mask and B > 1:
        kwargs["mask"][1] = False  # a row that is all padding
    kwargs["cu_seqlens"] = packing(T) if packed else None
    kwargs["orders"] = permutations(T, orders, kwargs["cu_seqlens"]) if orders else None
    return kwargs


def leaves(kwargs: dict) -> dict[str, Tensor]:
    """The tensors that have a gradient, made to want it."""
    pairs = {name: x for name, x in kwargs.items() if isinstance(x, tuple)}
    given = kwargs | {f"{name}[{i}]": x for name, pair in pairs.items() for i, x in enumerate(pair)}
    floats = {name: x for name, x in given.items() if isinstance(x, Tensor) and x.is_floating_point()}
    return {name: x.requires_grad_() for name, x in floats.items()}


def output_and_gradients(function, kwargs: dict, **options) -> dict[str, Tensor]:
    """The output and the gradients along one random direction, by name."""
    inputs = leaves(kwargs)
    out = function(**kwargs, **options)
    # In float64 first: the generator gives every dtype other numbers.
    along = torch.randn(out.shape, dtype=torch.float64, generator=torch.Generator().manual_seed(SEED + 1)).to(out.dtype)
    grads = torch.autograd.grad(out, tuple(inputs.values()), along, allow_unused=True)
    zeros = (torch.zeros_like(x) for x in inputs.values())
    grads = (zero if grad is None else grad for grad, zero in zip(grads, zeros, strict=True))
    return {"output": out.detach(), **dict(zip(inputs, grads, strict=True))}


def assert_same(got: dict[str, Tensor], want: dict[str, Tensor], tolerance: float, context: object = "") -> None:
    for name, reference in want.items():
        assert torch.isfinite(got[name]).all(), f"{name} is not finite: {context}"
        size = reference.abs().max().item() if reference.numel() else 0.0
        error = (got[name] - reference).abs().max().item() if reference.numel() else 0.0
        # Where all of a gradient is rounding (of masked rows, say) there is nothing to be relative to.
        assert error <= tolerance * max(size, 1e-3), f"{name} differs by {error:.2e} of {size:.2e}: {context}"


def forget_choices():
    """As in a fresh process: which kernels were chosen, and what was logged of it."""
    attention._chosen.cache_clear()
    attention._log_choice.cache_clear()
