"""The recipes for text. (`printed.py` has their numbers.)"""

from dataclasses import replace

import pytest
import torch

from lion import recipes
from lion.models.encoder import Encoder


def test_a_small_hydra_has_as_many_parameters_as_the_others():
    counts = []
    for variant in ("softmax", "hydra"):
        with torch.device("meta"):
            model = Encoder(replace(recipes.recipe(f"mlm.{variant}").task.model, vocab_size=8192))
        counts.append(sum(x.numel() for x in model.layers.parameters()))
    assert counts[1] == pytest.approx(counts[0], rel=0.05)
