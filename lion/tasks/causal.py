"""Causal language modelling on plain text, and generation."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from lion.configs import check, checked
from lion.data.packed import NextTokens
from lion.data.tokenizers import TextTokenizer
from lion.limits import Beams, Count, CountOrAll, Heat, Seed, Tokens
from lion.machine import to_train
from lion.models.causal import CausalConfig
from lion.models.heads import IGNORED
from lion.nn.variants import VARIANTS
from lion.recipes import register_recipe
from lion.tasks import Batch, Examples, classified, register_task
from lion.tasks._tokenized import OF_TOKENIZER, CorpusTask, check_text, tokenizer_of, with_room
from lion.train.config import Optim, Run
from lion.train.metrics import perplexity

COLDEST = 1e-4  # a lower temperature means the most likely token: logits divided by it may overflow


@register_task("causal")
@dataclass(frozen=True)
class CausalTask(CorpusTask):
    model: CausalConfig = field(default_factory=CausalConfig)
    length: Tokens = 256

    metric = "perplexity"
    decided = OF_TOKENIZER
    trainer = "bpe"
    usage = "lion generate {run} --prompt 'Once'"

    def resolved(self) -> "CausalTask":
        model = replace(self.model, vocab_size=self.text_tokenizer().vocab_size)
        return replace(self, model=with_room(model, self.length))

    def make_model(self) -> nn.Module:
        from lion.integrations.hf import LionCausalConfig, LionForCausalLM

        eos = self.text_tokenizer().eos_id
        return to_train(lambda: LionForCausalLM(LionCausalConfig.of(self.model, eos_token_id=eos)))

    def train_set(self, seed: int) -> Examples:
        return NextTokens(self.packed("train"))

    def eval_set(self) -> Examples:
        return NextTokens(self.packed("validation"))

    def measure(self, model: nn.Module, batch: Batch) -> dict[str, Tensor]:
        logits = model(batch["input_ids"], use_cache=False).logits
        real = batch["labels"] != IGNORED
        return classified(logits[real], batch["labels"][real])

    def concluded(self, metrics: dict[str, Any]) -> dict[str, float]:
        return {**metrics, "perplexity": perplexity(metrics["loss"])}


@register_recipe("causal", "causal.{variant}", variant=VARIANTS)
def causal(variant: str = "lion_s") -> Run:
    """Causal language modelling on plain text, for `lion generate`: `lion train causal --data 'corpus/*.txt'`."""
    positions = "none" if VARIANTS[variant].decay != "none" or VARIANTS[variant].delta else "learned"
    model = CausalConfig(variant=variant, dim=256, depth=4, heads=4, positions=positions)
    task = CausalTask(model=model, vocab_size=4096)
    return Run(task, Optim(lr=1.5e-3, weight_decay=0.05, betas=(0.9, 0.95), warmup=0.06), epochs=3, batch=16)


@dataclass(frozen=True)
class Sampling:
    temperature: Heat = 0.8  # 0: always the most likely token
    top_k: CountOrAll = 50  # sample from the k most likely; 0: from all
    beams: Beams = 1
    seed: Seed = 0

    def __post_init__(self):
        check(self)


def generate(
    folder: Path,
    prompt: str,
    *,
    tokens: int = 200,
    mode: str = "recurrence",
    sampling: Sampling | None = None,
    device: str = "",
    show: Callable[[str], None] = lambda piece: None,
) -> str:
    """The prompt and what a run's model adds to it; `show` gets it piece by piece."""
    from lion.train.folder import load_run

    checked(Count, tokens, "tokens")
    trained = load_run(folder, device=device)
    model = trained.model
    if not isinstance(trained.task, CausalTask) or not hasattr(model, "generation_mode"):
        raise ValueError(f"the run in {folder} has no causal language model; expected a run of `lion train causal`.")
    tokenizer = tokenizer_of(trained)
    start = [] if tokenizer.cls_id is None else [tokenizer.cls_id]  # all texts that it learned from begin so
    start += tokenizer.encode([check_text("prompt", prompt)])[0]
    start = start or [tokenizer.eos_id or 0]  # as after the end of a text
    how = sampling or Sampling()
    model.generation_mode = mode  # type: ignore[assignment]
    torch.manual_seed(how.seed)
    choice = {"do_sample": True, "temperature": how.temperature, "top_k": how.top_k}
    ids = model.generate(  # type: ignore[operator]
        torch.tensor([start], device=trained.device),
        attention_mask=torch.ones(1, len(start), dtype=torch.long, device=trained.device),
        max_new_tokens=tokens,
        num_beams=how.beams,
        pad_token_id=tokenizer.eos_id,
        streamer=_Streamer(tokenizer, show) if how.beams == 1 else None,  # which beam it will be is known in the end
        **(choice if how.temperature >= COLDEST else {"do_sample": False}),
    )
    text = tokenizer.decode(ids[0].tolist())
    if how.beams > 1:
        show(text)
    return text


class _Streamer:
    """transformers gives it the prompt, then each new token."""

    def __init__(self, tokenizer: TextTokenizer, show: Callable[[str], None]):
        self.tokenizer, self.show = tokenizer, show
        self.ids: list[int] = []
        self.shown = ""

    def put(self, ids: Tensor) -> None:
        self.ids += ids.flatten().tolist()
        text = self.tokenizer.decode(self.ids)
        if not text.endswith("\N{REPLACEMENT CHARACTER}"):  # half a letter, which the next token completes
            self.show(text[len(self.shown) :])
            self.shown = text

    def end(self) -> None:
        self.show(self.tokenizer.decode(self.ids)[len(self.shown) :])
