import contextlib
import importlib.util
import os
from pathlib import Path

import pytest

from lion import amx

amx.avoid()  # before torch starts, here and in the processes that tests start
import torch  # noqa: E402

# Added to the seeds of all tests: they are to pass for every one.
SEED = int(os.environ.get("LION_TEST_SEED", "0"))


def define_missing_operators():
    """timm imports torchvision, and that fails where its own operators were built for another torch or for a GPU."""
    torchvision = importlib.util.find_spec("torchvision")
    if torchvision is None or torchvision.origin is None:
        return None
    for library in Path(torchvision.origin).parent.glob("_C*.so"):
        with contextlib.suppress(OSError):
            torch.ops.load_library(library)
    missing = [name for name in ("nms", "qnms") if not hasattr(torch.ops.torchvision, name)]
    if not missing:
        return None
    library = torch.library.Library("torchvision", "FRAGMENT")
    for name in missing:
        library.define(f"{name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
    return library


LIBRARY = define_missing_operators()  # its operators live as long as it does


@pytest.fixture(autouse=True)
def one_thread_and_a_seed():
    torch.set_num_threads(1)  # the tests run in as many processes as there are cores
    torch.manual_seed(SEED)
