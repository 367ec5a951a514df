"""The soak's check passes a server that does not leak, and refuses the same server while it leaks on purpose."""

from __future__ import annotations

import itertools
import json
import socket
import sys
import time
from collections import Counter
from pathlib import Path

import pytest

from benchmarks.soak import ROW_CACHES, Traffic
from tests.api.server_process import ServerProcess
from tests.faults import soak
from tests.faults.chaos import BUNDLED
from tests.faults.soak import Sample, problems, sample_memory, slope, words

COMMAND = [sys.executable, "-W", "error", "-m", "tests.faults.leaking_server"]
SETTINGS: dict[str, object] = {
    "bundle": BUNDLED,
    "precision": "int8",
    "num_threads": 1,
    "sentence_cache_bytes": 0,
}
LEAKED_BYTES = 400_000
# In bytes a request. A short run sees the allocator's jumps, so this limit is higher than the limit of `make soak`.
MAX_SLOPE = 120_000
# Shorter than the usual slice, so that a sample has few requests more than NUM_REQUESTS.
SLICE_S = 0.1
NUM_CLIENTS, NUM_REQUESTS, NUM_SAMPLES = 4, 60, 5


class ShortTraffic(Traffic):
    """Traffic whose valid requests are one short line."""

    def _request(self) -> tuple[str, bytes]:
        fields = {"text": "The old house is empty.", "source": "en", "target": "de", "beam_size": 1}
        return "/v1/translate", json.dumps(fields).encode()


@pytest.mark.server
@pytest.mark.slow
def test_a_leak_is_caught(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    leak_file = tmp_path / "leak"
    monkeypatch.setattr(soak, "SLICE_S", SLICE_S)
    monkeypatch.setenv("LEAK_FILE", str(leak_file))
    monkeypatch.setenv("LEAKED_BYTES", str(LEAKED_BYTES))
    with ServerProcess(COMMAND, SETTINGS) as server:
        port = server.ready().port
        clients = [ShortTraffic(port, seed, words()) for seed in range(NUM_CLIENTS)]
        samples = sample_memory(server.pid, clients, num_requests=NUM_REQUESTS)
        next(itertools.islice(samples, 2, 2), None)  # skips two samples, the warm-up
        steady = slope(list(itertools.islice(samples, NUM_SAMPLES)))
        leak_file.touch()
        leaking = slope(list(itertools.islice(samples, NUM_SAMPLES)))
    assert steady < MAX_SLOPE < leaking
    assert leaking < 1.5 * LEAKED_BYTES


def test_traffic_goes_on_while_no_server_answers() -> None:
    """Also for requests whose client would disconnect early."""
    with socket.create_server(("127.0.0.1", 0)) as unused:
        port = unused.getsockname()[1]
    client = ShortTraffic(port, 1, ["a"])
    client.run(time.monotonic() + 0.1)
    assert client.counts.keys() == {"connection failed"}


def test_row_caches_are_counted_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(soak, "processes_of", lambda pid: [pid, pid + 1])
    monkeypatch.setattr(soak, "private_memory", lambda _pid: {ROW_CACHES: 2.0, "kernels": 3.0, "files": 1.0})
    client = ShortTraffic(1, 1, ["a"])
    client.counts["200"] = 7
    assert next(sample_memory(1, [client], num_requests=7)) == Sample(7, 8e6, 4e6)


@pytest.mark.parametrize(
    ("counts", "problem"),
    [
        ({"200": 70, "400": 10, "429": 15, "503": 5, "disconnected": 500}, None),
        ({"200": 69, "413": 31, "disconnected": 500}, "69 of 100 requests got 200, less than 70%"),
        ({"200": 99, "500": 1}, "500: 1 requests"),
        ({"200": 99, "connection failed": 1}, "connection failed: 1 requests"),
    ],
)
def test_a_soak_without_translations_or_with_failures_fails(
    counts: dict[str, int], problem: str | None
) -> None:
    assert problems(Counter(counts)) == ([] if problem is None else [problem])


def test_one_early_jump_is_no_slope() -> None:
    assert slope([Sample(100 * number, 1e6 * (number > 1)) for number in range(12)]) == 0.0
    assert slope([Sample(100 * number, 5e4 * number) for number in range(5)]) == 500.0
