"""A few attempts of every campaign of tests/torture."""

import importlib

import pytest

from tests import SEED

FEW: dict[str, int] = {  # attempts of each campaign
    "lost_runs": 1,
    "model_files": 4,
    "command_line": 6,
    "json_files": 1,
    "raw_operators": 48,
    "data_files": 4,  # of each format
    "changed_data": 2,
}


@pytest.mark.parametrize("name", FEW)
def test_a_few_attempts(name):
    for campaign in importlib.import_module(f"tests.torture.{name}").run(range(FEW[name]), SEED):
        assert campaign.tried > 0, campaign.name
        assert not campaign.lost, "\n".join(campaign.lost)
