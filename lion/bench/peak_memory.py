"""The peak memory of a piece of work, above the memory in use at its beginning."""

import contextlib
import ctypes
import gc
import threading
import time
from collections.abc import Callable
from pathlib import Path

import torch

STATUS = Path("/proc/self/status")
CLEAR = Path("/proc/self/clear_refs")


def peak_memory(work: Callable[[], object], device: torch.device | None = None) -> int:
    """Bytes that `work` added at its peak: in the device's allocator, or on the CPU in this process."""
    gc.collect()
    _give_back()
    if device is not None and device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)
        before = torch.cuda.memory_allocated(device)
        work()
        return torch.cuda.max_memory_allocated(device) - before
    try:
        CLEAR.write_text("5")  # resets the high-water mark to what is in use now
    except OSError:
        return _sampled(work)
    before = _status("VmRSS")
    work()
    return max(0, _status("VmHWM") - before)


def _give_back() -> None:
    """Make malloc return the memory of earlier work, which would hide what this work takes."""
    with contextlib.suppress(OSError, AttributeError):  # glibc only
        ctypes.CDLL("libc.so.6").malloc_trim(0)


def _status(field: str) -> int:
    for line in STATUS.read_text().splitlines():
        if line.startswith(field + ":"):
            return int(line.split()[1]) * 1024
    raise LookupError(field)


def _sampled(work: Callable[[], object]) -> int:
    """The same by looking every millisecond, where the system has no high-water mark that can be reset."""
    import resource

    page = resource.getpagesize()
    statm = Path("/proc/self/statm")

    def used() -> int:
        if statm.exists():
            return int(statm.read_text().split()[1]) * page
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss  # macOS: bytes, and only ever grows

    before = peak = used()
    done = threading.Event()

    def watch() -> None:
        nonlocal peak
        while not done.is_set():
            peak = max(peak, used())
            time.sleep(0.001)

    watcher = threading.Thread(target=watch, daemon=True)
    watcher.start()
    try:
        work()
        peak = max(peak, used())
    finally:
        done.set()
        watcher.join()
    return peak - before
