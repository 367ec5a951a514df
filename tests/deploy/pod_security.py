"""Kubernetes' Pod Security Standard `restricted`, which includes `baseline`, as checks of a pod's specification.

Fields of AppArmor, SELinux and Windows are not checked, nor the hosts of probes and hooks. Stricter than the standard:
every sysctl and every hostPort counts as forbidden.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

Json = dict[str, Any]
VOLUMES = {
    "configMap", "csi", "downwardAPI", "emptyDir", "ephemeral", "persistentVolumeClaim", "projected", "secret",
}  # fmt: skip
PROFILES = {"RuntimeDefault", "Localhost"}


def violations(spec: Json) -> list[str]:
    """The violations of the standard in a pod's specification."""
    return [*_of_pod(spec), *(problem for each in _containers(spec) for problem in _of_container(each, spec))]


def _containers(spec: Json) -> list[Json]:
    return [
        container
        for field in ("initContainers", "containers", "ephemeralContainers")
        for container in spec.get(field, [])
    ]


def _of_pod(spec: Json) -> Iterator[str]:
    for field in ("hostNetwork", "hostPID", "hostIPC"):
        if spec.get(field):
            yield field
    context = spec.get("securityContext", {})
    if context.get("sysctls"):
        yield "sysctls"
    # The standard forbids these values in the context of the pod even if every container sets another value.
    if context.get("runAsNonRoot") is False:
        yield "runAsNonRoot"
    if context.get("runAsUser") == 0:
        yield "runAsUser"
    if context.get("seccompProfile", {}).get("type") == "Unconfined":
        yield "seccompProfile"
    for volume in spec.get("volumes", []):
        if not volume.keys() - {"name"} <= VOLUMES:
            yield f"volume {volume['name']}"


def _of_container(container: Json, spec: Json) -> Iterator[str]:
    name, own = container["name"], container.get("securityContext", {})
    both = {**spec.get("securityContext", {}), **own}
    if own.get("privileged"):
        yield f"{name}: privileged"
    if own.get("allowPrivilegeEscalation") is not False:
        yield f"{name}: allowPrivilegeEscalation"
    if both.get("runAsNonRoot") is not True:
        yield f"{name}: runAsNonRoot"
    if both.get("runAsUser") == 0:
        yield f"{name}: runAsUser"
    if both.get("seccompProfile", {}).get("type") not in PROFILES:
        yield f"{name}: seccompProfile"
    if both.get("procMount", "Default") != "Default":
        yield f"{name}: procMount"
    capabilities = own.get("capabilities", {})
    if "ALL" not in capabilities.get("drop", []):
        yield f"{name}: capabilities.drop"
    if not set(capabilities.get("add", [])) <= {"NET_BIND_SERVICE"}:
        yield f"{name}: capabilities.add"
    if any("hostPort" in port for port in container.get("ports", [])):
        yield f"{name}: hostPort"
