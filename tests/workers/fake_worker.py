"""A fork server with the fake runner: `python -P -m tests.workers.fake_worker PLAN CONTROL`.

PLAN: a `FakePlan` in JSON. CONTROL: the descriptor of the socket to the server.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from app.errors import BundleError, EngineFailure, SettingsError
from app.runtime.interface import Int32s, Runner, StepInput, StepOutput
from app.workers.fork_server_main import load_and_fork
from tests.engine.fake_runner import LIMITS, LoopingRunner

# The maximum length is enough for a sentence that loops.
ALIGNED = replace(LIMITS, has_alignment=True, max_target_length=60)
POISON = 39  # the encoder fails for a source that begins with it
SHARED = -1
PROBLEMS = ("one", "another")
STEP_S = 0.001


@dataclass(frozen=True)
class FakePlan:
    """What the workers do.

    folder: holds the control files. While `hold-NUMBER` exists, no forward of worker NUMBER returns. `held-NUMBER`
        exists while a forward waits, and stays if the process ends meanwhile. `calls-NUMBER` has a line for each
        encoded source and for each call of `share_cores`.
    eos_bonus, max_steps: arguments of the runner. If max_steps is above 1, each step takes at least STEP_S.
    holds_after: if it is above 0, `hold-NUMBER` holds a call only after this number of steps.
    ends: how loading fails: "BundleError", "SettingsError" or "SIGKILL"; empty if it does not fail.
    ends_in: the number of the worker that fails to load. SHARED is the fork server.
    """

    folder: str
    eos_bonus: float = 1.0
    max_steps: int = 1
    holds_after: int = 0
    ends: str = ""
    ends_in: int = 1

    def command(self) -> list[str]:
        return [sys.executable, "-P", "-m", "tests.workers.fake_worker", json.dumps(asdict(self))]

    def hold(self, *numbers: int) -> None:
        for number in numbers:
            self._file("hold", number).touch()

    def release(self, *numbers: int) -> None:
        for number in numbers:
            self._file("hold", number).unlink()

    def is_held(self, number: int) -> bool:
        """Return whether a forward waits, or waited when the process ended."""
        return self._file("held", number).exists()

    def calls(self, number: int, kind: str) -> list[int]:
        """Return the numbers that a worker's runner recorded.

        kind: `encode` (the first subword of each source) or `share` (the number of busy workers).
        """
        file = self._file("calls", number)
        lines = file.read_text().splitlines() if file.exists() else []
        return [int(line.split()[1]) for line in lines if line.startswith(f"{kind} ")]

    def prepare(self, spec: bytes) -> Callable[[int], Runner]:
        self._end_if_planned(SHARED)
        return self.load

    def load(self, number: int) -> Runner:
        self._end_if_planned(number)
        return FakeWorkerRunner(self, number)

    def _end_if_planned(self, place: int) -> None:
        if place == self.ends_in:
            if self.ends == "BundleError":
                raise BundleError("fake", PROBLEMS)
            if self.ends == "SettingsError":
                raise SettingsError(PROBLEMS)
            if self.ends == "SIGKILL":
                os.kill(os.getpid(), signal.SIGKILL)

    def _file(self, kind: str, number: int) -> Path:
        return Path(self.folder, f"{kind}-{number}")


class FakeWorkerRunner(LoopingRunner):
    """A fake runner. Files hold its forwards and record its calls."""

    def __init__(self, plan: FakePlan, number: int) -> None:
        super().__init__(replace(ALIGNED, max_steps=plan.max_steps), eos_bonus=plan.eos_bonus)
        self._holds_after = plan.holds_after
        self._hold, self._held, self._calls = (plan._file(kind, number) for kind in ("hold", "held", "calls"))

    def encode(self, sources: Sequence[Int32s], rows: Sequence[int]) -> None:
        if any(source[0] == POISON for source in sources):
            raise EngineFailure("the source is POISON")
        super().encode(sources, rows)
        for source in sources:
            self._record("encode", int(source[0]))

    def decode(self, step: StepInput) -> StepOutput:
        self._wait_after(0)
        return super().decode(step)

    def on_step(self, num_taken: int) -> None:
        if self.limits.max_steps > 1:
            time.sleep(STEP_S)
        self._wait_after(num_taken)

    def _wait_after(self, num_taken: int) -> None:
        if num_taken == self._holds_after and self._hold.exists():
            self._held.touch()
            while self._hold.exists():
                time.sleep(0.001)
            self._held.unlink()

    def share_cores(self, num_sharing: int) -> None:
        self._record("share", num_sharing)

    def _record(self, kind: str, number: int) -> None:
        with self._calls.open("a") as file:
            file.write(f"{kind} {number}\n")


def main(arguments: list[str]) -> None:
    plan = FakePlan(**json.loads(arguments[0]))
    with socket.socket(fileno=int(arguments[1])) as control:
        load_and_fork(control, plan.prepare)


if __name__ == "__main__":
    main(sys.argv[1:])
