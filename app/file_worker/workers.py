"""Starts, reuses and ends file worker processes. This is the server's side.

Every method is called on the event loop, which never parses a file or blocks on a worker.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import sys
from dataclasses import dataclass
from pathlib import Path

import msgspec

import app
from app.errors import DeadlineExceeded, EngineFailure, InvalidRequest, NotReady, PayloadTooLarge
from app.fair_turns import FairTurns
from app.file_worker import messages
from app.observability.logging import log_event

logger = logging.getLogger(__name__)
# Seconds from a response to the end of all idle workers, if no further response comes. A worker takes 25 MB, and
# starting one takes about a tenth of a second.
IDLE_S = 10.0
# Seconds to wait for a killed process.
END_TIMEOUT_S = 2.0


class _WorkerDied(Exception):
    """The worker died without a response, or its response is too long."""


@dataclass(eq=False)
class _Worker:
    """One worker process, which handles one message at a time."""

    process: asyncio.subprocess.Process

    async def exchange(self, frame: bytes, max_bytes: int) -> bytes:
        """Send a message and return the response. Raises _WorkerDied, also for a response of more than `max_bytes`."""
        source, target = self.process.stdin, self.process.stdout
        assert source is not None
        assert target is not None
        try:
            source.write(len(frame).to_bytes(messages.LENGTH_BYTES, "little"))
            source.write(frame)
            await source.drain()
            length = int.from_bytes(await target.readexactly(messages.LENGTH_BYTES), "little")
            if length > max_bytes:
                raise _WorkerDied
            return await target.readexactly(length)
        except (OSError, asyncio.IncompleteReadError) as error:
            raise _WorkerDied from error

    async def end(self) -> int | None:
        """Kill the process; returns its exit code, or None if it does not end within END_TIMEOUT_S."""
        with contextlib.suppress(ProcessLookupError):
            self.process.kill()
        if self.process.stdin is not None:
            self.process.stdin.close()
        with contextlib.suppress(TimeoutError):
            return await asyncio.wait_for(self.process.wait(), END_TIMEOUT_S)
        return None


class FileWorkers:
    """A pool of at most `num_workers` file workers, at which callers take turns.

    limits: bounds the resources of each file.
    """

    def __init__(self, limits: messages.WorkerLimits, *, num_workers: int, idle_s: float = IDLE_S) -> None:
        """No process is started here. idle_s: as IDLE_S."""
        self.limits = limits
        self._idle_s = idle_s
        self._turns = FairTurns(num_workers)
        self._idle: list[_Worker] = []
        self._working: set[_Worker] = set()
        self._ending: set[asyncio.Task[int | None]] = set()
        self._timer: asyncio.TimerHandle | None = None
        self._is_closed = False
        self._encoder = msgspec.msgpack.Encoder()
        self._decoder = msgspec.msgpack.Decoder(messages.FromWorker)

    async def read(
        self, request: messages.ReadRequest, *, share: str, timeout_s: float
    ) -> list[messages.TextUnit]:
        """The texts to translate, in reading order, split into parts that fit into one request.

        share: the name by which callers take turns; see `Requester`. timeout_s: seconds after which the worker is
        killed; the wait for a free worker counts. A cancellation kills the worker, too. Raises InvalidRequest for a
        malformed file, with its line or entry, and for a file above `FileLimits`. Raises PayloadTooLarge for a file
        that needs more memory or CPU time than `limits` allows. Raises DeadlineExceeded, NotReady, and EngineFailure
        for a bug of the reader.
        """
        answer = await self._ask(request, share, timeout_s)
        assert isinstance(answer, messages.ReadResult)
        return answer.texts

    async def write(self, request: messages.WriteRequest, *, share: str, timeout_s: float) -> bytes:
        """The file with one translation for each text of `read`. Raises as `read` does."""
        answer = await self._ask(request, share, timeout_s)
        assert isinstance(answer, messages.WriteResult)
        return answer.content

    async def close(self) -> None:
        """Kill all workers."""
        self._is_closed = True
        if self._timer is not None:
            self._timer.cancel()
        for worker in [*self._idle, *self._working]:
            self._end(worker)
        self._idle.clear()
        await asyncio.gather(*self._ending, return_exceptions=True)

    async def _ask(
        self, message: messages.ToWorker, share: str, timeout_s: float
    ) -> messages.ReadResult | messages.WriteResult:
        try:
            async with asyncio.timeout(timeout_s), self._turns.turn(share):
                answer = await self._answer(self._encoder.encode(message))
        except TimeoutError as error:
            raise DeadlineExceeded(f"the file was not read or written within {timeout_s:.0f} s") from error
        if isinstance(answer, messages.InvalidFile):
            raise InvalidRequest(f"file: {answer.message}", field="file")
        if isinstance(answer, messages.OutOfMemory):
            raise _too_large(f"{self.limits.memory_bytes} bytes of memory")
        if isinstance(answer, messages.InternalError):
            log_event(
                logger,
                logging.ERROR,
                "file_reader_broken",
                fields={"kind": answer.kind, "place": answer.location},
            )
            raise EngineFailure("the file reader failed")
        return answer

    async def _answer(self, frame: bytes) -> messages.FromWorker:
        """The response of one worker. The worker is killed if it fails, on cancellation, or after its last response."""
        worker = await self._take_worker()
        self._working.add(worker)
        is_usable = False
        try:
            self._check_open()  # the pool may have closed while the worker started
            answer: messages.FromWorker = self._decoder.decode(
                await worker.exchange(frame, self.limits.memory_bytes)
            )
            is_usable = not answer.is_last
        except _WorkerDied as error:
            if self._is_closed:
                raise NotReady("the server is shutting down") from error
            exit_code = await worker.end()
            log_event(logger, logging.WARNING, "file_worker_ended", fields={"exit_code": exit_code})
            raise _too_large(self._limit_of(exit_code)) from error
        finally:
            self._working.discard(worker)
            if is_usable and not self._is_closed:
                self._keep(worker)
            else:
                self._end(worker)
        return answer

    async def _take_worker(self) -> _Worker:
        """An idle worker, else a new one."""
        self._check_open()
        while self._idle:
            worker = self._idle.pop()
            if worker.process.returncode is None:
                return worker
            self._end(worker)
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-P",
            "-m",
            "app.file_worker",
            msgspec.json.encode(self.limits).decode(),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.DEVNULL,
            start_new_session=True,
            env=_environment(),
        )
        return _Worker(process)

    def _check_open(self) -> None:
        """Raise NotReady after `close`."""
        if self._is_closed:
            raise NotReady("the server is shutting down")

    def _keep(self, worker: _Worker) -> None:
        self._idle.append(worker)
        if self._timer is not None:
            self._timer.cancel()
        self._timer = asyncio.get_running_loop().call_later(self._idle_s, self._end_idle)

    def _end_idle(self) -> None:
        for worker in self._idle:
            self._end(worker)
        self._idle.clear()

    def _end(self, worker: _Worker) -> None:
        """Kill a worker and await its end in a task."""
        task = asyncio.get_running_loop().create_task(worker.end())
        self._ending.add(task)
        task.add_done_callback(self._ending.discard)

    def _limit_of(self, exit_code: int | None) -> str:
        """The limit that a dead worker exceeded, as far as its exit code shows."""
        limits = self.limits
        if exit_code == -signal.SIGXCPU:
            return f"{limits.cpu_s} s of CPU time"
        return f"{limits.memory_bytes} bytes of memory and {limits.cpu_s} s of CPU time"


def _too_large(limit: str) -> PayloadTooLarge:
    return PayloadTooLarge(f"file: it needs more than the {limit} allowed per file", field="file")


def _environment() -> dict[str, str]:
    """The server's environment with the path of this package, but without settings such as API keys."""
    package = str(Path(app.__file__).resolve().parents[1])
    # The case of a setting's name does not matter.
    kept = {name: value for name, value in os.environ.items() if not name.upper().startswith("TRANSDUCE_")}
    others = kept.get("PYTHONPATH")
    return {**kept, "PYTHONPATH": f"{package}{os.pathsep}{others}" if others else package}
