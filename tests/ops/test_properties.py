"""Any shape, any options: every form gives the definition's numbers."""

import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import lion
from lion.ops import reference
from lion.ops.kernels import CHUNKED
from tests.ops.problems import ALL_KERNELS, DECAYS, assert_same, kernels, output_and_gradients, problem

flag = st.booleans()


@settings(max_examples=250, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
@given(
    decay=st.sampled_from(DECAYS),
    B=st.integers(1, 3),
    T=st.integers(0, 40),
    H=st.integers(1, 3),
    D=st.integers(1, 6),
    V=st.integers(1, 6),
    gain=flag,
    self_weight=flag,
    mask=flag,
    packed=flag,
    orders=st.integers(0, 3),
    per_order=flag,
    norm=st.sampled_from(["sum", "max", "none", "unmasked"]),
    direction=st.sampled_from(["both", "forward", "reverse"]),
    kernel=st.sampled_from(ALL_KERNELS),
    chunk_size=st.none() | st.integers(1, 45),
    seed=st.integers(0, 2**31),
)
def test_any_form_is_the_definition(
    decay, B, T, H, D, V, gain, self_weight, mask, packed, orders, per_order, norm, direction, kernel, chunk_size, seed
):
    torch.manual_seed(seed)
    options = {"gain": gain, "self_weight": self_weight, "mask": mask, "packed": packed}
    kwargs = problem(decay, B=B, T=T, H=H, D=D, V=V, **options, orders=orders, per_order=per_order)
    if kernel not in kernels(decay, gain):
        kernel = kernels(decay, gain)[0]
    size = chunk_size if kernel["form"] in CHUNKED else None
    want = output_and_gradients(reference.attention, kwargs, norm=norm, direction=direction)
    got = output_and_gradients(lion.attention, kwargs, norm=norm, direction=direction, **kernel, chunk_size=size)
    assert_same(got, want, 1e-10)


@settings(max_examples=100, deadline=None, derandomize=True)
@given(T=st.integers(1, 50), n=st.integers(1, 3), seed=st.integers(0, 2**31))
def test_orders_average_the_masks(T, n, seed):
    """Summing num and den over orders, then dividing, is one attention with the mean of the masks."""
    torch.manual_seed(seed)
    q, k = (torch.rand(1, T, 1, 3).double() + 0.1 for _ in range(2))
    v = torch.randn(1, T, 1, 2).double()
    log_decay = -torch.rand(1, T, 1).double()
    orders = torch.stack([torch.randperm(T) for _ in range(n)])
    masks = []
    for order in orders.tolist():
        place = {token: i for i, token in enumerate(order)}
        M = torch.ones(T, T).double()
        for i in range(T):
            for j in range(T):
                a, b = place[i], place[j]
                between = order[b:a] if b < a else order[a + 1 : b + 1]
                M[i, j] = log_decay[0, between, 0].sum().exp()
        masks.append(M)
    P = q[0, :, 0] @ k[0, :, 0].T * torch.stack(masks).mean(0)
    want = P @ v[0, :, 0] / P.sum(1, keepdim=True)
    torch.testing.assert_close(lion.attention(q, k, v, log_decay, orders=orders)[0, :, 0], want)
