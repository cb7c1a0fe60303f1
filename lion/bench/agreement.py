"""`lion bench agreement`: how far the forms of every variant differ, and the operator from its definition.

All forms are the same function, so what they differ by are roundings: about 1e-15 in float64. Differences are relative:
the largest of a tensor, over the largest number of the same tensor.
"""

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

import lion
from lion.bench.op import DTYPES, Inputs, Shape
from lion.bench.results import check_choices, save, setting
from lion.devices import CPU, chosen
from lion.nn.layers import LionAttention
from lion.nn.variants import VARIANTS
from lion.ops import reference
from lion.ops.call import Call
from lion.ops.checks import Direction, as_pair
from lion.ops.kernels import KERNELS, usable_backends
from lion.progress import progress
from lion.terminal import table

USUAL = tuple(name for name, variant in VARIANTS.items() if not variant.softmax)  # which has no forms
DIRECTIONS: tuple[Direction, ...] = ("both", "forward")
PRECISIONS = ("float64", "float32")
FULL = ("torch", "full")
# The operator's kinds of decay: as bench.op names them, and what else the call has.
OPERATORS: dict[str, tuple[str, tuple[str, ...]]] = {
    "no decay": ("none", ()),
    "fixed, per head": ("fixed", ()),
    "fixed, per channel": ("diagonal", ("fixed",)),
    "per token": ("per-token", ()),
    "per token, with input gates": ("per-token", ("log_gain",)),
    "per token and channel": ("diagonal", ()),
    "per token and channel, with input gates": ("diagonal", ("log_gain",)),
    "delta rule": ("none", ("beta",)),
    "delta rule, decay per token": ("per-token", ("beta",)),
}


class Difference(NamedTuple):
    output: float
    gradients: float  # of all of them, the largest

    @staticmethod
    def of(got: Sequence[Tensor], want: Sequence[Tensor]) -> "Difference":
        """Between two outputs, each with its gradients behind it."""
        first, *rest = (relative(a, b) for a, b in zip(got, want, strict=True))
        return Difference(first, max(rest, default=0.0))


def relative(got: Tensor, want: Tensor) -> float:
    got, want = got.double(), want.double()
    largest = want.abs().max().item()
    return (got - want).abs().max().item() / (largest or 1.0)


def with_gradients(out: Tensor, leaves: Sequence[Tensor]) -> list[Tensor]:
    """The output, and its gradients along a fixed direction; zeros for leaves that it does not depend on."""
    along = torch.linspace(-1, 1, out.numel(), dtype=torch.float64).to(out).view_as(out)
    grads = torch.autograd.grad(out, leaves, along, allow_unused=True)
    return [out.detach(), *(torch.zeros_like(x) if g is None else g for x, g in zip(leaves, grads, strict=True))]


def padding(batch: int, tokens: int, device: torch.device = CPU) -> Tensor:
    """[batch, tokens]: the first sequence is whole, each other one is shorter than the one before."""
    lengths = torch.linspace(tokens, max(1, tokens // 2), batch).round()
    return (torch.arange(tokens) < lengths[:, None]).to(device)


def kernels_for(decay: str, dtype: torch.dtype, device: torch.device = CPU) -> list[tuple[str, str]]:
    """The (backend, form) that can run a kind of decay there; `full` is the first."""
    usable = usable_backends(device, dtype)
    found = [(backend, form) for backend, form, kind in KERNELS if kind == decay and backend in usable]
    return sorted(found, key=lambda kernel: kernel != FULL)


# Whole layers.


def layer_differences(
    variant: str,
    direction: Direction,
    dtype: str,
    device: torch.device = CPU,
    *,
    batch: int,
    tokens: int,
    dim: int,
    heads: int,
) -> Iterator[dict[str, Any]]:
    """A record for every form and backend of the layer: how far it is from `full`."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        layer = LionAttention(dim, heads, variant, direction=direction).to(device, DTYPES[dtype])
        x = torch.randn(batch, tokens, dim).to(device, DTYPES[dtype]).requires_grad_()
    mask = padding(batch, tokens, device)
    leaves = [x, *layer.parameters()]
    y = layer.tokens(x)
    decay = Call(y.q, y.k, y.v, *as_pair(y.log_decay), y.log_gain, y.beta).decay
    want: list[Tensor] | None = None
    for backend, form in kernels_for(decay, x.dtype, device):
        layer.set_form(form, backend=backend)  # type: ignore[arg-type]
        out = layer(x, mask)
        assert isinstance(out, Tensor)
        found = with_gradients(out, leaves)
        if want is None:
            want = found
            continue
        yield {
            "variant": variant,
            "direction": direction,
            "dtype": dtype,
            "form": form,
            "backend": backend,
            **Difference.of(found, want)._asdict(),
        }


# The operator.


def problem(name: str, shape: Shape, dtype: torch.dtype, device: torch.device = CPU) -> tuple[Inputs, dict[str, Any]]:
    """The tensors of an operator's call, which want gradients, and its options."""
    decay, more = OPERATORS[name]
    q, k, v, log_decay = Inputs.random(shape, dtype, decay, device)
    if "fixed" in more and log_decay is not None:
        log_decay = log_decay[0, 0]
    options: dict[str, Any] = {}
    generator = torch.Generator().manual_seed(1)
    if "log_gain" in more:
        options["log_gain"] = torch.randn(q.shape[:3], generator=generator).to(device, dtype).requires_grad_()
    if "beta" in more:
        beta = torch.rand(q.shape[:3], generator=generator).to(device, dtype)
        options |= {"beta": beta.requires_grad_(), "norm": "none"}
        k = F.normalize(k, dim=-1)
    return Inputs(q, k, v, log_decay).trainable(), options


def operator_differences(
    name: str, direction: Direction, dtype: str, device: torch.device = CPU, *, shape: Shape
) -> Iterator[dict[str, Any]]:
    """A record for every form and backend of the operator: how far it is from the definition, in float64."""
    inputs, options = problem(name, shape, DTYPES[dtype], device)
    options |= {"mask": padding(shape.B, shape.T, device), "direction": direction}
    leaves = [x for x in (*inputs, *options.values()) if isinstance(x, Tensor) and x.requires_grad]
    want = with_gradients(reference.attention(*inputs, **options), leaves)
    kind = Call(*inputs, log_gain=options.get("log_gain"), beta=options.get("beta")).decay
    for backend, form in kernels_for(kind, DTYPES[dtype], device):
        out = lion.attention(*inputs, **options, form=form, backend=backend)  # type: ignore[call-overload]
        yield {
            "decay": name,
            "direction": direction,
            "dtype": dtype,
            "form": form,
            "backend": backend,
            **Difference.of(with_gradients(out, leaves), want)._asdict(),
        }


# The command.


def run(
    *,
    variants: Sequence[str] = USUAL,
    batch: int = 2,
    tokens: int = 197,
    dim: int = 32,
    heads: int = 4,
    device: str = "cpu",
    json_path: Path | None = None,
) -> dict[str, Any]:
    """Compare, print tables, write the JSON."""
    check_choices(variants=(variants, USUAL))
    there = chosen(device)
    LionAttention(dim, heads)  # complains if they do not go together
    sizes = {"batch": batch, "tokens": tokens, "dim": dim, "heads": heads}
    shape = Shape(batch, heads, tokens, dim // heads)
    layers: list[dict] = []
    operators: list[dict] = []
    calls: list[tuple[list[dict], Callable[..., Iterator[dict]], str, dict]] = [
        *((layers, layer_differences, name, sizes) for name in dict.fromkeys(variants)),
        *((operators, operator_differences, name, {"shape": shape}) for name in OPERATORS),
    ]
    with progress(total=len(calls) * len(DIRECTIONS) * len(PRECISIONS), unit="comparison") as bar:
        for records, differences, name, size in calls:
            bar.describe(name)
            for direction in DIRECTIONS:
                for dtype in PRECISIONS:
                    records += differences(name, direction, dtype, there, **size)
                    bar.advance()
    about = setting(**sizes, mask="padding", directions=DIRECTIONS, device=device)
    about["dtype"] = " and ".join(PRECISIONS)
    found = {"setting": about, "layers": layers, "operators": operators}
    print(report(found))
    save(json_path, found)
    return found


def report(found: dict[str, Any]) -> str:
    about = found["setting"]
    sizes = ", ".join(f"{name} {about[name]}" for name in ("batch", "tokens", "dim", "heads"))
    lines = [
        f"Largest relative differences ({sizes}; with padding; the larger of one and two directions)\n",
        "Whole layers, each form beside `full`:\n",
        _table(found["layers"], "variant"),
        "\nThe operator, each form beside its definition (lion/ops/reference.py, in float64):\n",
        _table(found["operators"], "decay"),
    ]
    return "\n".join(lines)


def _table(records: Sequence[dict], what: str) -> str:
    """A row for each form of each name; its numbers are the largest over the directions."""
    columns = [(dtype, of) for dtype in PRECISIONS for of in Difference._fields]
    groups: dict[tuple[str, str, str], list[dict]] = {}
    for x in records:
        groups.setdefault((x[what], x["form"], x["backend"]), []).append(x)
    rows = []
    last = ""
    for (name, form, backend), some in groups.items():
        cells = [f"{max(x[of] for x in some if x['dtype'] == dtype):.1e}" for dtype, of in columns]
        rows.append(("" if name == last else name, form, backend, *cells))
        last = name
    return table((what, "form", "backend", *(f"{dtype} {of}" for dtype, of in columns)), rows)
