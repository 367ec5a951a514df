"""The only line that a start prints on a terminal: the address of the page or of the API."""

from __future__ import annotations

import os
import pty
import re
import select
import signal
import subprocess
import sys
from pathlib import Path

import httpx
import pytest

from tests.api.certificates import make_certificate, trusting
from tests.api.server_process import HANG_TIMEOUT_S, ROOT, ServerProcess

PYTHON = (sys.executable, "-W", "error", "-m")


@pytest.mark.parametrize(
    ("settings", "line"),
    [
        ({}, r"Transduce is ready: the page is at (http://127\.0\.0\.1:\d+)/\r\n"),
        ({}, r"Transduce is ready: the page is at (https://127\.0\.0\.1:\d+)/\r\n"),
        (
            {"TRANSDUCE_HOST": "0.0.0.0", "TRANSDUCE_PAGE_ENABLED": "false"},
            r"Transduce is ready: the API is at (http://127\.0\.0\.1:\d+)/v1/translate\r\n",
        ),
    ],
)
def test_a_terminal_shows_the_address(
    echo_command: list[str], settings: dict[str, str], line: str, tmp_path: Path
) -> None:
    certificate, key = make_certificate(tmp_path)
    if "https" in line:
        settings = {"TRANSDUCE_TLS_CERTIFICATE": str(certificate), "TRANSDUCE_TLS_KEY": str(key)}
    our_end, child_end = pty.openpty()
    environment = {**os.environ, "TRANSDUCE_PORT": "0", **settings}
    command = [*PYTHON, *echo_command]
    process = subprocess.Popen(
        command, cwd=ROOT, env=environment, stdout=subprocess.DEVNULL, stderr=child_end
    )
    os.close(child_end)
    try:
        readable, _, _ = select.select([our_end], [], [], HANG_TIMEOUT_S)
        printed = os.read(our_end, 1000).decode() if readable else ""
        found = re.fullmatch(line, printed)
        assert found, printed
        trusted = trusting(certificate)
        answer = httpx.get(f"{found[1]}/readyz", verify=trusted, timeout=HANG_TIMEOUT_S, trust_env=False)
        assert answer.status_code == 200
        process.send_signal(signal.SIGTERM)
        assert process.wait(HANG_TIMEOUT_S) == 0
    finally:
        process.kill()
        process.wait()
        os.close(our_end)


def test_without_a_terminal_nothing_is_printed(echo_command: list[str]) -> None:
    with ServerProcess(echo_command) as server:
        server.ready().signal()
        assert server.ended() == 0
        assert server.errors == []
