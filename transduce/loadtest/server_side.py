"""Reads the server's models, counters, CPU time and memory, and pins server and tester to cores."""

from __future__ import annotations

import contextlib
import errno
import math
import os
import ssl
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx

from transduce.loadtest.plan import Target
from transduce.restarts import has_restarted

# Seconds to wait for /v1/models and /metrics. If a server does not answer, the report lacks its figures.
TIMEOUT_S = 5.0
# Metrics of a Transduce server.
STEPS = "transduce_decode_steps_total"
# The sum of these counters divided by the number of steps is the mean number of rows of a step. Rows that a beam does
# not use yet count.
ROW_STEPS = ('transduce_rows_total{use="decoded"}', 'transduce_rows_total{use="idle"}')
COUNTERS = (
    STEPS,
    "transduce_sentences_total",
    "transduce_source_tokens_total",
    "transduce_target_tokens_total",
)
CLOCK_TICKS = os.sysconf("SC_CLK_TCK")
SERVER_HAS_ENDED = "the process of --server-pid has ended"
# The key of a server's figures that says that it has restarted, or another instance of it has answered.
HAS_RESTARTED = "has_restarted"
# State of a process that has ended and that its parent has not waited for.
ZOMBIE = "Z"


@dataclass(frozen=True)
class ServerSnapshot:
    """The server at one moment.

    metrics: samples by name with labels. cpu_s, pss_mb: CPU time in seconds and memory in 10^6 bytes of its processes
    together; None if not known. has_ended: whether its process has ended.
    """

    metrics: dict[str, float]
    cpu_s: float | None
    pss_mb: float | None
    has_ended: bool = False

    def total(self, name: str) -> float:
        """The sum of a metric's samples; NaN without any. name: without `transduce_`."""
        values = [
            value
            for sample, value in self.metrics.items()
            if sample.partition("{")[0].removeprefix("transduce_") == name
        ]
        return sum(values) if values else math.nan


class ServerSide:
    """Measures a server before and after a run. pid: its process, if it runs on this machine."""

    def __init__(self, target: Target, pid: int | None = None) -> None:
        self._target = target
        self._pid = pid
        self._was_alive = False

    def models(self) -> list[dict[str, Any]] | None:
        """The models of `GET /v1/models`; None if the server does not list them there.

        A server of other software may list only their names.
        """
        answer = self._get("/v1/models")
        with contextlib.suppress(ValueError, AttributeError):
            listed = answer.json().get("models") if answer is not None else None
            if isinstance(listed, list):
                return [each if isinstance(each, dict) else {"name": str(each)} for each in listed]
        return None

    def snapshot(self) -> ServerSnapshot:
        """Measure the server now. Raises OSError if its process had ended before the first snapshot."""
        answer = self._get("/metrics")
        metrics = {} if answer is None else read_samples(answer.text)
        if self._pid is None:
            return ServerSnapshot(metrics, None, None)
        try:
            pids = processes_of(self._pid)
        except OSError:
            if not self._was_alive:
                raise
            return ServerSnapshot(metrics, None, None, has_ended=True)
        self._was_alive = True
        try:
            pss_mb: float | None = sum(map(memory_mb, pids))
        except PermissionError:  # a process of another user: its memory cannot be read, its CPU time can
            pss_mb = None
        return ServerSnapshot(metrics, sum(map(cpu_time_s, pids)), pss_mb)

    def _get(self, path: str) -> httpx.Response | None:
        try:
            answer = get(self._target, path, TIMEOUT_S)
        except httpx.HTTPError:
            return None
        return answer if answer.status_code == httpx.codes.OK else None


def get(target: Target, path: str, timeout_s: float) -> httpx.Response:
    """The response to a GET request. Trusts the certificates that the load trusts. Raises httpx.HTTPError."""
    # Without TLS an empty context: loading certificates takes longer than the request.
    tls = ssl.create_default_context() if target.has_tls else ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    headers = {"Authorization": f"Bearer {target.api_key}"} if target.api_key else {}
    url = target.url.rstrip("/") + path
    return httpx.get(url, headers=headers, timeout=timeout_s, trust_env=False, verify=tls)


def read_samples(text: str) -> dict[str, float]:
    """The samples of /metrics, by name with labels."""
    found: dict[str, float] = {}
    for line in text.splitlines():
        name, _, value = line.rpartition(" ")
        if name and not line.startswith("#"):
            with contextlib.suppress(ValueError):
                found[name] = float(value)
    return found


def difference(before: ServerSnapshot, after: ServerSnapshot, seconds: float) -> dict[str, Any] | None:
    """The change between two snapshots; None if nothing was measured. seconds: time between them.

    The counters and the CPU time are left out if the server has restarted between the snapshots, or if another instance
    of it has answered.
    """
    found: dict[str, Any] = {}
    if has_restarted(before.total, after.total):
        found[HAS_RESTARTED] = True
    else:
        grown = {
            name: value - before.metrics[name]
            for name, value in after.metrics.items()
            if name in before.metrics
        }
        found |= {name.removeprefix("transduce_"): grown[name] for name in COUNTERS if name in grown}
        if grown.get(STEPS) and grown.keys() >= set(ROW_STEPS):
            found["rows_per_step"] = sum(grown[name] for name in ROW_STEPS) / grown[STEPS]
        if before.cpu_s is not None and after.cpu_s is not None:
            found["cpu_share"] = (after.cpu_s - before.cpu_s) / seconds
    if before.pss_mb is not None and after.pss_mb is not None:
        found["pss_before_mb"] = before.pss_mb
        found["pss_after_mb"] = after.pss_mb
    return found or None


def processes_of(pid: int) -> list[int]:
    """A process and its descendants, such as a server and its workers. Linux only; raises OSError if it has ended."""
    children: dict[int, list[int]] = {}
    for path in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):  # the process may have ended
            children.setdefault(int(_stat(int(path.name))[1]), []).append(int(path.name))
    if _stat(pid)[0] == ZOMBIE:
        raise ProcessLookupError(errno.ESRCH, os.strerror(errno.ESRCH), f"/proc/{pid}/stat")
    found = [pid]
    for each in found:
        found += children.get(each, [])
    return found


def cpu_time_s(pid: int) -> float:
    """CPU time used by a process, in seconds; 0 if it has ended. Linux only."""
    with contextlib.suppress(OSError):
        fields = _stat(pid)
        return (int(fields[11]) + int(fields[12])) / CLOCK_TICKS
    return 0.0


def memory_mb(pid: int) -> float:
    """Memory of a process (PSS) in 10^6 bytes; 0 if it has ended. Linux only.

    A page that n processes share counts one n-th in each, so the memory of several processes can be summed.
    Raises PermissionError if the process belongs to another user.
    """
    with contextlib.suppress(FileNotFoundError, ProcessLookupError):
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text("ascii", errors="replace").splitlines()
        return next((int(line.split()[1]) * 1024 / 1e6 for line in lines if line.startswith("Pss:")), 0.0)
    return 0.0


def _stat(pid: int) -> list[str]:
    """The fields of /proc/PID/stat after the command name, which may have spaces. Raises OSError."""
    return Path(f"/proc/{pid}/stat").read_text("ascii", errors="replace").rpartition(") ")[2].split()


@dataclass(frozen=True)
class Pinning:
    """The cores that server and tester are pinned to; empty tuples without pinning."""

    server: tuple[int, ...] = ()
    tester: tuple[int, ...] = ()


@contextlib.contextmanager
def pinned(server_pid: int | None) -> Iterator[Pinning]:
    """Pin the server and its workers to the first core, and this process to the second, until the end of the `with`.

    Does nothing without a server on this machine or without a second core.

    Raises:
        OSError: the process does not exist or belongs to another user.
    """
    cores = sorted(os.sched_getaffinity(0))
    if server_pid is None or len(cores) < 2:
        yield Pinning()
        return
    before, server_cores = _threads_of(server_pid), os.sched_getaffinity(server_pid)
    try:
        for thread in before:
            _set_cores(thread, {cores[0]})
        os.sched_setaffinity(0, {cores[1]})
        yield Pinning((cores[0],), (cores[1],))
    finally:
        os.sched_setaffinity(0, set(cores))
        for thread, allowed in before.items():
            _set_cores(thread, allowed)
        with contextlib.suppress(ProcessLookupError, FileNotFoundError):  # the server may have ended
            # A thread that has started meanwhile has inherited the one core.
            for thread in _threads_of(server_pid).keys() - before.keys():
                _set_cores(thread, server_cores)


def _threads_of(pid: int) -> dict[int, set[int]]:
    """Each thread of the process and its descendants, with the cores that it may use. Raises OSError."""
    found: dict[int, set[int]] = {}
    for process in processes_of(pid):
        with contextlib.suppress(ProcessLookupError, FileNotFoundError):  # the process may have ended
            for path in Path(f"/proc/{process}/task").iterdir():
                with contextlib.suppress(ProcessLookupError):  # the thread may have ended
                    found[int(path.name)] = os.sched_getaffinity(int(path.name))
    return found


def _set_cores(thread: int, cores: set[int]) -> None:
    with contextlib.suppress(ProcessLookupError):  # the thread may have ended
        os.sched_setaffinity(thread, cores)
