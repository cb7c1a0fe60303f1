"""Uses that a type checker is to refuse. mypy reads this: a mistake that it overlooks is an unused "type: ignore"."""

import torch

import lion

q = torch.rand(1, 4, 2, 8)


def wrong() -> None:
    lion.nothing  # type: ignore[attr-defined]  # noqa: B018
    lion.attention(q, q, q, direction="sideways")  # type: ignore[call-overload]
    lion.attention(q, q, q, norm="total")  # type: ignore[call-overload]
    lion.attention(q, q, q, form="fast")  # type: ignore[call-overload]
    lion.attention(q, q, q, backend="gpu")  # type: ignore[call-overload]
    lion.explain(q, q, q, form="fast")  # type: ignore[arg-type]
    lion.LionAttention(8, 2, direction="sideways")  # type: ignore[arg-type]
    lion.LionAttention(8, 2, norm="total")  # type: ignore[arg-type]
    lion.set_form(torch.nn.Linear(2, 2), "fast")  # type: ignore[arg-type]
    lion.attention_step(q[:, 0], q[:, 0], q[:, 0], norm="total")  # type: ignore[arg-type]


def right() -> torch.Tensor:
    layer = lion.LionAttention(8, 2, "lion_s", norm="max", direction="forward", form="scan", backend="torch")
    lion.set_form(layer, "rnn", backend="auto")
    return lion.attention(q, q, q, norm="none", direction="reverse", form="chunk", chunk_size=2)
