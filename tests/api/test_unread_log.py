"""If nothing reads the server's log, the server drops lines, and delays no response, probe or shutdown."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence

import httpx
import pytest

from tests.api.echo import GOLDEN
from tests.api.server_process import HANG_TIMEOUT_S, NO_CERTIFICATES, ROOT
from tests.e2e.conftest import SERVE
from transduce.local_server import free_port

NUM_REQUESTS = 200
# The size of the log's pipe in bytes: the minimum that Linux permits.
PIPE_BYTES = 4096
BODY = {"text": GOLDEN, "source": "en", "target": "de"}


def start(command: Sequence[str], port: int, **settings: str) -> subprocess.Popen[bytes]:
    """A server whose log goes to a pipe that is not read."""
    environment = {**os.environ, "TRANSDUCE_PORT": str(port), **settings}
    return subprocess.Popen(
        command,
        cwd=ROOT,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        pipesize=PIPE_BYTES,
    )


def wait_until_ready(client: httpx.Client, process: subprocess.Popen[bytes]) -> None:
    until = time.monotonic() + HANG_TIMEOUT_S
    while True:
        try:
            if client.get("/readyz").status_code == 200:
                return
        except httpx.TransportError:
            assert process.poll() is None
        assert time.monotonic() < until
        time.sleep(0.05)


@pytest.mark.parametrize("kind", ["echo", "workers"])
def test_requests_are_answered_and_a_signal_ends_the_server(kind: str, echo_command: list[str]) -> None:
    port = free_port()
    command = [sys.executable, "-W", "error", "-m", *echo_command] if kind == "echo" else SERVE
    num_requests = NUM_REQUESTS if kind == "echo" else 5
    process = start(command, port, TRANSDUCE_LOG_LEVEL="debug", TRANSDUCE_NUM_LANES="2")
    try:
        with httpx.Client(
            base_url=f"http://127.0.0.1:{port}",
            trust_env=False,
            verify=NO_CERTIFICATES,
            timeout=HANG_TIMEOUT_S,
        ) as client:
            wait_until_ready(client, process)
            for _ in range(num_requests):
                assert client.post("/v1/translate", json=BODY).status_code == 200
            # At this log level each probe logs a line, too.
            for _ in range(NUM_REQUESTS):
                assert client.get("/livez").status_code == 200
        process.send_signal(signal.SIGTERM)
        assert process.wait(HANG_TIMEOUT_S) == 0
    finally:
        process.kill()
        process.wait()
        assert process.stdout is not None
        lines = process.stdout.read().splitlines()
        process.stdout.close()
    assert len(lines) < num_requests + NUM_REQUESTS, "the pipe must be full, so the server must drop lines"
    assert json.loads(lines[0])["event"]
