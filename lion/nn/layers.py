"""`LionAttention`: the attention layer, for every variant of the table."""

import dataclasses
import math
from collections.abc import Collection, Sequence
from typing import Any, NamedTuple, cast

import torch
from torch import Tensor, nn

from lion import legacy
from lion.nn.arrival import charge_for_leaving, with_entry
from lion.nn.between import attention_between
from lion.nn.decay import DECAYS, Decay, NoDecay, PerOrder, TwoSided, geometric, heads_axis
from lion.nn.feature_maps import FEATURE_MAPS
from lion.nn.fused import Sequences, paths
from lion.nn.messages import Sent
from lion.nn.orders import ORDER_NORMS, ORDERS, decays_of, grid_orders
from lion.nn.pieces import Cuttable, states_of
from lion.nn.softmax import softmax_attention, softmax_step
from lion.nn.tails import GATES, OUTPUT_NORMS
from lion.nn.variants import KEYS, VARIANTS, Variant
from lion.ops.attention import LogDecay, attention
from lion.ops.call import accumulation_dtype
from lion.ops.checks import DIRECTIONS, NORMS, BackendName, Direction, Form, Norm, check_dense, one_of
from lion.ops.kernels import FORMS
from lion.ops.state import State, States
from lion.ops.step import attention_step


class Tokens(NamedTuple):
    """The projected input of a layer: q, k [B, T, H, D], v [B, T, H, V], decays and gates."""

    q: Tensor
    k: Tensor
    v: Tensor
    log_decay: LogDecay  # a pair where decays are two-sided
    log_gain: Tensor | None
    beta: Tensor | None
    values: Tensor  # v before it was gated
    gate: Tensor  # [B, T, dim or 0], of the output

    def at(self, tokens: slice) -> "Tokens":
        """Some of the tokens, of a layer with one direction."""
        given = {name: x for name, x in self._asdict().items() if isinstance(x, Tensor) and x.dim() > 2}
        return self._replace(**{name: x[:, tokens] for name, x in given.items()})  # fixed decays stay


class LionAttention(Cuttable, nn.Module):
    """Self-attention over [B, T, dim], linear in T: a drop-in for softmax attention.

    Args:
        dim: channels of the input and the output.
        heads: number of heads; dim is a multiple of it. (`mamba` has a head per channel.)
        variant: a key of `lion.VARIANTS`.
        features, decay, norm: take the place of the variant's own (FEATURE_MAPS, DECAYS, lion.attention).
        two_sided: whether each direction has decays of its own, also if the variant's are the same. Only then can a
            layer tell left from right.
        half_lives: of the first decays, in tokens: of the first head and of the last, the others between them. With
            `two_sided` those in reverse are the other way round. By default the variant's own.
        double_diagonal: count a token's weight of itself twice, as naive sums of both directions do.
        direction: "both"; "forward" or "reverse", where decays act on arrival, as causal models have it.
        orders: names of paths through a grid (ORDERS), or the orders themselves, [N, T]. Each has decays of its
            own, unless the variant gates its input by them.
        grid: height and width of the grid; by default the largest square, other tokens before it.
        order_norm: with several orders, "joint" adds their sums and divides once; "each" divides each, and averages the
            outputs, as the paper has it (an order at a time, so it takes longer).
        bias: whether the projections have one.
        zero_order_hold: whether a variant with `state_space_init` begins with values that are small where its decays
            are slow, as the paper has it: 40 times smaller in the slowest head than in the fastest, with the decays
            "..._slow" 400 times. (What a slow head adds up would be large otherwise; but norm "sum" divides by as large
            a sum.) Without, values begin as any linear layer's.
        form, backend, chunk_size: the algorithm, as of `lion.attention`; the result is the same. `set_form` changes it.
    """

    orders: Tensor | None

    def __init__(
        self,
        dim: int,
        heads: int = 8,
        variant: str = "lion_s",
        *,
        features: str | None = None,
        decay: str | None = None,
        norm: Norm | None = None,
        two_sided: bool = False,
        half_lives: tuple[float, float] | None = None,
        double_diagonal: bool = False,
        direction: Direction = "both",
        orders: Sequence[str] | Tensor | None = None,
        grid: tuple[int, int] | None = None,
        order_norm: str = "joint",
        bias: bool = True,
        zero_order_hold: bool = True,
        form: Form = "auto",
        backend: BackendName = "auto",
        chunk_size: int | None = None,
    ):
        super().__init__()
        direction, features = legacy.value("direction", direction), legacy.value("features", features)
        one_of("variant", variant, VARIANTS)
        one_of("direction", direction, DIRECTIONS)
        one_of("order_norm", order_norm, ORDER_NORMS)
        choices: list[tuple[str, str | None, Collection[str]]] = [
            ("features", features, FEATURE_MAPS),
            ("decay", decay, DECAYS),
            ("norm", norm, NORMS),
        ]
        given: dict[str, Any] = {}
        for name, choice, known in choices:
            if choice is not None:
                one_of(name, choice, known)
                given[name] = choice
        self.variant: Variant = dataclasses.replace(VARIANTS[variant], **given)
        self.name, self.dim, self.direction = variant, dim, direction
        self._check_choices(variant, given, two_sided)
        if not zero_order_hold and not self.variant.state_space_init:
            raise ValueError(f"zero_order_hold is False, and variant {variant!r} does not begin by it; expected True.")
        self.double_diagonal = double_diagonal
        self.two_sided = two_sided or (self.variant.two_sided and direction == "both")
        self.form, self.backend, self.chunk_size = form, backend, chunk_size
        self.order_norm = order_norm
        self._set_orders(orders, grid)

        if dim % heads:
            raise ValueError(f"dim is {dim} and heads is {heads}; expected dim to be a multiple of heads.")
        chosen = self.variant
        self.value_channels = chosen.value_channels or dim // heads
        self.heads = dim // self.value_channels
        key_channels = chosen.key_channels or dim // heads
        self.features = FEATURE_MAPS[chosen.features](key_channels)
        channels = self.features.channels
        self.decay = self._make_decay(channels)
        if half_lives is not None:
            self.decay.begin_with(geometric(*half_lives, self.heads))
        key_heads = 1 if chosen.keys == "shared" else self.heads
        self.columns = {
            "q": key_heads * key_channels,
            "k": 0 if chosen.keys == "complement" else key_heads * key_channels,
            "v": dim,
            "decay": self.decay.columns,
            "beta": self.heads if chosen.delta else 0,
            "gate": dim if any(step in GATES for step in chosen.tail) else 0,
        }
        # The width is a multiple of 8: with 1,158 columns a product is a tenth slower than with 1,160.
        self.columns["unused"] = -sum(self.columns.values()) % 8
        self.in_proj = nn.Linear(dim, sum(self.columns.values()), bias=bias)
        self.out_proj = nn.Linear(dim, dim, bias=bias)
        self.bonus = nn.Parameter(torch.full((self.heads, channels), 0.5)) if chosen.bonus else None
        self.skip = nn.Parameter(torch.ones(self.heads)) if chosen.skip else None
        norms = [OUTPUT_NORMS[step](self.heads, self.value_channels) for step in chosen.tail if step in OUTPUT_NORMS]
        self.output_norm = norms[0] if norms else None
        self.paths = paths(self)
        if chosen.state_space_init:
            self._state_space_init(zero_order_hold)

    def forward(
        self,
        x: Tensor,
        mask: Tensor | None = None,
        cu_seqlens: Tensor | None = None,
        *,
        grid: tuple[int, int] | None = None,
        forward_state: State | None = None,
        reverse_state: State | None = None,
        return_states: bool = False,
    ) -> Tensor | tuple[Tensor, States]:
        """x [B, T, dim]; mask [B, T], True for real tokens; cu_seqlens of packed sequences, with B = 1.

        x may be a piece of a longer sequence: `forward_state` is of all tokens before it, `reverse_state` of all after
        it, and with `return_states` the result is (y, States), as of `lion.attention`.
        """
        check_dense("x", x)
        orders = self._orders_for(x, grid)
        columns = self.in_proj(x)
        piece = return_states or forward_state is not None or reverse_state is not None
        if self.piece is not None:
            if piece or cu_seqlens is not None or orders is not None:
                what = "states are" if piece else "cu_seqlens is" if cu_seqlens is not None else "orders are"
                raise ValueError(f"{what} given, and the layer has a piece of a sequence: it finds its own states.")
            y = self.split(columns)
            arrived = self.piece.exchange(columns, lambda: Sent(*states_of(self, y, mask)))
            mixed = self.mix(y, mask, forward_state=arrived.forward, reverse_state=arrived.reverse)
            return self.finish(mixed, y.gate, y.values)
        for path in () if piece else self.paths:
            out = path(self, columns, Sequences(mask, cu_seqlens, orders))
            if out is not None:
                return out
        y = self.split(columns)
        mixed = self.mix(
            y,
            mask,
            cu_seqlens,
            orders,
            forward_state=forward_state,
            reverse_state=reverse_state,
            return_states=return_states,
        )
        mixed, states = mixed if return_states else (mixed, None)
        out = self.finish(mixed, y.gate, y.values)
        return out if states is None else (out, states)

    def weights(
        self,
        x: Tensor,
        mask: Tensor | None = None,
        *,
        of_mask: bool = False,
        grid: tuple[int, int] | None = None,
    ) -> Tensor:
        """[B, H, T, T]: what token j's value counts in token i's output. For looking at: it takes T^2 memory.

        With `of_mask` all queries and keys are alike, and what is left is the decays' and gates' part in it.
        """
        y = self.tokens(x)
        if of_mask:
            y = y._replace(q=torch.ones_like(y.q), k=torch.ones_like(y.k))
        return self._weights(y, mask, None, self._orders_for(x, grid))

    def forward_by_weights(
        self, x: Tensor, mask: Tensor | None = None, cu_seqlens: Tensor | None = None, *, last: int | None = None
    ) -> tuple[Tensor, Tensor]:
        """The outputs [B, T, dim], computed from the weights [B, H, T, T], and those; or of the last tokens only.

        The weights are normalised as the variant does it: they need not be positive, nor sum to 1. Gradients of the
        output reach them. Time and memory grow with T^2.
        """
        y, T = self.tokens(x), x.shape[1]
        rows = slice(0 if last is None else T - last, None)
        weights = self._weights(y, mask, cu_seqlens, None)[:, :, rows]
        v = y.v if mask is None else torch.where(mask[:, :, None, None], y.v, 0)
        mixed = torch.einsum("bhij,bjhv->bihv", weights, v)
        return self.finish(mixed, y.gate[:, rows], y.values[:, rows]), weights

    def _weights(self, y: Tokens, mask: Tensor | None, cu_seqlens: Tensor | None, orders: Tensor | None) -> Tensor:
        B, T = y.q.shape[:2]
        ones = torch.eye(T, dtype=y.v.dtype, device=y.v.device)[None, :, None].expand(B, T, self.heads, T)
        return self.mix(y._replace(v=ones), mask, cu_seqlens, orders).transpose(1, 2)

    def mix(
        self,
        y: Tokens,
        mask: Tensor | None = None,
        cu_seqlens: Tensor | None = None,
        orders: Tensor | None = None,
        *,
        forward_state: State | None = None,
        reverse_state: State | None = None,
        return_states: bool = False,
    ) -> Any:
        """[B, T, H, V]: the values, mixed; with `return_states` also the states behind these tokens."""
        where: dict[str, Any] = {"mask": mask, "cu_seqlens": cu_seqlens, "orders": orders, "direction": self.direction}
        piece = return_states or forward_state is not None or reverse_state is not None
        if self.order_norm == "each" and orders is not None and orders.dim() == 2 and not piece:
            return self._mean_of_orders(y, mask, cu_seqlens, orders)
        if self.variant.softmax:
            if piece:
                raise ValueError("variant is 'softmax', which has no state but its tokens; expected another variant.")
            return softmax_attention(y.q, y.k, y.v, **where)
        where |= {"form": self.form, "backend": self.backend, "chunk_size": self.chunk_size}
        where["self_weight"] = self.self_weight()
        given, entry = States(forward_state, reverse_state), None
        log_decay: Any = y.log_decay
        if self.direction != "both" and not self.variant.decay_between:
            if piece and log_decay is not None:
                log_decay, entry = with_entry(log_decay, y.q.shape[:2], self.direction, mask)
                given = States(*(x if x is None else x.decayed(entry) for x in given))
            log_decay = charge_for_leaving(log_decay, self.heads, self.direction, mask, orders)
        if piece:
            where |= {"forward_state": given.forward, "reverse_state": given.reverse, "return_states": return_states}
        if self.variant.decay_between:
            return attention_between(y.q, y.k, y.v, log_decay, **where)
        gates: dict[str, Any] = {"log_gain": y.log_gain, "beta": y.beta, "norm": self.variant.norm}
        result: Any = attention(y.q, y.k, y.v, log_decay, **gates, **where)
        if return_states and entry is not None and given[self.direction == "reverse"] is None:
            out, states = result
            return out, States(*(x if x is None else x._replace(log_decay=x.log_decay + entry) for x in states))
        return result

    def _mean_of_orders(self, y: Tokens, mask: Tensor | None, cu_seqlens: Tensor | None, orders: Tensor) -> Tensor:
        decays = [decays_of(y.log_decay, n, self.heads) for n in range(len(orders))]
        each = [self.mix(y._replace(log_decay=x), mask, cu_seqlens, orders[n]) for n, x in enumerate(decays)]
        return torch.stack(each).mean(0)

    def whole_only(self) -> str | None:
        if self.variant.softmax:
            return "variant 'softmax' has no state but its tokens"
        if self.variant.norm == "unmasked":
            return "norm 'unmasked' divides by a sum without decays, which no state holds"
        orders = self.order_names is not None or self.orders is not None
        return "other orders cross the pieces' borders many times" if orders else None

    def step(self, x: Tensor, state: Any = None) -> tuple[Tensor, Any]:
        """The next token, [B, dim], of a causal layer, and the `State` to give with the one after it.

        (Of softmax attention, the keys and values so far.)
        """
        if self.direction != "forward":
            raise ValueError(
                f"direction is {self.direction!r}; expected 'forward': only there a token's output is final at once."
            )
        y = self.tokens(x[:, None])
        q, k, v = y.q[:, 0], y.k[:, 0], y.v[:, 0]
        if self.variant.softmax:
            out, state = softmax_step(q, k, v, state)
        else:
            log_decay: Any = y.log_decay
            if log_decay is not None:
                log_decay = log_decay.expand(x.shape[0], *log_decay.shape) if log_decay.dim() <= 2 else log_decay[:, 0]
            out, state = attention_step(
                q,
                k,
                v,
                log_decay,
                log_gain=None if y.log_gain is None else y.log_gain[:, 0],
                beta=None if y.beta is None else y.beta[:, 0],
                self_weight=self.self_weight(),
                norm=self.variant.norm,
                decay_between=self.variant.decay_between,
                state=state,
            )
        return self.finish(out[:, None], y.gate, y.values)[:, 0], state

    def set_form(
        self, form: Form, *, backend: BackendName | None = None, chunk_size: int | None = None
    ) -> "LionAttention":
        one_of("form", form, ("auto", *FORMS))
        self.form, self.chunk_size = form, chunk_size
        self.backend = backend or self.backend
        return self

    def extra_repr(self) -> str:
        return f"{self.name}, {self.dim}, heads={self.heads}, direction={self.direction}, form={self.form}"

    def tokens(self, x: Tensor) -> Tokens:
        """Queries, keys, values, decays and gates of the input [B, T, dim]."""
        return self.split(self.in_proj(x))

    def split(self, columns: Tensor, *, in_steps: bool = False) -> Tokens:
        """With `in_steps` decays are `Steps`, and queries and keys that all heads share [B, T, 1, D]."""
        q, k, v, decay, beta, gate, _ = columns.split(list(self.columns.values()), -1)
        heads = 1 if self.variant.keys == "shared" else self.heads
        wide = accumulation_dtype(columns)
        log_decay, log_gain, factor = (self.decay.in_steps if in_steps else self.decay)(decay.to(wide))
        q, k = (y.unflatten(-1, (heads, -1)) for y in (q, k))
        if self.variant.keys == "complement":
            q, q_scale = self.features(q)
            forgotten = -torch.expm1(torch.stack(log_decay)).mean(0) if self.two_sided else -torch.expm1(log_decay)
            k, k_scale = forgotten.to(q.dtype), None
        else:
            (q, q_scale), (k, k_scale) = self.features.both(q, k)
        if k_scale is not None:
            log_gain = k_scale.to(wide) if log_gain is None else log_gain + k_scale.to(wide)
        if log_gain is not None and (self.variant.delta or self.variant.decay_between or self.variant.softmax):
            # These take no gates.
            k, log_gain = k * log_gain.exp()[..., None].to(k.dtype), None
        if q_scale is not None and self.variant.norm in ("none", "max"):  # else it cancels
            q = q * q_scale[..., None].exp()
        if self.variant.scaled:
            q = q * q.shape[-1] ** -0.5
        if heads == 1 and not in_steps:
            q, k = (y.expand(-1, -1, self.heads, -1) for y in (q, k))
        values = v = v.unflatten(-1, (self.heads, self.value_channels))
        if factor is not None:
            v = v * factor[..., None].to(v.dtype)
        beta = beta.to(wide).sigmoid() if self.variant.delta else None
        return Tokens(q, k, v, log_decay, log_gain, beta, values, gate)

    def finish(self, out: Tensor, gate: Tensor, values: Tensor | None = None) -> Tensor:
        """The output [B, T, dim], of the mixed values [B, T, H, V], and the values before they were."""
        if self.skip is not None and values is not None:
            out = out + self.skip[:, None] * values
        out = out.flatten(-2)
        for step in self.variant.tail:
            if step in GATES:
                out = out.to(gate.dtype) * GATES[step](gate)
            elif self.output_norm is not None:
                out = self.output_norm(out.to(self.output_norm.weight.dtype))
        return self.out_proj(out.to(gate.dtype))

    def self_weight(self) -> Tensor | float | None:
        times = 2.0 if self.double_diagonal else 1.0
        if self.bonus is not None:
            return times * self.bonus
        return times if self.double_diagonal else None

    def _check_choices(self, name: str, given: dict[str, Any], two_sided: bool) -> None:
        row = self.variant
        one_of(f"features of variant {name!r}", row.features, FEATURE_MAPS)
        one_of(f"decay of variant {name!r}", row.decay, DECAYS)
        one_of(f"keys of variant {name!r}", row.keys, KEYS)
        for step in row.tail:
            one_of(f"tail of variant {name!r}", step, (*OUTPUT_NORMS, *GATES))
        if two_sided and (self.variant.decay == "none" or self.variant.softmax):
            raise ValueError(f"two_sided is True, and variant {name!r} has no decays; expected False.")
        if two_sided and self.direction != "both":
            raise ValueError(f"two_sided is True, and direction is {self.direction!r}; expected 'both'.")
        if self.variant.softmax and given.keys() - {"features"}:
            raise ValueError(
                f"variant is 'softmax', which has no {' or '.join(given.keys() - {'features'})} to choose."
            )
        if (self.variant.delta or self.variant.decay_between) and self.variant.norm != "none":
            raise ValueError(
                f"norm is {self.variant.norm!r}; expected 'none' with variant {name!r}: it has no row sums."
            )

    def _make_decay(self, channels: int) -> Decay:
        def make() -> Decay:
            decay = DECAYS[self.variant.decay](self.heads, channels)
            shared = decay.gates or isinstance(decay, NoDecay) or self.variant.keys == "complement"
            if orders < 2 or shared:
                return decay
            return PerOrder([decay, *(DECAYS[self.variant.decay](self.heads, channels) for _ in range(orders - 1))])

        orders = len(self.order_names or ()) if self.orders is None else len(torch.atleast_2d(self.orders))
        return TwoSided(make(), make()) if self.two_sided else make()

    def _set_orders(self, orders: Sequence[str] | Tensor | None, grid: tuple[int, int] | None) -> None:
        names = None if isinstance(orders, Tensor) else orders
        if isinstance(names, str):
            names = [names]
        for name in names or ():
            one_of("orders", name, ORDERS)
        self.order_names = None if names is None else tuple(names)
        self.grid = grid
        self.register_buffer("orders", orders if isinstance(orders, Tensor) else None, persistent=False)

    def _orders_for(self, x: Tensor, grid: tuple[int, int] | None) -> Tensor | None:
        if self.order_names is None:
            return self.orders
        T = x.shape[1]
        height, width = grid or self.grid or (math.isqrt(T),) * 2
        # A graph exported for all sizes cannot ask for this one.
        if not torch.compiler.is_exporting() and height * width > T:
            raise ValueError(f"grid is {height} x {width}, more than the {T} tokens there are.")
        return grid_orders(self.order_names, height, width, prefix=T - height * width).to(x.device)

    @torch.no_grad()
    def _state_space_init(self, zero_order_hold: bool) -> None:
        q, k, v, decay, *_ = self.in_proj.weight.split(list(self.columns.values()))
        for weight in (q, k, decay):
            nn.init.normal_(weight, std=0.1)
        if not zero_order_hold:
            return
        log_decay = self.decay(v.new_zeros(1, 1, self.decay.columns)).log_decay
        log_decay = log_decay[0] if isinstance(log_decay, tuple) else log_decay  # both begin alike
        if log_decay is not None:  # a channel takes in as much as it forgets, 1 - lambda
            channels = log_decay.shape[-1] if heads_axis(log_decay) == -2 else 1
            forgets = -torch.expm1(log_decay).reshape(-1, self.heads, channels).mean(0)  # over the orders
            if forgets.shape[1] != self.value_channels:
                forgets = forgets.mean(1, keepdim=True)
            v *= forgets.expand(-1, self.value_channels).reshape(-1, 1)


def set_form(
    model: nn.Module, form: Form, *, backend: BackendName | None = None, chunk_size: int | None = None
) -> nn.Module:
    """Set the algorithm of every module of a model that has a `set_form`, as LionAttention. Outputs stay the same."""
    setters = [getattr(module, "set_form", None) for module in model.modules()]
    if not any(setters):
        raise ValueError(f"there is no LionAttention in this {type(model).__name__}.")
    for setter in filter(None, setters):
        setter(form, backend=backend, chunk_size=chunk_size)
    return model


def directions(direction: str, depth: int) -> list[Direction]:
    """The direction of each layer of a model; "alternating" goes forward and in reverse in turn."""
    if direction == "alternating":
        return ["reverse" if layer % 2 else "forward" for layer in range(depth)]
    direction = legacy.value("direction", direction)
    one_of("direction", direction, (*DIRECTIONS, "alternating"))
    return [cast(Direction, direction)] * depth
