"""docs/configuration.md has every setting. The page and the deployment files name only variables that exist."""

from __future__ import annotations

import re

import yaml

from app.settings import CLIENT_VARIABLES, PREFIX, Settings
from tests.house_rules.project import ROOT, project_files

VARIABLE = re.compile(rf"\b{PREFIX}[A-Z0-9_]*[A-Z0-9]\b")


def settings_by_variable() -> dict[str, str]:
    """Environment variable -> field of Settings."""
    return {f"{PREFIX}{name.upper()}": name for name in Settings.model_fields}


def documented() -> set[str]:
    return set(VARIABLE.findall((ROOT / "docs" / "configuration.md").read_text("utf-8")))


def test_every_setting_is_documented() -> None:
    variables = settings_by_variable()
    assert variables
    assert variables.keys() - documented() == set()


def test_the_documentation_names_only_settings_that_exist() -> None:
    of_the_client = {f"{PREFIX}{name}" for name in CLIENT_VARIABLES}
    assert documented() - settings_by_variable().keys() - of_the_client == set()


def test_deployment_files_name_only_settings_that_exist() -> None:
    """A misspelled variable stops the server. In one of these files it would stop every container."""
    files = [
        path
        for path in project_files()
        if path.name in {"Dockerfile", "docker-compose.yml", "Makefile"} or path.parts[0] == "deploy"
    ]
    named = {variable for path in files for variable in VARIABLE.findall((ROOT / path).read_text("utf-8"))}
    assert named
    assert named - settings_by_variable().keys() == set()


def test_compose_gives_the_server_longer_than_its_own_drain() -> None:
    services = yaml.safe_load((ROOT / "docker-compose.yml").read_text("utf-8"))["services"]
    fields = Settings.model_fields
    drain_s = fields["drain_delay_s"].default + fields["drain_timeout_s"].default
    assert all(
        float(service["stop_grace_period"].removesuffix("s")) > drain_s for service in services.values()
    )
