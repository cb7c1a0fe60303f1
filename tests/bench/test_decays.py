"""`lion bench decays`, on models that have hardly learned anything."""

import json
import math
import shutil
from dataclasses import replace

import numpy as np
import pytest
import torch

from lion.bench import decays
from lion.cli import main
from lion.models.encoder import Encoder, EncoderConfig
from lion.models.registry import MODELS
from lion.models.saving import load_model, save_model
from lion.models.vision import VisionModel
from lion.tasks.images import ImageTask
from lion.train.loop import train
from tests import SEED
from tests.train.runs import small

OTHERS = {"lion_d": {}, "lion_s_2scan": {"two_sided": True}, "lion_lit": {}}


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """A run, and copies of it with other models in them."""
    folder = tmp_path_factory.mktemp("runs")
    run = small("digits.lion_s", steps="2", model__depth="2")
    train(run, folder / "lion_s")
    config = load_model(folder / "lion_s" / "model").config
    torch.manual_seed(SEED)
    for name, changes in OTHERS.items():
        named = MODELS[f"{name}_tiny_patch16_224"]
        model = VisionModel(replace(config, variant=named.variant, orders=named.orders, **changes))
        with torch.no_grad():
            for layer in decays.attentions(model):
                for x in layer.decay.parameters():
                    x += torch.randn_like(x)
        shutil.copytree(folder / "lion_s", folder / name)
        save_model(model, folder / name / "model")
    return {name: folder / name for name in ("lion_s", *OTHERS)}


def half_life(logit):
    return math.log(2) / -torch.nn.functional.logsigmoid(logit)


def test_the_command(runs, tmp_path, capsys):
    pytest.importorskip("matplotlib")
    where = tmp_path / "deep" / "decays.json"
    folders = [str(runs["lion_d"]), str(runs["lion_s"])]
    assert main(["bench", "decays", *folders, "--examples", "3", "--json", str(where)]) == 0
    out = capsys.readouterr().out
    found = json.loads(where.read_text())
    assert [(x["run"], x["layer"], x["head"]) for x in found["results"]] == [
        (folder, layer, head) for folder in folders for layer in (1, 2) for head in (1, 2)
    ]
    model = load_model(runs["lion_d"] / "model")
    for x in found["results"][:4]:
        logit = model.blocks[x["layer"] - 1].attn.decay.logit[x["head"] - 1]
        assert x["half_life"] == x["low"] == x["high"] == pytest.approx(float(half_life(logit.detach())), rel=1e-5)
        began = 1 - 2 ** -(5.0 if x["head"] == 1 else 12.0)
        assert x["first"] == pytest.approx(math.log(0.5) / math.log(began), rel=1e-3)
        assert x["half_life"] != pytest.approx(x["first"], rel=1e-3)
    assert all(x["low"] < x["half_life"] < x["high"] for x in found["results"][4:])
    assert [x["variant"] for x in found["runs"]] == ["lion_d", "lion_s"]
    assert found["runs"][0]["across_layers_first"] == 1
    assert found["runs"][0]["across_layers"] > 1
    assert f"{folders[0]}: the 90th percentile of all heads' half-lives is" in out
    assert where.with_suffix(".png").stat().st_size > 1000


def test_fixed_decays_need_no_data(runs, monkeypatch):
    monkeypatch.setattr(ImageTask, "eval_set", lambda self: pytest.fail("it was read"))
    assert len(decays.look(runs["lion_d"], 3)) == 4


def test_selective_decays_are_those_of_the_inputs(runs):
    records = decays.look(runs["lion_s"], 5)
    model = load_model(runs["lion_s"] / "model").eval()
    examples = ImageTask("digits").eval_set()
    places = np.linspace(0, len(examples) - 1, 5).round().astype(int)
    images = examples.__getitems__([(0, int(i)) for i in places])["image"]
    layers, _ = decays.watched(model, lambda: model(images))
    for x in records:
        block = layers[x["layer"] - 1]
        with torch.no_grad():
            lives = decays.half_lives(block.attention.tokens(block.x).log_decay)[:, x["head"] - 1]
        assert len(lives) == 5 * 17  # patches, and the class token
        assert [x["low"], x["half_life"], x["high"]] == pytest.approx(np.quantile(lives, decays.SHARES), rel=1e-4)


def test_each_direction_and_each_order_has_its_own(runs, tmp_path):
    records = decays.look(runs["lion_s_2scan"], 2)
    assert {(x["direction"], x["head"]) for x in records} == {
        (s, n) for s in ("forward", "reverse") for n in range(1, 5)
    }
    decays.draw(records, tmp_path / "a.png")
    assert (tmp_path / "a.png").stat().st_size > 1000


def test_half_lives_by_rank():
    fixed = torch.tensor([0.5, 0.25]).log()
    assert decays.half_lives(fixed).tolist() == [pytest.approx([1.0, 0.5])]
    diagonal = fixed[:, None].expand(2, 3)
    for log_decay in (diagonal, diagonal.expand(4, 5, 2, 3), fixed.expand(4, 5, 2)):
        lives = decays.half_lives(log_decay)
        assert lives.shape == (log_decay.numel() // 2, 2)
        torch.testing.assert_close(lives, torch.tensor([1.0, 0.5]).expand_as(lives))
    assert decays.half_lives(torch.zeros(1)).isfinite().all()


@pytest.mark.parametrize("variant", ["lion_s", "lion_s_diag"])
def test_padding_is_left_out(variant):
    config = EncoderConfig(variant, vocab_size=50, dim=16, depth=1, heads=2, mlp_dim=16)
    model = Encoder(replace(config, dropout=0.0)).eval()
    ids = torch.randint(50, (2, 6))
    mask = torch.tensor([[True] * 6, [True] * 2 + [False] * 4])
    (layer,), _ = decays.watched(model, lambda: model(ids, mask))
    (alone,), _ = decays.watched(model, lambda: model(ids[1:, :2]))
    (whole,), _ = decays.watched(model, lambda: model(ids[:1]))
    found = decays._by_direction(layer.log_decay, layer.options["mask"])[""]
    want = np.concatenate([decays._by_direction(x.log_decay)[""] for x in (whole, alone)])
    np.testing.assert_allclose(found, want, rtol=1e-4)


def test_models_of_transformers_kind():
    pytest.importorskip("transformers")
    from lion.integrations.hf import LionForMaskedLM
    from tests.integrations.hf_small import small, tokens

    model = small(LionForMaskedLM, "lion_d")  # whose decays differ from those it began with
    first = torch.tensor([1 - 2**-5.0, 1 - 2**-12.0]).log()
    assert [x.allclose(first, rtol=1e-2) for x in decays.untrained(model)] == [True, True]
    layers, _ = decays.watched(model, lambda: model(tokens(2, 5)))
    assert [x.attention for x in layers] == decays.attentions(model)
    for layer in layers:
        assert layer.log_decay.equal(decays.constant(layer.attention))
        assert not layer.log_decay.float().allclose(first, rtol=1e-2)


def test_variety():
    now, first = [[1, 10], [3, 40]], [[1, 10], [1, 10]]  # by layer and head
    records = [
        {"layer": i, "head": j, "direction": "", "half_life": now[i][j], "first": first[i][j]}
        for i in range(2)
        for j in range(2)
    ]
    found = decays.variety(records)
    assert found["across_layers"] == 3.5  # of 3 and 4
    assert found["across_layers_first"] == 1
    low, high = np.quantile([1, 3, 10, 40], [0.1, 0.9])
    assert found["range"] == pytest.approx(high / low)
    assert found["range_first"] == 10


def test_what_is_refused(runs, tmp_path, capsys):
    assert main(["bench", "decays", str(runs["lion_lit"])]) == 1
    assert f"the model in {runs['lion_lit']} has no layer with decays" in capsys.readouterr().err
    assert main(["bench", "decays", str(tmp_path)]) == 1
    assert "there is no run in" in capsys.readouterr().err
    assert main(["bench", "decays", str(runs["lion_d"]), "--examples", "0"]) == 1
    assert "--examples is '0'; expected a whole number from 1" in capsys.readouterr().err
    with pytest.raises(ValueError, match="there is no run; expected folders"):
        decays.run([])
