"""Derivatives of other kinds than backward(): forward mode, torch.func, second ones. Of every kernel of the table, and
of every layer, beside what autograd finds."""

import pytest
import torch
from torch.autograd import forward_ad
from torch.func import functional_call, grad, jacfwd, jacrev, jvp, vjp, vmap
from torch.nn.attention import SDPBackend, sdpa_kernel

import lion
from lion.ops.kernels import KERNELS
from tests.ops.problems import kernels, log_decays, problem

# By kind of decay in the table, as tests.ops.problems has it.
DECAYS = {"none": "none", "scalar": "per token", "diagonal": "diagonal", "gated diagonal": "diagonal", "delta": "fixed"}
TORCH = [(form, decay) for backend, form, decay in KERNELS if backend == "torch"]
every_kernel = pytest.mark.parametrize(("form", "decay"), TORCH)
every_layer = pytest.mark.parametrize("variant", lion.VARIANTS)


def attention_of(form, decay, *, T=70, D=2, backend="torch", **options):
    """A function of tensors, smooth where they are, and the tensors: several chunks, in float64."""
    gain = decay in ("scalar", "gated diagonal")
    kwargs = problem(DECAYS[decay], B=2, T=T, H=1, D=D, V=2, gain=gain)
    kwargs["log_decay"] = log_decays(DECAYS[decay], 2, T, 1, D, extremes=False)
    if decay == "delta":
        kwargs["beta"] = torch.rand(2, T, 1, dtype=torch.float64)
        kwargs["k"] = torch.nn.functional.normalize(kwargs["k"], dim=-1)
        options["norm"] = "none"
    names = [name for name, x in kwargs.items() if x is not None]

    def run(*tensors):
        return lion.attention(**dict(zip(names, tensors, strict=True)), form=form, backend=backend, **options)

    return run, [kwargs[name] for name in names]


def reverse(function, inputs, along):
    """Gradients by backward()."""
    leaves = [x.detach().requires_grad_() for x in inputs]
    return torch.autograd.grad(function(*leaves), leaves, along)


def assert_equal(got, want):
    for x, y in zip(got, want, strict=True):
        torch.testing.assert_close(x, y, rtol=1e-9, atol=1e-9)


@every_kernel
@pytest.mark.parametrize("direction", ["both", "forward"])
def test_forward_mode(form, decay, direction):
    function, inputs = attention_of(form, decay, direction=direction)
    tangents = [torch.randn_like(x) for x in inputs]
    out, tangent = jvp(function, tuple(inputs), tuple(tangents))
    assert_equal([out], [function(*inputs)])
    with forward_ad.dual_level():
        dual = function(*map(forward_ad.make_dual, inputs, tangents))
        assert_equal([forward_ad.unpack_dual(dual).tangent], [tangent])
    # Both modes know the same Jacobian: w . (J u) = (w J) . u
    along = torch.randn_like(out)
    gradients = reverse(function, inputs, along)
    assert_equal([(along * tangent).sum()], [sum((x * t).sum() for x, t in zip(gradients, tangents, strict=True))])


@every_kernel
def test_torch_func(form, decay):
    """grad, vjp, and gradients of each example of a batch."""
    function, inputs = attention_of(form, decay)
    along = torch.randn_like(function(*inputs))
    want = reverse(function, inputs, along)
    everything = tuple(range(len(inputs)))
    assert_equal(grad(lambda *x: (function(*x) * along).sum(), everything)(*inputs), want)
    assert_equal(vjp(function, *inputs)[1](along), want)
    # One example at a time; what has no batch is the same for all, and its gradients add up.
    batched = [0 if x.dim() > 2 else None for x in inputs]

    def one(along, *tensors):
        single = [x if dim is None else x[None] for x, dim in zip(tensors, batched, strict=True)]
        return (function(*single)[0] * along).sum()

    each = vmap(grad(one, tuple(i + 1 for i in everything)), (0, *batched))(along, *inputs)
    assert_equal([x.sum(0) if dim is None else x for x, dim in zip(each, batched, strict=True)], want)


@every_kernel
def test_vmap_of_one_argument(form, decay):
    """What varies may be any of the arguments, the others are the same for all."""
    function, inputs = attention_of(form, decay, T=9)
    for i, x in enumerate(inputs):
        several = torch.stack([x, 0.5 * x])
        got = vmap(function, tuple(0 if j == i else None for j in range(len(inputs))))(
            *(several if j == i else y for j, y in enumerate(inputs))
        )
        for n, value in enumerate(several):
            assert_equal([got[n]], [function(*(value if j == i else y for j, y in enumerate(inputs)))])


@every_kernel
def test_jacobians(form, decay):
    function, inputs = attention_of(form, decay, T=5)
    everything = tuple(range(len(inputs)))
    assert_equal(jacfwd(function, everything)(*inputs), jacrev(function, everything)(*inputs))


SECOND = [*(("torch", *kernel) for kernel in TORCH), *(key for key in KERNELS if key[0] == "cpu")]


@pytest.mark.parametrize("norm", ["sum", "unmasked"])
@pytest.mark.parametrize(("backend", "form", "decay"), SECOND)
def test_second_derivatives(backend, form, decay, norm):
    """Of a gradient's length: as forward mode over backward() finds them, token by token."""
    if decay == "delta" and norm != "sum":
        pytest.skip("the delta rule has one norm, 'none'")
    options = {} if decay == "delta" else {"norm": norm}
    function, inputs = attention_of(form, decay, T=20, backend=backend, **options)
    exact, _ = attention_of("rnn", decay, T=20, **options)
    leaves = [x.detach().requires_grad_() for x in inputs]
    weights = torch.randn_like(function(*inputs))

    def length(run, *tensors):
        gradients = torch.autograd.grad((run(*tensors) * weights).sum(), tensors, create_graph=True)
        return sum(x.square().sum() for x in gradients)

    got = torch.autograd.grad(length(function, *leaves), leaves)
    assert_equal(got, torch.autograd.grad(length(exact, *leaves), leaves))
    assert all(x.abs().max() > 1e-6 for x in got)


def test_the_cpu_backend_by_name_is_refused():
    function, inputs = attention_of("scan", "scalar", backend="cpu")
    tangents = tuple(map(torch.ones_like, inputs))
    with pytest.raises(ValueError, match=r"torch\.func and forward-mode .* What works here: 'torch'"):
        jvp(function, tuple(inputs), tangents)


@every_layer
def test_layers(variant):
    """Per-example gradients of the parameters, forward mode, and second derivatives, of layers as they come."""
    layer = lion.LionAttention(8, 2, variant).double()
    x = torch.randn(3, 9, 8, dtype=torch.float64)
    weights = torch.randn(3, 9, 8, dtype=torch.float64)
    parameters = {name: p.detach() for name, p in layer.named_parameters()}

    def loss(parameters, x, weights):
        return (functional_call(layer, parameters, (x[None],))[0] * weights).sum()

    each = vmap(grad(loss), (None, 0, 0))(parameters, x, weights)
    for n in range(3):
        layer.zero_grad()
        (layer(x[n][None])[0] * weights[n]).sum().backward()
        for name, p in layer.named_parameters():
            torch.testing.assert_close(each[name][n], p.grad, rtol=1e-9, atol=1e-9, msg=name)

    def whole(x):
        return (functional_call(layer, parameters, (x,)) * weights).sum()

    direction = torch.randn_like(x)
    _, tangent = jvp(whole, (x,), (direction,))
    x.requires_grad_()
    # torch's fused softmax attention has no second derivatives; its unfused one has.
    with sdpa_kernel(SDPBackend.MATH):
        (first,) = torch.autograd.grad((layer(x) * weights).sum(), x, create_graph=True)
    torch.testing.assert_close(tangent, (first * direction).sum().detach(), rtol=1e-9, atol=1e-9)
    (second,) = torch.autograd.grad((first * direction).sum(), x)
    # The other way round, the gradient of a jvp, torch's layer norm is wrong.
    want = jvp(grad(whole), (x.detach(),), (direction,))[1]
    torch.testing.assert_close(second, want, rtol=1e-8, atol=1e-8)


def test_a_layer_in_training_is_still_fused():
    """The plain operators are for those who ask for more than one gradient."""
    layer = lion.LionAttention(32, 2)
    x = torch.randn(2, 9, 32)
    if {"backend": "cpu", "form": "scan"} not in kernels("per token"):
        pytest.skip("there are no compiled kernels")
    with torch.profiler.profile() as profile:
        layer(x).sum().backward()
    assert any(event.name == "lion::cpu_projected_backward" for event in profile.events())
