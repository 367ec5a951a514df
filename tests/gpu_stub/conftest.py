"""The trace of the GPU runner over stand-ins for CUDA's libraries. Skipped without `make gpu-stub` or without gcc."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

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


@pytest.fixture(scope="session")
def trace(tmp_path_factory: pytest.TempPathFactory) -> Trace:
    """What `tests.gpu_stub.rehearsal` does with a model of NUM_LAYERS layers and heads of 64 columns, as XQA needs."""
    if not (PACKAGES / "ready").exists():
        pytest.skip("onnxruntime-gpu is not installed for tests: make gpu-stub")
    if shutil.which("gcc") is None:
        pytest.skip("no gcc")
    folder = tmp_path_factory.mktemp("gpu_stub")
    libraries, bundle_folder, trace_file = folder / "libraries", folder / "bundle", folder / "trace"
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
    run_rehearsal(bundle_folder, libraries=libraries, trace_file=trace_file)
    return Trace(trace_file)


def run_rehearsal(bundle_folder: Path, *, libraries: Path, trace_file: Path) -> None:
    """Run the rehearsal in a process that loads these libraries. Fails with its standard error."""
    environment = os.environ | {
        "PYTHONPATH": f"{PACKAGES}:{ROOT}",
        "LD_LIBRARY_PATH": str(libraries),
        "GPU_STUB_TRACE": str(trace_file),
    }
    command = [sys.executable, "-m", "tests.gpu_stub.rehearsal", str(bundle_folder)]
    done = subprocess.run(
        command, cwd=ROOT, env=environment, check=False, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr
