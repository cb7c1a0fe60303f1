"""The device that commands take."""

import pytest
import torch

from lion import devices


def test_the_default_is_the_gpu_if_there_is_one(monkeypatch):
    assert devices.chosen("cpu") == torch.device("cpu")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert devices.chosen() == torch.device("cpu")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(devices, "devices", lambda: {"cpu": None, "cuda": None})
    assert devices.chosen() == torch.device("cuda")


def test_devices_that_are_not_there(monkeypatch):
    with pytest.raises(ValueError, match="--device moon cannot be used: torch knows no such device"):
        devices.chosen("moon")
    monkeypatch.setattr(devices, "devices", lambda: {"cuda": "no usable GPU or driver was found"})
    with pytest.raises(ValueError, match="--device cuda:0 cannot be used: no usable GPU or driver was found"):
        devices.chosen("cuda:0")
    monkeypatch.setattr(devices, "devices", lambda: {"cuda": None})
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    assert devices.chosen("cuda:1").index == 1
    for index in ("2", "x", "-1"):
        with pytest.raises(ValueError, match=f"--device cuda:{index} cannot be used: there are 2, counted from 0"):
            devices.chosen(f"cuda:{index}")
