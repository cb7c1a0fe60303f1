"""`lion bench decays`: what the decays of runs are, as half-lives by layer and head, beside those they began with."""

import functools
import math
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from lion.bench import results
from lion.bench.results import save_with_plot, setting
from lion.nn.decay import heads_axis
from lion.nn.layers import LionAttention
from lion.optional import need
from lion.progress import progress
from lion.tasks import Trained
from lion.train.evaluate import on_device
from lion.train.folder import load_run

SLOWEST = -1e-6  # log decays are clamped to this, a half-life of 700,000 tokens
EXAMPLES = 64  # of the evaluation set, for decays that depend on the input
SHARES = (0.05, 0.5, 0.95)  # of a head's half-lives: these quantiles are written
WIDE = (0.1, 0.9)  # of all heads: the ratio of these quantiles is the range


# Decays of a model, which the demo's report shows too.


class Layer(NamedTuple):
    """A layer in a forward pass."""

    attention: LionAttention
    x: Tensor  # the inputs [B, T, dim]
    options: dict[str, Any]  # of the call
    log_decay: Any  # as lion.attention takes it

    def half_lives(self) -> Tensor:
        """In tokens [values, H], of decays that both directions have in common."""
        return half_lives(self.log_decay)

    def masks(self, example: int) -> Tensor:
        """[H, T, T]: the weights of tokens by the decays alone, without queries and keys; each row sums to 1."""
        with torch.no_grad():
            return self.attention.weights(self.x[example : example + 1], of_mask=True, **self.options)[0]


def half_lives(log_decay: Tensor) -> Tensor:
    """In tokens [values, H]: a row for each token and channel, or one, where all have the same."""
    lives = -math.log(2) / log_decay.clamp(max=SLOWEST)
    lives = lives.movedim(heads_axis(lives), -1)
    return lives.reshape(-1, lives.shape[-1])


def watched(model: nn.Module, run: Callable[[], Any]) -> tuple[list[Layer], Any]:
    """The layers as `run`, which calls the model, goes through them; and what it returns."""
    inputs: list[tuple[LionAttention, Tensor, dict[str, Any]]] = []
    decays: list[Any] = []
    hooks = []
    for module in attentions(model):
        note = lambda layer, args, options: inputs.append((layer, args[0], _named(args, options)))  # noqa: E731
        hooks.append(module.register_forward_pre_hook(note, with_kwargs=True))
        hooks.append(module.decay.register_forward_hook(lambda _, args, gates: decays.append(gates.log_decay)))
    try:
        with torch.no_grad():
            output = run()
    finally:
        for hook in hooks:
            hook.remove()
    return [Layer(*given, decay) for given, decay in zip(inputs, decays, strict=True)], output


def _named(args: tuple[Any, ...], options: dict[str, Any]) -> dict[str, Any]:
    return {**dict(zip(("mask", "cu_seqlens"), args[1:], strict=False)), **options}


def attentions(model: nn.Module) -> list[LionAttention]:
    return [module for module in model.modules() if isinstance(module, LionAttention)]


def untrained(model: nn.Module) -> list[Any]:
    """The log decays of each layer of a model that has learned nothing, for an input of zeros."""
    with torch.random.fork_rng(devices=[]), torch.no_grad():
        fresh = type(model)(model.config)
        return [constant(layer) for layer in attentions(fresh)]


def constant(layer: LionAttention) -> Any:
    """The log decays of an input of zeros."""
    return layer.decay(layer.in_proj.weight.new_zeros(1, 1, layer.decay.columns)).log_decay


# The measurement.


def run(
    folders: Sequence[Path], *, examples: int | None = None, device: str = "", json_path: Path | None = None
) -> list[dict]:
    """Look, print a table, write the JSON and draw a picture beside it. `examples`: of the evaluation set (64)."""
    if not folders:
        raise ValueError("there is no run; expected folders of runs of `lion train`.")
    found = {folder: look(folder, examples or EXAMPLES, device) for folder in dict.fromkeys(folders)}
    records = [record for some in found.values() for record in some]
    about = setting()
    runs = [{"run": str(folder), "variant": some[0]["variant"], **variety(some)} for folder, some in found.items()]
    print(report(records, runs, about))
    save_with_plot(json_path, {"setting": about, "results": records, "runs": runs}, draw)
    return records


def look(folder: Path, examples: int, device: str = "") -> list[dict]:
    """A record for each head of each layer, and for each direction, if decays are two-sided."""
    trained = load_run(folder, device=device)
    layers = attentions(trained.model)
    first = untrained(trained.model)
    if all(x is None for x in first):
        raise ValueError(f"the model in {folder} has no layer with decays; expected one of `lion list variants`.")
    if any(layer.decay.columns for layer in layers):
        lives = _of_inputs(trained, examples)
    else:
        with torch.no_grad():
            lives = [_by_direction(constant(layer)) for layer in layers]
    each = zip(layers, lives, map(_by_direction, first), strict=True)
    return [
        {"run": str(folder), "variant": layer.name, "layer": i, "direction": side, "head": head, **found}
        for i, (layer, now, begin) in enumerate(each, 1)
        for side in now
        for head, found in enumerate(map(_of_head, now[side].T, begin[side].T), 1)
    ]


def _of_head(values: np.ndarray, begin: np.ndarray) -> dict[str, float]:
    low, middle, high = (float(x) for x in np.quantile(values, SHARES))
    return {"half_life": middle, "low": low, "high": high, "first": float(np.median(begin))}


def _by_direction(log_decay: Any, mask: Tensor | None = None) -> dict[str, np.ndarray]:
    """Half-lives [values, H], those of padding left out; none where there are no decays."""
    both = isinstance(log_decay, tuple)
    found = {}
    for side, x in zip(("forward", "reverse"), log_decay, strict=True) if both else [("", log_decay)]:
        if x is not None:
            kept = x if mask is None or x.dim() < 3 else x[mask][None]
            found[side] = half_lives(kept).cpu().numpy()
    return found


def _of_inputs(trained: Trained, examples: int) -> list[dict[str, np.ndarray]]:
    """The half-lives of each layer, on examples from all parts of the evaluation set."""
    task: Any = trained.task.using(trained.beside)
    every = task.eval_set()
    chosen = np.linspace(0, len(every) - 1, min(examples, len(every))).round().astype(int).tolist()
    found: dict[nn.Module, dict[str, list[np.ndarray]]] = {x: defaultdict(list) for x in attentions(trained.model)}
    with progress(total=len(chosen), unit=task.unit) as bar:
        bar.describe(f"{trained.folder}")
        for first in range(0, len(chosen), trained.batch):
            keys = [(0, i) for i in chosen[first : first + trained.batch]]
            batch = on_device(every.__getitems__(keys), trained.device)
            for layer in watched(trained.model, functools.partial(task.measure, trained.model, batch))[0]:
                for side, values in _by_direction(layer.log_decay, layer.options.get("mask")).items():
                    found[layer.attention][side].append(values)
            bar.advance(len(keys))
    return [{side: np.concatenate(values) for side, values in layer.items()} for layer in found.values()]


def variety(records: Sequence[dict]) -> dict[str, float]:
    """How different the half-lives of one run are, now and at first: their range, the ratio of the 90th percentile of
    all heads to the 10th; and across layers, the ratio of the slowest layer to the fastest, of the median head."""
    found = {}
    for key, name in (("half_life", ""), ("first", "_first")):
        low, high = np.quantile([x[key] for x in records], WIDE)
        heads: dict[Any, list[float]] = defaultdict(list)
        for x in records:
            heads[x["head"], x["direction"]].append(x[key])
        found[f"range{name}"] = float(high / low)
        found[f"across_layers{name}"] = float(np.median([max(lives) / min(lives) for lives in heads.values()]))
    return found


def report(records: Sequence[dict], runs: Sequence[dict], about: dict) -> str:
    rows = []
    for x in records:
        layer = f"{x['layer']} {x['direction']}".rstrip()
        lives = [rounded(x[key]) for key in ("half_life", "low", "high", "first")]
        rows.append(((x["run"], x["variant"], layer), (x["head"], *lives, f"{0.5 ** (1 / x['half_life']):.4g}")))
    header = ("run", "model", "layer", "head", "half-life", "5%", "95%", "at first", "decay")
    notes = [
        "half-life: in tokens, the median of a head's; 5%, 95%: of its tokens and channels; at first: before training",
        "decay: what is left after a token, by the half-life",
    ]
    notes += [
        f"{x['run']}: the 90th percentile of all heads' half-lives is {x['range']:,.3g} times the 10th, "
        f"{x['range_first']:,.3g} times at first; of the median head, the slowest layer's is {x['across_layers']:,.3g} "
        f"times the fastest's, {x['across_layers_first']:,.3g} times at first"
        for x in runs
    ]
    return results.report(f"{about['dtype']}, {about['threads']} threads", header, rows, notes)


def rounded(x: float | Tensor) -> str:
    x = float(x)
    return f"{x:,.0f}" if x >= 10 else f"{x:.1f}"


def draw(records: Sequence[dict], path: Path) -> None:
    """Half-lives over layers, a panel for each run: a dot for each head, and a ring where it began."""
    need("matplotlib", "matplotlib", "cli").use("Agg")
    from matplotlib import colormaps
    from matplotlib.figure import Figure

    runs = dict.fromkeys(x["run"] for x in records)
    figure = Figure(figsize=(1 + 4.4 * len(runs), 4.2), layout="constrained")
    for axis, name in zip(figure.subplots(1, len(runs), squeeze=False, sharey=True)[0], runs, strict=True):
        some = [x for x in records if x["run"] == name]
        for x, place, share in _places(some):
            colour = colormaps["viridis"](0.9 * share)
            axis.plot(place, x["first"], "o", markersize=7, markerfacecolor="none", color="0.65", markeredgewidth=0.8)
            if x["high"] > x["low"]:
                axis.plot([place, place], [x["low"], x["high"]], color=colour, linewidth=1)
            axis.plot(place, x["half_life"], "o", markersize=4.5, color=colour)
        axis.set_yscale("log")
        axis.yaxis.set_major_formatter(lambda y, _: f"{y:,g}")
        axis.set_xticks(sorted({x["layer"] for x in some}))
        axis.set_xlabel("layer (its heads side by side)")
        axis.set_title(f"{some[0]['variant']}, {Path(name).name}", fontsize=9)
        axis.grid(alpha=0.3, axis="y")
    figure.axes[0].set_ylabel("half-life in tokens (ring: before training)")
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=130)


def _places(records: Sequence[dict]) -> Iterator[tuple[dict, float, float]]:
    """Each record with its place on the layers' axis, and its head's place among the heads, 0 to 1."""
    columns = sorted({(x["direction"], x["head"]) for x in records})
    most = max(1, len(columns) - 1)
    for x in records:
        share = columns.index((x["direction"], x["head"])) / most
        yield x, x["layer"] + 0.7 * (share - 0.5) * (len(columns) > 1), share
