"""The vision model: sizes, image sizes, positions, tokens, directions, forms."""

from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F

import lion
from lion.models.registry import MODELS, create_model, model_config
from lion.models.vision import VisionConfig, VisionModel, cubic
from tests import SEED

SMALL = {"dim": 32, "depth": 2, "heads": 2, "patch_size": 4, "image_size": (16, 16), "num_classes": 5}


def small(**changes) -> VisionModel:
    torch.manual_seed(SEED)
    return VisionModel(VisionConfig(**(SMALL | changes))).double().eval()


def images(height=16, width=16):
    return torch.randn(2, 3, height, width, generator=torch.Generator().manual_seed(SEED + 1)).double()


@pytest.mark.parametrize(("size", "millions"), [("tiny", 5.7), ("small", 22), ("base", 86.5)])
def test_sizes(size, millions):
    for name in ("lion_lit", "lion_d", "lion_s", "lion_d_2scan", "lion_s_2scan", "softmax"):
        with torch.device("meta"):
            model = create_model(f"{name}_{size}_patch16_224")
        assert sum(p.numel() for p in model.parameters()) / 1e6 == pytest.approx(millions, rel=0.02), name


@pytest.mark.parametrize("name", [name for name in MODELS if "tiny" in name])
def test_forms_agree_on_the_whole_model(name):
    config = MODELS[name]
    shape = {"dim": 32, "heads": 2, "depth": 2, "patch_size": 8, "image_size": (24, 24), "num_classes": 5}
    torch.manual_seed(SEED)
    model = create_model(name, **shape).double().eval()
    x = torch.randn(2, 3, 24, 24).double()
    with torch.no_grad():
        want = model(x)
        forms = () if config.variant == "softmax" else ("full", "rnn", "scan")
        for form in forms:
            got = lion.set_form(model, form)(x)
            torch.testing.assert_close(got, want, rtol=1e-9, atol=1e-10, msg=f"{name} {form}")


@pytest.mark.parametrize("positions", ["none", "learned"])
@pytest.mark.parametrize("orders", [(), ("snake", "transposed_snake")])
def test_any_image_size(positions, orders):
    """A model of 16 x 16 pixels runs at others; what is no whole patch is filled up with zeros."""
    model = small(positions=positions, orders=orders)
    for height, width in ((16, 16), (32, 32), (8, 20), (18, 13)):
        x = images(height, width)
        assert model(x).shape == (2, 5)
        filled = torch.zeros(2, 3, -(-height // 4) * 4, -(-width // 4) * 4).double()
        filled[:, :, :height, :width] = x
        torch.testing.assert_close(model(x), model(filled))


@pytest.mark.parametrize("patch", [1, 2, 8])
def test_a_stem_of_convolutions_makes_as_many_tokens(patch):
    model = small(stem="conv", patch_size=patch)
    for size in ((16, 16), (17, 9)):
        tokens, grid = model.patch_embed(images(*size))
        assert grid == tuple(-(-side // patch) for side in size)
        assert tokens.shape == (2, grid[0] * grid[1], 32)
    assert model(images(17, 9)).shape == (2, 5)
    with pytest.raises(ValueError, match=r"patch_size is 6; expected 1, 2, 4, 8"):
        VisionConfig(stem="conv", patch_size=6)


def test_positions_follow_the_image_size():
    model = small(positions="learned", image_size=(8, 12))
    wide, tall = images(8, 12), images(12, 8)
    assert not torch.allclose(model(wide), model(tall))
    same = model(wide)
    model.set_input_size((12, 8))  # another grid of as many patches
    assert not torch.allclose(model(wide), same)
    assert model.config.image_size == (12, 8)
    model.set_input_size(32)
    assert model.pos_embed.shape == (1, 65, 32)
    reloaded = VisionModel(model.config).double().eval()
    reloaded.load_state_dict(model.state_dict())
    torch.testing.assert_close(reloaded(images(32, 32)), model(images(32, 32)))


def test_without_a_class_token():
    model = small(class_token=False, pool="mean")
    features = model.forward_features(images())
    assert features.shape == (2, 16, 32)
    torch.testing.assert_close(model.forward_head(features), model.head(features.mean(1)))
    with pytest.raises(ValueError, match="pool is 'token', but there is no class token"):
        small(class_token=False)


def test_a_distillation_token_has_a_classifier_of_its_own():
    model = small(variant="softmax", distillation_token=True, positions="learned")
    model.set_distilled_training()
    features = model.forward_features(images())
    own, distilled = model.head(features[:, 0]), model.head_dist(features[:, 1])
    torch.testing.assert_close(model(images()), (own + distilled) / 2)
    model.train()
    assert all(torch.equal(a, b) for a, b in zip(model(images()), (own, distilled), strict=True))


def test_directions():
    layers = {
        "both": ["both", "both"],
        "forward": ["forward", "forward"],
        "alternating": ["forward", "reverse"],
    }
    outputs = []
    for direction, want in layers.items():
        model = small(direction=direction, class_token=False, pool="mean")
        assert [block.attn.direction for block in model.blocks] == want
        outputs.append(model(images()))
    assert not any(torch.allclose(outputs[0], other) for other in outputs[1:])
    with pytest.raises(ValueError, match="expected pool='mean': the class token comes first"):
        small(direction="forward")


@pytest.mark.parametrize("direction", ["both", "reverse", "alternating"])
def test_a_class_token_sees_every_patch(direction):
    model, x = small(direction=direction), images().requires_grad_()
    model(x).sum().backward()
    assert (x.grad.abs().amax(1) > 0).all()


def test_drop_path_leaves_out_whole_examples():
    model = small(drop_path=0.5).train()
    assert [block.drop_path.probability for block in model.blocks] == [0, 0.5]
    torch.manual_seed(SEED)
    x = torch.ones(1000, 3)
    y = model.blocks[1].drop_path(x)
    assert set(y[:, 0].tolist()) == {0.0, 2.0}
    assert (y == y[:, :1]).all()
    assert 0.4 < (y[:, 0] > 0).float().mean() < 0.6


@pytest.mark.parametrize(
    ("name", "changes", "message"),
    [
        ("lion_x_tiny_patch16_224", {}, "model is 'lion_x_tiny_patch16_224'; expected one of"),
        ("lion_s_tiny_patch16_224", {"classes": 3}, "field is 'classes'; expected one of"),
        ("lion_s_tiny_patch16_224", {"variant": "lion"}, "variant is 'lion'; expected one of"),
        ("lion_s_tiny_patch16_224", {"positions": "sine"}, "positions is 'sine'; expected one of"),
        ("hydra_tiny_patch16_224", {"two_sided": True}, "variant is 'hydra', which has no two_sided to choose"),
        ("hydra_tiny_patch16_224", {"orders": ("rows",)}, "variant is 'hydra', which has no orders to choose"),
        ("vim_tiny_patch16_224", {"half_lives": (1, 8)}, "variant is 'vim', which has no half_lives to choose"),
    ],
)
def test_what_is_refused(name, changes, message):
    with pytest.raises(ValueError, match=message):
        create_model(name, **changes)


def test_images_of_another_shape_are_refused():
    with pytest.raises(ValueError, match=r"the images have shape \(2, 1, 16, 16\); expected \[B, 3, height, width\]"):
        small()(images()[:, :1])


def test_the_paper_has_no_positions_where_there_are_decays():
    assert model_config("lion_s_tiny_patch16_224").positions == "none"
    assert model_config("lion_lit_tiny_patch16_224").positions == "learned"
    assert model_config("lion_lit_tiny_patch16_224").features == "elu_plus_one"
    assert model_config("softmax_tiny_patch16_224").positions == "learned"


@pytest.mark.parametrize("variant", ["lion_s", "lion_lit", "softmax", "mamba2"])
def test_weights_begin_as_those_of_deit(variant):
    config = VisionConfig(variant, dim=192, heads=3, depth=2, image_size=(32, 32), positions="learned", init="deit")
    weights, own = [], []
    for init, found in (("deit", weights), ("own", own)):
        torch.manual_seed(SEED)
        found += VisionModel(replace(config, init=init)).named_parameters()
    weights = dict(weights)
    small = ["pos_embed", "blocks.0.mlp.fc1.weight", "blocks.1.mlp.fc2.weight"]
    small += [f"blocks.0.attn.{x}.weight" for x in ("in_proj", "out_proj")] if variant != "mamba2" else []
    for name in small:
        assert weights[name].std().item() == pytest.approx(0.02, rel=0.15), name
    for name, x in own:  # decays begin by these
        if name.endswith("in_proj.bias") and variant != "mamba2":
            assert torch.equal(x, weights[name])


@pytest.mark.parametrize("new", [1, 3, 4, 9])
def test_interpolation_is_torchs(new):
    """Along one side; F.interpolate is right as long as the other one is not 1."""
    maps = torch.randn(1, 3, 4, 2).double()
    want = F.interpolate(maps, size=(new, 2), mode="bicubic", antialias=True, align_corners=False)
    torch.testing.assert_close(cubic(4, new, maps) @ maps, want)
