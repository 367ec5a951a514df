"""A Ray cluster of this machine, which serves deploy/ray/serve.yaml with changes. Ray's own commands start it."""

from __future__ import annotations

import json
import os
import shutil
import signal
import ssl
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import httpx
import psutil
import yaml

from benchmarks.machine import ROOT
from transduce.local_server import free_port

# Seconds after which a start counts as failed. Only a hang takes longer, even on a busy machine.
HANG_TIMEOUT_S = 240.0
CONFIG = ROOT / "deploy" / "ray" / "serve.yaml"
OBJECT_STORE_BYTES = 100_000_000  # Ray's minimum is 75 MiB
ENVIRONMENT = {
    # On a busy machine, processes with Ray's niceness of 15 get little time.
    "RAY_worker_niceness": "0",
    # On a busy machine, the start of Ray's proxy takes longer than Ray's 5 s.
    "RAY_SERVE_PROXY_READY_CHECK_TIMEOUT_S": "60",
    "RAY_SERVE_PROXY_HEALTH_CHECK_TIMEOUT_S": "60",
    "PYTHONPATH": str(ROOT),
    # A replica reports its queue every 10 s by default. Tests of autoscaling would wait for each report.
    "RAY_SERVE_REPLICA_AUTOSCALING_METRIC_PUSH_INTERVAL_S": "1",
    # Usage statistics would leave this machine.
    "RAY_USAGE_STATS_ENABLED": "0",
}
NAME = "transduce"
REPLICA = f"ray::ServeReplica:{NAME}"
SCRIPTS = Path(sys.executable).parent


class RayCluster:
    """A cluster of one node. It starts on entry and ends on exit, with all of its processes."""

    def __init__(self, *, num_cpus: int = 2) -> None:
        self._num_cpus = num_cpus
        self.port = 0

    def __enter__(self) -> Self:
        # Ray puts sockets into this folder. The paths of sockets must be short.
        self._folder = Path(tempfile.mkdtemp(prefix="ray"))
        self._address = f"127.0.0.1:{free_port()}"
        self.port = free_port()
        self._log = (self._folder / "start.log").open("w+b")
        command = [
            *("start", "--head", "--block", "--include-dashboard=false", "--node-ip-address=127.0.0.1"),
            f"--port={self._address.rpartition(':')[2]}",
            f"--num-cpus={self._num_cpus}",
            f"--object-store-memory={OBJECT_STORE_BYTES}",
            f"--temp-dir={self._folder / 'r'}",
        ]
        self._head = subprocess.Popen(
            [str(SCRIPTS / "ray"), *command],
            cwd=ROOT,
            env=_environment(),
            stdin=subprocess.DEVNULL,
            stdout=self._log,
            stderr=subprocess.STDOUT,
        )
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        processes = self._children()
        self._head.send_signal(signal.SIGTERM)
        _, alive = psutil.wait_procs(processes, timeout=20)
        for process in alive:
            process.kill()
        self._head.kill()
        self._head.wait()
        self._log.close()
        shutil.rmtree(self._folder, ignore_errors=True)

    def deploy(
        self, settings: Mapping[str, object] | None = None, *, name: str = NAME, **deployment: object
    ) -> None:
        """Serve with these settings. Returns when Ray has accepted the configuration.

        name: of the application. If an application with another name runs, Ray ends it, and the new one starts with its
        minimum number of replicas. deployment: fields that change the deployment in serve.yaml. `autoscaling_config`
        changes only the fields that it names. With `num_replicas`, the deployment has no autoscaling_config.
        """
        self.deploy_at({"/": settings or {}}, name=name, **deployment)

    def deploy_at(
        self, settings: Mapping[str, Mapping[str, object]], *, name: str = NAME, **deployment: object
    ) -> None:
        """Serve several applications, as `deploy` serves one. settings: of each application, by its route prefix."""
        config = yaml.safe_load(CONFIG.read_text("utf-8"))
        config["http_options"] = {"host": "127.0.0.1", "port": self.port}
        (application,) = config["applications"]
        (one,) = application["deployments"]
        scaling = deployment.pop("autoscaling_config", None)
        if "num_replicas" in deployment:
            del one["autoscaling_config"]
        elif isinstance(scaling, dict):
            one["autoscaling_config"] |= scaling
        one |= {"ray_actor_options": {"num_cpus": 1}, **deployment}
        config["applications"] = [
            {**application, "name": f"{name}{number or ''}", "route_prefix": prefix, "args": dict(args)}
            for number, (prefix, args) in enumerate(settings.items())
        ]
        file = self._folder / "serve.yaml"
        file.write_text(yaml.safe_dump(config), "utf-8")
        self._wait(self._is_started, "the cluster has started")
        done = subprocess.run(
            [str(SCRIPTS / "serve"), "run", "--non-blocking", f"--address={self._address}", str(file)],
            cwd=ROOT,
            env=_environment(),
            check=False,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=HANG_TIMEOUT_S,
        )
        assert done.returncode == 0, done.stdout[-3000:]

    def client(self, **options: Any) -> httpx.Client:
        """A client of Ray's proxy. It loads no certificates, because loading them takes long."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        return httpx.Client(
            base_url=self.url, trust_env=False, verify=context, timeout=HANG_TIMEOUT_S, **options
        )

    @property
    def url(self) -> str:
        """The root URL of Ray's proxy."""
        return f"http://127.0.0.1:{self.port}"

    def pids(self) -> list[int]:
        """Process ids of all of the cluster's processes."""
        return [self._head.pid, *(one.pid for one in self._children())]

    def replicas(self) -> list[int]:
        """Process ids of the replicas, without those that have ended."""
        return sorted(process.pid for process in self._children() if _title(process).startswith(REPLICA))

    def wait_for_replicas(self, number: int, *, without: Collection[int] = ()) -> list[int]:
        """Wait until this many replicas have said that they are ready. without: process ids that have to be gone."""

        def are_ready() -> bool:
            found = self.replicas()
            return len(found) == number and not {*without} & {*found} and {*found} <= self._ready()

        self._wait(are_ready, f"{number} replicas are ready")
        return self.replicas()

    def lines(self, event: str) -> dict[int, int]:
        """How many lines of an event each replica has logged, by process id."""
        found: dict[int, int] = {}
        for file in self._folder.glob("r/session_latest/logs/worker-*.out"):
            for line in file.read_text("utf-8").splitlines():
                if line.startswith("{") and json.loads(line)["event"] == event:
                    pid = int(file.stem.rpartition("-")[2])
                    found[pid] = found.get(pid, 0) + 1
        return found

    def _children(self) -> list[psutil.Process]:
        """The cluster's processes without its first one, `ray start`; empty when that one has ended."""
        try:
            return psutil.Process(self._head.pid).children(recursive=True)
        except psutil.NoSuchProcess:
            return []

    def _ready(self) -> set[int]:
        return set(self.lines("ready"))

    def _is_started(self) -> bool:
        self._log.seek(0)
        assert self._head.poll() is None, self._log.read().decode()
        return b"Ray runtime started" in self._log.read()

    def _wait(self, is_met: Callable[[], bool], condition: str) -> None:
        """Wait until `is_met` returns True. condition: what that means, for the message of a failure."""
        until = time.monotonic() + HANG_TIMEOUT_S
        while not is_met():
            assert time.monotonic() < until, (
                f"waited {HANG_TIMEOUT_S} s until {condition}; processes of replicas: {self.replicas()}"
            )
            time.sleep(0.5)


def _environment() -> dict[str, str]:
    inherited = {
        name: value for name, value in os.environ.items() if not name.startswith(("RAY_", "TRANSDUCE_"))
    }
    return {**inherited, **ENVIRONMENT}


def _title(process: psutil.Process) -> str:
    try:
        return " ".join(process.cmdline())
    except psutil.Error:
        return ""
