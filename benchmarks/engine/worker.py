"""Runs each side in its own process, which answers each line of JSON with one line.

CTranslate2 chooses its backend from the environment when it is imported. The sides share no threads and no memory, and
a side without a request sleeps.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import asdict
from typing import Any, TextIO

from benchmarks.engine.jobs import Answered, Arrivals, Done, Job, PeerSettings, Spent
from benchmarks.machine import ROOT


class WorkerError(Exception):
    """The worker has died; its error output is in the terminal."""


class Worker:
    """A side in another process. kind: `ours` or `peer`; arguments: of its constructor."""

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
        self._ask(None)

    def __enter__(self) -> Worker:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def translate(self, job: Job, settings: PeerSettings | None = None) -> Done:
        """Translate a job and time it. settings: for the peer only."""
        answer = self._ask({"do": "translate", "job": asdict(job), "settings": _plain(settings)})
        return Done(answer["times_s"], answer["ids"], Spent(**answer["spent"]))

    def arrive(self, arrivals: Arrivals, settings: PeerSettings | None = None) -> Answered:
        """Submit sentences at their times. settings: for the peer only."""
        request = {"do": "arrive", "arrivals": asdict(arrivals), "settings": _plain(settings)}
        return Answered(**self._ask(request))

    def ask(self, do: str) -> Any:
        """Send a request that has no arguments, such as `profile`."""
        return self._ask({"do": do})

    def close(self) -> None:
        """End the process."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        self._process.wait(timeout=60)
        self._process.stdout.close()

    def _ask(self, request: dict[str, Any] | None) -> Any:
        """Send a request and return its answer. None: only wait for the first line."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        if request is not None:
            self._process.stdin.write(json.dumps(request) + "\n")
            self._process.stdin.flush()
        line = self._process.stdout.readline()
        if not line:
            raise WorkerError(f"the worker ended with exit code {self._process.wait(timeout=60)}")
        return json.loads(line)


def _plain(settings: PeerSettings | None) -> dict[str, Any] | None:
    return None if settings is None else asdict(settings)


def serve(kind: str, arguments: dict[str, Any], output: TextIO) -> None:
    """Answer until the input ends."""
    side, answers = _ours(arguments) if kind == "ours" else _peer(arguments)
    _write(output, {"is_ready": True})
    for line in sys.stdin:
        request = json.loads(line)
        _write(output, answers[request["do"]](request))
    if hasattr(side, "close"):
        side.close()


Answers = dict[str, Callable[[dict[str, Any]], Any]]


def _ours(arguments: dict[str, Any]) -> tuple[Any, Answers]:
    from benchmarks.engine.ours import Ours
    from benchmarks.engine.profiled import Profile

    profile = Profile() if arguments.pop("is_profiled", False) else None
    side = Ours(**arguments)
    answers: Answers = {
        "translate": lambda request: asdict(side.translate(Job(**request["job"]))),
        "arrive": lambda request: asdict(side.arrive(Arrivals(**request["arrivals"]))),
    }
    if profile is not None:
        answers["profile"] = lambda _: asdict(profile.end())
    return side, answers


def _peer(arguments: dict[str, Any]) -> tuple[Any, Answers]:
    from benchmarks.engine.peer import Peer

    side = Peer(**arguments)
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
