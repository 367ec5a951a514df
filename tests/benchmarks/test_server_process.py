"""Measured servers as processes: their cores, settings and end."""

from __future__ import annotations

import os
import subprocess
import sys

import psutil
import pytest

from benchmarks.http.process_tree import ProcessTree
from benchmarks.http.subjects import echo
from benchmarks.machine import ROOT
from benchmarks.server_process import ALL_CORES, Command, Process, ServeOptions, ServerProcess, StartError

BUNDLE = ROOT / "bundles" / "en-de"
# SIGTERM ends this server. Its child process holds 50 MB and goes on after the server has ended.
WITH_CHILD = """
import subprocess, sys, http.server
code = "import time; data = b'x' * 50_000_000; print(flush=True); time.sleep(600)"
child = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE)
child.stdout.readline()
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200); self.end_headers(); self.wfile.write(str(child.pid).encode())
    def log_message(self, *_): pass
http.server.HTTPServer(("127.0.0.1", int(sys.argv[1])), Handler).serve_forever()
"""


def test_the_module_needs_only_the_standard_library() -> None:
    done = subprocess.run(
        [sys.executable, "-S", "-c", "import benchmarks.server_process"],
        check=False,
        cwd=ROOT,
        capture_output=True,
    )
    assert not done.returncode, done.stderr.decode()


@pytest.mark.server
def test_our_server_reports_its_metrics_and_its_memory() -> None:
    with ServerProcess(ServeOptions(sys.executable, BUNDLE)) as server:
        assert 0 < server.ready_s < 60
        assert server.metric("transduce_ready") == 1
        assert server.metric("no_such_metric") == 0
        assert server.peak_memory_mb() > 50
        assert server.cpu_time_s() > 0.1
        process = psutil.Process(server.pid)
    assert not process.is_running()


@pytest.mark.server
def test_child_processes_are_measured_and_ended_with_their_server() -> None:
    command = Command(lambda port: [sys.executable, "-c", WITH_CHILD, str(port)], ready_path="/")
    with ProcessTree(command) as tree:
        child = psutil.Process(int(tree.get("/")))
        own = psutil.Process(tree.pid)
        alone_mb, child_mb = (each.memory_full_info().pss / 1e6 for each in (own, child))
        # Other processes that map the same pages change the proportional shares. The change is less than half of the
        # child's memory.
        assert tree.memory().pss_mb == pytest.approx(alone_mb + child_mb, abs=child_mb / 2)
    assert not own.is_running()
    assert not child.is_running() or child.status() == psutil.STATUS_ZOMBIE


@pytest.mark.server
@pytest.mark.skipif(len(ALL_CORES) < 2, reason="with one core, every process runs on the chosen one")
def test_a_server_runs_on_the_chosen_cores() -> None:
    core = min(ALL_CORES)
    own = os.sched_getaffinity(0)
    with Process(echo().command, cores=frozenset({core})) as server:
        assert psutil.Process(server.pid).cpu_affinity() == [core]
    assert os.sched_getaffinity(0) == own


def test_the_error_of_a_failed_start_has_the_servers_last_output() -> None:
    code = "import sys; sys.exit('no model here')"
    with (
        pytest.raises(StartError, match="no model here"),
        Process(Command(lambda _: [sys.executable, "-c", code])),
    ):
        pass


def test_the_measured_server_does_not_inherit_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRANSDUCE_NO_SUCH_SETTING", "1")
    code = "import os, sys; sys.exit(' '.join(sorted(name for name in os.environ if name.startswith('TRANSDUCE'))))"
    command = Command(lambda _: [sys.executable, "-c", code], {"TRANSDUCE_COALESCE": "false"})
    with pytest.raises(StartError) as raised, Process(command):
        pass
    assert "TRANSDUCE_COALESCE" in str(raised.value)
    assert "NO_SUCH" not in str(raised.value)
