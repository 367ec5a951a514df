"""Traces of the GPU runner over stand-ins for CUDA's libraries. Skipped without `make gpu-stub` or without gcc."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest

from app.bundle import MANIFEST
from tests.export.tiny import random_model
from tests.gpu_stub.build import build
from tests.gpu_stub.trace import Trace
from tests.house_rules.project import ROOT
from tests.runtime.host_cuda import one_variant

# The folder with onnxruntime-gpu that `make gpu-stub` fills.
PACKAGES = ROOT / "build" / "gpu-stub"
NUM_LAYERS = 2


class Stub(NamedTuple):
    """Folders of the stand-ins' libraries and of a bundle."""

    libraries: Path
    bundle: Path


@pytest.fixture(scope="session")
def stub(tmp_path_factory: pytest.TempPathFactory) -> Stub:
    """The bundle's model has NUM_LAYERS layers, and heads of 64 columns, which the attention kernel XQA needs."""
    if not (PACKAGES / "ready").exists():
        pytest.skip("onnxruntime-gpu is not installed for tests: make gpu-stub")
    if shutil.which("gcc") is None:
        pytest.skip("no gcc")
    folder = tmp_path_factory.mktemp("gpu_stub")
    libraries, bundle_folder = folder / "libraries", folder / "bundle"
    libraries.mkdir()
    build(
        libraries,
        provider=PACKAGES / "onnxruntime" / "capi" / "libonnxruntime_providers_cuda.so",
        headers=PACKAGES / "nvidia" / "cu13" / "include",
    )
    bundle_folder.mkdir()
    model = random_model(
        d_model=128, num_heads=2, num_encoder_layers=NUM_LAYERS, num_decoder_layers=NUM_LAYERS
    )
    bundle = one_variant(model, "fp16", bundle_folder)
    (bundle_folder / MANIFEST).write_text(bundle.manifest.model_dump_json(), "utf-8")
    return Stub(libraries, bundle_folder)


@pytest.fixture(scope="session")
def trace(stub: Stub, tmp_path_factory: pytest.TempPathFactory) -> Trace:
    """What `tests.gpu_stub.rehearsal` does."""
    return trace_of("rehearsal", stub, tmp_path_factory.mktemp("rehearsal"))


@pytest.fixture(scope="session")
def two_models(stub: Stub, tmp_path_factory: pytest.TempPathFactory) -> Trace:
    """What `tests.gpu_stub.two_models` does."""
    return trace_of("two_models", stub, tmp_path_factory.mktemp("two_models"))


def trace_of(script: str, stub: Stub, folder: Path) -> Trace:
    """Run a script of tests.gpu_stub in a process that loads the stand-ins. Fails with its standard error.

    folder: an empty one, for the trace.
    """
    environment = os.environ | {
        "PYTHONPATH": f"{PACKAGES}:{ROOT}",
        "LD_LIBRARY_PATH": str(stub.libraries),
        "GPU_STUB_TRACE": str(folder / "trace"),
    }
    command = [sys.executable, "-m", f"tests.gpu_stub.{script}", str(stub.bundle)]
    done = subprocess.run(
        command, cwd=ROOT, env=environment, check=False, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr
    assert "Exception ignored" not in done.stderr, done.stderr  # raised by a destructor
    return Trace(folder / "trace")
