"""FLOPs as formulas, beside what torch counts in real models."""

from dataclasses import replace

import pytest
import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

import lion
from lion.bench.op import Shape, useful_flops
from lion.models import flops as model_flops_module
from lion.models.flops import model_flops, parameters_of, tokens_of
from lion.models.listing import listing
from lion.models.registry import MODELS, create_model, model_config
from lion.models.vision import VisionConfig, VisionModel
from lion.ops import flops
from lion.ops.cpu import library
from lion.ops.flops import Attention, delta_scan_flops, full_flops, rnn_flops, scan_flops

TINY = [name for name in MODELS if "_tiny_" in name]
compiled = pytest.mark.skipif(isinstance(library.LIBRARY, str), reason="no compiled kernels")


def counted(work):
    """By operator, as torch sees them. (It knows softmax attention on GPUs only: here it is matrix products.)"""
    with sdpa_kernel(SDPBackend.MATH), FlopCounterMode(display=False) as counter:
        work()
    return {operator._qualified_op_name: n for operator, n in counter.get_flop_counts()["Global"].items()}


def of_model(name, size, form, backend="auto", **changes):
    model = create_model(name, **{"depth": 1, "num_classes": 10} | changes).eval()
    lion.set_form(model, form, backend=backend)
    with torch.no_grad():
        found = counted(lambda: model(torch.randn(1, 3, *size)))
    return sum(found.values()), model_flops(model.config, size, form)


@pytest.mark.parametrize("name", ["softmax", "lion_lit", "lion_d", "lion_s", "lion_s_2scan", "hydra", "grfa"])
def test_full_is_what_torch_counts(name):
    got, parts = of_model(f"{name}_tiny_patch16_224", (80, 150), "full", "torch")
    assert sum(parts.values()) == got


@pytest.mark.parametrize("patch", [1, 4, 16])
def test_convolutions_of_a_stem_count(patch):
    got, parts = of_model("lion_s_tiny_patch16_224", (48, 32), "full", "torch", stem="conv", patch_size=patch)
    assert sum(parts.values()) == got


@pytest.mark.parametrize("variant", ["lion_d", "lion_s", "lion_s_diag"])
def test_decays_of_each_direction_mix_at_the_same_cost(variant):
    one, two = ({"dim": 64, "heads": 2, "two_sided": sides, "depth": 2, "variant": variant} for sides in (False, True))
    for changes in (one, two):
        config = model_config("lion_s_tiny_patch16_224", **changes)
        assert parameters_of(config) == sum(x.numel() for x in VisionModel(config).parameters())
    parts, same = (model_flops(model_config("lion_s_tiny_patch16_224", **x)) for x in (two, one))
    assert parts["token mixing"] == same["token mixing"]


@pytest.mark.parametrize("name", ["lion_s_diag", "rwkv6"])
def test_full_with_diagonal_decay(name):
    """There torch fills blocks up to whole halves."""
    got, parts = of_model(f"{name}_tiny_patch16_224", (128, 128), "full", "torch")
    assert 0.98 * got <= sum(parts.values()) <= got


@compiled
@pytest.mark.parametrize("name", TINY)
def test_scan_is_what_torch_counts(name):
    got, parts = of_model(name, (96, 112), "scan")
    assert sum(parts.values()) == got


@compiled
def test_options_of_the_config_count():
    changes = {"direction": "alternating", "depth": 2, "pool": "none", "class_token": False, "norm": "unmasked"}
    for name in ("lion_s_2scan_tiny_patch16_224", "lion_lit_tiny_patch16_224"):
        for more in ({}, {"double_diagonal": True, "direction": "both", "features": "performer"}):
            got, parts = of_model(name, (96, 112), "scan", **changes | more)
            assert sum(parts.values()) == got


def test_scan_on_torch_is_seen_and_of_the_same_order():
    got, parts = of_model("lion_s_tiny_patch16_224", (256, 256), "scan", "torch")
    assert 0.9 <= got / sum(parts.values()) <= 1.2


def test_the_delta_rule_is_seen(monkeypatch):
    """On torch but for the triangular systems, which it does not count."""
    monkeypatch.setattr(flops, "_compiled", lambda: False)
    got, parts = of_model("deltanet_tiny_patch16_224", (128, 128), "scan", "torch")
    systems = 2 * 3 * 96 * 32**2  # ways, heads, tokens in whole chunks
    assert sum(parts.values()) == got + systems
    assert delta_scan_flops(Attention(64, 1, 8, 8, "delta")) == 2 * delta_scan_flops(Attention(32, 1, 8, 8, "delta"))


VARIED = [
    {},
    {"D": 16, "V": 40},
    {"tokens": 60},
    {"tokens": 60, "orders": 2},
    {"orders": 3},
    {"ways": 1},
    {"chunk": 50},
    {"decay": "diagonal"},
    {"decay": "diagonal", "ways": 1, "tokens": 20, "orders": 2},
    {"decay": "none"},
    {"decay": "none", "self_weight": True},
    {"tokens": 0},
    {"tokens": 1},
]


def by_visits(x, backward):
    """As the C++ goes: chunk by chunk, from both sides."""
    T, H, D, V = x[:4]
    if x.decay == "none" and not x.self_weight:
        return H * T * (2 * D * V) * (5 if backward else 2)
    diagonal = x.decay == "diagonal"
    size = x.chunk or library.chunk_tokens(T, D, V, x.orders, diagonal=diagonal)
    chunks = [min(size, T - start) for start in range(0, T, size)]
    total = 0.0
    for n in chunks:
        scores = 2 * D * (x.ways * n * (n - 1) / 2 + n if diagonal else n * n)
        values = 2 * V * n * n
        total += 3 * scores + 2 * values if backward else scores + values
    for side in range(2):
        for i, n in enumerate(chunks):
            enter, leave = (i > 0, i < len(chunks) - 1)[:: -1 if side else 1]
            products = 3 * enter + 2 * leave if backward else enter + leave
            total += 2 * D * V * n * products * x.ways / 2
    together = len(chunks) == 1 and not diagonal
    return H * total * (1 if together else x.orders)


@compiled
@pytest.mark.parametrize("backward", [False, True])
@pytest.mark.parametrize("case", VARIED)
def test_scan_goes_as_the_kernel_does(case, backward):
    x = Attention(tokens=333, heads=2, D=24, V=24, decay="scalar")._replace(**case)
    assert scan_flops(x, backward=backward) == by_visits(x, backward)


@compiled
def test_the_kernel_is_seen_both_ways():
    B, T, H, D = 2, 300, 3, 16
    q, k, v = (torch.rand(B, T, H, D, requires_grad=True) for _ in range(3))
    orders = torch.stack([torch.arange(T), torch.arange(T).flip(0)])
    log_decay = -torch.rand(B, T, H)
    found = counted(lambda: lion.attention(q, k, v, log_decay, orders=orders, form="scan").sum().backward())
    one = Attention(T, H, D, D, "scalar", orders=2)
    assert found["lion::cpu_scan"] == B * scan_flops(one)
    assert found["lion::cpu_scan_backward"] == B * scan_flops(one, backward=True)
    assert useful_flops(Shape(B, H, T, D), "per-token", False) == B * scan_flops(one._replace(orders=1))


@compiled
def test_packed_sequences_are_taken_for_equally_long():
    q, k, v = (torch.rand(1, 202, 2, 8) for _ in range(3))
    borders = torch.tensor([0, 7, 101, 202])
    found = counted(lambda: lion.attention(q, k, v, -torch.rand(1, 202, 2), cu_seqlens=borders))
    one = Attention(67, 2, 8, 8, "scalar")
    assert found == {"lion::cpu_scan": 2 * scan_flops(one) + scan_flops(one._replace(tokens=68))}


def test_torch_operators_are_seen_in_the_backward_pass():
    def training(form, **more):
        q, k, v = (torch.rand(1, 40, 2, 8, requires_grad=True) for _ in range(3))
        return counted(lambda: lion.attention(q, k, v, form=form, backend="torch", **more).sum().backward())

    log_decay = -torch.rand(1, 40, 2)
    assert training("full", log_decay=log_decay)["lion::decayed_scores_backward"] == 3 * 2 * 40 * 40 * 8 * 2
    found = training("scan", log_decay=log_decay, chunk_size=10)
    assert found["lion::scan_backward"] > 2 * found["lion::scan"] > 0
    found = training("scan", beta=torch.rand(1, 40, 2), norm="none")
    assert found["lion::delta_carry_backward"] > 2 * found["lion::delta_carry"] > 0


def test_rnn_is_the_papers_count():
    """Its appendix: L tokens, one head, both ways. (Its total says 7 where its terms add up to 8.)"""
    L, D = 50, 32
    each = 3 * D**2 + 2 * D + (4 * D + 2) + (2 * D**2 + 4 * D + 1)
    assert rnn_flops(Attention(L, 1, D, D, "scalar", with_den=True)) == 2 * L * each + 2 * L * (D + 1)
    assert 2 * L * each + 2 * L * (D + 1) + 6 * L * D**2 + 2 * L * D == L * (16 * D**2 + 24 * D + 8)
    assert full_flops(Attention(L, 1, D, D, "scalar")) == 2 * L**2 * D + 2 * L**2 * D


def test_growth():
    config = model_config("lion_s_tiny_patch16_224")
    for form, least, most in (("full", 15.5, 16.1), ("rnn", 3.9, 4.1), ("scan", 3.9, 4.1)):
        near, far = (model_flops(config, pixels, form)["token mixing"] for pixels in (1024, 2048))
        assert least < far / near < most
    assert model_flops(config, (224, 224)) == model_flops(config) == model_flops(config, 224)
    assert tokens_of(config, (225, 10)) == 15 + 1


def test_refused(monkeypatch):
    config = VisionConfig()
    with pytest.raises(ValueError, match=r"form is 'scna'; expected one of 'full', 'rnn', 'scan'\."):
        model_flops(config, form="scna")
    with pytest.raises(ValueError, match="image_size is 0; expected at least 1 pixel"):
        model_flops(config, 0)
    monkeypatch.setattr(model_flops_module, "CALLS", {})
    with pytest.raises(ValueError, match="the FLOPs of a ImageAttention are not known"):
        model_flops(VisionConfig(dim=48))


@pytest.mark.parametrize("name", TINY)
def test_parameters(name):
    config = replace(MODELS[name], dim=48, depth=3)
    assert parameters_of(config) == sum(x.numel() for x in create_model(name, dim=48, depth=3).parameters())


def test_listing(monkeypatch):
    for name in list(MODELS):
        if not name.startswith(("softmax_tiny", "lion_s_2scan_tiny")):
            monkeypatch.delitem(MODELS, name)
    header, _, softmax, two_orders, *_ = listing(flops=True).splitlines()
    assert "GFLOPs scan, 1024 px" in header
    assert " ".join(softmax.split()) == "softmax_tiny_patch16_224 5.7 197 2.5 - 199.4 - 12 softmax learned"
    assert two_orders.endswith("12  lion_s, 2 orders  by decay")
    assert "GFLOPs" not in listing(flops=False)
