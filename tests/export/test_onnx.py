"""ONNX files of whole models: what they say, and that they say it themselves when they are fed nonsense."""

import re
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn

from lion.models.causal import CausalConfig, CausalModel
from lion.models.encoder import Encoder, encoder_config
from lion.models.long_range import LongConfig, LongModel
from lion.models.registry import create_model
from tests import SEED, THOROUGH

VOCABULARY = 100
KINDS = ["text lion_s", "vision lion_s_2scan"]
KINDS += [
    kind
    for kind in (
        *(f"text {x}" for x in ("lion_lit", "lion_d", "lion_s_diag", "gla", "mamba2", "rwkv6", "deltanet", "xlstm")),
        "long lion_s_diag",
        "series lion_d",
        "causal lion_lit",
        "causal gla",
        "causal xlstm",
        "causal deltanet",
    )
    if THOROUGH
]


def small(kind):
    torch.manual_seed(SEED)
    what, variant = kind.split()
    sizes = {"dim": 16, "heads": 2, "depth": 1}
    if what == "text":
        return Encoder(replace(encoder_config("tiny", variant), **sizes, vocab_size=VOCABULARY))
    if what == "vision":
        pictures = {"patch_size": 8, "image_size": (48, 48), "num_classes": 5}
        return create_model(f"{variant}_tiny_patch16_224", **sizes, **pictures)
    if what == "causal":
        return CausalModel(CausalConfig(variant, **sizes, vocab_size=VOCABULARY, positions="learned", max_tokens=1000))
    given = {"vocab_size": VOCABULARY} if what == "long" else {"channels": 3}
    return LongModel(LongConfig(variant, **sizes, **given))


@pytest.mark.parametrize("kind", KINDS)
def test_file_answers_as_torch_does(kind, tmp_path):
    """`onnx` itself compares, at lengths of 1 to 1,000, with padding anywhere; what it has found is small."""
    from lion.export import onnx

    path = tmp_path / "deep" / "model.onnx"
    checked = onnx(small(kind), path)
    assert checked.trials >= 10
    assert checked.worst < 2e-5
    assert [x.name for x in path.parent.iterdir()] == ["model.onnx"]
    assert operators(path) <= {"lion", ""}  # nothing that one runtime has and another has not
    if kind == "text lion_s":
        assert "out of data bounds" in problem_of(path, VOCABULARY)


def operators(path):
    """The domains of all operators of a file."""
    import onnx

    model = onnx.load(path)
    names = {function.name for function in model.functions}
    assert {node.op_type for node in model.graph.node if node.domain == "lion"} <= names
    return {node.domain for part in (model.graph, *model.functions) for node in part.node}


def problem_of(path, token):
    from lion.export.onnx_files import session

    ids = np.full((1, 3), token)
    with pytest.raises(Exception, match="Gather") as problem:
        session(path).run(None, {"input_ids": ids, "attention_mask": np.ones_like(ids)})
    return str(problem.value)


def test_generation(tmp_path):
    """A prompt, and then a token at a time, with the states that the file gives: the tokens that torch generates."""
    from lion.export import onnx
    from lion.export.onnx_files import session

    model, path = small("causal lion_s").eval(), tmp_path / "model.onnx"
    onnx(model, path, check=False)
    running = session(path)
    prompt = torch.randint(VOCABULARY, (2, 11))
    mask = torch.ones(2, 11, dtype=torch.long)
    mask[1, :4] = 0
    with torch.no_grad():
        hidden, states = model.prefill(prompt, mask.bool())
        want = [model.logits(hidden[:, -1]).argmax(-1)]
        for _ in range(49):
            hidden, states = model.step(want[-1], states)
            want.append(model.logits(hidden).argmax(-1))
    given = {"input_ids": prompt.numpy(), "attention_mask": mask.numpy()}
    for port in running.get_inputs()[2:]:
        shape = [2, *port.shape[1:]]
        given[port.name] = np.zeros(shape, np.int64 if "int64" in port.type else np.float32)
    got = []
    for _ in range(50):
        logits, *states = running.run(None, given)
        got.append(torch.from_numpy(logits.argmax(-1)))
        names = (port.name.replace("present", "past") for port in running.get_outputs()[1:])
        behind = dict(zip(names, states, strict=True))
        given |= {"input_ids": got[-1][:, None].numpy(), "attention_mask": np.ones((2, 1), np.int64), **behind}
    assert torch.equal(torch.stack(got), torch.stack(want))


def test_nothing_is_written_of_what_cannot_be_exported(tmp_path):
    from lion.export import onnx

    with pytest.raises(ValueError, match=re.escape("a Linear cannot be exported; expected one of lion's models: ")):
        onnx(nn.Linear(2, 2), tmp_path / "model.onnx")
    with pytest.raises(ValueError, match="variant is 'softmax', which has no state of fixed size"):
        onnx(small("causal softmax"), tmp_path / "model.onnx")
    assert not list(tmp_path.iterdir())


def test_differences_are_found():
    from lion.export.subjects import subject_of
    from lion.export.trials import check, difference

    subject = subject_of(small("text lion_d").eval())

    def wrong(inputs):
        out = subject.module(*inputs)
        return [out + 1e-3 * out.abs().max() * (out == out.max())]  # a single number

    message = (
        r"the file differs from torch at batch 1, length 1: hidden by 1.0e-03 of its scale; expected at most 1e-04"
    )
    with torch.no_grad(), pytest.raises(ValueError, match=message):
        check(wrong, subject, "the file")
    nan, one = torch.tensor([1.0, torch.nan]), torch.tensor([1.0, 2.0])
    assert np.isnan(difference(nan, one))
    assert difference(nan, nan) == 0
