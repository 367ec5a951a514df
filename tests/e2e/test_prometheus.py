"""Every expression of deploy/ uses only metrics that a real server exposes, and a real Prometheus evaluates it."""

from __future__ import annotations

import hashlib
import re
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families

from tests.api.server_process import HANG_TIMEOUT_S, NO_CERTIFICATES, ServerProcess
from tests.deploy.monitoring import (
    FOLDER,
    RULES,
    alert_expressions,
    alerts,
    dashboard_expressions,
    scaler_expressions,
)
from tests.deploy.promql import read_expression
from tests.deploy.proxies import TAKEN
from tests.e2e.conftest import SERVE_BY_FORK
from transduce.local_server import free_port

Json = dict[str, Any]
KEY = "the-key-of-the-tests"  # its limits are far above what the tests use
# Metrics and labels that Prometheus itself adds.
OWN_METRICS = {"up"}
OWN_LABELS = {"job", "instance"}
# Expressions that may have no result on a healthy server: the share of refused or failed requests over time, the time
# of the queue (`>= 0` drops NaN while the speed is unknown), restarts.
MAY_BE_EMPTY = re.compile(
    r"sum\(rate\([^()]*code=~[^()]*\)( or rate\([^()]*\))?\) / sum\(rate\([^()]*\)( or rate\([^()]*\))?\)"
    r"|max\(transduce_queue_drain_seconds\{[^{}]*\} >= 0\)"
    r"|changes\(process_start_time_seconds\{[^{}]*\}\[1m\]\) > 0"
)


@pytest.fixture(scope="module")
def server(tiny_bundle: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    """A server with a key, which has had a few requests."""
    keys = tmp_path_factory.mktemp("keys") / "keys.toml"
    digest = hashlib.sha256(KEY.encode()).hexdigest()
    limits = "requests_per_day = 1000\ncharacters_per_month = 1000000\n"
    keys.write_text(f'[team]\nsha256 = "{digest}"\n{limits}', "utf-8")
    settings: dict[str, object] = {
        "bundle": tiny_bundle,
        "device": "cpu",
        "num_threads": 2,
        "num_lanes": 2,
        "api_keys_file": keys,
    }
    with ServerProcess(SERVE_BY_FORK, settings) as process, client_of(process.ready()) as client:
        use(client)
        yield process


def client_of(server: ServerProcess) -> httpx.Client:
    return server.client(headers={"Authorization": f"Bearer {KEY}"})


def use(client: httpx.Client) -> None:
    """Send a translation, the same again, a stream and an invalid request."""
    body = {"text": ["The station is near.", "It is late."], "source": "en", "target": "de"}
    for route in ("/v1/translate", "/v1/translate", "/v1/translate/stream"):
        assert client.post(route, json=body).status_code == 200
    assert client.post("/v1/translate", json={}).status_code == 422


@pytest.fixture(scope="module")
def exposed(server: ServerProcess) -> dict[str, set[str]]:
    """The labels of each series name of /metrics."""
    with client_of(server) as client:
        text = client.get("/metrics").text
    labels: dict[str, set[str]] = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            labels.setdefault(sample.name, set()).update(sample.labels)
    return labels


def unknown_names(expression: str, exposed: dict[str, set[str]]) -> list[str]:
    """The metrics and labels of an expression that the server does not expose."""
    reading = read_expression(expression)
    assert reading.selectors, expression
    known = set(OWN_LABELS)
    unknown = []
    for selector in reading.selectors:
        labels = set() if selector.metric in OWN_METRICS else exposed.get(selector.metric)
        if labels is None:
            unknown.append(selector.metric)
            continue
        known |= labels
        unknown += [f"{selector.metric}: {label}" for label in selector.labels - labels - OWN_LABELS]
    return [*unknown, *(reading.grouped_by - known)]


@pytest.mark.parametrize(
    "expressions",
    [alert_expressions, dashboard_expressions, scaler_expressions],
    ids=["alerts", "dashboard", "autoscalers"],
)
def test_every_metric_and_label_is_exposed(expressions: Any, exposed: dict[str, set[str]]) -> None:
    assert expressions()
    found = {name for expression in expressions() for name in unknown_names(expression, exposed)}
    assert found == set()


def test_an_unknown_name_is_found(exposed: dict[str, set[str]]) -> None:
    assert unknown_names("sum by (rute) (rate(transduce_ready[5m]))", exposed) == ["rute"]
    assert unknown_names('transduce_redy{job="}"} > 1 or vector(0)', exposed) == ["transduce_redy"]
    assert unknown_names('transduce_ready{instance=~"a{2}", jb="a"}', exposed) == ["transduce_ready: jb"]
    assert unknown_names('up{jb="transduce"} == 0', exposed) == ["up: jb"]


class Prometheus:
    """A Prometheus process that scrapes every second."""

    def __init__(self, program: str, folder: Path, target: str) -> None:
        """folder: for its configuration, its data and its log. target: host and port of the server."""
        document = yaml.safe_load((FOLDER / "prometheus.yml").read_text("utf-8"))
        document["global"] = {"scrape_interval": "1s", "scrape_timeout": "1s", "evaluation_interval": "1s"}
        document["rule_files"] = [str(RULES)]
        (job,) = (each for each in document["scrape_configs"] if each["job_name"] == "transduce")
        document["scrape_configs"] = [
            job
            | {
                "scrape_timeout": "1s",
                "static_configs": [{"targets": [target]}],
                "authorization": {"credentials": KEY},
            }
        ]
        (folder / "prometheus.yml").write_text(yaml.safe_dump(document), "utf-8")
        address = f"127.0.0.1:{free_port()}"
        self._client = httpx.Client(
            base_url=f"http://{address}", trust_env=False, verify=NO_CERTIFICATES, timeout=HANG_TIMEOUT_S
        )
        self._log = folder / "log"
        with self._log.open("wb") as output:
            self._process = subprocess.Popen(
                [
                    program,
                    f"--config.file={folder / 'prometheus.yml'}",
                    f"--storage.tsdb.path={folder / 'data'}",
                    f"--web.listen-address={address}",
                ],
                stdout=output,
                stderr=subprocess.STDOUT,
            )

    def close(self) -> None:
        self._process.kill()
        self._process.wait()
        self._client.close()

    def get(self, path: str, **parameters: str) -> Json:
        answer = self._client.get(f"/api/v1/{path}", params=parameters)
        document: Json = answer.json()
        assert document["status"] == "success", f"{parameters}: {document}"
        data: Json = document["data"]
        return data

    def query(self, expression: str) -> list[Json]:
        """The result of an instant query."""
        result: list[Json] = self.get("query", query=expression)["result"]
        return result

    def wait_for(self, expression: str) -> None:
        """Wait until a query has a result."""
        until = time.monotonic() + HANG_TIMEOUT_S
        while not self.query(expression):
            assert time.monotonic() < until, f"{expression}\n{self._log.read_text('utf-8')}"
            time.sleep(0.2)

    def wait_until_ready(self) -> bool:
        """Wait until Prometheus answers queries. Returns False if another process has taken the port meanwhile."""
        until = time.monotonic() + HANG_TIMEOUT_S
        while not self._is_ready():
            has_ended, log = self._process.poll() is not None, self._log.read_text("utf-8")
            if has_ended and TAKEN in log.lower():
                return False
            assert not has_ended, log
            assert time.monotonic() < until, log
            time.sleep(0.2)
        return True

    def _is_ready(self) -> bool:
        """Whether Prometheus answers queries. While it starts, it does not listen, or it answers 503."""
        try:
            return self._client.get("/-/ready").is_success
        except httpx.TransportError:
            return False


@contextmanager
def running(folder: Path, target: str) -> Iterator[Prometheus]:
    """Run Prometheus, and yield it when it answers. Skips the test if the program is not installed.

    folder, target: as for `Prometheus`.
    """
    program = shutil.which("prometheus")
    if program is None:
        pytest.skip("prometheus is not here: install Debian's package prometheus")
    is_started = False
    while not is_started:
        with closing(Prometheus(program, folder, target)) as process:
            is_started = process.wait_until_ready()
            if is_started:
                yield process


@pytest.fixture(scope="module")
def prometheus(server: ServerProcess, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Prometheus]:
    with running(tmp_path_factory.mktemp("prometheus"), f"127.0.0.1:{server.port}") as process:
        process.wait_for('up{job="transduce"} == 1')
        with client_of(server) as client:
            use(client)
        process.wait_for("count_over_time(transduce_ready[1m]) >= 3")
        yield process


def test_prometheus_evaluates_the_dashboard_and_the_autoscalers(prometheus: Prometheus) -> None:
    empty = [
        expression
        for expression in (*dashboard_expressions(), *scaler_expressions())
        if not prometheus.query(expression) and not MAY_BE_EMPTY.fullmatch(expression)
    ]
    assert empty == []
    assert float(prometheus.query("sum(transduce_ready)")[0]["value"][1]) == 1


def test_prometheus_evaluates_the_alerts_and_none_fires(prometheus: Prometheus) -> None:
    until = time.monotonic() + HANG_TIMEOUT_S
    while True:
        rules = [rule for group in prometheus.get("rules")["groups"] for rule in group["rules"]]
        if all(rule["health"] != "unknown" for rule in rules) or time.monotonic() > until:
            break
        time.sleep(0.2)
    states = {rule["name"]: (rule["health"], rule["state"]) for rule in rules}
    assert states == {rule["alert"]: ("ok", "inactive") for rule in alerts()}


def test_a_prometheus_whose_port_is_taken_gets_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        ports = [taken.getsockname()[1], free_port()]
        monkeypatch.setattr("tests.e2e.test_prometheus.free_port", lambda: ports.pop(0))
        with running(tmp_path, "127.0.0.1:1") as prometheus:
            assert prometheus.query("vector(1)")
        assert not ports
