"""Configs of lion's models by transformers' names, and how a saved folder says where its classes are."""

import typing
from pathlib import Path
from typing import Any, ClassVar, TypeVar

from lion import files
from lion.configs import checked, from_json
from lion.integrations.hf_files import CONFIG_TYPES, GENERATION_TYPES, check_fields
from lion.legacy import current, takes_old_names
from lion.limits import Hidden, Width
from lion.models.causal import MEMORIES, CausalConfig
from lion.models.encoder import EncoderConfig
from lion.nn.variants import VARIANTS
from lion.ops.checks import one_of
from lion.optional import need_transformers
from lion.terminal import short

need_transformers()

from transformers import PreTrainedConfig  # noqa: E402

C = TypeVar("C")
MODES = (*MEMORIES, "attention")

FIELDS = {  # of EncoderConfig, by transformers' names of them
    "variant": "variant",
    "vocab_size": "vocab_size",
    "hidden_size": "dim",
    "num_hidden_layers": "depth",
    "num_attention_heads": "heads",
    "intermediate_size": "mlp_dim",
    "positions": "positions",
    "max_position_embeddings": "max_tokens",
    "type_vocab_size": "token_types",
    "hidden_dropout_prob": "dropout",
    "layer_norm_eps": "norm_eps",
    "pad_token_id": "pad_token",
    "initializer_range": "init_std",
    "features": "features",
    "decay": "decay",
    "norm": "norm",
    "attention_norm": "attention_norm",
}
CAUSAL_FIELDS = {  # of CausalConfig
    "variant": "variant",
    "vocab_size": "vocab_size",
    "hidden_size": "dim",
    "num_hidden_layers": "depth",
    "num_attention_heads": "heads",
    "positions": "positions",
    "max_position_embeddings": "max_tokens",
    "features": "features",
    "decay": "decay",
    "norm": "norm",
    "hidden_dropout_prob": "dropout",
    "layer_norm_eps": "norm_eps",
    "initializer_range": "init_std",
}

CONFIG, CODE = "config.json", "modeling_lion.py"
IMPORTS = '''"""The classes of this folder's model, for AutoModel.from_pretrained(folder, trust_remote_code=True)."""

try:
    from {package} import {names}
except ModuleNotFoundError as problem:
    if (problem.name or "").split(".")[0] != "lion":
        raise
    raise ImportError("this model is of the package lion-attention: pip install 'lion-attention[hf]'") from problem

__all__ = [{quoted}]
'''


class LionBaseConfig(PreTrainedConfig):
    """What the configs have in common.

    A saved folder names its classes (`auto_map`) and has a module that imports them from lion, so that a process which
    has not imported lion can load it. It holds no copy of lion's code, which would go stale.
    """

    package: ClassVar[str]
    classes: ClassVar[dict[str, str]]  # by the Auto class that loads them

    def save_pretrained(self, save_directory: Any, *args: Any, **options: Any) -> None:
        module = CODE.removesuffix(".py")
        self.auto_map = {auto: f"{module}.{name}" for auto, name in self.classes.items()}
        super().save_pretrained(save_directory, *args, **options)
        names = sorted(self.classes.values())
        quoted = ", ".join(f'"{name}"' for name in names)
        code = IMPORTS.format(package=self.package, names=", ".join(names), quoted=quoted)
        Path(save_directory, CODE).write_text(code)

    @classmethod
    def from_pretrained(cls, pretrained_model_name_or_path: Any, **options: Any) -> Any:
        """As transformers has it, which makes the default config of a folder without config.json."""
        folder = Path(pretrained_model_name_or_path, options.get("subfolder") or "")
        if folder.is_dir():
            if not (folder / CONFIG).is_file():
                wanted = "expected a folder that save_pretrained has written"
                raise FileNotFoundError(f"{folder / CONFIG} is missing; {wanted}.")
            files.read_object(folder / CONFIG)
        return super().from_pretrained(
            pretrained_model_name_or_path, **{"name_or_path": str(pretrained_model_name_or_path), **options}
        )

    @classmethod
    def from_dict(cls, config_dict: dict[str, Any], **options: Any) -> Any:
        """As transformers has it; whatever it stumbles over, the file is named."""
        where = Path(options.get("name_or_path") or "", CONFIG)
        # Kernels of the hub are none that a file is to choose.
        content = {name: x for name, x in config_dict.items() if name != "attn_implementation"}
        # To transformers' from_pretrained, `variant` is a part of the weights' file name.
        of_weights = options.get("variant") not in (None, *VARIANTS)
        unused = {"variant": options.pop("variant")} if of_weights else {}
        try:
            types = cls._types()
            content = current(content, types)
            check_fields(content, types)
            found = super().from_dict(content, **options)
        except Exception as problem:
            raise ValueError(f"{where} makes no model: {short(str(problem))}") from problem
        return (found[0], found[1] | unused) if isinstance(found, tuple) else found

    @classmethod
    def _types(cls) -> dict[str, Any]:
        own = typing.get_type_hints(cls.__init__)
        del own["others"]
        return own | GENERATION_TYPES | CONFIG_TYPES

    @classmethod
    def register_for_auto_class(cls, auto_class: Any = "AutoConfig") -> None:
        """Nothing to do: whatever is saved has its auto_map. (transformers would copy source files beside it.)"""

    def inner(self) -> Any:
        """The same config by lion's own names; what is wrong with it is said by transformers'."""
        raise NotImplementedError

    def _as(self, kind: type[C], fields: dict[str, str], **others: Any) -> C:
        given = {field: getattr(self, name) for name, field in fields.items() if hasattr(self, name)}
        return from_json(kind, {**given, **others}, names={field: name for name, field in fields.items()})


@takes_old_names
class LionConfig(LionBaseConfig):
    """An encoder's config by transformers' names (FIELDS); lion.models.encoder.EncoderConfig says what they mean.

    `form` selects the algorithm, as `lion.set_form` does. `max_position_embeddings` is an attribute only where
    positions are learned: others read it as the longest text (sentence-transformers cuts there), and without learned
    positions there is none.
    """

    model_type = "lion"
    package = "lion.integrations.hf"
    classes: ClassVar[dict[str, str]] = {
        "AutoConfig": "LionConfig",
        "AutoModel": "LionModel",
        "AutoModelForMaskedLM": "LionForMaskedLM",
        "AutoModelForSequenceClassification": "LionForSequenceClassification",
        "AutoModelForTokenClassification": "LionForTokenClassification",
    }

    def __init__(
        self,
        variant: str = "lion_s",
        vocab_size: int = 30522,
        hidden_size: int = 768,
        num_hidden_layers: int = 12,
        num_attention_heads: int = 12,
        intermediate_size: int = 3072,
        positions: str = "none",
        max_position_embeddings: int = 512,
        type_vocab_size: int = 2,
        hidden_dropout_prob: float = 0.1,
        classifier_dropout: float | None = None,
        layer_norm_eps: float = 1e-12,
        pad_token_id: int | None = 0,
        initializer_range: float = 0.02,
        features: str | None = None,
        decay: str | None = None,
        norm: str | None = None,
        attention_norm: bool | None = None,
        form: str = "auto",
        tie_word_embeddings: bool = True,
        **others: Any,  # that all of transformers' configs have, as num_labels
    ):
        super().__init__(**others)
        self.variant = variant
        self.vocab_size = vocab_size
        self.hidden_size = hidden_size
        self.num_hidden_layers = num_hidden_layers
        self.num_attention_heads = num_attention_heads
        self.intermediate_size = intermediate_size
        self.positions = positions
        if positions != "none":
            self.max_position_embeddings = max_position_embeddings
        self.type_vocab_size = type_vocab_size
        self.hidden_dropout_prob = hidden_dropout_prob
        self.classifier_dropout = classifier_dropout
        self.layer_norm_eps = layer_norm_eps
        self.pad_token_id = pad_token_id
        self.initializer_range = initializer_range
        self.features = features
        self.decay = decay
        self.norm = norm
        self.attention_norm = attention_norm
        self.form = form
        self.tie_word_embeddings = tie_word_embeddings
        self.encoder()  # which checks some of it

    @classmethod
    def of(cls, encoder: EncoderConfig, **others: Any) -> "LionConfig":
        return cls(**{name: getattr(encoder, field) for name, field in FIELDS.items()}, **others)

    def encoder(self) -> EncoderConfig:
        """The same as lion.models.encoder has it."""
        return self._as(EncoderConfig, FIELDS)

    inner = encoder


@takes_old_names
class LionCausalConfig(LionBaseConfig):
    """A causal model's config by transformers' names (CAUSAL_FIELDS); lion.models.causal.CausalConfig says what they
    mean. `intermediate_size` is by default four times hidden_size; `max_position_embeddings` is as in LionConfig."""

    model_type = "lion_causal"
    package = "lion.integrations.hf_causal"
    classes: ClassVar[dict[str, str]] = {"AutoConfig": "LionCausalConfig", "AutoModelForCausalLM": "LionForCausalLM"}
    keys_to_ignore_at_inference = ["past_key_values"]  # noqa: RUF012

    def __init__(
        self,
        variant: str = "lion_s",
        vocab_size: int = 50257,
        hidden_size: int = 768,
        num_hidden_layers: int = 12,
        num_attention_heads: int = 12,
        intermediate_size: int | None = None,
        positions: str = "none",
        max_position_embeddings: int = 1024,
        features: str | None = None,
        decay: str | None = None,
        norm: str | None = None,
        hidden_dropout_prob: float = 0.0,
        layer_norm_eps: float = 1e-5,
        initializer_range: float = 0.02,
        generation_mode: str = "recurrence",
        use_cache: bool = True,
        tie_word_embeddings: bool = True,
        bos_token_id: int | None = None,
        eos_token_id: int | list[int] | None = None,
        pad_token_id: int | None = None,
        **others: Any,  # that all of transformers' configs have
    ):
        one_of("generation_mode", generation_mode, MODES)
        super().__init__(**others)
        self.variant = variant
        self.vocab_size = vocab_size
        self.hidden_size = hidden_size
        self.num_hidden_layers = num_hidden_layers
        self.num_attention_heads = num_attention_heads
        self.intermediate_size = intermediate_size
        self.positions = positions
        if positions != "none":
            self.max_position_embeddings = max_position_embeddings
        self.features = features
        self.decay = decay
        self.norm = norm
        self.hidden_dropout_prob = hidden_dropout_prob
        self.layer_norm_eps = layer_norm_eps
        self.initializer_range = initializer_range
        self.generation_mode = generation_mode
        self.use_cache = use_cache
        self.tie_word_embeddings = tie_word_embeddings
        self.bos_token_id = bos_token_id
        self.eos_token_id = eos_token_id
        self.pad_token_id = pad_token_id
        self.causal()  # which checks the rest

    @property
    def layer_types(self) -> list[str]:
        """transformers' words for what the layers are."""
        kind = "full_attention" if VARIANTS[self.variant].softmax else "linear_attention"
        return [kind] * self.num_hidden_layers

    @classmethod
    def of(cls, causal: CausalConfig, **others: Any) -> "LionCausalConfig":
        given = {name: getattr(causal, field) for name, field in CAUSAL_FIELDS.items()}
        return cls(intermediate_size=round(causal.mlp_ratio * causal.dim), **given, **others)

    def causal(self) -> CausalConfig:
        """The same as lion.models.causal has it."""
        width, hidden = checked(Width, self.hidden_size, "hidden_size"), self.intermediate_size
        ratio = 4.0 if hidden is None else checked(Hidden, hidden, "intermediate_size") / width
        return self._as(CausalConfig, CAUSAL_FIELDS, mlp_ratio=ratio)

    inner = causal
