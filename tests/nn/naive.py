"""The published linear transformers, causal, token by token, as plainly as their own papers write them.

It imports torch and nothing of ours. Layout: q, k [B, T, H, D]; v and outputs [B, T, H, V] unless a docstring
says otherwise. Everything is computed in float64 from a zero state, and is the token mixing alone.
einsum letters: b batch, h head, d key channel, e value channel, n state of an SSM, s past token.
"""

import torch


def _f64(*tensors):
    return [t.to(torch.float64) for t in tensors]


def _zeros(like, *shape):
    return torch.zeros(*shape, dtype=torch.float64, device=like.device)


def softmax_attention(q, k, v):
    """Vaswani et al. 2017, 'Attention is all you need': softmax(q_t K^T / sqrt(D)) V over s <= t."""
    q, k, v = _f64(q, k, v)
    D = q.shape[-1]
    out = []
    for t in range(q.shape[1]):
        scores = torch.einsum("bhd,bshd->bhs", q[:, t], k[:, : t + 1]) / D**0.5
        weights = torch.softmax(scores, dim=-1)
        out.append(torch.einsum("bhs,bshe->bhe", weights, v[:, : t + 1]))
    return torch.stack(out, dim=1)


def linear_attention(q, k, v):
    """Katharopoulos et al. 2020, RNN form, numerator only: S_t = S_{t-1} + k_t v_t^T, o_t = q_t^T S_t.

    q and k are already the features phi(.)."""
    q, k, v = _f64(q, k, v)
    B, T, H, D = q.shape
    S = _zeros(q, B, H, D, v.shape[-1])
    out = []
    for t in range(T):
        S = S + torch.einsum("bhd,bhe->bhde", k[:, t], v[:, t])
        out.append(torch.einsum("bhd,bhde->bhe", q[:, t], S))
    return torch.stack(out, dim=1)


def linear_attention_scaled(q, k, v):
    """Katharopoulos et al. 2020, RNN form: also z_t = z_{t-1} + k_t, o_t = (q_t^T S_t) / (q_t . z_t).

    q and k are already the (positive) features phi(.)."""
    q, k, v = _f64(q, k, v)
    B, T, H, D = q.shape
    S = _zeros(q, B, H, D, v.shape[-1])
    z = _zeros(q, B, H, D)
    out = []
    for t in range(T):
        S = S + torch.einsum("bhd,bhe->bhde", k[:, t], v[:, t])
        z = z + k[:, t]
        numerator = torch.einsum("bhd,bhde->bhe", q[:, t], S)
        denominator = torch.einsum("bhd,bhd->bh", q[:, t], z)
        out.append(numerator / denominator[..., None])
    return torch.stack(out, dim=1)


def retention(q, k, v, gamma):
    """Sun et al. 2023 (RetNet), recurrent form: S_n = gamma S_{n-1} + K_n^T V_n, o_n = Q_n S_n.

    gamma [H]; q and k already carry the xPos rotation, if any."""
    q, k, v, gamma = _f64(q, k, v, gamma)
    B, T, H, D = q.shape
    S = _zeros(q, B, H, D, v.shape[-1])
    out = []
    for t in range(T):
        S = gamma[None, :, None, None] * S + torch.einsum("bhd,bhe->bhde", k[:, t], v[:, t])
        out.append(torch.einsum("bhd,bhde->bhe", q[:, t], S))
    return torch.stack(out, dim=1)


def retention_scaled(q, k, v, gamma):
    """Sun et al. 2023 (RetNet), recurrent form, divided by q_n . z_n with z_n = gamma z_{n-1} + k_n.

    The division is linear attention's, not RetNet's own normalisation. gamma [H]."""
    q, k, v, gamma = _f64(q, k, v, gamma)
    B, T, H, D = q.shape
    S = _zeros(q, B, H, D, v.shape[-1])
    z = _zeros(q, B, H, D)
    out = []
    for t in range(T):
        S = gamma[None, :, None, None] * S + torch.einsum("bhd,bhe->bhde", k[:, t], v[:, t])
        z = gamma[None, :, None] * z + k[:, t]
        numerator = torch.einsum("bhd,bhde->bhe", q[:, t], S)
        denominator = torch.einsum("bhd,bhd->bh", q[:, t], z)
        out.append(numerator / denominator[..., None])
    return torch.stack(out, dim=1)


def gated_rfa(q, k, v, g):
    """Peng et al. 2021 (Random Feature Attention), gated variant:
    S_t = g_t S_{t-1} + (1 - g_t) k_t v_t^T, z_t = g_t z_{t-1} + (1 - g_t) k_t,
    o_t = (q_t^T S_t) / (q_t . z_t).

    q and k are already the features phi(.); g [B, T, H] in (0, 1)."""
    q, k, v, g = _f64(q, k, v, g)
    B, T, H, D = q.shape
    S = _zeros(q, B, H, D, v.shape[-1])
    z = _zeros(q, B, H, D)
    out = []
    for t in range(T):
        g_t = g[:, t]
        S = g_t[..., None, None] * S + (1 - g_t)[..., None, None] * torch.einsum("bhd,bhe->bhde", k[:, t], v[:, t])
        z = g_t[..., None] * z + (1 - g_t)[..., None] * k[:, t]
        numerator = torch.einsum("bhd,bhde->bhe", q[:, t], S)
        denominator = torch.einsum("bhd,bhd->bh", q[:, t], z)
        out.append(numerator / denominator[..., None])
    return torch.stack(out, dim=1)


def mamba2(x, dt, A, B, C, D):
    """Dao & Gu 2024 (Mamba-2), SSD recurrence with a scalar A per head:
    h_t = exp(dt_t A) h_{t-1} + dt_t B_t x_t^T, y_t = C_t^T h_t + D x_t.

    x [B, T, H, V]; dt [B, T, H] positive; A [H] negative; B, C [B, T, N]; D [H]. y [B, T, H, V]."""
    x, dt, A, B, C, D = _f64(x, dt, A, B, C, D)
    batch, T, H, V = x.shape
    h = _zeros(x, batch, H, B.shape[-1], V)
    out = []
    for t in range(T):
        decay = torch.exp(dt[:, t] * A)  # [B, H]
        write = torch.einsum("bh,bn,bhe->bhne", dt[:, t], B[:, t], x[:, t])
        h = decay[..., None, None] * h + write
        y = torch.einsum("bn,bhne->bhe", C[:, t], h) + D[None, :, None] * x[:, t]
        out.append(y)
    return torch.stack(out, dim=1)


def mamba(x, dt, A, B, C, D):
    """Gu & Dao 2023 (Mamba), selective SSM, diagonal A, A_bar = exp(dt A), simplified B_bar = dt B:
    per channel h_t = exp(dt_t A) h_{t-1} + dt_t B_t x_t, y_t = C_t . h_t + D x_t.

    x, dt [B, T, E]; A [E, N] negative; B, C [B, T, N]; D [E]. y [B, T, E]."""
    x, dt, A, B, C, D = _f64(x, dt, A, B, C, D)
    batch, T, E = x.shape
    h = _zeros(x, batch, E, A.shape[-1])
    out = []
    for t in range(T):
        decay = torch.exp(dt[:, t][..., None] * A)  # [B, E, N]
        write = dt[:, t][..., None] * B[:, t][:, None, :] * x[:, t][..., None]
        h = decay * h + write
        y = torch.einsum("bn,ben->be", C[:, t], h) + D * x[:, t]
        out.append(y)
    return torch.stack(out, dim=1)


def rwkv6(r, k, v, w, u):
    """Peng et al. 2024 (Eagle and Finch), Finch's wkv, recurrent form:
    y_t = r_t (diag(u) k_t^T v_t + S_{t-1}), S_t = diag(w_t) S_{t-1} + k_t^T v_t.

    w [B, T, H, D] in (0, 1); u [H, D]."""
    r, k, v, w, u = _f64(r, k, v, w, u)
    B, T, H, D = r.shape
    S = _zeros(r, B, H, D, v.shape[-1])
    out = []
    for t in range(T):
        kv = torch.einsum("bhd,bhe->bhde", k[:, t], v[:, t])
        wkv = u[None, :, :, None] * kv + S
        out.append(torch.einsum("bhd,bhde->bhe", r[:, t], wkv))
        S = w[:, t][..., None] * S + kv
    return torch.stack(out, dim=1)


def gla(q, k, v, alpha):
    """Yang et al. 2023 (Gated Linear Attention), recurrent form:
    S_t = diag(alpha_t) S_{t-1} + k_t^T v_t, o_t = q_t S_t.

    alpha [B, T, H, D] in (0, 1)."""
    q, k, v, alpha = _f64(q, k, v, alpha)
    B, T, H, D = q.shape
    S = _zeros(q, B, H, D, v.shape[-1])
    out = []
    for t in range(T):
        S = alpha[:, t][..., None] * S + torch.einsum("bhd,bhe->bhde", k[:, t], v[:, t])
        out.append(torch.einsum("bhd,bhde->bhe", q[:, t], S))
    return torch.stack(out, dim=1)


def hgrn2(q, f, v):
    """Qin et al. 2024 (HGRN2), state expansion by outer product:
    S_t = diag(f_t) S_{t-1} + (1 - f_t)^T v_t, o_t = q_t S_t.

    q is the paper's output gate o_t and v its input i_t; f [B, T, H, D] in (0, 1)."""
    q, f, v = _f64(q, f, v)
    B, T, H, D = q.shape
    S = _zeros(q, B, H, D, v.shape[-1])
    out = []
    for t in range(T):
        S = f[:, t][..., None] * S + torch.einsum("bhd,bhe->bhde", 1 - f[:, t], v[:, t])
        out.append(torch.einsum("bhd,bhde->bhe", q[:, t], S))
    return torch.stack(out, dim=1)


def mlstm(q, k, v, log_i, f):
    """Beck et al. 2024 (xLSTM), mLSTM forward pass without the output gate:
    C_t = f_t C_{t-1} + i_t v_t k_t^T, n_t = f_t n_{t-1} + i_t k_t,
    h_t = C_t q_t / max(|n_t . q_t|, 1), i_t = exp(log_i_t).

    log_i, f [B, T, H]; f in (0, 1); the 1/sqrt(d) on k is the caller's."""
    q, k, v, log_i, f = _f64(q, k, v, log_i, f)
    B, T, H, D = q.shape
    C = _zeros(q, B, H, v.shape[-1], D)
    n = _zeros(q, B, H, D)
    out = []
    for t in range(T):
        i_t = torch.exp(log_i[:, t])
        f_t = f[:, t]
        C = f_t[..., None, None] * C + i_t[..., None, None] * torch.einsum("bhe,bhd->bhed", v[:, t], k[:, t])
        n = f_t[..., None] * n + i_t[..., None] * k[:, t]
        numerator = torch.einsum("bhed,bhd->bhe", C, q[:, t])
        denominator = torch.einsum("bhd,bhd->bh", n, q[:, t]).abs().clamp(min=1.0)
        out.append(numerator / denominator[..., None])
    return torch.stack(out, dim=1)


def mlstm_stabilised(q, k, v, log_i, log_f):
    """Beck et al. 2024 (xLSTM), mLSTM with the stabiliser state of the paper:
    m_t = max(log_f_t + m_{t-1}, log_i_t), i'_t = exp(log_i_t - m_t),
    f'_t = exp(log_f_t + m_{t-1} - m_t), C_t and n_t with i', f',
    h_t = C_t q_t / max(|n_t . q_t|, exp(-m_t)); m_0 = -inf.

    log_i, log_f [B, T, H]; the 1/sqrt(d) on k is the caller's."""
    q, k, v, log_i, log_f = _f64(q, k, v, log_i, log_f)
    B, T, H, D = q.shape
    C = _zeros(q, B, H, v.shape[-1], D)
    n = _zeros(q, B, H, D)
    m = _zeros(q, B, H) - float("inf")
    out = []
    for t in range(T):
        m_new = torch.maximum(log_f[:, t] + m, log_i[:, t])
        i_t = torch.exp(log_i[:, t] - m_new)
        f_t = torch.exp(log_f[:, t] + m - m_new)
        m = m_new
        C = f_t[..., None, None] * C + i_t[..., None, None] * torch.einsum("bhe,bhd->bhed", v[:, t], k[:, t])
        n = f_t[..., None] * n + i_t[..., None] * k[:, t]
        numerator = torch.einsum("bhed,bhd->bhe", C, q[:, t])
        denominator = torch.maximum(torch.einsum("bhd,bhd->bh", n, q[:, t]).abs(), torch.exp(-m))
        out.append(numerator / denominator[..., None])
    return torch.stack(out, dim=1)


def deltanet(q, k, v, beta):
    """Schlag et al. 2021 / Yang et al. 2024 (DeltaNet), delta rule:
    S_t = S_{t-1} - beta_t k_t (k_t^T S_{t-1}) + beta_t k_t v_t^T, o_t = q_t S_t.

    beta [B, T, H] in (0, 1); any normalisation of q and k is the caller's."""
    q, k, v, beta = _f64(q, k, v, beta)
    B, T, H, D = q.shape
    S = _zeros(q, B, H, D, v.shape[-1])
    out = []
    for t in range(T):
        b_t = beta[:, t][..., None, None]
        v_old = torch.einsum("bhd,bhde->bhe", k[:, t], S)
        S = (
            S
            - b_t * torch.einsum("bhd,bhe->bhde", k[:, t], v_old)
            + b_t * torch.einsum("bhd,bhe->bhde", k[:, t], v[:, t])
        )
        out.append(torch.einsum("bhd,bhde->bhe", q[:, t], S))
    return torch.stack(out, dim=1)


def gated_deltanet(q, k, v, beta, alpha):
    """Yang, Kautz & Hatamizadeh 2024 (Gated DeltaNet):
    S_t = alpha_t (I - beta_t k_t k_t^T) S_{t-1} + beta_t k_t v_t^T, o_t = q_t S_t.

    alpha, beta [B, T, H] in (0, 1); any normalisation of q and k is the caller's."""
    q, k, v, beta, alpha = _f64(q, k, v, beta, alpha)
    B, T, H, D = q.shape
    S = _zeros(q, B, H, D, v.shape[-1])
    out = []
    for t in range(T):
        keys = torch.einsum("bhd,bhe->bhde", k[:, t], k[:, t])
        erase = torch.eye(D, dtype=torch.float64) - beta[:, t][..., None, None] * keys
        S = alpha[:, t][..., None, None] * torch.einsum("bhde,bhev->bhdv", erase, S)
        S = S + beta[:, t][..., None, None] * torch.einsum("bhd,bhe->bhde", k[:, t], v[:, t])
        out.append(torch.einsum("bhd,bhde->bhe", q[:, t], S))
    return torch.stack(out, dim=1)


def selective_scaled(q, k, v, decay):
    """The LION paper's recurrence, one direction: S_i = Lambda_i S_{i-1} + k_i v_i^T, z_i likewise,
    y_i = (q_i S_i) / (q_i . z_i).

    decay [B, T, H, D]: LION-S has one number for all channels, its diagonal form one for each."""
    q, k, v, decay = _f64(q, k, v, decay)
    B, T, H, D = q.shape
    S = _zeros(q, B, H, D, v.shape[-1])
    z = _zeros(q, B, H, D)
    out = []
    for t in range(T):
        S = decay[:, t][..., None] * S + torch.einsum("bhd,bhe->bhde", k[:, t], v[:, t])
        z = decay[:, t] * z + k[:, t]
        numerator = torch.einsum("bhd,bhde->bhe", q[:, t], S)
        out.append(numerator / torch.einsum("bhd,bhd->bh", q[:, t], z)[..., None])
    return torch.stack(out, dim=1)
