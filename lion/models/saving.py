"""Models in folders: config.json says what a model is, model.safetensors has its weights. Nothing is pickled.

The weights' file holds the config too, as metadata, and is moved into place last, in one step. So config and weights
are always both old or both new, even if a save is interrupted or somebody reads in the middle of one. config.json is
for people, and for weights that were written by something else.
"""

import contextlib
import io
import json
import logging
import shutil
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from lion import checksums, files
from lion._version import __version__
from lion.configs import checked, from_json, to_json
from lion.machine import outline
from lion.models.card import CARD, write_card
from lion.models.long_range import LongConfig, LongModel
from lion.models.vision import VisionConfig, VisionModel
from lion.terminal import short

KINDS: dict[str, tuple[type, type[nn.Module]]] = {  # config, and model of it
    "vision": (VisionConfig, VisionModel),
    "long": (LongConfig, LongModel),
}
HUGGING_FACE = ("lion", "lion_causal")  # model_type in config.json, of models in lion.integrations.hf
CONFIG, WEIGHTS = "config.json", "model.safetensors"
INDEX = f"{WEIGHTS}.index.json"  # Hugging Face's, of a model in several files
SHOWN = 3  # names in an error
# Parameters whose shape has changed, by a part of their names, and what to do about weights of earlier versions.
CHANGED = {
    "output_norm": "The output norms of mamba2, rwkv6, hgrn2 and xlstm have become those of their authors "
    "(CHANGELOG.md): train the model again, or load it with the lion that has written it.",
}

log = logging.getLogger("lion")


class Description(NamedTuple):
    """The content of config.json."""

    kind: str
    config: dict[str, Any]
    lion: str  # the version that wrote it

    @staticmethod
    def of(plain: Any, path: Path) -> "Description":
        if not isinstance(plain, dict) or not isinstance(plain.get("config"), dict) or "kind" not in plain:
            raise ValueError(f"{path} describes no model; expected an object with 'kind' and 'config'.")
        return Description(plain["kind"], plain["config"], str(plain.get("lion", "unknown")))

    def model(self, path: Path, fits: Callable[[nn.Module], None]) -> nn.Module:
        """The model; `fits` refuses a sketch of it before memory for the weights is allocated."""
        writer = f"the model was saved by lion {self.lion}, and this is {__version__}"
        if self.kind not in tuple(KINDS):  # a tuple, as the kind may be unhashable
            known = ", ".join(map(repr, KINDS))
            raise ValueError(f"{path}: kind is {short(repr(self.kind))}; expected one of {known}: {writer}.")
        config, model = KINDS[self.kind]
        try:
            given: Any = from_json(config, self.config, "config")
            sketch = outline(lambda: model(given))
        except Exception as problem:  # whatever a module finds wrong with its sizes
            raise ValueError(f"{path} makes no model ({writer}): {short(str(problem))}") from problem
        fits(sketch)
        return model(given)


def save_model(
    model: nn.Module,
    folder: Path | str,
    *,
    weights: Mapping[str, Tensor] | None = None,
    about: Mapping[str, str] | None = None,
) -> None:
    """Write a model into a folder, and replace one that is there; `weights` take the place of the model's own.

    A model of transformers' kind is written for `from_pretrained`. Beside the weights there is a model card, README.md;
    `about` are rows of it, on the data and the metrics. A README.md that somebody has written or edited stays.
    """
    folder = Path(folder)
    save_pretrained: Callable[..., object] | None = getattr(model, "save_pretrained", None)
    if save_pretrained is not None:
        state = None if weights is None else dict(weights)

        def write(unfinished: Path) -> None:
            if (folder / CARD).is_file():
                shutil.copyfile(folder / CARD, unfinished / CARD)
            save_pretrained(unfinished, state_dict=state)
            write_card(model, unfinished, about)

        with quietly():
            files.replace_folder(folder, write)
        return
    description = Description(_kind(model), to_json(model.config), __version__)._asdict()
    tensors = files.apart(model.state_dict() if weights is None else weights)
    from safetensors.torch import save

    # A single entry, because safetensors writes several in any order: the same model is always the same bytes.
    content = io.BytesIO(save(tensors, {"lion": json.dumps(description)}))
    folder.mkdir(parents=True, exist_ok=True)
    files.write_json(folder / CONFIG, description)
    files.replace(folder / WEIGHTS, lambda path: checksums.copy(content, path))
    write_card(model, folder, about)


def load_model(folder: Path | str, *, device: torch.device | str = "cpu") -> nn.Module:
    """The model that `save_model` has written, in the precision it had, ready to be trained or evaluated."""
    config_path, path = Path(folder) / CONFIG, Path(folder) / WEIGHTS
    _need(config_path)
    plain = files.read_json(config_path)
    if isinstance(plain, dict) and plain.get("model_type") in HUGGING_FACE:
        if not (Path(folder) / INDEX).exists():
            _need(path)
        return _load_pretrained(Path(folder), plain).to(device)
    _need(path)
    description = Description.of(plain, config_path)
    weights, inside = _read(path)
    if inside is not None and inside[:2] != description[:2]:
        log.warning("%s is not of the weights beside it: their own config, in %s, is taken.", config_path, WEIGHTS)
        description, config_path = inside, path
    model = description.model(config_path, lambda sketch: _check_fit(sketch.state_dict(), weights, path))
    for name, x in (*model.named_parameters(remove_duplicate=False), *model.named_buffers(remove_duplicate=False)):
        if name in weights:
            x.data = x.data.to(weights[name].dtype)
    model.load_state_dict(weights)
    return model.to(device)


def _need(path: Path) -> None:
    if not path.exists():
        raise FileNotFoundError(f"{path} is missing; expected a folder that save_model has written.")


@contextlib.contextmanager
def quietly() -> Iterator[None]:
    """Without transformers' progress bars and reports: it takes a moment, and the caller says what is wrong."""
    from transformers.utils import logging

    shown, verbosity = logging.is_progress_bar_enabled(), logging.get_verbosity()
    logging.disable_progress_bar()
    logging.set_verbosity_error()
    try:
        yield
    finally:
        logging.set_verbosity(verbosity)
        if shown:
            logging.enable_progress_bar()


def load_pretrained(kind: Any, folder: Path, **options: Any) -> tuple[Any, dict[str, Any]]:
    """A model of transformers' kind, and which of its weights are missing, unexpected and so on."""
    try:
        with quietly():
            return kind.from_pretrained(folder, output_loading_info=True, **options)
    except ValueError:
        raise
    except Exception as problem:  # transformers raises many kinds of errors for damaged files
        raise files.DamagedFile(f"{folder} cannot be loaded: {problem}") from problem


def _load_pretrained(folder: Path, plain: dict[str, Any]) -> nn.Module:
    from lion.integrations import hf

    path = folder / CONFIG
    names = checked(tuple[str, ...] | None, plain.get("architectures"), f"{path}: architectures")
    name = next(iter(names or ()), "model without a name")
    kinds = {x: getattr(getattr(hf, x), "config_class", None) for x in hf.__all__}
    known = [x for x, config in kinds.items() if config is not None and config.model_type == plain["model_type"]]
    if name not in known:
        raise ValueError(f"{path} is of a {short(name)}; expected one of {', '.join(known)}.")
    model, found = load_pretrained(getattr(hf, name), folder)
    wrong = {what.replace("_", " "): sorted(map(str, names)) for what, names in found.items()}
    if any(wrong.values()):
        raise ValueError(misfit(folder / WEIGHTS, wrong))
    return model


def _kind(model: nn.Module) -> str:
    for kind, (_, known) in KINDS.items():
        if isinstance(model, known):
            return kind
    names = " or ".join(known.__name__ for _, known in KINDS.values())
    raise ValueError(f"the model is a {type(model).__name__}; expected a {names}: unwrap it, if it is one inside.")


def _checksum_of_before(tensors: Mapping[str, Tensor]) -> int:
    """The checksum that earlier versions kept in the description: of the tensors alone."""
    crc = 0
    for name in sorted(tensors):
        crc = zlib.crc32(tensors[name].reshape(-1).view(torch.uint8).numpy().data, crc)
    return crc


def _read(path: Path) -> tuple[dict[str, Tensor], Description | None]:
    """The tensors, and the description that goes with them, if they are ours."""
    from safetensors import SafetensorError, safe_open

    checked = checksums.check(path).checked
    try:
        with safe_open(path, "pt") as file:
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
            metadata = file.metadata() or {}
        plain = json.loads(metadata.get("lion", "null"))
    except (SafetensorError, ValueError, RecursionError) as problem:
        raise files.DamagedFile(f"{path} is damaged: {problem}; get it again.") from None
    if plain is None:
        return tensors, None
    description = Description.of(plain, path)
    if not checked and plain.get("crc32") != _checksum_of_before(tensors):
        raise files.DamagedFile(f"{path} is damaged: its checksum is wrong; get it again.")
    return tensors, description


def _check_fit(wanted: Mapping[str, Tensor], got: Mapping[str, Tensor], path: Path) -> None:
    both = [name for name in wanted if name in got]
    problems = {
        "missing": [name for name in wanted if name not in got],
        "unexpected": [name for name in got if name not in wanted],
        "of another shape": [
            f"{name} {tuple(got[name].shape)}, expected {tuple(wanted[name].shape)}"
            for name in both
            if got[name].shape != wanted[name].shape
        ],
        "of another kind of numbers": [
            name for name in both if got[name].is_floating_point() != wanted[name].is_floating_point()
        ],
    }
    if any(problems.values()):
        raise ValueError(misfit(path, problems))


def misfit(path: Path, problems: Mapping[str, Iterable[str]]) -> str:
    """The message for weights that do not fit a config: names of tensors by problem, and a remedy."""
    words = "; ".join(f"{what}: {_some(names)}" for what, names in problems.items() if names)
    remedies = "".join(f" {remedy}" for part, remedy in CHANGED.items() if part in words)
    return f"{path} does not fit its config. {words[0].upper()}{words[1:]}.{remedies}"


def _some(names: Iterable[str]) -> str:
    names = list(names)
    more = f" and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
    return ", ".join(names[:SHOWN]) + more
