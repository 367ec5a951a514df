"""SIGHUP loads the bundles again and replaces the models: no request fails, and a broken bundle changes nothing."""

from __future__ import annotations

import json
import os
import pty
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import psutil
import pytest

from tests.api.server_process import HANG_TIMEOUT_S, ROOT, ServerProcess
from tests.bundles.copies import copy_bundle
from tests.e2e.conftest import SERVE, SERVE_BY_FORK

BUNDLED = ROOT / "bundles" / "en-de"
TEXT = "The station is near the old bridge. It is late, and I would like to go home."
NUM_CLIENTS = 4
# Prints the signals that `transduce serve` blocks before it imports the server.
SHOW_BLOCKED = """
import signal, sys
from transduce import cli
cli.run_subcommand = lambda *_: print(*map(int, signal.pthread_sigmask(signal.SIG_BLOCK, ())))
sys.argv = ["transduce", "serve"]
cli.main()
"""


def write_bundle(folder: Path, version: str) -> Path:
    """Write the bundled model to `folder` with this version."""
    return copy_bundle(BUNDLED, folder, name="en-de", version=version)


@pytest.fixture
def bundle(tmp_path: Path) -> Path:
    return write_bundle(tmp_path / "bundle", "1")


@pytest.fixture
def server(bundle: Path) -> Iterator[ServerProcess]:
    settings: dict[str, object] = {
        "num_threads": 2,
        "num_lanes": 2,
        "device": "cpu",
        "sentence_cache_bytes": 0,
    }
    with ServerProcess([*SERVE_BY_FORK, "--bundle", str(bundle)], settings) as process:
        yield process.ready()


def post(client: httpx.Client) -> httpx.Response:
    return client.post("/v1/translate", json={"text": TEXT, "source": "en", "target": "de"})


def versions_under_load(server: ServerProcess, action: Callable[[], None]) -> list[str]:
    """Translate with several clients while `action` runs. Each answer must be 200. Returns the version in each."""
    is_over = threading.Event()

    def client_loop() -> list[str]:
        found = []
        with server.client() as client:
            while not is_over.is_set():
                answer = post(client)
                assert answer.status_code == 200, answer.text
                found.append(answer.json()["model"]["version"])
        return found

    with ThreadPoolExecutor(NUM_CLIENTS) as pool:
        loops = [pool.submit(client_loop) for _ in range(NUM_CLIENTS)]
        try:
            action()
        finally:
            is_over.set()
        return [version for loop in loops for version in loop.result()]


def test_a_new_version_replaces_the_old_one_and_no_request_fails(server: ServerProcess, bundle: Path) -> None:
    process = psutil.Process(server.pid)
    old_workers = process.children(recursive=True)

    def reload_twice() -> None:
        for version in ("2", "3"):
            write_bundle(bundle, version)
            process.send_signal(signal.SIGHUP)
            assert server.wait_for("reloaded")["version"] == version
        with server.client() as client:
            for _ in range(3):
                assert post(client).json()["model"]["version"] == "3"

    found = versions_under_load(server, reload_twice)
    assert {"1", "3"} <= set(found) <= {"1", "2", "3"}
    _, alive = psutil.wait_procs(old_workers, timeout=60)
    assert not alive, "the old workers are still running"
    assert len(process.children(recursive=True)) == len(old_workers)
    assert server.metric('transduce_reloads_total{outcome="done"}') == 2


def test_a_signal_during_the_start_reloads_after_it(bundle: Path) -> None:
    command = [*SERVE_BY_FORK, "--bundle", str(bundle)]
    with ServerProcess(command, {"num_threads": 1, "device": "cpu"}) as process:
        process.listening()
        process.signal(signal.SIGHUP)
        process.wait_for("reloading")
        process.wait_for("ready")
        assert process.wait_for("reloaded")["version"] == "1"


def blocks(pid: int, number: signal.Signals) -> bool:
    """Whether the main thread of a process blocks a signal."""
    (mask,) = re.findall(r"^SigBlk:\s*(\w+)$", Path(f"/proc/{pid}/status").read_text("ascii"), re.MULTILINE)
    return bool(int(mask, 16) >> (number - 1) & 1)


def test_a_signal_before_the_server_is_imported_reloads_after_the_start(tiny_bundle: Path) -> None:
    settings: dict[str, object] = {"bundle": tiny_bundle, "num_threads": 1, "device": "cpu"}
    with ServerProcess(SERVE, settings) as process:
        until = time.monotonic() + HANG_TIMEOUT_S
        while not blocks(process.pid, signal.SIGTERM):
            assert time.monotonic() < until
        process.signal(signal.SIGHUP)
        process.wait_for("ready")
        process.wait_for("reloaded")


@pytest.mark.parametrize("has_terminal", [True, False])
def test_an_early_sighup_ends_only_a_server_on_a_terminal(has_terminal: bool) -> None:
    our_end, terminal = pty.openpty()
    try:
        stderr = terminal if has_terminal else subprocess.DEVNULL
        command = [sys.executable, "-c", SHOW_BLOCKED]
        shown = subprocess.check_output(command, cwd=ROOT, stderr=stderr, text=True, timeout=HANG_TIMEOUT_S)
    finally:
        os.close(our_end)
        os.close(terminal)
    blocked = {signal.SIGINT, signal.SIGTERM} | (set() if has_terminal else {signal.SIGHUP})
    assert {int(number) for number in shown.split()} == blocked


def test_a_broken_bundle_changes_nothing(server: ServerProcess, bundle: Path) -> None:
    (bundle / "source.spm").write_bytes(b"not a tokenizer")
    psutil.Process(server.pid).send_signal(signal.SIGHUP)
    assert "source.spm" in json.dumps(server.wait_for("reload_failed"))
    with server.client() as client:
        assert post(client).json()["model"]["version"] == "1"
        assert client.get("/readyz").status_code == 200
    write_bundle(bundle, "2")
    psutil.Process(server.pid).send_signal(signal.SIGHUP)
    assert server.wait_for("reloaded")["version"] == "2"
