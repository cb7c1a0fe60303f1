"""Damaged files of transformers' models, found and named before transformers reads them."""

import contextlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from lion import files
from lion.configs import checked
from lion.limits import Classes
from lion.models.saving import misfit
from lion.terminal import short

CONFIG_TYPES: dict[str, Any] = {  # of fields that all of transformers' configs may have
    **dict.fromkeys(("dtype", "torch_dtype", "problem_type", "transformers_weights"), str | None),
    **dict.fromkeys(("id2label", "label2id", "quantization_config", "fusion_config", "auto_map"), dict | None),
    **dict.fromkeys(("output_attentions", "output_hidden_states", "return_dict"), bool | None),
    **dict.fromkeys(("is_encoder_decoder", "is_decoder", "add_cross_attention"), bool | None),
    "architectures": tuple[str, ...] | None,
    "num_labels": Classes | None,
    "chunk_size_feed_forward": int | None,
}
GENERATION_TYPES: dict[str, Any] = {  # of generation_config.json
    **dict.fromkeys(("max_length", "max_new_tokens", "min_length", "min_new_tokens", "num_beams"), int | None),
    **dict.fromkeys(("top_k", "no_repeat_ngram_size", "num_return_sequences", "max_cache_len"), int | None),
    **dict.fromkeys(("pad_token_id", "bos_token_id", "forced_bos_token_id"), int | None),
    **dict.fromkeys(("eos_token_id", "forced_eos_token_id", "decoder_start_token_id"), int | tuple[int, ...] | None),
    **dict.fromkeys(("max_time", "temperature", "top_p", "min_p", "top_h", "typical_p"), float | None),
    **dict.fromkeys(("epsilon_cutoff", "eta_cutoff", "repetition_penalty", "length_penalty"), float | None),
    **dict.fromkeys(("guidance_scale", "encoder_repetition_penalty"), float | None),
    **dict.fromkeys(("do_sample", "use_cache", "remove_invalid_values", "renormalize_logits"), bool | None),
    **dict.fromkeys(("output_scores", "output_logits", "output_attentions", "output_hidden_states"), bool | None),
    **dict.fromkeys(("return_dict_in_generate", "token_healing", "disable_compile"), bool | None),
    **dict.fromkeys(("suppress_tokens", "begin_suppress_tokens"), tuple[int, ...] | None),
    "bad_words_ids": tuple[tuple[int, ...], ...] | None,
    "stop_strings": str | tuple[str, ...] | None,
    "early_stopping": bool | str | None,
    "cache_implementation": str | None,
    "cache_config": dict | None,
}


def check_fields(content: Mapping[str, Any], wanted: Mapping[str, Any], where: str = "") -> None:
    """Refuse known fields of other types than theirs."""
    for name, x in content.items():
        if name in wanted:
            checked(wanted[name], x, where + name)


def check_generation(path: Path) -> None:
    """Refuse a damaged generation_config.json, which transformers would ignore."""
    if path.exists():
        check_fields(files.read_object(path), GENERATION_TYPES, f"{path}: ")


class Misfit(ValueError, RuntimeError):
    """A config that makes no model, or a model of other shapes than its weights. Also a RuntimeError, as transformers'
    own error is, which comes only after memory for the model has been allocated."""


@contextlib.contextmanager
def naming(source: Any) -> Iterator[None]:
    """Name the model's place in every error, except in those that are about the call."""
    try:
        yield
    except (OSError, ImportError):
        raise
    except Exception as problem:
        of_call = isinstance(problem, TypeError) and "keyword argument" in str(problem)
        if source is None or of_call or str(source) in str(problem):
            raise
        raise Misfit(f"{source} cannot be loaded: {short(str(problem))}") from problem


def check_shapes(model: Any, found: dict[str, tuple[int, ...]], path: Path) -> None:
    prefix = f"{model.base_model_prefix}."  # in names of a model with a head, not in those of the model inside
    wanted = {name: tuple(x.shape) for name, x in model.state_dict().items()}
    wrong = []
    for name, shape in found.items():
        known = next((x for x in (name, prefix + name, name.removeprefix(prefix)) if x in wanted), None)
        if known and wanted[known] not in (shape, (0,)):  # DeepSpeed has no values of it here
            wrong.append(f"{name} {shape}, expected {wanted[known]}")
    if wrong:
        raise Misfit(misfit(path, {"of another shape": wrong}))


def check_index(folder: Path, variant: str | None) -> None:
    """Refuse a damaged index of a model that is in several files."""
    suffix = f".{variant}" if variant else ""
    path = folder / f"model.safetensors.index{suffix}.json"
    if not path.is_file() or (folder / f"model{suffix}.safetensors").is_file():
        return
    content = files.read_object(path)
    parts: Any = content.get("weight_map")
    names = list(parts.values()) if isinstance(parts, dict) else []
    named = all(isinstance(name, str) and len(name) < 256 for name in names)
    if not names or not named or not isinstance(content.get("metadata"), dict):
        raise files.DamagedFile(f"{path} is damaged: it has no weight_map and metadata; get it again.")
    for part in sorted(set(names)):
        if not (folder / part).is_file():
            raise FileNotFoundError(f"{folder / part} is missing, which {path.name} names; get it again.")
