"""The optimizer, the schedule of its learning rate, and the average of the weights."""

import math
from collections.abc import Callable

import torch
from torch import Tensor, nn

from lion.train.config import Optim

HEADS = ("classifier.", "head.")  # names of classifiers' parameters, in transformers and in timm


def make_optimizer(model: nn.Module, optim: Optim) -> torch.optim.AdamW:
    """AdamW. Norms, biases, tokens and decays have no weight decay. A group's learning rate is `factor` times that of
    the step."""
    no_weights: Callable[[], set[str]] = getattr(model, "no_weight_decay", set)
    kept = no_weights()
    # torch's AdamW multiplies weight_decay by the learning rate; decoupled means by its share of the largest rate.
    weight_decay = optim.weight_decay / optim.lr if optim.decoupled else optim.weight_decay
    groups: dict[tuple[float, float], list[nn.Parameter]] = {}
    for name, parameter in model.named_parameters():
        if parameter.requires_grad:
            decay = 0.0 if parameter.dim() <= 1 or name in kept else weight_decay
            factor = optim.head if name.startswith(HEADS) else 1.0
            groups.setdefault((decay, factor), []).append(parameter)
    apart = [{"params": x, "weight_decay": decay, "factor": factor} for (decay, factor), x in groups.items()]
    return torch.optim.AdamW(apart, lr=optim.lr, betas=optim.betas, eps=optim.eps, foreach=True)


def learning_rate(optim: Optim, step: int, steps: int) -> float:
    """The learning rate of a step, 0 to steps - 1: a linear warm-up, then down to `final` of the largest."""
    warmup = round(optim.warmup * steps)
    if step < warmup:
        return optim.lr * (step + 1) / warmup
    if optim.schedule == "constant":
        return optim.lr
    done = (step - warmup) / max(1, steps - warmup)
    left = 1 - done if optim.schedule == "linear" else (1 + math.cos(math.pi * done)) / 2
    return optim.lr * (optim.final + (1 - optim.final) * left)


class Average:
    """An exponential moving average of a model's weights, which begins as a plain mean."""

    def __init__(self, model: nn.Module, decay: float):
        self.decay = decay
        self.weights = {name: p.detach().clone() for name, p in model.named_parameters()}

    @torch.no_grad()
    def update(self, model: nn.Module, step: int) -> None:
        keep = min(self.decay, (1 + step) / (10 + step))  # the first weights are to be forgotten soon
        torch._foreach_lerp_(list(self.weights.values()), [p.detach() for p in model.parameters()], 1 - keep)

    @torch.no_grad()
    def swap(self, model: nn.Module) -> None:
        """Exchange the model's weights and the average."""
        for name, parameter in model.named_parameters():
            mean = self.weights[name]
            self.weights[name] = parameter.detach().clone()
            parameter.copy_(mean)

    def load(self, weights: dict[str, Tensor]) -> None:
        for name, mean in self.weights.items():
            mean.copy_(weights[name])
