"""ONNX Runtime sessions: provider, threads and memory are chosen here, and its exceptions end here."""

from __future__ import annotations

import contextlib
import ctypes
import io
import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import onnxruntime
from onnxruntime.capi import onnxruntime_pybind11_state as native

from app.errors import BundleError, EngineFailure, SettingsError
from app.graphs import GraphSpec, TensorSpec
from app.runtime.device import NO_PROVIDER, Device, log_device

PROVIDERS: dict[Device, str] = {"cpu": "CPUExecutionProvider", "cuda": "CUDAExecutionProvider"}
# Read when a session is made. One matrix product a row and head was level with the fused kernel for the small
# model and took 7 % less of a step for the base size at 32 and 64 rows (benchmarks/results/step.json, step_base.json).
UNFUSED_ATTENTION = "ORT_GQA_DISABLE_FLASH_ATTENTION"
# Puts sums and norms into one operator, which on a CPU takes five times as long as they do. Graphs for a GPU,
# where it does not, are exported with that operator.
SLOW_FUSION = "SkipLayerNormFusion"
# The part of CUDA that comes with the driver and not with the wheels.
DRIVER = "libcuda.so.1"
# The encoder's attention needs it; onnxruntime itself says nothing where it is missing.
CUDNN = "libcudnn.so.9"

# Each of ONNX Runtime's own errors derives from Exception directly; its binding raises the other two as well.
NATIVE_ERRORS: tuple[type[Exception], ...] = (
    *(found for found in vars(native).values() if isinstance(found, type) and issubclass(found, Exception)),
    RuntimeError,
    ValueError,
)


@dataclass(frozen=True)
class SessionOptions:
    """How sessions run.

    device: where the graphs run.
    num_threads: threads that share the work of one of ONNX Runtime's operators; 1 is the calling thread alone.
    operators: a library of further operators that the graphs are made of.
    provider: options of ONNX Runtime's provider for the device, by its names.
    """

    device: Device
    num_threads: int
    operators: Path | None = None
    provider: tuple[tuple[str, str], ...] = ()


def choose_device(wanted: Literal["auto", "cpu", "cuda"]) -> Device:
    """The device to run on: `auto` is the GPU where ONNX Runtime can use one.

    Raises SettingsError where a GPU is asked for and there is none.
    """
    problem = "" if wanted == "cpu" else _problem_with_gpu()
    if wanted == "cuda" and problem:
        raise SettingsError([f"device cuda was asked for, and {problem}"])
    device: Device = "cpu" if wanted == "cpu" or problem else "cuda"
    log_device(device, wanted, problem)
    return device


def _problem_with_gpu() -> str:
    """Why ONNX Runtime cannot use a GPU here, and what to install; empty where it can."""
    if PROVIDERS["cuda"] not in onnxruntime.get_available_providers():
        return NO_PROVIDER
    missing = _missing_libraries()
    if missing:
        told = ", ".join(missing)
        return f"CUDA's libraries are missing ({told}): pip install -e '.[gpu]' in the checkout brings them"
    if not _can_load(DRIVER):
        return f"there is no NVIDIA driver ({DRIVER}): install one for CUDA 13, 580 or newer"
    try:
        onnxruntime.OrtValue.ortvalue_from_shape_and_type([1], np.float32, "cuda", 0)
    except NATIVE_ERRORS as error:
        return f"no GPU can be used, which takes an NVIDIA driver for CUDA 13, 580 or newer ({_told_by_cuda(error)})"
    return ""


def _missing_libraries() -> list[str]:
    """CUDA's libraries that cannot be loaded. The others are, where they came as wheels beside onnxruntime."""
    told = io.StringIO()
    with contextlib.redirect_stdout(told):  # it prints what it does not find
        onnxruntime.preload_dlls()
    missing = {Path(path).name for path in re.findall(r"Failed to load ([^\s:]+)", told.getvalue())}
    if not missing and not _can_load(CUDNN):
        missing = {CUDNN}
    return sorted(missing)


def _can_load(library: str) -> bool:
    try:
        ctypes.CDLL(library)
    except OSError:
        return False
    return True


def _told_by_cuda(error: Exception) -> str:
    """CUDA's own words, where onnxruntime wraps them in its own."""
    found = re.search(r"CUDA failure \d+: [^;]+", str(error))
    return found.group().strip() if found else _first_line(error)


def _first_line(error: Exception) -> str:
    """The first line of an error's message; its type's name where it has none."""
    return next(iter(str(error).splitlines()), "") or type(error).__name__


class Session:
    """One graph, loaded and checked against the manifest."""

    def __init__(self, folder: Path, spec: GraphSpec, options: SessionOptions) -> None:
        """Load a graph of a bundle's folder.

        Raises BundleError for one that does not load or is not what the manifest says.
        """
        os.environ.setdefault(UNFUSED_ATTENTION, "1")
        self.device: Device = options.device
        self.spec = spec
        try:
            self._session = onnxruntime.InferenceSession(
                str(folder / spec.file),
                _session_options(options),
                providers=[(PROVIDERS[options.device], dict(options.provider))],
                disabled_optimizers=[SLOW_FUSION],
            )
        except NATIVE_ERRORS as error:
            raise BundleError(folder.name, [f"{spec.file} does not load: {_first_line(error)}"]) from error
        if PROVIDERS[options.device] not in self._session.get_providers():
            raise BundleError(folder.name, [f"{spec.file} does not run on {options.device}"])
        problems = [
            *_signature_problems(spec.file, "input", spec.inputs, self._session.get_inputs()),
            *_signature_problems(spec.file, "output", spec.outputs, self._session.get_outputs()),
        ]
        if problems:
            raise BundleError(folder.name, problems)

    def binding(self) -> Any:
        """A new set of bound inputs and outputs."""
        return self._session.io_binding()

    def run(self, binding: Any, run_options: Any = None) -> None:
        """Run the graph on what is bound. Raises EngineFailure."""
        try:
            self._session.run_with_iobinding(binding, run_options)
        except NATIVE_ERRORS as error:
            raise EngineFailure(f"the forward pass failed ({type(error).__name__})") from error


def _session_options(options: SessionOptions) -> Any:
    """Threads do not spin: whoever answers HTTP needs the cores between two steps.

    The arena keeps the largest step's memory for good. What a step can be is bounded by the number of rows and
    the engine's limits, and without it the fragments of many shapes take more.
    """
    found = onnxruntime.SessionOptions()
    found.intra_op_num_threads = options.num_threads
    found.inter_op_num_threads = 1
    found.enable_cpu_mem_arena = True
    found.log_severity_level = 3
    found.add_session_config_entry("session.intra_op.allow_spinning", "0")
    if options.device == "cuda":
        # A node that the GPU cannot take would copy its inputs back and forth at every step.
        found.add_session_config_entry("session.disable_cpu_ep_fallback", "1")
    if options.operators is not None:
        found.register_custom_ops_library(str(options.operators))
    return found


def _signature_problems(
    file: str, kind: str, expected: tuple[TensorSpec, ...], found: list[Any]
) -> list[str]:
    """How a graph's inputs or outputs differ from the manifest's."""
    types = {
        "float32": "tensor(float)",
        "float16": "tensor(float16)",
        "int32": "tensor(int32)",
        "int64": "tensor(int64)",
    }
    actual = {value.name: value for value in found}
    problems = [
        f"{file} has the unexpected {kind} {name}"
        for name in sorted(set(actual) - {s.name for s in expected})
    ]
    for spec in expected:
        value = actual.get(spec.name)
        if value is None:
            problems.append(f"{file} has no {kind} {spec.name}")
        elif types.get(spec.dtype) != value.type:
            problems.append(f"{file}: {kind} {spec.name} is {value.type}, the manifest says {spec.dtype}")
        elif tuple(value.shape) != spec.axes:
            problems.append(
                f"{file}: {kind} {spec.name} has axes {value.shape}, the manifest says {list(spec.axes)}"
            )
    return problems
