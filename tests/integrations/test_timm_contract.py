"""What timm asks of a model beside its outputs: devices and dtypes, graphs of torch.fx, TorchScript, frozen weights.

timm's own tests ask the same (test_timm_own.py), where they can be had.
"""

import pytest
import torch

from tests import SEED

lion_timm = pytest.importorskip("lion.integrations.timm")
timm = pytest.importorskip("timm")

SMALL = {"img_size": 64, "embed_dim": 32, "num_heads": 2, "depth": 3, "num_classes": 7}
SOME = ("softmax", "deit_distilled", "lion_s_2scan", "rwkv6", "deltanet", "hydra", "vim")  # one of each kind
some = pytest.mark.parametrize("name", [f"{name}_tiny_patch16_224" for name in SOME])


def small(name, **options):
    return timm.create_model(name, **{**SMALL, **options}).eval()


@some
def test_devices_and_dtypes(name):
    model = small(name, device="meta", dtype=torch.bfloat16)
    tensors = [*model.parameters(), *model.buffers()]
    assert {x.device.type for x in tensors} == {"meta"}
    assert {x.dtype for x in model.parameters()} == {torch.bfloat16}
    assert model(torch.randn(2, 3, 64, 64, device="meta", dtype=torch.bfloat16)).dtype == torch.bfloat16
    assert model.in_chans == 3
    assert {x.dtype for x in small(name, dtype=torch.float64).parameters()} == {torch.float64}


@some
def test_a_new_classifier_is_as_the_model_is(name):
    model = small(name, device="meta", dtype=torch.float64)
    model.reset_classifier(0)
    model.reset_classifier(2)
    heads = model.get_classifier()
    for head in heads if isinstance(heads, tuple) else (heads,):
        assert (head.weight.device.type, head.weight.dtype) == ("meta", torch.float64)
    assert not any(module.training for module in model.modules())


@some
def test_frozen_weights_stay_frozen(name):
    model = small(name).requires_grad_(False)
    model.reset_classifier(0, "")
    model.set_input_size(img_size=(128, 96))
    assert not any(parameter.requires_grad for parameter in model.parameters())


@some
def test_a_graph_of_fx(name):
    """With every module inside the blocks for a node, but what asks for sizes."""
    model, x = small(name), torch.randn(2, 3, 64, 96)
    nodes = timm.layers.get_graph_node_names(model)[1]
    assert {"patch_embed", "blocks.1.norm1", "blocks.1.attn", "norm", "head"} <= set(nodes)
    wanted = ["blocks.1.attn", "norm", nodes[-1]]
    graph = timm.layers.create_feature_extractor(model, wanted).eval()
    with torch.no_grad():
        found = graph(x)
        torch.testing.assert_close(found[nodes[-1]], model(x))
        torch.testing.assert_close(found["norm"], model.forward_features(x))
        assert graph(x[:, :, :32])["blocks.1.attn"].shape == (2, 12 + model.num_prefix_tokens, 32)


@pytest.mark.parametrize("name", ["lion_s_2scan_tiny_patch16_224", "hydra_tiny_patch16_224"])
def test_a_graph_of_fx_learns_the_same(name):
    model, x = small(name, drop_path_rate=0.3).train(), torch.randn(4, 3, 64, 64)
    graph = timm.layers.create_feature_extractor(model, ["head"])
    torch.manual_seed(SEED)
    model(x).square().sum().backward()
    want = [parameter.grad.clone() for parameter in model.parameters()]
    model.zero_grad()
    torch.manual_seed(SEED)
    graph(x)["head"].square().sum().backward()
    torch.testing.assert_close([parameter.grad for parameter in model.parameters()], want)


def test_features_by_fx():
    name, x = "lion_lit_tiny_patch16_224", torch.randn(2, 3, 64, 64)
    graph = small(name, features_only=True, feature_cls="fx", out_indices=(0, 2))
    assert [y.shape for y in graph(x)] == [(2, 17, 32)] * 2


def test_a_converted_vit_in_a_graph_of_fx():
    vit, x = lion_timm.convert(timm.create_model("vit_tiny_patch16_224", **SMALL)).eval(), torch.randn(2, 3, 64, 64)
    torch.testing.assert_close(timm.layers.create_feature_extractor(vit, ["head"])(x)["head"], vit(x))


@pytest.mark.parametrize("name", ["lion_lit_tiny_patch16_224", "deit_distilled_tiny_patch16_224"])
def test_torchscript_of_a_model_and_of_its_graph(name):
    model, x = small(name, scriptable=True), torch.randn(2, 3, 64, 96)
    torch.testing.assert_close(torch.jit.script(model)(x), model(x))
    graph = timm.layers.create_feature_extractor(model, ["norm"])
    torch.testing.assert_close(torch.jit.script(graph)(x)["norm"], model.forward_features(x))


def test_a_converted_vit_is_exported_not_scripted():
    vit, x = timm.create_model("vit_tiny_patch16_224", **SMALL), torch.randn(2, 3, 64, 64)
    lion_timm.convert(vit.eval(), "lion_lit")
    with pytest.raises(
        TypeError, match=r"is a converted VisionTransformer of timm's; torch\.jit\.script expected one of"
    ):
        torch.jit.script(vit)
    torch.testing.assert_close(torch.export.export(vit, (x,)).module()(x), vit(x))
