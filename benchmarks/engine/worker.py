"""Runs each engine in a separate process, which reads requests and writes responses as JSON lines.

CTranslate2 chooses its backend from the environment at import, so each backend needs its own process. Separate
processes also share no threads and no memory. The idle engine sleeps.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import asdict
from typing import Any, TextIO

from benchmarks.engine.jobs import ArrivalResult, Arrivals, EngineCounters, Job, JobResult, PeerSettings
from benchmarks.machine import ROOT


class WorkerError(Exception):
    """A worker process ended. Its error output is on the terminal."""


class Worker:
    """An engine in another process. kind: `ours` or `peer`.

    arguments: the arguments of the engine's class, `TransduceSide` or `CTranslate2Side`. For `ours` also `is_profiled`:
    whether `profile` can be called.
    """

    def __init__(
        self, kind: str, arguments: dict[str, Any], environment: dict[str, str] | None = None
    ) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "benchmarks.engine.worker", kind, json.dumps(arguments)],
            cwd=ROOT,
            env={**os.environ, **(environment or {})},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self._receive()  # the process is ready

    def __enter__(self) -> Worker:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def translate(self, job: Job, settings: PeerSettings | None = None) -> JobResult:
        """Translate a job and time it. settings: CTranslate2's; None for Transduce."""
        answer = self._request({"method": "translate", "job": asdict(job), "settings": _as_json(settings)})
        return JobResult(answer["times_s"], answer["ids"], EngineCounters(**answer["spent"]))

    def arrive(self, arrivals: Arrivals, settings: PeerSettings | None = None) -> ArrivalResult:
        """Translate sentences when they are due. settings: CTranslate2's; None for Transduce."""
        request = {"method": "arrive", "arrivals": asdict(arrivals), "settings": _as_json(settings)}
        return ArrivalResult(**self._request(request))

    def profile(self) -> dict[str, Any]:
        """End profiling. Returns the fields of a `ProfileResult` (`benchmarks.engine.profiled`)."""
        found: dict[str, Any] = self._request({"method": "profile"})
        return found

    def close(self) -> None:
        """End the process."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        # The process may have ended, with a request left in the buffer.
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.close()
        self._process.wait(timeout=60)
        self._process.stdout.close()

    def _request(self, request: dict[str, Any]) -> Any:
        """Send a request and return the response. Raises WorkerError."""
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError):  # the process has ended, and `_receive` says so
            self._process.stdin.write(json.dumps(request) + "\n")
            self._process.stdin.flush()
        return self._receive()

    def _receive(self) -> Any:
        """Wait for a response and return it. Raises WorkerError."""
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise WorkerError(f"the worker ended with exit code {self._process.wait(timeout=60)}")
        return json.loads(line)


def _as_json(settings: PeerSettings | None) -> dict[str, Any] | None:
    return None if settings is None else asdict(settings)


def serve(kind: str, arguments: dict[str, Any], output: TextIO) -> None:
    """Answer requests until the input ends."""
    side, answers = _ours(arguments) if kind == "ours" else _peer(arguments)
    _write(output, {"is_ready": True})
    for line in sys.stdin:
        request = json.loads(line)
        _write(output, answers[request["method"]](request))
    if hasattr(side, "close"):
        side.close()


Answers = dict[str, Callable[[dict[str, Any]], Any]]


def _ours(arguments: dict[str, Any]) -> tuple[Any, Answers]:
    from benchmarks.engine.ours import TransduceSide
    from benchmarks.engine.profiled import Profiler

    profile = Profiler() if arguments.pop("is_profiled", False) else None
    side = TransduceSide(**arguments)
    answers: Answers = {
        "translate": lambda request: asdict(side.translate(Job(**request["job"]))),
        "arrive": lambda request: asdict(side.arrive(Arrivals(**request["arrivals"]))),
    }
    if profile is not None:
        answers["profile"] = lambda _: asdict(profile.end())
    return side, answers


def _peer(arguments: dict[str, Any]) -> tuple[Any, Answers]:
    from benchmarks.engine.peer import CTranslate2Side

    side = CTranslate2Side(**arguments)
    answers: Answers = {
        "translate": lambda request: asdict(
            side.translate(Job(**request["job"]), PeerSettings(**request["settings"]))
        ),
        "arrive": lambda request: asdict(
            side.arrive(Arrivals(**request["arrivals"]), PeerSettings(**request["settings"]))
        ),
    }
    return side, answers


def _write(output: TextIO, answer: Any) -> None:
    output.write(json.dumps(answer) + "\n")
    output.flush()


if __name__ == "__main__":
    serve(sys.argv[1], json.loads(sys.argv[2]), sys.stdout)
