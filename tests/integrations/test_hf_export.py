"""torch.export of models for transformers: exported once, run at any batch size and length."""

import pytest
import torch
from torch.export import Dim, export

pytest.importorskip("transformers")
pytest.importorskip("lion.integrations.hf")
from lion.integrations.hf import LionForCausalLM, LionForSequenceClassification
from tests.integrations.hf_small import small, tokens


def padded(B, T):
    lengths = torch.arange(B)[:, None] % 3 * (T // 4)
    return tokens(B, T), (torch.arange(T) < T - lengths).long()


@pytest.mark.parametrize(
    ("kind", "variant", "positions"),
    [
        (LionForSequenceClassification, "lion_s", "none"),
        (LionForSequenceClassification, "softmax", "learned"),
        (LionForCausalLM, "lion_s", "learned"),
    ],
)
def test_any_batch_and_length(kind, variant, positions):
    model = small(kind, variant, positions=positions, num_hidden_layers=1)
    model.config.use_cache = False  # a cache is no tensor
    names = ("input_ids", "attention_mask")
    dims = {0: Dim("batch", max=64), 1: Dim("length", min=2, max=500)}
    program = export(
        model, (), dict(zip(names, padded(3, 9), strict=True)), dynamic_shapes=dict.fromkeys(names, dims)
    ).module()
    for shape in ((3, 9), (1, 5), (5, 70)):
        ids, mask = padded(*shape)
        got, want = program(input_ids=ids, attention_mask=mask), model(ids, mask)
        assert got.keys() == want.keys()
        for name, x in want.items():
            torch.testing.assert_close(got[name], x, rtol=1e-9, atol=1e-9)
