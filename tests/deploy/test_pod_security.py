"""The check of the Pod Security Standard finds each of these violations."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from tests.deploy.pod_security import violations

SAFE: dict[str, Any] = {
    "securityContext": {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}},
    "containers": [
        {
            "name": "a",
            "securityContext": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}},
        }
    ],
    "volumes": [{"name": "tmp", "emptyDir": {}}],
}


def test_a_safe_pod_has_no_violations() -> None:
    assert violations(SAFE) == []


@pytest.mark.parametrize(
    ("change", "found"),
    [
        ({"hostNetwork": True}, "hostNetwork"),
        ({"securityContext": {"seccompProfile": {"type": "RuntimeDefault"}}}, "a: runAsNonRoot"),
        ({"securityContext": {"runAsNonRoot": True}}, "a: seccompProfile"),
        ({"volumes": [{"name": "node", "hostPath": {"path": "/"}}]}, "volume node"),
    ],
)
def test_an_unsafe_pod_is_found(change: dict[str, Any], found: str) -> None:
    assert violations({**SAFE, **change}) == [found]


@pytest.mark.parametrize(
    ("change", "found"),
    [
        ({"capabilities": {"drop": ["NET_RAW"]}}, "a: capabilities.drop"),
        ({"capabilities": {"drop": ["ALL"], "add": ["SYS_ADMIN"]}}, "a: capabilities.add"),
        ({"allowPrivilegeEscalation": True}, "a: allowPrivilegeEscalation"),
        ({"privileged": True}, "a: privileged"),
        ({"runAsUser": 0}, "a: runAsUser"),
        ({"runAsNonRoot": False}, "a: runAsNonRoot"),
    ],
)
@pytest.mark.parametrize("field", ["containers", "initContainers"])
def test_an_unsafe_container_is_found(change: dict[str, Any], found: str, field: str) -> None:
    spec = copy.deepcopy(SAFE)
    (container,) = spec.pop("containers")
    container["securityContext"] |= change
    assert violations({**spec, field: [container]}) == [found]


@pytest.mark.parametrize(
    ("field", "unsafe", "safe"),
    [
        ("runAsNonRoot", False, True),
        ("runAsUser", 0, 1000),
        ("seccompProfile", {"type": "Unconfined"}, {"type": "RuntimeDefault"}),
    ],
)
def test_an_unsafe_value_of_the_pod_is_found_although_the_container_has_another(
    field: str, unsafe: Any, safe: Any
) -> None:
    spec = copy.deepcopy(SAFE)
    spec["securityContext"][field] = unsafe
    spec["containers"][0]["securityContext"][field] = safe
    assert violations(spec) == [field]
