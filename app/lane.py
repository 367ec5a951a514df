"""Lanes in processes of their own, and such a process's command, `python -m app.lane CONNECTION PAGE LANES NUMBER`.

What the process loads comes on its standard input.
"""

from __future__ import annotations

import gc
import os
import signal
import socket
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import msgspec

from app.engine.busy import BusyPage
from app.engine.lane_process import LaneProcess
from app.engine.process_lane import ProcessLane, start_lanes
from app.graphs import Precision, Variant
from app.observability.logging import configure_logging
from app.runtime.device import Device
from app.runtime.interface import Limits, Runner
from app.runtime.kernels import usable_kernels
from app.runtime.memory import settle_memory

# Below the event loop's priority: in a flood every request is read, and refused or not, in time. With 0 they wait for
# seconds until they are read, with 10 what was accepted comes late while others are refused.
NICENESS = 3


@dataclass(frozen=True)
class Plan:
    """What a lane loads: a variant of a bundle's folder, which was checked, on a device that was chosen.

    num_threads: of all lanes together. num_lanes: of the engine. log_level: as the server's.
    """

    folder: str
    precision: Precision
    variant: Variant
    limits: Limits
    device: Device
    kernels: Literal["auto", "native", "standard"]
    num_threads: int
    num_lanes: int
    log_level: str

    def load(self) -> Runner:
        """Raises BundleError, SettingsError."""
        from app.runtime.ort_runner import Loading, load_variant

        # ONNX Runtime's own threads are as many at all times: each lane gets its part.
        is_native = "native" in usable_kernels(self.variant) and self.kernels != "standard"
        return load_variant(
            Path(self.folder),
            Loading(self.precision, self.variant, self.limits),
            device=self.device,
            kernels=self.kernels,
            num_threads=self.num_threads if is_native else max(1, self.num_threads // self.num_lanes),
        )


def start_processes(plan: Plan) -> list[ProcessLane]:
    """The lanes of a plan in processes of their own, which begin to load."""
    return start_lanes([sys.executable, "-P", "-m", "app.lane"], plan.num_lanes, msgspec.json.encode(plan))


def main(arguments: list[str]) -> None:
    """Run one lane until the engine says stop or has gone."""
    gc.disable()
    # A terminal's Ctrl-C and a supervisor's SIGTERM go to every process: the server says when a lane is to end.
    for one in (signal.SIGINT, signal.SIGTERM):
        signal.signal(one, signal.SIG_IGN)
    os.nice(NICENESS)  # of this thread and those that it starts
    plan = msgspec.json.decode(sys.stdin.buffer.read(), type=Plan)
    descriptor, page, num_lanes, number = map(int, arguments)
    configure_logging(plan.log_level if number == 0 else "warning")

    def load() -> Runner:
        runner = plan.load()
        settle_memory()
        gc.enable()
        return runner

    with socket.socket(fileno=descriptor) as connection:
        LaneProcess(connection, BusyPage(page, num_lanes), number).run(load)


if __name__ == "__main__":
    main(sys.argv[1:])
