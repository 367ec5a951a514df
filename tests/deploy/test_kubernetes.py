"""The manifests of deploy/kubernetes: valid by Kubernetes' schemas, restricted, and in agreement with the server."""

from __future__ import annotations

import shutil
import subprocess
from importlib import import_module
from typing import Any

import pytest
import yaml

from app.settings import PREFIX, load_settings
from tests.deploy.kustomize import COMPONENTS, FOLDER, OVERLAYS, only, read, render, with_component
from tests.deploy.pod_security import violations
from tests.house_rules.project import ROOT
from tests.house_rules.test_container import stages

Json = dict[str, Any]
# The oldest version that docs/kubernetes.md names.
OLDEST = "1.31"
# Kinds that operators define. Kubernetes has no schemas for them.
CUSTOM_KINDS = {"ServiceMonitor", "ScaledObject"}
# The components that no overlay has.
ADDED = [name for name in COMPONENTS if name not in {"hpa", "keda"}]
LOADER = FOLDER / "components" / "bundle-volume" / "loader.yaml"
MIB = 2**20
UNITS = {"Mi": MIB, "Gi": 2**30}


def rendered(name: str) -> list[Json]:
    """The objects of OVERLAY, or of OVERLAY+COMPONENT."""
    overlay, _, component = name.partition("+")
    return with_component(overlay, component) if component else render(FOLDER / "overlays" / overlay)


ALL = [*OVERLAYS, *(f"cpu+{component}" for component in ADDED)]


def pod_of(objects: list[Json]) -> Json:
    spec: Json = only(objects, "Deployment")["spec"]["template"]["spec"]
    return spec


def server_of(objects: list[Json]) -> Json:
    (container,) = pod_of(objects)["containers"]
    assert container["name"] == "transduce"
    return dict(container)


def environment(objects: list[Json]) -> dict[str, str]:
    return {entry["name"]: entry["value"] for entry in server_of(objects)["env"]}


def num_bytes(quantity: str) -> int:
    return int(quantity[:-2]) * UNITS[quantity[-2:]]


@pytest.fixture(scope="module")
def kubernetes() -> Any:
    return import_module("kubernetes_validate")  # only here: the import takes a second


@pytest.mark.parametrize("version", [OLDEST, "newest"])
@pytest.mark.parametrize("name", ALL)
def test_every_object_is_valid(name: str, version: str, kubernetes: Any) -> None:
    """newest: the newest version with schemas."""
    number = kubernetes.latest_version() if version == "newest" else version
    for each in rendered(name):
        if each["kind"] not in CUSTOM_KINDS:
            kubernetes.validate(each, number, strict=True)


def test_the_loader_is_a_valid_pod(kubernetes: Any) -> None:
    (pod,) = read(LOADER)
    kubernetes.validate(pod, OLDEST, strict=True)
    assert violations(pod["spec"]) == []


def test_a_misspelt_field_is_invalid(kubernetes: Any) -> None:
    deployment = only(rendered("cpu"), "Deployment")
    deployment["spec"]["minReadySecond"] = 5
    with pytest.raises(kubernetes.ValidationError):
        kubernetes.validate(deployment, OLDEST, strict=True)


@pytest.mark.parametrize("overlay", OVERLAYS)
def test_kustomize_and_the_renderer_of_the_tests_agree(overlay: str) -> None:
    tool = shutil.which("kustomize") or shutil.which("kubectl")
    if tool is None:
        pytest.skip("neither kustomize nor kubectl is here")
    command = [tool, "build" if tool.endswith("kustomize") else "kustomize", FOLDER / "overlays" / overlay]
    text = subprocess.run(command, check=True, capture_output=True, text=True, timeout=60).stdout
    theirs = {each["kind"]: each for each in yaml.safe_load_all(text)}
    assert theirs == {each["kind"]: each for each in rendered(overlay)}


@pytest.mark.parametrize("name", ALL)
class TestPod:
    def test_is_restricted(self, name: str) -> None:
        assert violations(pod_of(rendered(name))) == []

    def test_writes_only_into_volumes_that_are_bounded(self, name: str) -> None:
        objects = rendered(name)
        server, volumes = server_of(objects), {each["name"]: each for each in pod_of(objects)["volumes"]}
        assert server["securityContext"]["readOnlyRootFilesystem"] is True
        writable = {
            each["mountPath"]: each["name"] for each in server["volumeMounts"] if "readOnly" not in each
        }
        assert [*writable] == ["/tmp"]
        settings = load_settings({})
        tmp_limit = num_bytes(volumes[writable["/tmp"]]["emptyDir"]["sizeLimit"])
        # Kept files, and ten uploads at once.
        assert tmp_limit > settings.max_kept_file_bytes + 10 * settings.max_file_bytes
        assert num_bytes(server["resources"]["limits"]["ephemeral-storage"]) > tmp_limit

    def test_has_settings_that_the_server_accepts(self, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
        variables = environment(rendered(name))
        monkeypatch.setenv("TRANSDUCE_BUNDLE", "set by the image")
        for variable, value in variables.items():
            monkeypatch.setenv(variable, value)
        settings = load_settings({})
        assert settings.probe_port is not None
        assert settings.api_keys_file is not None
        assert bool(settings.bundles) == ("volume" in name)
        assert (settings.bundle is None) == ("volume" in name)
        assert all(variable.startswith(PREFIX) for variable in variables)

    def test_has_no_variables_of_the_service(self, name: str) -> None:
        """Kubernetes would set TRANSDUCE_PORT and other variables. The server would read them as settings."""
        objects = rendered(name)
        assert f"{only(objects, 'Service')['metadata']['name'].upper()}_" == PREFIX
        assert pod_of(objects)["enableServiceLinks"] is False

    def test_has_the_time_that_its_drain_takes(self, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
        objects = rendered(name)
        for variable, value in environment(objects).items():
            monkeypatch.setenv(variable, value)
        settings = load_settings({})
        stop_delay_s = server_of(objects)["lifecycle"]["preStop"]["sleep"]["seconds"]
        assert settings.drain_delay_s > 0
        assert settings.drain_timeout_s >= settings.max_timeout_s  # no request is cut off
        min_s = stop_delay_s + settings.drain_delay_s + settings.drain_timeout_s + 10
        assert pod_of(objects)["terminationGracePeriodSeconds"] > min_s

    def test_is_probed_on_the_probe_port(self, name: str) -> None:
        objects = rendered(name)
        server, variables = server_of(objects), environment(objects)
        ports = {port["name"]: port["containerPort"] for port in server["ports"]}
        assert ports["http"] == load_settings({}).port
        assert ports["probes"] == int(variables["TRANSDUCE_PROBE_PORT"])
        probes = {kind: server[f"{kind}Probe"] for kind in ("startup", "readiness", "liveness")}
        assert {kind: probe["httpGet"] for kind, probe in probes.items()} == {
            "startup": {"path": "/readyz", "port": "probes"},
            "readiness": {"path": "/readyz", "port": "probes"},
            "liveness": {"path": "/livez", "port": "probes"},
        }
        assert probes["startup"]["periodSeconds"] == 1
        assert probes["startup"]["failureThreshold"] >= 60
        deadline_s = only(objects, "Deployment")["spec"]["progressDeadlineSeconds"]
        assert deadline_s >= probes["startup"]["failureThreshold"] + 60, "a slow start would fail the rollout"

    def test_has_bounded_memory_and_a_thread_for_each_core(self, name: str) -> None:
        objects = rendered(name)
        resources = server_of(objects)["resources"]
        assert num_bytes(resources["requests"]["memory"]) <= num_bytes(resources["limits"]["memory"])
        if "nvidia.com/gpu" not in resources["limits"]:
            threads = int(environment(objects)["TRANSDUCE_NUM_THREADS"])
            assert threads == int(resources["requests"]["cpu"])

    def test_is_replaced_without_an_interruption(self, name: str) -> None:
        deployment = only(rendered(name), "Deployment")["spec"]
        assert deployment["strategy"]["rollingUpdate"] == {"maxUnavailable": 0, "maxSurge": 1}

    def test_is_found_by_the_other_objects(self, name: str) -> None:
        objects = rendered(name)
        labels = only(objects, "Deployment")["spec"]["template"]["metadata"]["labels"]
        assert only(objects, "Deployment")["spec"]["selector"]["matchLabels"] == labels
        service = only(objects, "Service")
        assert service["spec"]["selector"] == labels
        assert only(objects, "PodDisruptionBudget")["spec"]["selector"]["matchLabels"] == labels
        policy = only(objects, "NetworkPolicy")["spec"]
        assert policy["podSelector"]["matchLabels"] == labels
        ports = {port["name"] for port in server_of(objects)["ports"]}
        used = {port["port"] for rule in policy["ingress"] for port in rule["ports"]}
        assert used == {port["targetPort"] for port in service["spec"]["ports"]} == ports

    def test_runs_an_image_that_the_dockerfile_builds(self, name: str) -> None:
        image, _, tag = server_of(rendered(name))["image"].partition(":")
        assert image == "transduce"
        assert tag == name.partition("+")[0].partition("-")[0]
        assert tag in stages()


@pytest.mark.parametrize("name", ["cpu-hpa", "cpu-keda"])
def test_an_autoscaler_alone_sets_the_replicas(name: str) -> None:
    objects = rendered(name)
    deployment = only(objects, "Deployment")
    assert "replicas" not in deployment["spec"]
    (scaler,) = (each for each in objects if each["kind"] in {"HorizontalPodAutoscaler", "ScaledObject"})
    assert scaler["spec"]["scaleTargetRef"]["name"] == deployment["metadata"]["name"]
    assert only(rendered("cpu"), "Deployment")["spec"]["replicas"] >= 2


def test_the_service_monitor_scrapes_the_probe_port() -> None:
    objects = rendered("cpu+service-monitor")
    service, monitor = only(objects, "Service"), only(objects, "ServiceMonitor")["spec"]
    assert monitor["selector"]["matchLabels"].items() <= service["metadata"]["labels"].items()
    (endpoint,) = monitor["endpoints"]
    assert (endpoint["port"], endpoint["path"]) == ("probes", "/metrics")
    assert endpoint["port"] in {port["name"] for port in service["spec"]["ports"]}


def test_every_file_is_part_of_a_kustomization() -> None:
    used = {LOADER}
    for path in FOLDER.rglob("kustomization.yaml"):
        (kustomization,) = read(path)
        names = [*kustomization.get("resources", []), *kustomization.get("components", [])]
        names += [patch["path"] for patch in kustomization.get("patches", []) if "path" in patch]
        targets = {(path.parent / name).resolve() for name in names}
        assert all(target.exists() for target in targets)
        used |= {path, *targets}
    assert {path for path in FOLDER.rglob("*") if path.is_file()} - used == set()


def test_the_documentation_names_every_overlay_and_component() -> None:
    page = (ROOT / "docs" / "kubernetes.md").read_text("utf-8")
    assert [name for name in (*OVERLAYS, *ADDED) if f"/{name}" not in page] == []
    assert OLDEST in page
