"""Every variant, in every form it has: the same outputs and gradients, and it learns."""

import dataclasses
import itertools
import math

import pytest
import torch
import torch.nn.functional as F
from sklearn.datasets import load_digits
from torch import nn

import lion
from lion.nn.decay import DECAYS
from lion.nn.feature_maps import FEATURE_MAPS
from lion.nn.layers import directions
from lion.nn.pictures import draw
from lion.ops.kernels import KERNELS
from tests import THOROUGH

LINEAR = [name for name in lion.VARIANTS if name != "softmax"]


def output_and_gradients(layer, x, **options):
    layer.zero_grad()
    x = x.clone().requires_grad_()
    out = layer(x, **options)
    (out * torch.linspace(-1, 1, out.numel()).view_as(out)).sum().backward()
    return [out.detach(), x.grad, *(p.grad for p in layer.parameters())]


def forms_of(layer, x):
    """(form, backend) of every kernel that can run what the layer asks for."""
    found = []
    for backend, form in sorted({(backend, form) for backend, form, _ in KERNELS}):
        layer.set_form(form, backend=backend)
        try:
            layer(x)
        except ValueError:
            continue
        found.append((form, backend))
    return found


@pytest.mark.parametrize("direction", ["both", "forward", "reverse"])
@pytest.mark.parametrize("variant", LINEAR)
def test_every_form_is_the_same(variant, direction):
    layer = lion.LionAttention(16, 2, variant, direction=direction).double()
    x = torch.randn(2, 23, 16).double()
    forms = forms_of(layer, x)
    assert {"full", "rnn", "scan"} <= {form for form, _ in forms}
    mask = torch.rand(2, 23) > 0.2
    for options in ({}, {"mask": mask}):
        want = None
        for form, backend in forms:
            lion.set_form(layer, form, backend=backend)
            got = output_and_gradients(layer, x, **options)
            want = want or got
            for a, b in zip(got, want, strict=True):
                torch.testing.assert_close(a, b, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("variant", lion.VARIANTS)
def test_every_parameter_gets_a_gradient(variant):
    layer = lion.LionAttention(16, 2, variant)
    output_and_gradients(layer, torch.randn(2, 9, 16))
    for name, parameter in layer.named_parameters():
        assert parameter.grad is not None, name
        assert parameter.grad.isfinite().all(), name
        assert (parameter.grad != 0).any(), name


@pytest.mark.parametrize("variant", lion.VARIANTS)
def test_masks_and_packing_change_nothing(variant):
    for direction in ("both", "forward", "reverse"):
        layer = lion.LionAttention(16, 2, variant, direction=direction).double()
        x, mask = torch.randn(2, 21, 16).double(), torch.rand(2, 21) > 0.3
        padded = layer(x, mask)
        for row in range(2):
            alone = layer(x[row : row + 1, mask[row]])
            torch.testing.assert_close(padded[row : row + 1, mask[row]], alone, rtol=1e-10, atol=1e-10)
        borders = [0, 8, 9, 21]
        packed = layer(x[:1], cu_seqlens=torch.tensor(borders))
        for first, last in itertools.pairwise(borders):
            torch.testing.assert_close(packed[:, first:last], layer(x[:1, first:last]), rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("variant", lion.VARIANTS)
def test_it_reads_both_ways_or_one(variant):
    """What a token's output depends on."""
    for direction in ("both", "forward", "reverse"):
        layer = lion.LionAttention(16, 2, variant, direction=direction)
        x = torch.randn(1, 7, 16, requires_grad=True)
        (grad,) = torch.autograd.grad(layer(x)[0, 3].sum(), x)
        sees = (grad[0] != 0).any(-1).tolist()
        before, after = direction != "reverse", direction != "forward"
        assert sees == [before] * 3 + [True] + [after] * 3


class Classifier(nn.Module):
    def __init__(self, variant, **options):
        super().__init__()
        self.embed = nn.Linear(4, 32)
        self.position = nn.Parameter(0.1 * torch.randn(16, 32))
        self.norm, self.attention = nn.LayerNorm(32), lion.LionAttention(32, 4, variant, **options)
        self.head = nn.Linear(32, 10)

    def forward(self, x):
        x = self.embed(x) + self.position
        return self.head(F.relu(x + self.attention(self.norm(x))).mean(1))


def digits():
    """8 x 8 pixels as 16 patches of 2 x 2; the last 400 are held out."""
    images, labels = load_digits(return_X_y=True)
    patches = torch.tensor(images / 16).float().view(-1, 4, 2, 4, 2).transpose(2, 3).reshape(-1, 16, 4)
    return patches, torch.tensor(labels)


@pytest.mark.parametrize("variant", lion.VARIANTS if THOROUGH else ("lion_lit", "lion_d", "lion_s_diag", "deltanet"))
def test_it_learns_digits(variant):
    """200 steps, from ln 10 = 2.3 to well below: most of the digits it has not seen are right."""
    x, y = digits()
    model = Classifier(variant)
    optimizer = torch.optim.AdamW(model.parameters(), lr=5e-3)
    for _ in range(200):
        batch = torch.randint(0, len(x) - 400, (64,))
        loss = F.cross_entropy(model(x[batch]), y[batch])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    with torch.no_grad():
        held_out = F.cross_entropy(model(x[-400:]), y[-400:])
    assert held_out < 1.0


@pytest.mark.parametrize("decay", DECAYS)
def test_decays_are_decays(decay):
    """Never above 1, whatever the input, and of the rank that lion.attention takes."""
    module = DECAYS[decay](2, 8)
    log_decay, log_gain, factor = module(10 * torch.randn(3, 5, module.columns))
    if log_decay is not None:
        assert (log_decay <= 0).all()
        assert log_decay.shape in ((2,), (2, 8), (3, 5, 2), (3, 5, 2, 8))
    for x in (log_gain, factor):
        assert x is None or x.shape == (3, 5, 2)
    assert module.gates == (log_gain is not None or factor is not None)


def test_a_decay_that_hides_its_gates():
    decay = DECAYS["mamba2"](2, 8)
    decay.gates = True
    with pytest.raises(TypeError, match="StateSpace returns a log_gain or a factor; expected it to set gates = True"):
        decay.alone(torch.randn(1, 3, decay.columns))


def test_rows_of_the_table_are_checked(monkeypatch):
    for field, wrong in {"features": "siluu", "decay": "fixt", "keys": "owned", "tail": ("head_rmss",)}.items():
        monkeypatch.setitem(lion.VARIANTS, "new", dataclasses.replace(lion.VARIANTS["lion_s"], **{field: wrong}))
        with pytest.raises(ValueError, match=f"{field} of variant 'new' is '.*'; expected one of"):
            lion.LionAttention(8, 2, "new")


@pytest.mark.parametrize("features", FEATURE_MAPS)
def test_features(features):
    layer = lion.LionAttention(16, 2, "lion_s", features=features).double()
    x = torch.randn(2, 9, 16).double()
    auto = layer(x)
    assert auto.isfinite().all()
    torch.testing.assert_close(layer.set_form("rnn")(x), auto, rtol=1e-10, atol=1e-10)


def test_performer_is_softmax_on_average():
    """Over many draws of the random directions; and far beyond the range of exp in float32."""
    q, k = 0.5 * torch.randn(2, 20, 16).double()
    exact, mean = (q @ k.T / 4).exp(), torch.zeros(20, 20).double()
    for _ in range(2000):
        features = FEATURE_MAPS["performer"](16)
        (fq, q_scale), (fk, k_scale) = features(q), features(k)
        mean += fq @ fk.T * (q_scale[:, None] + k_scale).exp() / 2000
    assert (mean / exact - 1).abs().mean() < 0.05
    large, scale = features(1000 * q.float())
    assert large.isfinite().all()
    assert scale.isfinite().all()


@pytest.mark.parametrize(
    "decay",
    [
        *("selective", "selective_diagonal", "softplus", "softplus_diagonal", "fixed_diagonal"),
        *("selective_hippo_scalar", "softplus_hippo"),
    ],
)
def test_other_decays(decay):
    layer = lion.LionAttention(16, 2, "lion_s_diag", decay=decay).double()
    x = torch.randn(2, 9, 16).double()
    auto = layer(x)
    torch.testing.assert_close(layer.set_form("rnn")(x), auto, rtol=1e-10, atol=1e-10)


def test_the_diagonal_counts_twice():
    """As the sum of a forward and a backward layer has it, without the correction."""
    layer = lion.LionAttention(16, 2, "linatt", double_diagonal=True).double()
    layer.variant = dataclasses.replace(layer.variant, tail=())  # a sum of two norms is no norm of their sum
    x = torch.randn(2, 9, 16).double()
    both = layer(x)
    layer.double_diagonal = False
    ways = []
    for layer.direction in ("forward", "reverse"):
        ways.append(layer(x) - layer.out_proj.bias)
    torch.testing.assert_close(both, sum(ways) + layer.out_proj.bias, rtol=1e-10, atol=1e-10)


def test_hippo_and_zero_order_hold():
    layer = lion.LionAttention(32, 2, "lion_d_diag")
    rates = -layer.decay(torch.zeros(1, 1, 0)).log_decay
    torch.testing.assert_close(rates / rates[:, :1], torch.arange(1.0, 17).expand(2, -1))  # n + 1
    q, k, v, *_ = layer.in_proj.weight.split(list(layer.columns.values()))
    assert 0.08 < q.std() < 0.12
    assert 0.08 < k.std() < 0.12
    sizes = v.square().mean(-1).sqrt()
    forgets = -torch.expm1(-rates.flatten())
    torch.testing.assert_close(sizes / forgets, (sizes / forgets).mean().expand(32), rtol=0.5, atol=0)


def first_values(**options):
    """The first weights of the values of each head [heads, weights], and what its channels forget [heads, channels]."""
    torch.manual_seed(0)
    layer = lion.LionAttention(32, 2, "lion_s_diag", **options)
    _, _, v, *_ = layer.in_proj.weight.split(list(layer.columns.values()))
    rates = -layer.decay(torch.zeros(1, 1, layer.decay.columns)).log_decay[0, 0]
    return v.detach(), -torch.expm1(-rates)


def test_values_without_a_zero_order_hold():
    """The same weights, but for their sizes; those of all heads are alike, as a linear layer has them."""
    held, forgets = first_values()
    plain, _ = first_values(zero_order_hold=False)
    torch.testing.assert_close(plain * forgets.reshape(-1, 1), held)
    slow, fast = plain.unflatten(0, (2, -1)).flatten(1).std(1)
    assert (slow / fast).item() == pytest.approx(1, rel=0.15)
    slow, fast = held.unflatten(0, (2, -1)).flatten(1).std(1)
    assert slow / fast < 1 / 30


def test_every_hippo_begins_with_the_same_rates():
    wanted = DECAYS["fixed_hippo"](4, 16)(torch.empty(0)).log_decay
    for name in ("selective_hippo", "softplus_hippo", "selective_hippo_scalar"):
        decay = DECAYS[name](4, 16)
        found = decay(torch.zeros(1, 1, decay.columns)).log_decay[0, 0]
        torch.testing.assert_close(found, wanted if found.dim() == 2 else wanted[:, 0], msg=name)


def test_reduced_precision():
    for variant in lion.VARIANTS:
        layer = lion.LionAttention(16, 2, variant)
        x = torch.randn(2, 9, 16)
        want = layer(x)
        with torch.autocast("cpu", torch.bfloat16):
            assert (layer(x).float() - want).abs().max() < 0.1 * want.abs().max(), variant
        half = layer.bfloat16()(x.bfloat16())
        assert half.dtype == torch.bfloat16
        assert (half.float() - want).abs().max() < 0.1 * want.abs().max(), variant


@pytest.mark.parametrize("variant", ["lion_s", "rwkv6", "deltanet", "mamba", "softmax"])
def test_compile(variant):
    layer, x = lion.LionAttention(16, 2, variant), torch.randn(2, 9, 16)
    torch.testing.assert_close(torch.compile(layer, fullgraph=True)(x), layer(x))


def test_the_table_says_where_it_comes_from():
    for name, variant in lion.VARIANTS.items():
        assert variant.paper.startswith(("Table 1", "Section 4.5", "eq. 1", "beyond it")), name
        assert variant.decay in DECAYS
        assert variant.features in FEATURE_MAPS
    assert {x.name for x in dataclasses.fields(lion.VARIANTS["mamba"])} >= {"features", "decay", "norm", "keys"}


def test_directions():
    assert directions("both", 2) == ["both", "both"]
    assert directions("alternating", 3) == ["forward", "reverse", "forward"]
    with pytest.raises(ValueError, match="direction is 'sideways'; expected one of"):
        directions("sideways", 2)


def test_set_form():
    model = nn.Sequential(nn.Linear(16, 16), nn.Sequential(lion.LionAttention(16, 2), nn.ReLU()))
    assert lion.set_form(model, "rnn") is model
    assert model[1][0].form == "rnn"
    with pytest.raises(ValueError, match="there is no LionAttention in this Linear"):
        lion.set_form(nn.Linear(2, 2), "rnn")


REFUSALS = {
    "variant is 'lions'; expected one of 'softmax', .* Did you mean 'lion_s'?": {"variant": "lions"},
    "dim is 16 and heads is 3; expected dim to be a multiple of heads.": {"heads": 3},
    "two_sided is True, and variant 'lion_lit' has no decays; expected False": {
        "variant": "lion_lit",
        "two_sided": True,
    },
    "two_sided is True, and direction is 'forward'; expected 'both'": {"direction": "forward", "two_sided": True},
    "zero_order_hold is False, and variant 'lion_s' does not begin by it; expected True.": {"zero_order_hold": False},
    "features is 'silo'; expected one of 'unit_silu'": {"features": "silo"},
    "decay is 'slow'; expected one of 'none'": {"decay": "slow"},
    "norm is 'mean'; expected one of 'sum'": {"norm": "mean"},
    "direction is 'up'; expected one of": {"direction": "up"},
    "variant is 'softmax', which has no decay to choose": {"variant": "softmax", "decay": "fixed"},
    "norm is 'sum'; expected 'none' with variant 'rwkv6'": {"variant": "rwkv6", "norm": "sum"},
    "orders is 'spiral'; expected one of 'rows', 'columns', 'snake'": {"orders": ["spiral"]},
}


@pytest.mark.parametrize("message", REFUSALS)
def test_refusals(message):
    with pytest.raises(ValueError, match=message.replace("?", r"\?")):
        lion.LionAttention(**{"dim": 16, "heads": 2} | REFUSALS[message])


@pytest.mark.parametrize("variant", lion.VARIANTS)
def test_weights_are_what_the_layer_does_with_values(variant):
    layer = lion.LionAttention(16, 2, variant).double()
    x, mask = torch.randn(2, 9, 16).double(), torch.rand(2, 9) > 0.2
    tokens = layer.tokens(x)
    mixed = layer.mix(tokens, mask)
    torch.testing.assert_close(torch.einsum("bhij,bjhv->bihv", layer.weights(x, mask), tokens.v), mixed)


def test_the_picture(tmp_path):
    pytest.importorskip("matplotlib")
    draw(tmp_path / "deep" / "variants.png")
    assert (tmp_path / "deep" / "variants.png").stat().st_size > 10_000


DECAYING = [name for name, x in lion.VARIANTS.items() if x.decay != "none" and not x.softmax and not x.two_sided]


@pytest.mark.parametrize("variant", DECAYING)
def test_two_sided_decays(variant):
    """Every form is the same, every parameter learns, and tokens in reverse order are other tokens."""
    layer = lion.LionAttention(16, 2, variant, two_sided=True).double()
    with torch.no_grad():
        for x in layer.parameters():
            x += 0.1 * torch.randn_like(x)
    x, mask = torch.randn(2, 23, 16).double(), torch.rand(2, 23) > 0.2
    want = None
    for form, backend in forms_of(layer, x):
        lion.set_form(layer, form, backend=backend)
        got = output_and_gradients(layer, x, mask=mask)
        want = want or got
        for a, b in zip(got, want, strict=True):
            torch.testing.assert_close(a, b, rtol=1e-10, atol=1e-10)
    for name, parameter in layer.named_parameters():
        assert (parameter.grad != 0).any(), name
    lion.set_form(layer, "auto", backend="auto")
    assert (layer(x.flip(1)).flip(1) - layer(x)).abs().max() > 1e-3


@pytest.mark.parametrize("variant", DECAYING)
def test_both_directions_alike_are_one_decay_for_both(variant):
    layer, one = (lion.LionAttention(16, 2, variant, two_sided=x).double() for x in (True, False))
    forward, reverse = layer.decay.directions
    reverse.load_state_dict(forward.state_dict())
    one.decay.load_state_dict(forward.state_dict())
    weights = dict(zip(layer.columns, layer.in_proj.weight.split(list(layer.columns.values())), strict=True))
    biases = dict(zip(layer.columns, layer.in_proj.bias.split(list(layer.columns.values())), strict=True))
    with torch.no_grad():
        half = one.columns["decay"]
        for x in (weights["decay"], biases["decay"]):
            x[half:] = x[:half]
        for given, whole in ((weights, one.in_proj.weight), (biases, one.in_proj.bias)):
            for name, part in zip(one.columns, whole.split(list(one.columns.values())), strict=True):
                part.copy_(given[name][: len(part)] if len(given[name]) >= len(part) else 0)
    one.load_state_dict(
        {n: x for n, x in layer.state_dict().items() if not n.startswith(("decay", "in_"))}, strict=False
    )
    x = torch.randn(2, 19, 16).double()
    torch.testing.assert_close(layer(x), one(x), rtol=1e-10, atol=1e-10)


def test_only_two_sided_decays_tell_left_from_right():
    """Which of two marked tokens comes first cannot be learned without positions by a layer whose outputs are the
    same in reverse order, whatever its weights; with decays of their own for each direction it can."""
    accuracy = {}
    for two_sided in (False, True):
        torch.manual_seed(0)
        layer = lion.LionAttention(16, 2, "lion_s", two_sided=two_sided)
        embed, head = torch.nn.Embedding(4, 16), torch.nn.Linear(16, 2)
        parameters = [*layer.parameters(), *embed.parameters(), *head.parameters()]
        optimizer = torch.optim.Adam(parameters, lr=1e-2)
        for _ in range(200):
            ids, first = marked(64)
            loss = torch.nn.functional.cross_entropy(head(layer(embed(ids)).mean(1)), first)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        ids, first = marked(1000)
        accuracy[two_sided] = (head(layer(embed(ids)).mean(1)).argmax(-1) == first).float().mean().item()
        if not two_sided:  # not for want of learning: a sequence and its mirror image have the same logits
            torch.testing.assert_close(layer(embed(ids)).mean(1), layer(embed(ids.flip(1))).mean(1))
    assert accuracy[False] < 0.6
    assert accuracy[True] > 0.95


def marked(count):
    """Sequences of two kinds of filler with one token 2 and one token 3, and which of them comes first."""
    ids = torch.randint(2, (count, 12))
    places = torch.stack([torch.randperm(12)[:2] for _ in range(count)])
    ids.scatter_(1, places, torch.tensor([2, 3]).expand(count, 2))
    return ids, (places[:, 0] < places[:, 1]).long()


@pytest.mark.parametrize("features", ["unit_silu", "elu_plus_one", "performer"])
def test_softmax_of_features(features):
    """Softmax attention of queries and keys behind a feature map, as the paper's ablation has it."""
    layer = lion.LionAttention(32, 4, "softmax", features=features).double()
    x = torch.randn(2, 9, 32, dtype=torch.float64)
    q, k, v = layer.in_proj(x).split([32, 32, 32], -1)
    (q, q_scale), (k, k_scale) = layer.features.both(q.unflatten(-1, (4, -1)), k.unflatten(-1, (4, -1)))
    q, k = (y if scale is None else y * scale[..., None].exp() for y, scale in ((q, q_scale), (k, k_scale)))
    weights = (torch.einsum("bihd,bjhd->bhij", q, k) * q.shape[-1] ** -0.5).softmax(-1)
    want = torch.einsum("bhij,bjhd->bihd", weights, v.unflatten(-1, (4, -1))).flatten(-2)
    torch.testing.assert_close(layer(x), layer.out_proj(want))
    torch.testing.assert_close(layer.weights(x), weights)


@pytest.mark.parametrize("two_sided", [False, True])
@pytest.mark.parametrize("variant", ["lion_d", "lion_s", "lion_s_diag", "lion_lit"])
def test_orders_that_are_normalised_one_by_one(variant, two_sided):
    """As the paper has it: the mean of the outputs of each order, with decays of its own."""
    if two_sided and variant == "lion_lit":
        pytest.skip("no decays")
    options = {"orders": ("snake", "transposed_snake"), "grid": (3, 4), "two_sided": two_sided}
    layer = lion.LionAttention(16, 2, variant, **options, order_norm="each").double()
    joint = lion.LionAttention(16, 2, variant, **options).double()
    joint.load_state_dict(layer.state_dict())
    x, mask = torch.randn(3, 13, 16, dtype=torch.float64), torch.rand(3, 13) > 0.2
    y = layer.tokens(x)
    heads, each = layer.heads, []
    for n, order in enumerate(layer._orders_for(x, None)):

        def own(decay, n=n):
            if decay is None or heads in decay.shape[:1] or (decay.dim() > 2 and decay.shape[2] == heads):
                return decay
            return decay[n * heads : (n + 1) * heads] if decay.dim() <= 2 else decay[:, :, n * heads : (n + 1) * heads]

        decay = tuple(map(own, y.log_decay)) if two_sided else own(y.log_decay)
        each.append(lion.attention(y.q, y.k, y.v, decay, norm=layer.variant.norm, mask=mask, orders=order))
    want = layer.finish((each[0] + each[1]) / 2, y.gate, y.values)
    torch.testing.assert_close(layer(x, mask), want)
    assert ((joint(x, mask) - want).abs().max() > 1e-6) == (variant != "lion_lit")


def test_errors_of_order_norm():
    with pytest.raises(ValueError, match="order_norm is 'both'; expected one of 'joint', 'each'"):
        lion.LionAttention(16, 2, order_norm="both")


def _half_lives(layer):
    decays = layer.decay(torch.zeros(1, 1, layer.decay.columns)).log_decay
    sides = decays if isinstance(decays, tuple) else (decays,)
    return [(-math.log(2) / x).reshape(-1, layer.heads)[0].tolist() for x in sides]


@pytest.mark.parametrize("decay", ["fixed", "selective", "softplus"])
def test_half_lives_of_the_first_decays(decay):
    layer = lion.LionAttention(32, 4, "lion_s", decay=decay, half_lives=(1, 64))
    assert _half_lives(layer) == [pytest.approx([1, 4, 16, 64], rel=1e-4)]


@pytest.mark.parametrize("decay", ["fixed_hippo", "selective_hippo", "softplus_hippo", "selective_hippo_scalar"])
def test_half_lives_of_hippos_slowest_channels(decay):
    layer = lion.LionAttention(32, 4, "lion_s_diag", decay=decay, half_lives=(1, 64))
    log_decay = layer.decay(torch.zeros(1, 1, layer.decay.columns)).log_decay
    lives = (-math.log(2) / log_decay).reshape(4, -1)  # [heads, channels]
    assert lives[:, 0].tolist() == pytest.approx([1, 4, 16, 64], rel=1e-4)
    for n, channel in enumerate(lives.T, 1):
        torch.testing.assert_close(channel * n, lives[:, 0])


def test_two_sided_heads_begin_by_looking_different_ways():
    layer = lion.LionAttention(32, 4, "lion_d", two_sided=True, half_lives=(1, 64))
    forward, reverse = _half_lives(layer)
    assert forward == pytest.approx([1, 4, 16, 64], rel=1e-4)
    assert reverse == pytest.approx(forward[::-1])


def test_half_lives_with_several_orders():
    layer = lion.LionAttention(32, 4, "lion_d", orders=("rows", "columns"), half_lives=(1, 8))
    logs = layer.decay(torch.zeros(1, 1, 0)).log_decay
    assert (-math.log(2) / logs).tolist() == pytest.approx([1, 2, 4, 8, 1, 2, 4, 8], rel=1e-4)


@pytest.mark.parametrize(("variant", "half_lives"), [("gla", (1, 8)), ("lion_lit", (1, 8)), ("lion_s", (0, 8))])
def test_half_lives_that_are_refused(variant, half_lives):
    with pytest.raises(ValueError, match="half_lives"):
        lion.LionAttention(32, 4, variant, half_lives=half_lives)
