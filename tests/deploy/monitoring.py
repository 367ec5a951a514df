"""The alerts and the dashboard of deploy/, and the Prometheus expressions of these and of the autoscalers."""

from __future__ import annotations

import json
from typing import Any

import yaml

from tests.house_rules.project import ROOT

Json = dict[str, Any]
FOLDER = ROOT / "deploy" / "monitoring"
RULES = FOLDER / "rules" / "transduce.yml"
SCALER = ROOT / "deploy" / "kubernetes" / "components" / "keda" / "scaled-object.yaml"
# A value of each of Grafana's variables in the dashboard, because PromQL has no variables.
VARIABLES = {"$__rate_interval": "1m", "$job": "transduce", "$instance": ".*"}


def alerts() -> list[Json]:
    """The alert rules."""
    groups = yaml.safe_load(RULES.read_text("utf-8"))["groups"]
    return [rule for group in groups for rule in group["rules"]]


def dashboard() -> Json:
    """The Grafana dashboard."""
    found: Json = json.loads((FOLDER / "grafana" / "dashboards" / "transduce.json").read_text("utf-8"))
    return found


def panels() -> list[Json]:
    """The panels, without the rows that group them."""
    return [panel for panel in dashboard()["panels"] if panel["type"] != "row"]


def dashboard_expressions() -> list[str]:
    """The dashboard's expressions, with its variables replaced."""
    targets = [target["expr"] for panel in panels() for target in panel["targets"]]
    targets += [annotation["expr"] for annotation in dashboard()["annotations"]["list"]]
    return [_replaced(target) for target in targets]


def alert_expressions() -> list[str]:
    """The expressions of the alerts."""
    return [rule["expr"] for rule in alerts()]


def scaler_expressions() -> list[str]:
    """The queries of KEDA's triggers, and the metrics of the HorizontalPodAutoscaler."""
    triggers = yaml.safe_load(SCALER.read_text("utf-8"))["spec"]["triggers"]
    scaler = yaml.safe_load((SCALER.parents[1] / "hpa" / "horizontal-pod-autoscaler.yaml").read_text("utf-8"))
    names = [metric["pods"]["metric"]["name"] for metric in scaler["spec"]["metrics"]]
    return [*(trigger["metadata"]["query"] for trigger in triggers), *names]


def _replaced(expression: str) -> str:
    for name, value in VARIABLES.items():
        expression = expression.replace(name, value)
    assert "$" not in expression, expression
    return expression
