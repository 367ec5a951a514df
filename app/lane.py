"""The command of a lane's process: `python -m app.lane PLAN CONNECTION PAGE LANES NUMBER`; started by `app.startup`."""

from __future__ import annotations

import gc
import json
import signal
import socket
import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal

from app.bundle import MANIFEST, Bundle, Manifest, Precision
from app.engine.busy import BusyPage
from app.engine.lane_process import LaneProcess
from app.observability.logging import configure_logging
from app.runtime.interface import Runner
from app.runtime.memory import settle_memory


@dataclass(frozen=True)
class Plan:
    """What a lane loads. bundle: its folder, checked by who starts the lane; the rest as `load_runner`.

    num_lanes: of the engine. log_level: as the server's.
    """

    bundle: str
    precision: Precision
    device: Literal["auto", "cpu", "cuda"]
    kernels: Literal["auto", "native", "standard"]
    num_rows: int
    num_threads: int
    num_lanes: int
    log_level: str

    def command(self) -> list[str]:
        """Of a process that runs it, but for what `ProcessLane` adds."""
        return [sys.executable, "-P", "-m", "app.lane", json.dumps(asdict(self))]

    def load(self) -> Runner:
        """Raises BundleError, SettingsError."""
        from app.runtime.kernels import usable_kernels
        from app.runtime.ort_runner import load_runner

        folder = Path(self.bundle)
        manifest = Manifest.model_validate_json((folder / MANIFEST).read_bytes())
        # ONNX Runtime's own threads are as many at all times: each lane gets its part.
        is_native = (
            "native" in usable_kernels(manifest.variants[self.precision]) and self.kernels != "standard"
        )
        return load_runner(
            Bundle(folder, manifest, ()),
            precision=self.precision,
            device=self.device,
            kernels=self.kernels,
            num_rows=self.num_rows,
            num_threads=self.num_threads if is_native else max(1, self.num_threads // self.num_lanes),
        )


def main(arguments: list[str]) -> None:
    """Run one lane until the engine says stop or has gone."""
    gc.disable()
    # A terminal's Ctrl-C and a supervisor's SIGTERM go to every process: the server says when a lane is to end.
    for one in (signal.SIGINT, signal.SIGTERM):
        signal.signal(one, signal.SIG_IGN)
    plan = Plan(**json.loads(arguments[0]))
    descriptor, page, num_lanes, number = map(int, arguments[1:])
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
