"""timm's own tests of its models, run on ours: those of its tests/test_models.py that take any model's name.

`python tests/neighbours.py timm` fetches them. Without them test_timm.py and test_timm_contract.py check the same.

These of timm's take any name, and are left out:
- test_model_default_cfgs is for models whose features are maps. Ours are tokens, and timm has another for such, as it
  has for its own vision transformers: test_model_default_cfgs_non_std.
- test_model_forward_features leaves out those same models.
- test_model_load_pretrained, test_model_features_pretrained, test_model_inference download weights, and we have none.
"""

import functools
import importlib.util
import inspect
from types import ModuleType
from typing import Any

import pytest
import torch

from tests import SEED, THOROUGH, neighbours

lion_timm = pytest.importorskip("lion.integrations.timm")
timm = pytest.importorskip("timm")

CHECKS = (
    "test_model_forward",
    "test_model_backward",
    "test_model_default_cfgs_non_std",
    "test_model_forward_torchscript",
    "test_model_forward_intermediates",
    "test_model_forward_intermediates_features",
    "test_prune_intermediate_layers_contract",
    "test_model_forward_fx",
    "test_model_backward_fx",
    "test_model_forward_fx_torchscript",
)
ARGUMENTS = {"batch_size": 2, "cfg_device": "meta"}  # of those that take them
OURS = ("lion_lit", "lion_s_2scan", "softmax", "deit_distilled", "deltanet")
OURS += ("lion_d", "lion_s", "mamba", "hydra", "rwkv6", "vim") if THOROUGH else ()  # made of the same parts
NAMES = ["vit_tiny_patch16_224", *(f"{name}_tiny_patch16_224" for name in OURS)]  # timm's own first: the bar


class NoMarks:
    """In place of pytest.mark: this project's tests have no markers but pytest's, and would refuse timm's."""

    def __getattr__(self, name: str) -> Any:
        return lambda *args, **options: args[0] if args and callable(args[0]) else lambda test: test


@functools.cache
def timms_tests() -> ModuleType:
    path = neighbours.folder("timm") / "test_models.py"
    if not path.is_file():
        pytest.skip(f"{path} is not there: python tests/neighbours.py timm")
    spec = importlib.util.spec_from_file_location("timms_tests", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pytest, "mark", NoMarks())
        spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("check", CHECKS)
def test_timms_own(monkeypatch, check, name):
    tests = timms_tests()
    if not hasattr(tests, check):
        pytest.skip(f"timm {timm.__version__} has no {check}")
    # Blocks are all alike: with three of them, as many as timm wants of feature maps, there is nothing less to check.
    monkeypatch.setattr(tests, "create_model", functools.partial(timm.create_model, depth=3))
    torch.manual_seed(SEED)
    test = getattr(tests, check)
    takes = inspect.signature(test).parameters
    test(name, **{argument: value for argument, value in ARGUMENTS.items() if argument in takes})
