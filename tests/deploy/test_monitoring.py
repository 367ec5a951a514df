"""The files of deploy/monitoring: valid, consistent with each other, with the server and with the documentation."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from app.api.http.error_table import ANSWERS
from app.api.v2.routes import QUOTA_EXCEEDED
from app.errors import RetryLater
from tests.deploy.monitoring import FOLDER, RULES, alerts, dashboard, panels
from tests.deploy.promql import read_expression
from tests.house_rules.project import ROOT
from tests.house_rules.test_links import anchors

Json = dict[str, Any]
COMPOSE = FOLDER / "docker-compose.monitoring.yml"
UNIT_TESTS = Path(__file__).parent / "alerts_test.yml"


def read(path: Path) -> Json:
    document: Json = yaml.safe_load(path.read_text("utf-8"))
    return document


@pytest.mark.seconds
@pytest.mark.parametrize(
    "arguments",
    [
        ["check", "config", FOLDER / "prometheus.yml"],
        ["check", "rules", RULES],
        ["test", "rules", UNIT_TESTS],
    ],
    ids=lambda arguments: " ".join(arguments[:2]),
)
def test_promtool_finds_no_fault(arguments: list[str | Path]) -> None:
    promtool = shutil.which("promtool")
    if promtool is None:
        pytest.skip("promtool is not here: install Debian's package prometheus")
    done = subprocess.run([promtool, *arguments], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_every_alert_has_a_unit_test() -> None:
    tested: dict[str, list[Json]] = {}
    for each in read(UNIT_TESTS)["tests"]:
        for case in each["alert_rule_test"]:
            tested.setdefault(case["alertname"], []).extend(case.get("exp_alerts", []))
    assert tested.keys() == {rule["alert"] for rule in alerts()}
    assert [name for name, fired in tested.items() if not fired] == []


def test_every_alert_has_a_severity_and_a_runbook() -> None:
    for rule in alerts():
        assert rule["labels"]["severity"] in {"critical", "warning"}
        assert {"summary", "description"} <= rule["annotations"].keys()
        page, _, heading = rule["annotations"]["runbook_url"].partition("#")
        assert heading == rule["alert"].lower()
        assert heading in anchors(ROOT / page), heading


def test_every_runbook_has_its_alert() -> None:
    text = (ROOT / "docs" / "monitoring.md").read_text("utf-8")
    assert set(re.findall(r"^### (Transduce\w+)$", text, re.MULTILINE)) == {
        rule["alert"] for rule in alerts()
    }


def test_the_command_in_the_documentation_makes_a_prometheus_rule() -> None:
    text = (ROOT / "docs" / "kubernetes.md").read_text("utf-8")
    (command,) = re.findall(r"^(\{ echo .*?) \| kubectl", text, re.MULTILINE | re.DOTALL)
    made = subprocess.run(
        ["bash", "-c", command], cwd=ROOT, capture_output=True, check=True, timeout=10
    ).stdout
    rule = yaml.safe_load(made)
    assert (rule["apiVersion"], rule["kind"]) == ("monitoring.coreos.com/v1", "PrometheusRule")
    assert rule["spec"] == read(RULES)


def test_panels_have_descriptions_and_do_not_overlap() -> None:
    taken: set[tuple[int, int]] = set()
    for panel in dashboard()["panels"]:
        place = panel["gridPos"]
        cells = {
            (x, y)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        }
        assert max(x for x, _ in cells) < 24
        assert not cells & taken, panel["title"]
        taken |= cells
    numbers = [panel["id"] for panel in dashboard()["panels"]]
    assert len(set(numbers)) == len(numbers)
    assert [panel["title"] for panel in panels() if not panel["description"]] == []


def test_the_panels_of_refusals_count_every_refusal() -> None:
    shares = [
        target["expr"].removesuffix(" >= 0 or vector(0)")
        for panel in panels()
        for target in panel["targets"]
        if panel["title"] == "Refusals" or target.get("legendFormat") == "refusals"
    ]
    assert len(shares) == 2
    assert shares[0] == shares[1], "one panel shows the share now, the other shows it over time"
    counted, everything = shares[0].split(" / ")
    statuses = {str(answer.status) for error, answer in ANSWERS.items() if issubclass(error, RetryLater)}
    assert set(re.findall(r'code=~"([^"]+)"', counted)[0].split("|")) == statuses | {str(QUOTA_EXCEEDED)}
    for part in (counted, everything):
        assert 'or rate(transduce_rejected_total{job="$job", instance=~"$instance", reason="unread"}' in part


def test_every_query_is_limited_to_the_chosen_source_job_and_servers() -> None:
    annotations = dashboard()["annotations"]["list"]
    for query in [*annotations, *(target for panel in panels() for target in panel["targets"])]:
        assert query["datasource"]["uid"] == "${datasource}"
        for selector in read_expression(query["expr"]).selectors:
            assert 'job="$job"' in selector.text, selector.text
            assert 'instance=~"$instance"' in selector.text, selector.text
    names = [variable["name"] for variable in dashboard()["templating"]["list"]]
    assert names == ["datasource", "job", "instance"]


def test_grafana_finds_prometheus_and_the_dashboard() -> None:
    (source,) = read(FOLDER / "grafana" / "provisioning" / "datasources" / "prometheus.yml")["datasources"]
    services = read(COMPOSE)["services"]
    assert source["url"] == "http://prometheus:9090"
    assert "prometheus" in services
    (provider,) = read(FOLDER / "grafana" / "provisioning" / "dashboards" / "transduce.yml")["providers"]
    mounts = mounted(services["grafana"])
    assert mounts[provider["options"]["path"]] == "./grafana/dashboards"
    assert mounts["/etc/grafana/provisioning"] == "./grafana/provisioning"


def test_prometheus_scrapes_the_probe_port_of_the_service() -> None:
    jobs = {job["job_name"]: job for job in read(FOLDER / "prometheus.yml")["scrape_configs"]}
    port = read(COMPOSE)["services"]["transduce"]["environment"]["TRANSDUCE_PROBE_PORT"]
    assert jobs["transduce"]["static_configs"] == [{"targets": [f"transduce:{port}"]}]
    mounts = mounted(read(COMPOSE)["services"]["prometheus"])
    assert mounts["/etc/prometheus/prometheus.yml"] == "./prometheus.yml"
    assert mounts["/etc/prometheus/rules"] == "./rules"


def test_the_server_extends_the_main_compose_file() -> None:
    base = read(ROOT / "docker-compose.yml")
    service = read(COMPOSE)["services"]["transduce"]["extends"]
    assert (FOLDER / service["file"]).resolve() == ROOT / "docker-compose.yml"
    assert service["service"] in base["services"]
    assert base["volumes"].keys() <= read(COMPOSE)["volumes"].keys()


def test_every_log_has_a_bound() -> None:
    """Docker's default log driver has no bound."""
    services = [
        service
        for path in (ROOT / "docker-compose.yml", COMPOSE)
        for service in read(path)["services"].values()
        if "extends" not in service
    ]
    assert len(services) == 4
    for service in services:
        assert service["logging"] == {
            "driver": "json-file",
            "options": {"max-size": "50m", "max-file": "5"},
        }


@pytest.mark.parametrize("name", ["prometheus", "grafana"])
def test_monitoring_services_are_pinned_restricted_and_listen_on_loopback(name: str) -> None:
    service = read(COMPOSE)["services"][name]
    assert re.fullmatch(r"[a-z]+/[a-z]+:v?\d+\.\d+\.\d+", service["image"])
    assert all(port.startswith("127.0.0.1:") for port in service["ports"])
    assert (service["read_only"], service["cap_drop"]) == (True, ["ALL"])
    assert "mem_limit" in service
    for source in mounted(service).values():
        assert (FOLDER / source).exists() or source in read(COMPOSE)["volumes"]


def mounted(service: Json) -> dict[str, str]:
    """The service's mounts: path in the container -> path beside the compose file, or volume."""
    pairs = (volume.removesuffix(":ro").split(":") for volume in service["volumes"])
    return {target: source for source, target in pairs}
