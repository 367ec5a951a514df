"""Makes ONNX Runtime sessions. Chooses provider, threads and memory, and converts ONNX Runtime's exceptions."""

from __future__ import annotations

import contextlib
import ctypes
import io
import os
import re
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import onnxruntime
from onnxruntime.capi import onnxruntime_pybind11_state as ort_binding

from app.errors import BundleError, EngineFailure, SettingsError
from app.graphs import GraphSpec, TensorSpec
from app.runtime.device import NO_PROVIDER, PROVIDERS, Device, log_device

# An environment variable that ONNX Runtime reads when a session is made. With 1, attention is not fused. For the small
# model, fused and unfused attention are equally fast. For the base size, a step of 32 or 64 rows takes 7 % longer with
# fusion (benchmarks/results/step.json, step_base.json).
UNFUSED_ATTENTION = "ORT_GQA_DISABLE_FLASH_ATTENTION"
# An optimizer that fuses a sum and the norm after it to one operator. On a CPU the fused operator takes five times as
# long as the separate ones. On a GPU it is faster, so graphs for a GPU are exported with the fused operator.
SLOW_FUSION = "SkipLayerNormFusion"
# CUDA's driver library, which is installed with the driver and not in the wheels.
DRIVER = "libcuda.so.1"
# The encoder's attention needs this library. onnxruntime does not report that it is missing.
CUDNN = "libcudnn.so.9"
# Held while environment variables or sys.stdout are changed: threads that load models at once share both.
_PROCESS_STATE = threading.Lock()

# ONNX Runtime's errors derive directly from Exception. Its binding also raises RuntimeError and ValueError.
ORT_ERRORS: tuple[type[Exception], ...] = (
    *(each for each in vars(ort_binding).values() if isinstance(each, type) and issubclass(each, Exception)),
    RuntimeError,
    ValueError,
)


@dataclass(frozen=True)
class SessionOptions:
    """How a session runs its graph.

    device: where the graph runs.
    num_threads: threads that share one of ONNX Runtime's operators; 1 is the calling thread alone.
    operators: path of a library with custom operators that the graph uses.
    provider: options of ONNX Runtime's provider for the device, as pairs of ONNX Runtime's name and the value.
    disabled_optimizers: graph optimizers that do not run, by ONNX Runtime's names.
    config: further entries of ONNX Runtime's session configuration.
    environment: environment variables that are set while the session is made. ONNX Runtime reads some only then.
    """

    device: Device
    num_threads: int
    operators: Path | None = None
    provider: tuple[tuple[str, str], ...] = ()
    disabled_optimizers: tuple[str, ...] = ()
    config: tuple[tuple[str, str], ...] = ()
    environment: tuple[tuple[str, str], ...] = ()


def choose_device(wanted: Literal["auto", "cpu", "cuda"]) -> Device:
    """The device to run on. `auto` chooses the GPU if ONNX Runtime can use one.

    Raises SettingsError if a GPU is required and cannot be used.
    """
    problem = "" if wanted == "cpu" else _problem_with_gpu()
    if wanted == "cuda" and problem:
        raise SettingsError([f"device cuda is required, and {problem}"])
    device: Device = "cpu" if wanted == "cpu" or problem else "cuda"
    log_device(device, wanted, problem)
    return device


def _problem_with_gpu() -> str:
    """Why ONNX Runtime cannot use a GPU on this machine, and what to install; empty if it can."""
    if PROVIDERS["cuda"] not in onnxruntime.get_available_providers():
        return NO_PROVIDER
    missing = _missing_libraries()
    if missing:
        names = ", ".join(missing)
        return f"CUDA's libraries are missing ({names}): pip install -e '.[gpu]' in the checkout brings them"
    if not _can_load(DRIVER):
        return f"there is no NVIDIA driver ({DRIVER}): install one for CUDA 13, version 580 or newer"
    try:
        onnxruntime.OrtValue.ortvalue_from_shape_and_type([1], np.float32, "cuda", 0)
    except ORT_ERRORS as error:
        needs = "a GPU needs an NVIDIA driver for CUDA 13, version 580 or newer"
        return f"no GPU can be used; {needs} ({_cuda_message(error)})"
    return ""


def _missing_libraries() -> list[str]:
    """Names of CUDA's libraries that cannot be loaded. Loads the others, if they are installed as wheels."""
    printed = io.StringIO()
    # preload_dlls prints the libraries that it does not find.
    with _PROCESS_STATE, contextlib.redirect_stdout(printed):
        onnxruntime.preload_dlls()
    missing = {Path(path).name for path in re.findall(r"Failed to load ([^\s:]+)", printed.getvalue())}
    if not missing and not _can_load(CUDNN):
        missing = {CUDNN}
    return sorted(missing)


def _can_load(library: str) -> bool:
    try:
        ctypes.CDLL(library)
    except OSError:
        return False
    return True


def _cuda_message(error: Exception) -> str:
    """CUDA's part of an ONNX Runtime error's message; the message's first line if it has no such part."""
    match = re.search(r"CUDA failure \d+: [^;]+", str(error))
    return match.group().strip() if match else _first_line(error)


def _first_line(error: Exception) -> str:
    """The first line of an error's message; the error's type if the message is empty."""
    return next(iter(str(error).splitlines()), "") or type(error).__name__


class Session:
    """One loaded graph, checked against the manifest."""

    def __init__(self, folder: Path, spec: GraphSpec, options: SessionOptions) -> None:
        """Load a graph from a bundle's folder.

        Raises BundleError if it does not load, does not run on the device, or has other inputs or outputs than the
        manifest says.
        """
        os.environ.setdefault(UNFUSED_ATTENTION, "1")
        self.device: Device = options.device
        self.spec = spec
        try:
            with _PROCESS_STATE, _environment(options.environment):
                self._session = onnxruntime.InferenceSession(
                    str(folder / spec.file),
                    _session_options(options),
                    providers=[(PROVIDERS[options.device], dict(options.provider))],
                    disabled_optimizers=[SLOW_FUSION, *options.disabled_optimizers],
                )
        except ORT_ERRORS as error:
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
        """A new, empty binding of inputs and outputs."""
        return self._session.io_binding()

    def run(self, binding: Any, run_options: Any = None) -> None:
        """Run the graph on bound inputs and outputs. Raises EngineFailure."""
        try:
            self._session.run_with_iobinding(binding, run_options)
        except ORT_ERRORS as error:
            raise EngineFailure(f"the forward pass failed: {_first_line(error)}") from error


@contextlib.contextmanager
def memory_failures() -> Iterator[None]:
    """Turn a MemoryError of the block into an EngineFailure, which fails sentences and not their worker."""
    try:
        yield
    except MemoryError as error:
        raise EngineFailure(str(error) or "there is no memory") from error


@contextlib.contextmanager
def _environment(variables: Sequence[tuple[str, str]]) -> Iterator[None]:
    """Set environment variables, and restore them at the end."""
    before = {name: os.environ.get(name) for name, _ in variables}
    os.environ.update(variables)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


def _session_options(options: SessionOptions) -> Any:
    """ONNX Runtime's options of a session.

    Threads do not spin, because HTTP needs the cores between two steps. The arena keeps as much memory as the largest
    step took. The number of rows and the engine's limits bound the size of a step. Without an arena, memory blocks of
    many shapes fragment the heap and take more memory.
    """
    session_options = onnxruntime.SessionOptions()
    session_options.intra_op_num_threads = options.num_threads
    session_options.inter_op_num_threads = 1
    session_options.enable_cpu_mem_arena = True
    session_options.log_severity_level = 3
    session_options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    # Without this entry, processors with AVX2 and without VNNI saturate sums of int8 products, and translations differ.
    session_options.add_session_config_entry("session.x64quantprecision", "1")
    if options.device == "cuda":
        # A node that falls back to the CPU would copy its inputs and outputs in every step.
        session_options.add_session_config_entry("session.disable_cpu_ep_fallback", "1")
    for name, value in options.config:
        session_options.add_session_config_entry(name, value)
    if options.operators is not None:
        session_options.register_custom_ops_library(str(options.operators))
    return session_options


def _signature_problems(
    file: str, kind: str, expected: tuple[TensorSpec, ...], values: list[Any]
) -> list[str]:
    """The differences between a graph's inputs or outputs and the manifest's."""
    types = {
        "float32": "tensor(float)",
        "float16": "tensor(float16)",
        "int32": "tensor(int32)",
        "int64": "tensor(int64)",
    }
    actual = {value.name: value for value in values}
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
