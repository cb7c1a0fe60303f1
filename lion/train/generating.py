"""Text from a run of `lion train causal`, piece by piece."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from lion.configs import check, checked
from lion.data.tokenizers import TextTokenizer, load_tokenizer
from lion.limits import Beams, Count, CountOrAll, Heat, Seed
from lion.train.text import CausalTask
from lion.train.using import check_text, load_run

COLDEST = 1e-4  # below it only the likeliest token has a chance, and logits divided by it may be beyond all numbers


@dataclass(frozen=True)
class Sampling:
    temperature: Heat = 0.8  # 0: always the likeliest token
    top_k: CountOrAll = 50  # of so many of the likeliest; 0: of all
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
    show: Callable[[str], None] = lambda piece: None,
) -> str:
    """What a model makes of a prompt, the prompt included; `show` gets it while it is being made."""
    checked(Count, tokens, "tokens")
    run, model, _ = load_run(folder)
    if not isinstance(run.task, CausalTask) or not hasattr(model, "generation_mode"):
        raise ValueError(f"the run in {folder} is no model that goes on with a text; expected one of `train causal`.")
    tokenizer = load_tokenizer(folder / "model")
    start = [] if tokenizer.cls_id is None else [tokenizer.cls_id]  # as all that it has learned from begins
    start += tokenizer.encode([check_text("prompt", prompt)])[0]
    start = start or [tokenizer.eos_id or 0]  # as after the end of a text
    how = sampling or Sampling()
    model.generation_mode = mode  # type: ignore[assignment]
    streamer = _Streamer(tokenizer, show)
    torch.manual_seed(how.seed)
    sampled = how.temperature >= COLDEST
    choice = {"do_sample": True, "temperature": how.temperature, "top_k": how.top_k} if sampled else {}
    ids = model.generate(  # type: ignore[operator]
        torch.tensor([start]),
        attention_mask=torch.ones(1, len(start), dtype=torch.long),
        max_new_tokens=tokens,
        num_beams=how.beams,
        pad_token_id=tokenizer.eos_id,
        streamer=streamer if how.beams == 1 else None,  # of several, which one it will be is known in the end
        **(choice or {"do_sample": False}),
    )
    text = tokenizer.decode(ids[0].tolist())
    if how.beams > 1:
        show(text)
    return text


class _Streamer:
    """Transformers gives it the prompt, then token by token what follows."""

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
