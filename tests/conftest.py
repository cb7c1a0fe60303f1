import os

import pytest

from lion import amx

amx.avoid()  # before torch starts, here and in the processes that tests start
os.environ["LION_OFFLINE"] = "1"  # or runs on texts would fetch MiniLM
import torch  # noqa: E402

from tests import SEED  # noqa: E402


@pytest.fixture(autouse=True)
def one_thread_and_a_seed():
    torch.set_num_threads(1)  # the tests run in as many processes as there are cores
    torch.manual_seed(SEED)
