"""The devices auto, cpu and cuda: the messages if no GPU is usable, and the fallback of auto."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable
from typing import Any

import onnxruntime
import pytest

from app.errors import SettingsError
from app.runtime import device, machine, session
from app.runtime.device import known_device
from app.runtime.session import choose_device


def print_nothing() -> None:
    pass


def print_missing_libraries() -> None:
    print("Failed to load /somewhere/cu13/lib/libcublas.so.13: no such file")
    print("Failed to load libcurand.so.10: cannot open shared object file")
    print("Please follow the instructions")


def raise_old_driver(*_: Any) -> Any:
    raise RuntimeError(
        "/source/cuda_call.cc:154 void CudaCall() CUDA failure 35: driver too old ; GPU=0\nmore"
    )


# What the machine lacks -> ONNX Runtime's providers, what `preload_dlls` does, the driver's library, and the message.
CASES = {
    "CUDA provider": (
        ["CPUExecutionProvider"],
        print_nothing,
        "libc.so.6",
        r"no CUDA provider: .*pip install -e '\.\[gpu\]'",
    ),
    "CUDA libraries": (
        ["CUDAExecutionProvider"],
        print_missing_libraries,
        "libc.so.6",
        r"libraries are missing \(libcublas\.so\.13, libcurand\.so\.10\): pip install -e '\.\[gpu\]'",
    ),
    "cuDNN": (
        ["CUDAExecutionProvider"],
        print_nothing,
        "libc.so.6",
        r"libraries are missing \(libcudnn\.so\.none\): pip install -e '\.\[gpu\]'",
    ),
    "NVIDIA driver": (
        ["CUDAExecutionProvider"],
        print_nothing,
        "libcuda.so.none",
        r"no NVIDIA driver \(libcuda\.so\.none\): install one for CUDA 13, version 580 or newer",
    ),
    "usable GPU": (
        ["CUDAExecutionProvider"],
        print_nothing,
        "libc.so.6",
        r"no GPU can be used; .* version 580 or newer \(CUDA failure 35: driver too old\)",
    ),
}


@pytest.fixture(params=list(CASES.values()), ids=list(CASES))
def reason(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Simulates a machine that lacks one requirement of a GPU. Returns a part of the expected message."""
    providers, preload, driver, message = request.param
    monkeypatch.setattr(onnxruntime, "get_available_providers", lambda: providers)
    monkeypatch.setattr(onnxruntime, "preload_dlls", preload)
    monkeypatch.setattr(onnxruntime.OrtValue, "ortvalue_from_shape_and_type", raise_old_driver)
    monkeypatch.setattr(session, "DRIVER", driver)
    monkeypatch.setattr(session, "CUDNN", "libcudnn.so.none" if "cudnn" in message else "libc.so.6")
    return str(message)


def test_a_required_gpu_is_an_error_that_says_what_to_install(
    reason: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SettingsError, match=f"device cuda is required, and .*{reason}"):
        choose_device("cuda")
    assert not capsys.readouterr().out


def test_auto_falls_back_to_the_cpu_and_logs_the_reason(
    reason: str, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO):
        assert choose_device("auto") == "cpu"
    (record,) = caplog.records
    assert re.match(rf"running on cpu \(requested: auto; .*{reason}", record.getMessage())


def test_a_requested_cpu_is_logged_without_a_reason(reason: str, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO):
        assert choose_device("cpu") == "cpu"
    assert caplog.messages == ["running on cpu (requested: cpu)"]


def test_auto_uses_a_usable_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    replaced: list[tuple[Any, str, Callable[..., Any]]] = [
        (onnxruntime, "get_available_providers", lambda: ["CUDAExecutionProvider"]),
        (onnxruntime, "preload_dlls", print_nothing),
        (onnxruntime.OrtValue, "ortvalue_from_shape_and_type", lambda *_: None),
    ]
    for owner, name, replacement in replaced:
        monkeypatch.setattr(owner, name, replacement)
    monkeypatch.setattr(session, "DRIVER", "libc.so.6")
    monkeypatch.setattr(session, "CUDNN", "libc.so.6")
    assert choose_device("auto") == choose_device("cuda") == "cuda"


def test_the_device_is_known_without_onnxruntime_unless_a_gpu_is_possible(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO):
        assert known_device("cpu") == "cpu"
        monkeypatch.setattr(machine, "CUDA_PROVIDER", "no such library")
        assert known_device("auto") == "cpu"
        assert caplog.messages == [
            "running on cpu (requested: cpu)",
            f"running on cpu (requested: auto; {device.NO_PROVIDER})",
        ]
        assert known_device("cuda") is None
        monkeypatch.setattr(machine, "CUDA_PROVIDER", "__init__.py")
        assert known_device("auto") is None
    assert len(caplog.messages) == 2
