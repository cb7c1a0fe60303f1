"""Hydra and Vim whole, token by token, as their papers and their authors' code have them.

It imports torch and nothing of ours: a layer's parameters come by name.
"""

import torch


def silu(x):
    return x / (1 + (-x).exp())


def softplus(x):
    return (1 + x.exp()).log()


def convolve(x, weight, bias, past):
    """y_i = bias + sum_s weight_s x_{i + s - past}, channel by channel, with zeros around."""
    T = x.shape[1]
    out = []
    for i in range(T):
        y = bias.expand(x.shape[0], -1)
        for s in range(weight.shape[-1]):
            if 0 <= i + s - past < T:
                y = y + weight[:, 0, s] * x[:, i + s - past]
        out.append(y)
    return torch.stack(out, 1)


def state_space(x, dt, A, B, C):
    """h_i = exp(-dt_i A) h_{i-1} + dt_i B_i x_i, y_i = C_i h_i.

    x [B, T, H, V], dt [B, T, H], A [H, N] (or [H, 1]), B and C [B, T, N]."""
    h = torch.zeros(x.shape[0], x.shape[2], B.shape[-1], x.shape[3]).double()
    out = []
    for i in range(x.shape[1]):
        keep = (-dt[:, i, :, None] * A).exp()[..., None]  # [B, H, N, 1]
        h = keep * h + torch.einsum("bh,bn,bhv->bhnv", dt[:, i], B[:, i], x[:, i])
        out.append(torch.einsum("bn,bhnv->bhv", C[:, i], h))
    return torch.stack(out, 1)


def shift(y):
    return torch.cat([torch.zeros_like(y[:, :1]), y[:, :-1]], 1)


def hydra(p, x, direction):
    """Hwang et al. 2024: shift(SS(x)) + flip(shift(SS(flip(x)))) + D x, between Mamba-2's projections.

    Then out_proj(RMSNorm(y) * silu(z)): one norm over all channels, before the gate, where Mamba-2 has it behind."""
    if direction == "reverse":  # one direction alone is the mirror image of the other
        return hydra(p, x.flip(1), "forward").flip(1)
    inner, heads, N = 2 * x.shape[-1], p["skip"].numel(), 64
    both = direction == "both"
    columns = [inner, inner + (4 if both else 2) * N, heads * (1 + both)]
    z, xbc, dt = (x @ p["in_proj.weight"].T).split(columns, -1)
    xbc = silu(convolve(xbc, p["conv.weight"], p["conv.bias"], past=3 if both else 6))
    x, b, c, *back = xbc.split([inner] + [N] * (4 if both else 2), -1)
    D = p["skip"] + x @ p["diagonal.weight"].T
    x = x.unflatten(-1, (heads, -1))
    dt, A = softplus(dt.unflatten(-1, (-1, heads)) + p["decay.bias"]), p["decay.log_rate"].exp()[:, None]
    y = shift(state_space(x, dt[:, :, 0], A, b, c)) + D[..., None] * x
    if both:
        y = y + shift(state_space(x.flip(1), dt[:, :, 1].flip(1), A, *(s.flip(1) for s in back))).flip(1)
    y = y.flatten(-2)
    y = y / (y.square().mean(-1, keepdim=True) + 1e-5).sqrt() * p["norm.weight"]
    return (y * silu(z)) @ p["out_proj.weight"].T


def vim_way(p, x):
    """Mamba's convolution, selective scan and skip, causal."""
    x = silu(convolve(x, p["conv.weight"], p["conv.bias"], past=3))
    rank = p["step.weight"].shape[1]
    low_rank, b, c = (x @ p["proj.weight"].T).split([rank, 16, 16], -1)
    dt = softplus(low_rank @ p["step.weight"].T + p["decay.bias"])
    return state_space(x[..., None], dt, p["decay.log_rate"].exp(), b, c)[..., 0] + p["skip"] * x


def vim(p, x, direction):
    """Zhu et al. 2024, Algorithm 1: y_forward * silu(z) + y_backward * silu(z), no norm; the backward half is the same
    on the reversed sequence, with its own parameters."""
    x, z = (x @ p["in_proj.weight"].T).chunk(2, -1)
    first, last = ({name[7:]: y for name, y in p.items() if name.startswith(f"ways.{n}.")} for n in (0, 1))
    y = torch.zeros_like(x)
    if direction != "reverse":
        y = y + vim_way(first, x) * silu(z)
    if direction != "forward":
        y = y + vim_way(last or first, x.flip(1)).flip(1) * silu(z)
    return y @ p["out_proj.weight"].T
