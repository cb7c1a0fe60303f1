"""Every variant whole, from the layer's input to its output, as its own paper or its authors' code has it.

It imports torch and nothing of ours: a block takes a layer's parameters by name, and is written out from the
projection to the skip, norm, gate and output projection, so that nothing of it is taken from the code it judges.
Without what docs/variants.md says a layer leaves to the block around it: convolutions, token shifts, rotations.

block(p, x, H, direction): p are the parameters, x [B, T, dim], H heads, direction "both" or "forward".
"""

import torch

from tests.nn import naive
from tests.nn.naive_both import (
    both_ways,
    deltanet_both_ways,
    gated_deltanet_both_ways,
    scaled_both_ways,
    softmax_both_ways,
)


def sigmoid(x):
    return 1 / (1 + (-x).exp())


def silu(x):
    return x / (1 + (-x).exp())


def softplus(x):
    return (1 + x.exp()).log()


def unit(x):
    return x / x.square().sum(-1, keepdim=True).sqrt()


def shifted_silu(x):
    """The LION paper's features."""
    return unit(silu(x) + 0.5)


def elu1(x):
    return torch.where(x > 0, x + 1, x.exp())


def rms_norm(x, weight, eps):
    return x / (x.square().mean(-1, keepdim=True) + eps).sqrt() * weight


def layer_norm(x, eps):
    x = x - x.mean(-1, keepdim=True)
    return x / (x.square().mean(-1, keepdim=True) + eps).sqrt()


def columns(p, x, *widths):
    """The columns of the projection, in order; up to seven at the end are not used."""
    y = x @ p["in_proj.weight"].T + p["in_proj.bias"]
    unused = y.shape[-1] - sum(widths)
    assert 0 <= unused < 8
    return y.split([*widths, unused], -1)[:-1]


def split(x, H):
    """[B, T, H V] -> [B, T, H, V]"""
    return x.unflatten(-1, (H, -1))


def project(p, y):
    return y @ p["out_proj.weight"].T + p["out_proj.bias"]


def softmax(p, x, H, direction):
    """Vaswani et al. 2017: no norm, no gate."""
    q, k, v = (split(y, H) for y in columns(p, x, *3 * x.shape[-1:]))
    mix = naive.softmax_attention if direction == "forward" else softmax_both_ways
    return project(p, mix(q, k, v).flatten(-2))


def lion(p, x, H, direction, decay_columns=0, decay=None, features=shifted_silu):
    """LION's own: scaled linear attention with S_i = Lambda_i S_(i-1) + k_i v_i^T; no norm, no gate."""
    dim = x.shape[-1]
    q, k, v, raw = columns(p, x, dim, dim, dim, decay_columns)
    q, k, v = features(split(q, H)), features(split(k, H)), split(v, H)
    lam = torch.ones_like(k) if decay is None else decay(p, raw, H).expand(k.shape)
    mix = naive.selective_scaled if direction == "forward" else scaled_both_ways
    return project(p, mix(q, k, v, lam).flatten(-2))


def lion_lit(p, x, H, direction):
    return lion(p, x, H, direction)


def lion_d(p, x, H, direction):
    return lion(p, x, H, direction, decay=lambda p, raw, H: sigmoid(p["decay.logit"])[:, None])


def lion_s(p, x, H, direction):
    return lion(p, x, H, direction, H, lambda p, raw, H: sigmoid(raw + p["decay.bias"])[..., None])


def lion_s_two_sided(p, x, H, direction):
    """LION-S with a projection and a bias for each direction; in one direction it is LION-S."""
    if direction != "both":
        return lion_s(p, x, H, direction)
    dim = x.shape[-1]
    q, k, v, there, back = columns(p, x, dim, dim, dim, H, H)
    q, k, v = shifted_silu(split(q, H)), shifted_silu(split(k, H)), split(v, H)
    lam = tuple(
        sigmoid(raw + p[f"decay.directions.{n}.bias"])[..., None].expand(k.shape) for n, raw in enumerate((there, back))
    )
    return project(p, scaled_both_ways(q, k, v, lam).flatten(-2))


def lion_d_diag(p, x, H, direction):
    return lion(p, x, H, direction, decay=lambda p, raw, H: (-p["decay.log_rate"].exp()).exp())


def lion_s_diag(p, x, H, direction):
    return lion(
        p,
        x,
        H,
        direction,
        x.shape[-1],
        lambda p, raw, H: (-2 * sigmoid(split(raw, H)) * p["decay.log_rate"].exp()).exp(),
    )


def linatt_scaled(p, x, H, direction):
    """Katharopoulos et al. 2020: elu + 1, divided by q . z; no norm, no gate."""
    return lion(p, x, H, direction, features=elu1)


def retnet_scaled(p, x, H, direction):
    """The LION paper's RetNet + Scaling: linear attention's division in place of retention's norm and gate."""
    return lion(p, x, H, direction, decay=lambda p, raw, H: sigmoid(p["decay.logit"])[:, None], features=elu1)


def linatt(p, x, H, direction):
    """Linear attention without its division, and with a norm of each head in place of it (as
    flash-linear-attention's LinearAttention)."""
    q, k, v = (split(y, H) for y in columns(p, x, *3 * x.shape[-1:]))
    q, k = elu1(q), elu1(k)
    y = naive.linear_attention(q, k, v) if direction == "forward" else both_ways(q, k, v, 1.0)[0]
    return project(p, rms_norm(y, p["output_norm.weight"], 1e-5).flatten(-2))


def retnet(p, x, H, direction):
    """Sun et al. 2023, MSR(X) = (swish(X W_G) * GroupNorm(heads)) W_O; torchscale: an RMS norm of each head, eps 1e-6,
    and keys times D^-1/2."""
    dim = x.shape[-1]
    q, k, v, g = columns(p, x, dim, dim, dim, dim)
    q, k, v = split(q, H), split(k, H) * (dim // H) ** -0.5, split(v, H)
    gamma = sigmoid(p["decay.logit"])
    y = naive.retention(q, k, v, gamma) if direction == "forward" else both_ways(q, k, v, gamma[:, None])[0]
    return project(p, silu(g) * rms_norm(y, p["output_norm.weight"], 1e-6).flatten(-2))


def grfa(p, x, H, direction):
    """Peng et al. 2021: random Fourier features of unit vectors, divided by q . z; no norm, no gate of the output."""
    dim = x.shape[-1]
    directions = p["features.directions"] / p["features.log_width"].exp()

    def features(y):
        angles = unit(split(y, H)) @ directions.T
        return torch.cat([angles.sin(), angles.cos()], -1) / directions.shape[0] ** 0.5

    q, k, v, raw = columns(p, x, dim, dim, dim, H)
    q, k, v, g = features(q), features(k), split(v, H), sigmoid(raw + p["decay.bias"])
    if direction == "forward":
        y = naive.gated_rfa(q, k, v, g)
    else:
        y = scaled_both_ways(q, (1 - g)[..., None] * k, v, g[..., None])
    return project(p, y.flatten(-2))


def mamba2(p, x, H, direction):
    """Dao & Gu 2024: out_proj(RMSNorm((SSM(x) + D x) * silu(z))), one norm over all channels, behind the gate."""
    dim = x.shape[-1]
    c, b, v, raw, z = columns(p, x, dim // H, dim // H, dim, H, dim)
    v, dt, rate = split(v, H), softplus(raw + p["decay.bias"]), p["decay.log_rate"].exp()
    if direction == "forward":
        y = naive.mamba2(v, dt, -rate, b, c, p["skip"])
    else:
        c, b = (y[:, :, None].expand(-1, -1, H, -1) for y in (c, b))
        y, _ = both_ways(c, b, dt[..., None] * v, (-dt * rate).exp()[..., None])
        y = y + p["skip"][:, None] * v
    return project(p, rms_norm(y.flatten(-2) * silu(z), p["output_norm.weight"], 1e-5))


def mamba(p, x, H, direction):
    """Gu & Dao 2023: out_proj((SSM(x) + D x) * silu(z)), 16 states per channel, no norm."""
    dim = x.shape[-1]
    c, b, v, raw, z = columns(p, x, 16, 16, dim, dim, dim)
    dt, rate = softplus(raw + p["decay.bias"]), p["decay.log_rate"].exp()
    if direction == "forward":
        y = naive.mamba(v, dt, -rate, b, c, p["skip"])
    else:
        c, b = (y[:, :, None].expand(-1, -1, dim, -1) for y in (c, b))
        y, _ = both_ways(c, b, (dt * v)[..., None], (-dt[..., None] * rate).exp())
        y = y[..., 0] + p["skip"] * v
    return project(p, y * silu(z))


def rwkv6(p, x, H, direction):
    """Peng et al. 2024 (Finch): out((LayerNorm of each head) * silu(g)); in RWKV-LM a GroupNorm of H groups with eps
    64e-5 and a weight and a bias for each channel."""
    dim = x.shape[-1]
    r, k, v, low, g = columns(p, x, dim, dim, dim, 16, dim)
    w = (-(low.tanh() @ p["decay.up.weight"].T + p["decay.up.bias"]).exp()).exp()
    r, k, v, w = (split(y, H) for y in (r, k, v, w))
    if direction == "forward":
        y = naive.rwkv6(r, k, v, w, p["bonus"])
    else:
        y, _ = both_ways(r, k, v, w, own=p["bonus"], between=True)
    y = layer_norm(y, 64e-5).flatten(-2) * p["output_norm.weight"] + p["output_norm.bias"]
    return project(p, y * silu(g))


def gla(p, x, H, direction):
    """Yang et al. 2023: (swish(r) * norm of each head) W_O; the authors' flash-linear-attention has an RMS norm."""
    dim = x.shape[-1]
    q, k, v, low, r = columns(p, x, dim, dim, dim, 16, dim)
    alpha = sigmoid(low @ p["decay.up.weight"].T + p["decay.up.bias"]) ** (1 / 16)
    q, k, v, alpha = (split(y, H) for y in (q, k, v, alpha))
    q = q * (dim // H) ** -0.5
    y = naive.gla(q, k, v, alpha) if direction == "forward" else both_ways(q, k, v, alpha)[0]
    return project(p, silu(r) * rms_norm(y, p["output_norm.weight"], 1e-5).flatten(-2))


def hgrn2(p, x, H, direction):
    """Qin et al. 2024: f = bound + (1 - bound) sigmoid(.), keys 1 - f, queries SiLU; one norm over all channels."""
    dim = x.shape[-1]
    q, v, raw = (split(y, H) for y in columns(p, x, dim, dim, dim))
    bound = sigmoid(p["decay.bound"])
    f = bound + (1 - bound) * sigmoid(raw)
    y = naive.hgrn2(silu(q), f, v) if direction == "forward" else both_ways(silu(q), 1 - f, v, f)[0]
    return project(p, rms_norm(y.flatten(-2), p["output_norm.weight"], 1e-6))


def xlstm(p, x, H, direction):
    """Beck et al. 2024, h = o * norm(C q / max(|n q|, 1)) with o = sigmoid(.); the norm is xLSTM 7B's, a
    layer norm of each head with a weight for each channel, eps 1e-6, before the gate."""
    dim = x.shape[-1]
    q, k, v, raw, o = columns(p, x, dim, dim, dim, 2 * H, dim)
    q, k, v = split(q, H), split(k, H) / (dim // H) ** 0.5, split(v, H)
    forget, log_i = (raw.unflatten(-1, (2, H)) + p["decay.bias"]).unbind(-2)
    f = sigmoid(forget)
    if direction == "forward":
        y = naive.mlstm(q, k, v, log_i, f)
        torch.testing.assert_close(naive.mlstm_stabilised(q, k, v, log_i, f.log()), y)
    else:
        num, den = both_ways(q, log_i.exp()[..., None] * k, v, f[..., None])
        y = num / den.abs().clamp(min=1)
    return project(p, sigmoid(o) * (layer_norm(y, 1e-6).flatten(-2) * p["output_norm.weight"]))


def deltanet(p, x, H, direction):
    """Yang et al. 2024: SiLU of length 1, the delta rule, an RMS norm of each head, no gate."""
    dim = x.shape[-1]
    q, k, v, raw = columns(p, x, dim, dim, dim, H)
    q, k, v = unit(silu(split(q, H))), unit(silu(split(k, H))), split(v, H)
    mix = naive.deltanet if direction == "forward" else deltanet_both_ways
    return project(p, rms_norm(mix(q, k, v, sigmoid(raw)), p["output_norm.weight"], 1e-5).flatten(-2))


def gated_deltanet(p, x, H, direction):
    """Yang, Kautz & Hatamizadeh 2024: DeltaNet with Mamba-2's decay, and silu(g) behind the RMS norm of each head."""
    dim = x.shape[-1]
    q, k, v, raw, beta, g = columns(p, x, dim, dim, dim, H, H, dim)
    q, k, v = unit(silu(split(q, H))), unit(silu(split(k, H))), split(v, H)
    alpha = (-p["decay.log_rate"].exp() * softplus(raw + p["decay.bias"])).exp()
    mix = naive.gated_deltanet if direction == "forward" else gated_deltanet_both_ways
    y = rms_norm(mix(q, k, v, sigmoid(beta), alpha), p["output_norm.weight"], 1e-5)
    return project(p, silu(g) * y.flatten(-2))


BLOCKS = {
    block.__name__: block
    for block in (
        *(
            softmax,
            lion_lit,
            lion_d,
            lion_s,
            lion_s_two_sided,
            lion_d_diag,
            lion_s_diag,
            linatt,
            linatt_scaled,
            retnet,
            retnet_scaled,
        ),
        *(grfa, mamba2, mamba, rwkv6, gla, hgrn2, xlstm, deltanet, gated_deltanet),
    )
}
