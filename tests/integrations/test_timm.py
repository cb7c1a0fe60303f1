"""timm's own checks of a model (those of its tests/test_models.py), for ours; and timm's models with our attention."""

import copy

import pytest
import torch
from safetensors.torch import save_file

import lion
from lion.models.registry import MODELS

lion_timm = pytest.importorskip("lion.integrations.timm")
timm = pytest.importorskip("timm")
optim = pytest.importorskip("timm.optim")
vits = timm.models.vision_transformer

TINY = [name for name in MODELS if "_tiny_" in name]
SOME = [  # for what takes longer: one of each kind
    "softmax_tiny_patch16_224",
    "deit_distilled_tiny_patch16_224",
    "lion_s_2scan_tiny_patch16_224",
    "lion_d_diag_tiny_patch16_224",
    "mamba_tiny_patch16_224",
    "vim_tiny_patch16_224",
]
SMALL = {"img_size": 64, "embed_dim": 32, "num_heads": 2, "depth": 3, "num_classes": 7}
some = pytest.mark.parametrize("name", SOME)


def small(name, **options):
    return timm.create_model(name, **{**SMALL, **options}).eval()


def small_vit(**options):
    """timm's own. Its class tokens begin as zeros, and its scores as good as equal."""
    vit = vits.VisionTransformer(**{**SMALL, **options}).eval()
    for parameter in vit.parameters():
        torch.nn.init.normal_(parameter, std=0.3)
    return vit


def gradients(model, *batches):
    model.zero_grad()
    outs = [model(x) for x in batches]
    sum((out * torch.linspace(-1, 1, out.numel()).view_as(out)).sum() for out in outs).backward()
    return {name: parameter.grad for name, parameter in model.named_parameters()}


def assert_all_learn(model, found):
    for name, _ in model.named_parameters():
        assert found[name] is not None, name
        assert found[name].isfinite().all(), name
        assert (found[name] != 0).any(), name


# Models by name.


def test_every_model_is_registered():
    names = timm.list_models(module="timm")
    assert set(names) == set(MODELS)
    assert set(MODELS) < set(lion_timm.__all__)
    assert "lion_s_tiny_patch16_224" in timm.list_models("lion_*")
    assert not timm.list_models("lion_*", pretrained=True)
    assert all(timm.models.get_pretrained_cfg(name) is not None for name in names)


def test_timm_keeps_its_own(monkeypatch):
    """A name that timm has, today or in another version, stays timm's."""
    assert timm.models.model_entrypoint("deit_tiny_distilled_patch16_224").__module__ == "timm.models.deit"
    name = "lion_s_tiny_patch16_224"
    lion_timm._register(name)  # once more is nothing to speak of
    own = timm.models.model_entrypoint("vit_tiny_patch16_224")
    monkeypatch.setitem(timm.models._registry._model_entrypoints, name, own)
    with pytest.warns(UserWarning, match=f"{name} is a model of timm's own; lion.models.registry.create_model"):
        lion_timm._register(name)
    assert timm.models.model_entrypoint(name) is own


@pytest.mark.parametrize("name", TINY)
def test_forward(name):
    model = small(name, depth=1)
    out = model(torch.randn(2, 3, 64, 64))
    assert out.shape == (2, 7)
    assert out.isfinite().all()


@some
def test_backward(name):
    # The first token's output has no use for the decays of the last block, where nothing comes before it.
    pool = "token" if "distilled" in name else "avg"
    model = small(name, drop_path_rate=0.1, drop_rate=0.1, global_pool=pool).train()
    found = gradients(model, torch.randn(4, 3, 64, 64))
    assert_all_learn(model, found)
    assert sum(grad.numel() for grad in found.values()) == sum(p.numel() for p in model.parameters())


def test_arguments_by_timms_names():
    options = {"img_size": (32, 64), "patch_size": 8, "in_chans": 1, "mlp_ratio": 2, "drop_rate": 0.1}
    options |= {"drop_path_rate": 0.2, "class_token": False, "global_pool": "avg", "pos_embed": "learn"}
    config = small("lion_s_tiny_patch16_224", **options).config
    want = {"image_size": (32, 64), "patch_size": 8, "in_channels": 1, "mlp_ratio": 2, "dropout": 0.1}
    want |= {"drop_path": 0.2, "class_token": False, "pool": "mean", "positions": "learned"}
    want |= {"dim": 32, "heads": 2, "depth": 3, "num_classes": 7}
    assert {name: getattr(config, name) for name in want} == want
    with pytest.raises(TypeError, match=r"argument is 'imgsize'; expected one of .* Did you mean 'img_size'\?"):
        small("lion_s_tiny_patch16_224", imgsize=64)
    with pytest.raises(ValueError, match="pool is 'max'; expected one of 'token', 'mean'"):
        small("lion_s_tiny_patch16_224", global_pool="max")
    with pytest.raises(ValueError, match="there is no class token; expected pool='mean'"):
        small("lion_s_tiny_patch16_224", class_token=False)


@some
def test_default_cfg(name):
    model = timm.create_model(name, depth=1)
    cfg, weights = model.default_cfg, model.state_dict()
    assert cfg is model.pretrained_cfg
    assert cfg["architecture"] == name
    assert cfg["num_classes"] == model.num_classes == 1000
    data = timm.data.resolve_model_data_config(model)
    assert data["input_size"] == cfg["input_size"] == (3, 224, 224)
    assert data["mean"] == timm.data.IMAGENET_DEFAULT_MEAN
    assert data["std"] == timm.data.IMAGENET_DEFAULT_STD
    assert (data["crop_pct"], data["interpolation"]) == (0.9, "bicubic")
    classifiers = [cfg["classifier"]] if isinstance(cfg["classifier"], str) else cfg["classifier"]
    assert all(weights[f"{c}.weight"].shape == (1000, 192) for c in classifiers)
    assert weights[f"{cfg['first_conv']}.weight"].shape == (192, 3, 16, 16)


@some
def test_features_and_heads(name):
    model, x = small(name), torch.randn(2, 3, 64, 64)
    features = model.forward_features(x)
    assert features.shape == (2, model.num_prefix_tokens + 16, model.num_features)
    torch.testing.assert_close(model.forward_head(features), model(x))
    pooled = model.forward_head(features, pre_logits=True)
    assert pooled.shape == (2, model.head_hidden_size)

    model.reset_classifier(0)
    assert model.num_classes == 0
    torch.testing.assert_close(model(x), pooled)
    model.reset_classifier(0, "")  # nor pooled
    torch.testing.assert_close(model(x), features)
    model.reset_classifier(5, "avg" if model.cls_token is None else "token")
    heads = model.get_classifier()
    assert all(head.out_features == 5 for head in (heads if isinstance(heads, tuple) else [heads]))
    assert model(x).shape == (2, 5)
    torch.testing.assert_close(small(name, num_classes=0, global_pool="")(x).shape, features.shape)


@some
def test_intermediates(name):
    model, x = small(name, depth=4), torch.randn(2, 3, 64, 96)
    info = timm.models.FeatureInfo(model.feature_info, len(model.feature_info))
    features, maps = model.forward_intermediates(x)
    torch.testing.assert_close(features, model.forward_features(x))
    assert [y.shape[1] for y in maps] == info.channels()
    assert [(64 // r, 96 // r) for r in info.reduction()] == [tuple(y.shape[2:]) for y in maps]
    for indices in (None, 1, 3, [0, 2], (1, -1), [-2]):
        taken, _ = timm.models._features.feature_take_indices(4, indices)
        got = model.forward_intermediates(x, indices, intermediates_only=True, stop_early=True)
        for y, i in zip(got, taken, strict=True):
            torch.testing.assert_close(y, maps[i])
    [(tokens, prefix)] = model.forward_intermediates(
        x, 1, return_prefix_tokens=True, norm=True, output_fmt="NLC", intermediates_only=True
    )
    torch.testing.assert_close(torch.cat([prefix, tokens], 1), features)


@some
def test_features_only(name):
    model, x = small(name, depth=4), torch.randn(2, 3, 64, 96)
    for indices in ((0, 2), 2, (-2,)):
        getter = small(name, depth=4, features_only=True, out_indices=indices)
        getter.model.load_state_dict(model.state_dict(), strict=False)
        want = model.forward_intermediates(x, indices, intermediates_only=True)
        for got, y, channels in zip(getter(x), want, getter.feature_info.channels(), strict=True):
            torch.testing.assert_close(got, y)
            assert got.shape[1] == channels
    by_hooks = small(name, depth=4, features_only=True, out_indices=(1,), feature_cls="hook")
    by_hooks.body.load_state_dict(model.state_dict(), strict=False)
    [tokens] = model.forward_intermediates(x, [1], output_fmt="NLC", intermediates_only=True)
    torch.testing.assert_close(by_hooks(x)[0][:, model.num_prefix_tokens :], tokens)


@some
def test_prune(name):
    model, x = small(name, depth=4), torch.randn(2, 3, 64, 64)
    want = model.forward_intermediates(x, [0, 2], intermediates_only=True)
    before = sum(p.numel() for p in model.parameters())
    assert model.prune_intermediate_layers([0, -2], prune_norm=True) == [0, 2]
    assert sum(p.numel() for p in model.parameters()) < before
    assert len(model.blocks) == 3
    for got, y in zip(model.forward_intermediates(x, [0, 2], intermediates_only=True), want, strict=True):
        torch.testing.assert_close(got, y)
    assert model(x).shape == (2, model.num_features)


@some
def test_checkpointing_changes_nothing(name):
    model, x = small(name).train(), torch.randn(2, 3, 64, 64)
    want = model(x).detach(), gradients(model, x)
    model.set_grad_checkpointing(True)
    torch.testing.assert_close((model(x).detach(), gradients(model, x)), want)


@some
def test_images_of_any_size(name):
    model = small(name)
    for size in ((64, 96), (32, 32), (40, 70)):
        assert model(torch.randn(1, 3, *size)).isfinite().all()
    x = torch.randn(2, 3, 96, 64)
    want = model(x)
    model.set_input_size(img_size=(96, 64))
    assert model.patch_embed.grid_size == (6, 4)
    torch.testing.assert_close(model(x), want)  # positions are what they were interpolated to


@some
def test_optimizer_groups(name):
    model = small(name)
    layers = timm.models.group_parameters(model, model.group_matcher(coarse=False), reverse=True)
    assert set(layers) == {parameter for parameter, _ in model.named_parameters()}
    assert layers["patch_embed.proj.weight"] == layers.get("cls_token", 0) == 0
    assert {layers[n] for n in layers if n.startswith("blocks.1.")} == {2}
    assert layers["norm.weight"] == layers["blocks.2.norm1.weight"] == 3
    assert layers["head.weight"] == 4

    optimizer = optim.create_optimizer_v2(model, opt="adamw", lr=1e-3, weight_decay=0.05, layer_decay=0.5)
    group_of = {id(p): group for group in optimizer.param_groups for p in group["params"]}
    for parameter_name, parameter in model.named_parameters():
        group = group_of[id(parameter)]
        assert group["lr_scale"] == 0.5 ** (4 - layers[parameter_name])
        kept = parameter.ndim <= 1 or parameter_name in model.no_weight_decay()
        assert group["weight_decay"] == (0 if kept else 0.05), parameter_name
    gradients(model, torch.randn(2, 3, 64, 64))
    optimizer.step()

    plain = optim.create_optimizer_v2(model, opt="sgd", lr=1e-3, weight_decay=0.05)
    decayed = {id(p) for group in plain.param_groups if group["weight_decay"] for p in group["params"]}
    parameters = dict(model.named_parameters())
    assert model.no_weight_decay() <= set(parameters)
    assert not decayed & {id(parameters[n]) for n in model.no_weight_decay()}
    assert id(parameters["blocks.0.norm1.weight"]) not in decayed
    assert id(parameters["head.weight"]) in decayed


def test_checkpoints(tmp_path):
    name, x = "softmax_tiny_patch16_224", torch.randn(2, 3, 64, 64)
    model, file = small(name), str(tmp_path / "model.safetensors")
    save_file(model.state_dict(), file)
    torch.testing.assert_close(small(name, checkpoint_path=file)(x), model(x))

    where = {"pretrained": True, "pretrained_cfg_overlay": {"file": file, "num_classes": 7}}
    torch.testing.assert_close(small(name, **where)(x), model(x))
    other = small(name, **where, num_classes=3, in_chans=1, img_size=96)
    assert other.pos_embed.shape == (1, 1 + 36, 32)
    torch.testing.assert_close(other.patch_embed.proj.weight, model.patch_embed.proj.weight.sum(1, keepdim=True))
    torch.testing.assert_close(other.blocks.state_dict(), model.blocks.state_dict())

    timm.models.save_for_hf(model, tmp_path / "hub", model_args=SMALL, safe_serialization=True)
    torch.testing.assert_close(timm.create_model(f"local-dir:{tmp_path / 'hub'}", pretrained=True).eval()(x), model(x))

    with pytest.raises(ValueError, match=f"no pretrained weights of {name}; expected pretrained=False, with check"):
        small(name, pretrained=True)


# timm's models with our attention.

KINDS = {
    "plain": {},
    "no class token": {"class_token": False, "global_pool": "avg"},
    "registers": {"reg_tokens": 3, "no_embed_class": True},
    "no biases": {"qkv_bias": False, "proj_bias": False},
    "one bias": {"qkv_bias": False, "init_values": 0.1},
    "norms behind": {"block_fn": vits.ResPostBlock},
    "in parallel": {"block_fn": vits.ParallelThingsBlock},
}


@pytest.mark.parametrize("options", KINDS.values(), ids=KINDS)
def test_converted_to_softmax_is_the_same(options):
    vit, x = small_vit(**options), torch.randn(2, 3, 64, 64)
    want = vit(x)
    assert lion_timm.convert(vit, "softmax") is vit  # in place
    assert not any(isinstance(module, timm.layers.Attention) for module in vit.modules())
    torch.testing.assert_close(vit(x), want, rtol=1e-5, atol=1e-5)


def test_converted_deit_is_the_same():
    deit, x = timm.create_model("deit_tiny_distilled_patch16_224", **SMALL).eval(), torch.randn(2, 3, 64, 64)
    want = deit(x)
    torch.testing.assert_close(lion_timm.convert(deit, "softmax")(x), want, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("variant", lion.VARIANTS)
def test_conversion_keeps_what_fits(variant):
    vit = small_vit(proj_drop_rate=0.1)
    old = copy.deepcopy(vit)
    lion_timm.convert(vit.double(), variant, orders=["snake", "columns"])
    kept = {"own": "qkv", "shared": "v", "complement": "qv"}[lion.VARIANTS[variant].keys]
    for before, after in zip(old.blocks, vit.blocks, strict=True):
        for parameter in ("weight", "bias"):
            parts = dict(zip("qkv", getattr(before.attn.qkv, parameter).double().chunk(3), strict=True))
            rows = getattr(after.attn.in_proj, parameter).split(list(after.attn.columns.values()))
            for name, new in zip(after.attn.columns, rows, strict=True):
                if name in parts:
                    assert torch.equal(new, parts[name]) == (name in kept), name
            torch.testing.assert_close(
                getattr(after.attn.out_proj, parameter).float(), getattr(before.attn.proj, parameter)
            )
        assert after.attn.in_proj.weight.dtype == torch.float64
        assert after.attn.proj_drop.p == 0.1
        assert not after.attn.training
    found = gradients(vit.float().train(), torch.randn(2, 3, 64, 64))
    if lion.VARIANTS[variant].two_sided:  # the last block's output is its first token's, which no walk forward reaches
        for order in (0, 1):
            name = f"blocks.2.attn.decay.directions.0.orders.{order}.bias"
            assert not found[name].any()
            found[name] = torch.ones(1)
    assert_all_learn(vit, found)
    lion.set_form(vit, "full")


@pytest.mark.parametrize("size", [(64, 64), (32, 96), (80, 48)])
def test_a_converted_model_is_ours(size):
    """The weights of one in the other, under the same names; and the paths know the image's shape."""
    vit = lion_timm.convert(small_vit(dynamic_img_size=True), "lion_s", orders=("snake", "transposed_snake"))
    model = small("lion_s_2scan_tiny_patch16_224", pos_embed="learn")
    model.load_state_dict(vit.state_dict())
    x = torch.randn(2, 3, *size)
    torch.testing.assert_close(vit(x), model(x), rtol=1e-4, atol=1e-4)


def test_conversion_options():
    vit = lion_timm.convert(
        small_vit(), "lion_lit", features="elu_plus_one", decay="fixed_diagonal", norm="none", direction="alternating"
    )
    assert [block.attn.direction for block in vit.blocks] == ["forward", "reverse", "forward"]
    chosen = vit.blocks[0].attn.variant
    assert (chosen.features, chosen.decay, chosen.norm) == ("elu_plus_one", "fixed_diagonal", "none")
    decays = {f"blocks.{i}.attn.decay.logit" for i in range(3)}
    assert vit.no_weight_decay() == {"pos_embed", "cls_token", "reg_token", "dist_token"} | decays
    optimizer = optim.create_optimizer_v2(vit, opt="adamw", lr=1e-3, weight_decay=0.05)
    decayed = {id(p) for group in optimizer.param_groups if group["weight_decay"] for p in group["params"]}
    assert not any(id(p) in decayed for name, p in vit.named_parameters() if name in decays)


def test_paths_with_checkpointing():
    """Blocks that run once more in the backward pass know their images, whatever came since; so do copies."""
    vit = small_vit(dynamic_img_size=True).train()
    lion_timm.convert(vit, "lion_d", orders=["columns"])
    batches = torch.randn(2, 3, 32, 96), torch.randn(2, 3, 64, 64)
    want = gradients(vit, *batches)
    vit.set_grad_checkpointing(True)
    torch.testing.assert_close(gradients(vit, *batches), want)
    twin = copy.deepcopy(vit)
    twin(torch.randn(2, 3, 16, 80))
    assert 5 in twin.blocks[0].attn.patches.sizes
    assert 5 not in vit.blocks[0].attn.patches.sizes
    with pytest.raises(ValueError, match="there are 9 patches, but no image of so many has passed"):
        vit.blocks(torch.randn(1, 10, 32))


REFUSED = {
    "qk_norm": ({"qk_norm": True}, {}, r"blocks.0.attn has qk_norm, which LionAttention does not; expected a model w"),
    "scale": ({"scale_attn_norm": True}, {}, "has scale_attn_norm"),
    "dropout": ({"attn_drop_rate": 0.1}, {}, "has attn_drop_rate"),
    "fused": ({"block_fn": vits.ParallelScalingBlock}, {}, "blocks.0 is a ParallelScalingBlock; expected"),
    "differential": ({"attn_layer": "diff"}, {}, "blocks.0 is a Block; expected one with timm's Attention in it"),
    "patches": ({"patch_drop_rate": 0.5}, {"orders": ["snake"]}, "expected a model with patch_drop_rate=0"),
    "variant": ({}, {"variant": "lion"}, "variant is 'lion'; expected one of"),
    "orders": ({}, {"orders": ["snail"]}, "orders is 'snail'; expected one of"),
    "direction": ({}, {"direction": "up"}, "direction is 'up'; expected one of"),
}


@pytest.mark.parametrize(("options", "choices", "message"), REFUSED.values(), ids=REFUSED)
def test_what_cannot_be_converted(options, choices, message):
    vit = vits.VisionTransformer(**{**SMALL, **options})
    with pytest.raises(ValueError, match=message):
        lion_timm.convert(vit, **choices)


def test_refusing_changes_nothing():
    with pytest.raises(TypeError, match="the model is a VisionModel; expected a VisionTransformer of timm's"):
        lion_timm.convert(small("softmax_tiny_patch16_224"))
    vit = small_vit()
    vit.blocks[2].attn.k_norm = torch.nn.LayerNorm(16)
    with pytest.raises(ValueError, match=r"blocks\.2\.attn has qk_norm"):
        lion_timm.convert(vit)
    assert all(isinstance(block.attn, timm.layers.Attention) for block in vit.blocks)


def test_masks_of_a_converted_model():
    vit, x = lion_timm.convert(small_vit()), torch.randn(2, 3, 64, 64)
    with pytest.raises(ValueError, match="attn_mask is given; expected None"):
        vit(x, attn_mask=torch.ones(17, 17, dtype=torch.bool))
    with pytest.raises(ValueError, match="direction is 'both'; expected a model converted with 'forward'"):
        vit(x, is_causal=True)
    causal = lion_timm.convert(small_vit(), direction="forward")
    torch.testing.assert_close(causal(x, is_causal=True), causal(x))
