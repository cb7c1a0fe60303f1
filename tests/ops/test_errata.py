"""Where the paper contradicts itself: each point of docs/maths.md, "Errata", shown from both sides.

Each test writes the printed formula, shows that it is not the operator (or not what the paper says of
it), and that the corrected one is. One head of one sequence, tokens 0 .. T-1 where the paper has 1 .. L.
"""

import pytest
import torch
import torch.nn.functional as F

import lion
from lion.nn.between import attention_between
from lion.nn.decay import DECAYS
from tests.ops.problems import ALL_KERNELS, kernels

T, D, V = 12, 4, 3


@pytest.fixture
def qkv():
    return (torch.rand(T, D) + 0.1).double(), (torch.rand(T, D) + 0.1).double(), torch.randn(T, V).double()


@pytest.fixture
def decay():
    """lambda_i of the selective models."""
    return torch.rand(T).double() * 0.5 + 0.4


def operator(q, k, v, log_decay=None, **options):
    """`lion.attention` of one head, after checking that all forms give the same."""
    if log_decay is not None and log_decay.dim() > 0:
        log_decay = log_decay[None, :, None]
    outs = [
        lion.attention(*(x[None, :, None] for x in (q, k, v)), log_decay, **kernel, **options)[0, :, 0]
        for kernel in (ALL_KERNELS if log_decay is None or log_decay.dim() in (1, 3) else kernels("diagonal"))
    ]
    for out in outs:
        torch.testing.assert_close(out, outs[0], rtol=1e-11, atol=1e-12)
    return outs[0]


def scale(P):
    return P / P.sum(1, keepdim=True)


def selective_mask(decay):
    """The paper's equation for M_ij: products over j .. i-1 below the diagonal, i+1 .. j above it."""
    M = torch.ones(T, T).double()
    for i in range(T):
        for j in range(T):
            M[i, j] = decay[j:i].prod() if j < i else decay[i + 1 : j + 1].prod()
    return M


def same(a, b):
    return torch.allclose(a, b, rtol=1e-10, atol=1e-12)


def test_1_the_recurrence_decays_at_the_source(qkv, decay):
    """Theorem 3.1 decays by lambda_i on arriving at i; the mask it is derived from, on leaving j."""
    q, k, v = qkv

    def both_ways(forward_factor, backward_factor):
        num, den = torch.zeros(T, V).double(), torch.zeros(T).double()
        for tokens, factor in ((range(T), forward_factor), (range(T - 1, -1, -1), backward_factor)):
            S, z = torch.zeros(D, V).double(), torch.zeros(D).double()
            for i in tokens:
                S, z = factor(i) * S + torch.outer(k[i], v[i]), factor(i) * z + k[i]
                num[i] += q[i] @ S - q[i] @ k[i] * v[i] / 2
                den[i] += q[i] @ z - q[i] @ k[i] / 2
        return num / den[:, None]

    masked = scale(q @ k.T * selective_mask(decay)) @ v
    printed = both_ways(lambda i: decay[i], lambda i: decay[i])
    corrected = both_ways(lambda i: decay[max(i - 1, 0)], lambda i: decay[min(i + 1, T - 1)])
    assert same(operator(q, k, v, decay.log()), masked)
    assert same(corrected, masked)
    assert not same(printed, masked)


def test_2_deltanet_needs_its_triangles_and_its_beta(qkv):
    """Table 1's full form of DeltaNet is not its recurrence, and its self term lacks beta."""
    q, k, v = qkv
    k = F.normalize(k, dim=-1)
    beta = torch.rand(T).double()

    def recurrence(self_term):
        y = torch.zeros(T, V).double()
        for tokens in (range(T), range(T - 1, -1, -1)):
            S = torch.zeros(D, V).double()
            for i in tokens:
                S = S - beta[i] * torch.outer(k[i], k[i] @ S) + beta[i] * torch.outer(k[i], v[i])
                y[i] += q[i] @ S
        return y - self_term[:, None] * v

    own = (q * k).sum(1)
    K = beta[:, None] * (k @ k.T)
    TF = torch.linalg.inv(torch.eye(T).double() + K.tril(-1)) @ torch.diag(beta)
    TB = torch.linalg.inv(torch.eye(T).double() + K.triu(1)) @ torch.diag(beta)
    A = q @ k.T
    exact = A.tril() @ TF @ v + A.triu() @ TB @ v - (beta * own)[:, None] * v
    printed = A @ (TF + TB) / 2 @ v
    assert same(recurrence(beta * own), exact)
    assert not same(recurrence(beta * own), printed)
    assert not same(recurrence(own), exact)  # the printed self term, without beta


def test_3_the_diagonal_form_counts_the_diagonal_twice(qkv):
    """Tril[...] + Triu[...] of the diagonal-decay form both hold the diagonal."""
    q, k, v = qkv
    decay = torch.rand(D).double() * 0.3 + 0.6  # fixed, so that source and target side are the same
    L = decay ** torch.arange(1, T + 1).double()[:, None]
    lower = (q * L) @ (k / L).T
    upper = (q * L.flip(0)) @ (k / L.flip(0)).T
    printed = (lower.tril() + upper.triu()) @ v
    corrected = printed - (q * k).sum(1, keepdim=True) * v
    args = (x[None, :, None] for x in (q, k, v))
    out = lion.attention(*args, decay.log()[None], norm="none")[0, :, 0]
    assert same(out, corrected)
    assert not same(out, printed)


def test_4_chunks_are_c_tokens_apart():
    """The fixed-decay mask between chunks i and j is lambda^(C|i-j|) times the factor within."""
    lam, C = 0.9, 4
    whole = lam ** (torch.arange(T)[:, None] - torch.arange(T)).abs().double()
    L = lam ** torch.arange(1, C + 1).double()
    i, j = 2, 0
    block = whole[i * C : (i + 1) * C, j * C : (j + 1) * C]  # tokens iC+1 .. (i+1)C, as counted from 1
    within = torch.outer(L, 1 / L)
    assert same(lam ** (C * abs(i - j)) * within, block)
    assert not same(lam ** abs(i - j) * within, block)
    # The printed chunk, iC+1 .. i(C+1), would hold i tokens, not C.
    assert len(range(i * C + 1, i * (C + 1) + 1)) == i != C


def test_5_the_backward_mask_is_flipped_back_and_upper(qkv, decay):
    """The backward cumulative products run on the flipped sequence, and their triangle is the upper one."""
    q, k, v = qkv
    M = selective_mask(decay)
    # Cumulative products over source-side decays, before each token in walking order.
    LF = F.pad(decay[:-1], (1, 0), value=1).cumprod(0)
    LB = F.pad(decay.flip(0)[:-1], (1, 0), value=1).cumprod(0)
    forward = torch.outer(LF, 1 / LF).tril()
    flipped = torch.outer(LB, 1 / LB).tril()
    back = flipped.flip(0, 1)
    assert same(forward + back - torch.eye(T).double(), M)
    assert same(back, back.triu())
    assert not same(forward + torch.outer(1 / LF, LF).triu() - torch.eye(T).double(), M)  # as printed: exp(D^F)
    assert not same(forward + flipped - torch.eye(T).double(), M)  # as printed: never flipped back
    assert not same(forward + back.tril() - torch.eye(T).double(), M)  # as printed: Tril twice
    assert same(operator(q, k, v, decay.log()), scale(q @ k.T * M) @ v)


def test_6_mamba_decays_and_zero_order_hold():
    """softplus is no decay, it exceeds 1; and the hold of a decaying system has the factor 1 - e^a."""
    x = torch.randn(1, T, 1).double() + 1
    q = torch.rand(1, T, 1, D).double()
    with pytest.raises(ValueError, match=r"log_decay is .* expected values <= 0"):
        lion.attention(q, q, q, F.softplus(x).log())
    assert lion.attention(q, q, q, -F.softplus(x)).isfinite().all()
    # S' = -S + u held over a step of length s, in a million small steps, from S = 0.3 with u = 2.
    s, S, u, n = 0.7, 0.3, 2.0, 1_000_000
    for_step = (1 - s / n) ** n
    integrated = for_step * S + (1 - for_step) * u
    a = torch.tensor(-s).double()
    assert abs((a.exp() * S + (1 - a.exp()) * u).item() - integrated) < 1e-5
    assert abs((a.exp() * S + (a.exp() - 1) * u).item() - integrated) > 1


def test_7_scaling_before_or_after_the_mask(qkv, decay):
    """Appendix B derives scale(QK^T) * M, the model is scale(QK^T * M): both exist, and differ."""
    q, k, v = qkv
    M = selective_mask(decay)
    model = scale(q @ k.T * M) @ v
    appendix = (scale(q @ k.T) * M) @ v
    assert same(operator(q, k, v, decay.log(), norm="sum"), model)
    assert same(operator(q, k, v, decay.log(), norm="unmasked"), appendix)
    assert not same(model, appendix)


def test_8_the_feature_map_is_the_callers(decay):
    """The text says shifted SiLU for all, the vision LION-LIT used elu + 1: two models, one operator."""
    x, y, v = torch.randn(T, D).double(), torch.randn(T, D).double(), torch.randn(T, V).double()
    outs = []
    for phi in (lambda z: F.normalize(F.silu(z) + 0.5, dim=-1), lambda z: F.elu(z) + 1):
        q, k = phi(x), phi(y)
        assert (q > 0).all()
        outs.append(operator(q, k, v))
        assert same(outs[-1], scale(q @ k.T) @ v)
    assert not same(*outs)


def test_9_the_selective_hippo_decay_is_no_decay():
    """exp(sigmoid(A) + B) exceeds 1 where B is HIPPO's; scaling B instead never does, and starts at HIPPO's."""
    layer = DECAYS["selective_hippo"](4, 16)
    B = -layer.log_rate.exp()
    A = torch.randn(1, 5, 4 * 16)
    assert (A.unflatten(-1, (4, 16)).sigmoid() + B > 0).any()
    assert (layer(10 * A).log_decay <= 0).all()
    torch.testing.assert_close(layer(0 * A).log_decay[0, 0], B)


def test_10_rwkv_decays_between(qkv):
    """Table 1's recurrence decays by w_i on arriving at i; RWKV-6's own reads the state before that."""
    r, k, v = qkv
    w, u = torch.rand(T, D).double() * 0.5 + 0.4, torch.rand(1, D).double()
    S, table, paper = torch.zeros(D, V).double(), [], []
    for i in range(T):
        paper.append(r[i] @ (S + u[0, :, None] * torch.outer(k[i], v[i])))
        S = w[i, :, None] * S + torch.outer(k[i], v[i])
        table.append(r[i] @ S)
    tokens = [x[None, :, None] for x in (r, k, v, w.log())]
    ours = attention_between(*tokens, self_weight=u, direction="forward")[0, :, 0]
    assert same(ours, torch.stack(paper))
    assert not same(ours, torch.stack(table))


def test_11_a_mean_of_orders_is_not_their_joint_normalisation(qkv, decay):
    """The paper averages the outputs of two paths; the operator adds their sums, and divides once."""
    q, k, v = qkv
    orders = torch.stack([torch.arange(T), torch.randperm(T)])
    each = [operator(q, k, v, decay.log(), orders=order) for order in orders]
    ours = operator(q, k, v, decay.log(), orders=orders)
    sums = [operator(q, k, v, decay.log(), orders=order, norm="none") for order in orders]
    weights = [operator(q, k, torch.ones_like(v), decay.log(), orders=order, norm="none") for order in orders]
    assert same(ours, sum(sums) / sum(weights))
    assert not same(ours, sum(each) / 2)
