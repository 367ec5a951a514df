"""The container recipe, checked as text without a container engine."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from typing import Any

import pytest
import yaml

from app.settings import Settings
from app.workers.early_start import MAX_WORKERS
from tests.house_rules.project import ROOT

SERVICES = ("transduce", "transduce-gpu")
# The limit of threads must fit a machine with this number of cores, and this number of threads that do not decode.
MAX_CORES = 768
NUM_OTHER_THREADS = 100
# This text before the program of the health check makes that program print the port, instead of connecting to it.
SHOW_PORT = """
import http.client
def show(host, port, timeout):
    print(port)
    raise SystemExit
http.client.HTTPConnection = show
"""


def instructions() -> list[tuple[str, str]]:
    """The Dockerfile as (INSTRUCTION, rest), comments dropped and continued lines joined."""
    text = re.sub(r"^\s*#.*\n", "", (ROOT / "Dockerfile").read_text("utf-8"), flags=re.MULTILINE)
    lines = [line.strip() for line in text.replace("\\\n", " ").splitlines() if line.strip()]
    return [(line.split(maxsplit=1)[0], line.split(maxsplit=1)[1]) for line in lines]


def stages() -> dict[str, tuple[str, list[tuple[str, str]]]]:
    """Stage name -> (base, instructions)."""
    found: dict[str, tuple[str, list[tuple[str, str]]]] = {}
    name = ""
    for instruction, rest in instructions():
        if instruction == "FROM":
            base, _, name = rest.split()
            found[name] = (base, [])
        elif name:
            found[name][1].append((instruction, rest))
    return found


def inherited(stage: str) -> list[tuple[str, str]]:
    """The instructions of `stage` and of all its base stages, base first."""
    base, own = stages()[stage]
    return (inherited(base) if base in stages() else []) + own


def last(stage: str, instruction: str) -> str:
    return [rest for name, rest in inherited(stage) if name == instruction][-1]


@pytest.mark.parametrize("stage", ["cpu", "gpu"])
class TestImage:
    def test_runs_as_an_unprivileged_user(self, stage: str) -> None:
        user, _, group = last(stage, "USER").partition(":")
        assert (user, group) == ("65532", "65532")

    def test_the_server_is_process_one(self, stage: str) -> None:
        """Exec form, because a shell would not pass SIGTERM to the server."""
        entry = json.loads(last(stage, "ENTRYPOINT"))
        assert entry[0].startswith("/")
        assert entry[-1] == "serve"
        assert last(stage, "STOPSIGNAL") == "SIGTERM"
        assert "CMD" not in {name for name, _ in inherited(stage)}

    def test_the_health_check_asks_readyz(self, stage: str) -> None:
        options, _, command = last(stage, "HEALTHCHECK").partition("CMD ")
        program = json.loads(command)
        assert program[:2] == ["/opt/venv/bin/python", "-c"]
        assert "/readyz" in program[2]
        compile(program[2], "healthcheck", "exec")
        assert "--timeout=" in options
        assert "--start-period=" in options

    @pytest.mark.parametrize(
        ("variables", "port"),
        [
            ({}, 8000),
            ({"PORT": ""}, 8000),
            ({"PORT": "81"}, 81),
            ({"PORT": "81", "PROBE_PORT": ""}, 81),
            ({"PORT": "81", "PROBE_PORT": "82"}, 82),
        ],
    )
    def test_the_health_check_asks_the_port_of_the_settings(
        self, stage: str, variables: dict[str, str], port: int
    ) -> None:
        program = json.loads(last(stage, "HEALTHCHECK").partition("CMD ")[2])[2]
        environment = {name: text for name, text in os.environ.items() if not name.startswith("TRANSDUCE_")}
        environment |= {f"TRANSDUCE_{name}": text for name, text in variables.items()}
        done = subprocess.run(
            [sys.executable, "-c", SHOW_PORT + program],
            env=environment,
            capture_output=True,
            text=True,
            timeout=60,
            check=True,
        )
        assert int(done.stdout) == port

    def test_needs_no_writable_root_and_listens_on_all_addresses(self, stage: str) -> None:
        environment = " ".join(rest for name, rest in inherited(stage) if name == "ENV")
        assert "PYTHONDONTWRITEBYTECODE=1" in environment
        assert "HOME=/tmp" in environment
        assert "TRANSDUCE_HOST=0.0.0.0" in environment

    def test_installs_the_packages_of_its_own_lock(self, stage: str) -> None:
        assert f"--from=venv-{stage} /opt/venv /opt/venv" in [
            rest for name, rest in stages()[stage][1] if name == "COPY"
        ]
        commands = [json.loads(rest) for name, rest in stages()[f"venv-{stage}"][1] if name == "RUN"]
        installs = [command for command in commands if "install" in command]
        assert [*installs[0][-3:]] == ["--require-hashes", "-r", f"requirements/{stage}.txt"]
        assert "--no-deps" in installs[1]

    def test_the_build_checks_that_forbidden_packages_are_absent(self, stage: str) -> None:
        check = [json.loads(rest) for name, rest in stages()[f"venv-{stage}"][1] if name == "RUN"][-1]
        assert check[0] == "/opt/venv/bin/python"
        assert all(repr(module) in check[2] for module in ("torch", "onnx", "model", "export"))

    def test_only_the_environment_and_the_bundles_are_copied(self, stage: str) -> None:
        copies = sorted(rest for name, rest in inherited(stage) if name == "COPY")
        assert copies == [f"--from=venv-{stage} /opt/venv /opt/venv", "bundles bundles"]


def test_every_stage_starts_from_the_same_base() -> None:
    assert ("ARG", "BASE=python:3.12-slim") in instructions()
    assert {base for base, _ in stages().values() if base not in stages()} == {"${BASE}"}


def test_nothing_is_copied_that_the_build_context_leaves_out() -> None:
    lines = (ROOT / ".dockerignore").read_text("utf-8").split("\n")
    assert lines[[line.startswith("#") for line in lines].index(False)] == "*"
    allowed = {line[1:].rstrip("/") for line in lines if line.startswith("!")}
    assert {"model", "export", "tests"} & allowed == set()
    copied = {
        source
        for name, rest in instructions()
        if name == "COPY" and not rest.startswith("--from=")
        for source in rest.split()[:-1]
    }
    assert copied == allowed
    assert [source for source in copied if not (ROOT / source).exists()] == []


def compose() -> dict[str, Any]:
    document: dict[str, Any] = yaml.safe_load((ROOT / "docker-compose.yml").read_text("utf-8"))
    return document


@pytest.mark.parametrize("name", SERVICES)
class TestService:
    def test_has_no_rights_that_it_does_not_need(self, name: str) -> None:
        service = compose()["services"][name]
        assert service["read_only"] is True
        assert service["cap_drop"] == ["ALL"]
        assert service["security_opt"] == ["no-new-privileges:true"]
        assert [entry.split(":")[0] for entry in service["tmpfs"]] == ["/tmp"]
        assert service["user"] == "65532:65532"
        assert "privileged" not in service

    def test_the_bundle_and_the_glossaries_have_volumes(self, name: str) -> None:
        service = compose()["services"][name]
        environment = service["environment"]
        mounts = dict(volume.removesuffix(":ro").rsplit(":", 1)[::-1] for volume in service["volumes"])
        assert (
            ROOT / mounts[environment["TRANSDUCE_BUNDLE"]].removeprefix("${BUNDLE:-").rstrip("}")
        ).is_dir()
        folder = environment["TRANSDUCE_GLOSSARY_PATH"].rsplit("/", 1)[0]
        assert mounts[folder] in compose()["volumes"]
        stage = service["build"]["target"]
        assert any(folder in rest for instruction, rest in inherited(stage) if instruction == "RUN")

    def test_tmp_has_room_for_the_translated_files_of_the_default_settings(self, name: str) -> None:
        (options,) = (entry.partition(":")[2] for entry in compose()["services"][name]["tmpfs"])
        (size,) = re.findall(r"size=(\d+)m", options)
        max_bytes = Settings.model_fields["max_kept_file_bytes"].default
        assert int(size) * 2**20 > max_bytes + 10 * Settings.model_fields["max_file_bytes"].default

    def test_is_reached_from_this_machine_only(self, name: str) -> None:
        ports = compose()["services"][name]["ports"]
        assert ports
        assert all(port.startswith("127.0.0.1:") for port in ports)

    def test_has_limits_of_processes_memory_and_stop_time(self, name: str) -> None:
        service = compose()["services"][name]
        assert service["stop_grace_period"].endswith("s")
        assert {"pids_limit", "mem_limit"} <= service.keys()

    def test_the_threads_of_a_reload_are_within_the_limit(self, name: str) -> None:
        """In a reload, the old and the new workers run. Each worker has a thread for each core, and two more."""
        num_threads = 2 * MAX_WORKERS * (MAX_CORES + 2) + NUM_OTHER_THREADS
        assert compose()["services"][name]["pids_limit"] >= num_threads

    def test_builds_a_target_that_exists(self, name: str) -> None:
        target = compose()["services"][name]["build"]["target"]
        assert target in stages()
        assert target == ("gpu" if name == "transduce-gpu" else "cpu")


def test_there_is_one_service_for_each_image() -> None:
    assert tuple(compose()["services"]) == SERVICES


def test_the_gpu_service_has_a_profile_and_reserves_a_gpu() -> None:
    services = compose()["services"]
    assert "profiles" not in services["transduce"]
    assert services["transduce-gpu"]["profiles"] == ["gpu"]
    (device,) = services["transduce-gpu"]["deploy"]["resources"]["reservations"]["devices"]
    assert (device["driver"], device["capabilities"]) == ("nvidia", ["gpu"])
