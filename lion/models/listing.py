"""`lion list models`: image models by name, their sizes and costs."""

from lion.models.flops import model_flops, parameters_of, tokens_of
from lion.models.registry import MODELS
from lion.models.vision import VisionConfig
from lion.nn.variants import VARIANTS
from lion.terminal import table

PIXELS = (224, 1024)


def listing(flops: bool = False) -> str:
    """A table with a row for every model; with `flops`, also the FLOPs of a forward pass."""
    header = ["model", "parameters (M)", "tokens", "blocks", "variant", "positions"]
    costs = [(form, pixels) for pixels in PIXELS for form in ("full", "scan")] if flops else []
    header[3:3] = [f"GFLOPs {form}, {pixels} px" for form, pixels in costs]
    rows = []
    for name, config in MODELS.items():
        row = [name, f"{parameters_of(config) / 1e6:.1f}", tokens_of(config)]
        row += [_gflops(config, form, pixels) for form, pixels in costs]
        row += [config.depth, _variant(config), _positions(config)]
        rows.append(row)
    notes = []
    if costs:
        notes.append("GFLOPs: of one image's forward pass, a multiply-add is two; full: T x T matrices, scan: linear")
    return "\n\n".join([table(header, rows), *notes])


def _gflops(config: VisionConfig, form: str, pixels: int) -> str:
    softmax = config.variant in VARIANTS and VARIANTS[config.variant].softmax
    if softmax and form != "full":
        return "-"
    return f"{sum(model_flops(config, pixels, form).values()) / 1e9:.1f}"


def _variant(config: VisionConfig) -> str:
    return config.variant if not config.orders else f"{config.variant}, {len(config.orders)} orders"


def _positions(config: VisionConfig) -> str:
    return "learned" if config.positions == "learned" else "by decay"
