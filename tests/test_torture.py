"""A few attempts of every campaign of tests/torture."""

import importlib

import pytest

from tests import SEED

FEW: dict[str, int] = {  # attempts of each campaign
    "lost_runs": 3,
    "changed_data": 7,
    "model_files": 12,  # of each kind of model
    "command_line": 40,
    "json_files": 4,  # of each file
    "data_files": 40,  # of each format
    "raw_operators": 480,
}


@pytest.mark.parametrize("name", FEW)
def test_a_few_attempts(name):
    for campaign in importlib.import_module(f"tests.torture.{name}").run(range(FEW[name]), SEED):
        assert campaign.tried > 0, campaign.name
        assert not campaign.lost, "\n".join(campaign.lost)
