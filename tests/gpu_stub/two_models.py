"""Serves two models on one GPU over the stand-ins: python -m tests.gpu_stub.two_models FOLDER.

The environment variables are as for `tests.gpu_stub.rehearsal`. Each model is loaded several times, as by reloads.
Fails if a load or a step fails.
"""

from __future__ import annotations

import gc
import json
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TypeVar

import numpy as np

from app.bundle import MANIFEST, Manifest
from app.runtime.cuda_runner import CudaRunner
from app.runtime.interface import StepInput
from tests.gpu_stub.rehearsal import NUM_ROWS, POSITION, load

NUM_LOADS = 3  # of each model
Result = TypeVar("Result")


def main(folder: Path) -> None:
    """Load and serve both models at the same time."""
    gc.disable()
    manifest = Manifest.model_validate(json.loads((folder / MANIFEST).read_bytes()))
    with ThreadPoolExecutor(2) as executor:
        for each in [executor.submit(load_and_serve, folder, manifest) for _ in range(2)]:
            each.result()


def load_and_serve(folder: Path, manifest: Manifest) -> None:
    """Load one model, serve it and free it, NUM_LOADS times, each in a thread of its own, as the server does."""
    for _ in range(NUM_LOADS):
        runners = [in_thread(lambda: load(folder, manifest))]
        in_thread(lambda: serve(runners[0]))  # noqa: B023 - the thread ends before the next load
        in_thread(runners.clear)


def serve(runner: CudaRunner) -> None:
    """Encode sentences, and decode a step of each shape, which captures a graph."""
    runner.encode([np.full(1 + row, runner.limits.eos_id, np.int32) for row in range(8)], range(8))
    for num_rows in (1, 2, 4, 8, 16, NUM_ROWS):
        for num_candidates in (1, 2, 4, 8, 16):
            ids, positions = np.full(num_rows, 5, np.int32), np.full(num_rows, POSITION, np.int32)
            runner.decode(StepInput(ids, positions, num_candidates))


def in_thread(work: Callable[[], Result]) -> Result:
    """Do the work in a new thread, and return its result."""
    with ThreadPoolExecutor(1) as executor:
        return executor.submit(work).result()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
