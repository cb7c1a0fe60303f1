"""Image models leave Python: torch.compile, torch.export and TorchScript, for any number of images of any size."""

import io

import pytest
import torch
from torch.export import Dim

import lion
from lion.models.registry import create_model
from lion.models.scripting import likeness
from tests import SEED, THOROUGH

SMALL = {"dim": 32, "heads": 2, "depth": 1, "patch_size": 8, "image_size": (48, 48), "num_classes": 5}
SHAPES = [(3, 3, 40, 52), (1, 3, 48, 48), (2, 3, 64, 33), (5, 3, 9, 90), (2, 3, 200, 150)]
# What is around the layers; tests/nn/test_graphs.py exports those.
KINDS = ["softmax", "lion_s_2scan", "deit_distilled"]
KINDS += [x for x in ("mamba2_2scan", "hydra", "vim", *lion.VARIANTS) if THOROUGH and x not in KINDS]


def small(kind, **changes):
    torch.manual_seed(SEED)
    return create_model(f"{kind}_tiny_patch16_224", **SMALL | changes).double().eval()


def assert_same(got, model):
    for shape in SHAPES:
        x = torch.randn(shape).double()
        torch.testing.assert_close(got(x), model(x), rtol=1e-9, atol=1e-10, msg=lambda m, at=shape: f"{at}: {m}")


@pytest.mark.parametrize("kind", ["softmax", "lion_s_2scan"] if THOROUGH else ["lion_s_2scan"])
def test_compile_for_images_of_any_size(kind):
    """As one graph: positions and paths are made inside."""
    model = small(kind)
    assert_same(torch.compile(model, backend="eager", fullgraph=True, dynamic=True), model)


@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor")  # torch's own, from inside its scan
@pytest.mark.parametrize("kind", KINDS)
def test_export_for_images_of_any_size(kind):
    model, patch = small(kind), SMALL["patch_size"]
    sides = {axis: Dim(name, min=patch + 1, max=4096) for axis, name in ((2, "height"), (3, "width"))}
    sizes = {"x": {0: Dim("batch", min=1, max=64), **sides}}  # from two patches on: torch.export takes 1 for a constant
    program = torch.export.export(model, (torch.randn(SHAPES[0]).double(),), dynamic_shapes=sizes)
    operators = {str(node.target) for node in program.graph.nodes if node.op == "call_function"}
    assert not any("lion" in name for name in operators)  # any runtime has torch's own
    assert_same(program.module(), model)


@pytest.mark.parametrize("kind", ["lion_lit", "deltanet"])
def test_script(kind):
    """Saved and loaded, too; and the model that it was made of is what it was."""
    model = small(kind, depth=2)
    layers, weights = repr(model), model.state_dict()
    scripted = torch.jit.script(model)
    assert repr(model) == layers
    assert set(scripted.state_dict()) == set(weights)
    torch.testing.assert_close(dict(scripted.state_dict()), dict(weights), rtol=0, atol=0)
    file = io.BytesIO()
    torch.jit.save(scripted, file)
    file.seek(0)
    for got in (scripted, torch.jit.load(file)):
        assert_same(got, model)
        one_patch = torch.randn(1, 3, 8, 8).double()
        torch.testing.assert_close(got(one_patch), model(one_patch), rtol=1e-9, atol=1e-10)


def test_script_shares_the_weights():
    model = small("lion_lit")
    scripted = torch.jit.script(model)
    with torch.no_grad():
        model.blocks[0].attn.in_proj.weight.mul_(2)
    assert_same(scripted, model)


def test_script_of_a_distilled_model_in_training():
    model = small("deit_distilled").train()
    model.set_distilled_training()
    x = torch.randn(2, 3, 48, 48).double()
    torch.testing.assert_close(torch.jit.script(model)(x), model(x))


def test_layers_with_one_graph_are_alike():
    """Weights do not matter; whatever changes the graph does."""
    a, b = (small("lion_lit").blocks[0].attn for _ in range(2))
    with torch.no_grad():
        b.in_proj.weight.zero_()
    assert likeness(a) == likeness(b)
    others = [
        small("lion_lit", norm="none"),
        small("lion_lit", double_diagonal=True),
        small("lion_lit", features="relu"),
        small("lion_lit", direction="forward", pool="mean"),
        small("lion_lit", dim=64),
        small("lion_lit").float(),
        small("lion_lit").train(),
        lion.set_form(small("lion_lit"), "full"),
        lion.set_form(small("lion_lit"), "scan", chunk_size=16),
    ]
    assert len({likeness(x) for x in (a, *(model.blocks[0].attn for model in others))}) == 1 + len(others)
