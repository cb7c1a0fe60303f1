"""Configs of lion's models by transformers' names, and how a saved folder says where its classes are."""

import typing
from dataclasses import fields
from pathlib import Path
from typing import Any, ClassVar

from transformers import PreTrainedConfig

from lion import files
from lion.configs import checked, from_json
from lion.integrations.hf.damage import CONFIG_TYPES, GENERATION_TYPES, check_fields
from lion.legacy import current, takes_old_names
from lion.limits import Hidden, Width
from lion.models.baselines import BASELINES
from lion.models.blocks import ModelConfig
from lion.models.causal import MEMORIES, CausalConfig
from lion.models.encoder import EncoderConfig
from lion.models.heads import POOLINGS
from lion.nn.variants import VARIANTS
from lion.ops.checks import one_of
from lion.terminal import short

MODES = (*MEMORIES, "attention")
NAMES = {  # transformers' names of fields, by lion's; the others have one name
    "dim": "hidden_size",
    "depth": "num_hidden_layers",
    "heads": "num_attention_heads",
    "mlp_dim": "intermediate_size",
    "max_tokens": "max_position_embeddings",
    "token_types": "type_vocab_size",
    "dropout": "hidden_dropout_prob",
    "norm_eps": "layer_norm_eps",
    "pad_token": "pad_token_id",
    "init_std": "initializer_range",
}
CONFIG, CODE = "config.json", "modeling_lion.py"
IMPORTS = '''"""The classes of this folder's model, for AutoModel.from_pretrained(folder, trust_remote_code=True)."""

try:
    from lion.integrations.hf import {names}
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

    classes: ClassVar[dict[str, str]]  # by the Auto class that loads them
    inner: ClassVar[type[ModelConfig]]  # the same config by lion's own names
    computed: ClassVar[tuple[str, ...]] = ()  # fields of that one which have no counterpart here

    def _set(self, arguments: dict[str, Any]) -> None:
        """Make attributes of a constructor's arguments, its `locals()`."""
        without = {"self", "others", "__class__"}
        if arguments["positions"] == "none":
            without.add("max_position_embeddings")
        for name in arguments.keys() - without:
            setattr(self, name, arguments[name])
        self._inner()  # which checks the values

    @classmethod
    def of(cls, config: Any, **others: Any) -> Any:
        """The config of transformers' for one of lion's."""
        given = {NAMES.get(name, name): getattr(config, name) for name in cls._own_fields()}
        return cls(**given, **others)

    def _inner(self) -> Any:
        """The config by lion's names; what is wrong with it is said by transformers'."""
        names = {name: NAMES.get(name, name) for name in self._own_fields()}
        given = {name: getattr(self, theirs) for name, theirs in names.items() if hasattr(self, theirs)}
        return from_json(self.inner, given | self._computed(), names=names)

    def _computed(self) -> dict[str, Any]:
        """The values of the fields in `computed`."""
        return {}

    @classmethod
    def _own_fields(cls) -> list[str]:
        return [field.name for field in fields(cls.inner) if field.name not in cls.computed]

    def save_pretrained(self, save_directory: Any, *args: Any, **options: Any) -> None:
        module = CODE.removesuffix(".py")
        self.auto_map = {auto: f"{module}.{name}" for auto, name in self.classes.items()}
        super().save_pretrained(save_directory, *args, **options)
        names = sorted(self.classes.values())
        code = IMPORTS.format(names=", ".join(names), quoted=", ".join(f'"{name}"' for name in names))
        Path(save_directory, CODE).write_text(code)

    @classmethod
    def from_pretrained(cls, pretrained_model_name_or_path: Any, **options: Any) -> Any:
        """As transformers has it, which takes the default config for a folder without config.json."""
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
        """As transformers has it, but every error names the file."""
        where = Path(options.get("name_or_path") or "", CONFIG)
        # A file must not choose kernels of the hub.
        content = {name: x for name, x in config_dict.items() if name != "attn_implementation"}
        # To transformers' from_pretrained, `variant` is a part of the weights' file name.
        of_weights = options.get("variant") not in (None, *VARIANTS, *BASELINES)
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


@takes_old_names
class LionConfig(LionBaseConfig):
    """An encoder's config by transformers' names (NAMES); lion.models.encoder.EncoderConfig says what they mean.

    `form` selects the algorithm, as `lion.set_form` does. `max_position_embeddings` is an attribute only where
    positions are learned: others read it as the longest text (sentence-transformers cuts there), and without learned
    positions there is none.
    """

    model_type = "lion"
    inner = EncoderConfig
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
        two_sided: bool = False,
        half_lives: tuple[float, float] | None = None,
        classifier_pooling: str = "cls",  # or "mean", of all tokens
        classifier_token_weights: bool = False,  # a linear model of the tokens beside: lion.models.heads.TokenWeights
        **others: Any,  # fields of all of transformers' configs, as num_labels
    ):
        one_of("classifier_pooling", classifier_pooling, POOLINGS)
        super().__init__(**others)
        self._set(locals())

    def encoder(self) -> EncoderConfig:
        return self._inner()


@takes_old_names
class LionCausalConfig(LionBaseConfig):
    """A causal model's config by transformers' names (NAMES); lion.models.causal.CausalConfig says what they mean.
    `intermediate_size` is by default four times hidden_size; `max_position_embeddings` is as in LionConfig."""

    model_type = "lion_causal"
    inner = CausalConfig
    computed = ("mlp_ratio",)
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
        **others: Any,  # fields of all of transformers' configs
    ):
        one_of("generation_mode", generation_mode, MODES)
        super().__init__(**others)
        self._set(locals())

    @property
    def layer_types(self) -> list[str]:
        """transformers' words for what the layers are."""
        kind = "full_attention" if VARIANTS[self.variant].softmax else "linear_attention"
        return [kind] * self.num_hidden_layers

    @classmethod
    def of(cls, config: CausalConfig, **others: Any) -> "LionCausalConfig":
        return super().of(config, intermediate_size=round(config.mlp_ratio * config.dim), **others)

    def _computed(self) -> dict[str, Any]:
        width, hidden = checked(Width, self.hidden_size, "hidden_size"), self.intermediate_size
        return {"mlp_ratio": 4.0 if hidden is None else checked(Hidden, hidden, "intermediate_size") / width}

    def causal(self) -> CausalConfig:
        return self._inner()
