import pytest
import torch


@pytest.fixture(autouse=True)
def one_thread_and_a_seed():
    torch.set_num_threads(1)  # the tests run in as many processes as there are cores
    torch.manual_seed(0)
