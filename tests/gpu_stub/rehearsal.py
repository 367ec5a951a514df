"""Runs the GPU runner over the stand-ins for CUDA's libraries: python -m tests.gpu_stub.rehearsal FOLDER.

LD_LIBRARY_PATH names the folder of the stand-ins, and PYTHONPATH a folder with onnxruntime-gpu. The trace has a
section for each call of the runner. FOLDER has a manifest and an fp16 variant.
"""

from __future__ import annotations

import ctypes
import gc
import json
import math
import sys
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import numpy as np

from app.bundle import MANIFEST, Manifest
from app.runtime import cuda_choice
from app.runtime.beams import SharedBeam
from app.runtime.bundle_limits import limits_of
from app.runtime.cuda_runner import CudaRunner, load_cuda_runner
from app.runtime.interface import StepInput
from app.runtime.stop_condition import NO_EARLY_STOP, StopCondition, WakeFlag

NUM_ROWS = 32
NUM_SENTENCES = 17
POSITION = 3  # of each row of a step
# The number of steps of a multi-step call.
NUM_STEPS = 6
BEAM_SIZE = 4


def main(folder: Path) -> None:
    """Load the runner, make each kind of call, and free it. Then load it with each switch, and decode one step."""
    gc.disable()
    manifest = Manifest.model_validate(json.loads((folder / MANIFEST).read_bytes()))
    with section("load"):
        runner = load(folder, manifest)
    rows = list(range(NUM_SENTENCES))
    for name, lengths in (
        ("warm-up", [1]),
        ("encode one length", [9] * NUM_SENTENCES),
        ("encode all lengths", [1 + row for row in rows]),
        ("encode far lengths", [1] * (NUM_SENTENCES - 1) + [manifest.max_source_length]),
    ):
        sources = [np.full(length, runner.limits.eos_id, np.int32) for length in lengths]
        with section(name):
            runner.encode(sources, rows[: len(lengths)])
    for num_rows in (1, NUM_SENTENCES):
        for num_candidates in (1, 8):
            ids, positions = np.full(num_rows, 5, np.int32), np.full(num_rows, POSITION, np.int32)
            step = StepInput(ids, positions, num_candidates)
            with section(f"first step {num_rows} {num_candidates}"):
                runner.decode(step)
            for _ in range(2):
                with section(f"step {num_rows} {num_candidates}"):
                    runner.decode(step)
    for num_rows in (1, NUM_SENTENCES):
        ids, positions = np.full(num_rows, 5, np.int32), np.full(num_rows, POSITION, np.int32)
        for name, stop in (
            ("call", NO_EARLY_STOP),
            ("call with a flag", StopCondition(wake_flag=WakeFlag())),
        ):
            with section(f"{name} {num_rows}"):
                output = runner.decode(StepInput(ids, positions, 1, NUM_STEPS, stop=stop))
            assert output.num_steps == NUM_STEPS
    beams = [
        SharedBeam(
            start_and_end=(runner.limits.bos_id, runner.limits.eos_id),
            rows=list(range(first, first + BEAM_SIZE)),
            history=([], [], []),
            max_length=2 * NUM_STEPS,
            # Enough for all steps, although the garbage of the stand-ins ends every hypothesis.
            num_to_complete=NUM_STEPS * BEAM_SIZE,
        )
        for first in (0, BEAM_SIZE)
    ]
    zeros = np.zeros(2 * BEAM_SIZE, np.int32)
    step = StepInput(zeros, zeros, BEAM_SIZE + 1, NUM_STEPS, beams=beams)
    runner.decode(replace(step, beams=(), num_steps=1, num_candidates=BEAM_SIZE + 2))  # captures the graph
    with section("beams"):
        assert runner.decode(step).num_steps == NUM_STEPS
    columns = np.full(2, POSITION, np.int32)
    for name, targets in (("reorder", [2, 3]), ("swap", [1, 0])):
        with section(name):
            runner.reorder(np.array([0, 1], np.int32), np.array(targets, np.int32), columns, 0 * columns)
    last_reference = weakref.ref(runner)
    with section("end"):
        del runner
    # The reference count alone frees the runner, so the GPU's memory is free at once. A collection may come much later.
    assert last_reference() is None
    cuda_choice.BUDGET_S = 0.0
    cuda_choice.MAX_SHARE = math.inf  # each switch is chosen
    for switch in cuda_choice.SWITCHES:
        with section(f"load {switch.name}"):
            runner = load(folder, manifest, switch)
        with section(f"first step {switch.name}"):
            runner.decode(StepInput(np.full(2, 5, np.int32), np.full(2, POSITION, np.int32), 1))


def load(folder: Path, manifest: Manifest, *switches: cuda_choice.Switch) -> CudaRunner:
    """The runner of a bundle's fp16 variant. switches: are measured, and chosen if they are faster."""
    variant, limits = manifest.variants["fp16"], limits_of(manifest, NUM_ROWS)
    return load_cuda_runner(folder, variant, limits=limits, switches=switches)


@contextmanager
def section(name: str) -> Iterator[None]:
    """Put the lines that the block adds to the trace into a section of this name."""
    library = ctypes.CDLL("libcudart.so.13")
    library.trace_section(name.encode())
    yield
    library.trace_section(b"")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
