"""Renders the kustomizations of deploy/kubernetes, on a machine without Kustomize too.

The renderer has only the part of Kustomize that these kustomizations use.
"""

from __future__ import annotations

import copy
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from tests.house_rules.project import ROOT

Json = dict[str, Any]
FOLDER = ROOT / "deploy" / "kubernetes"
OVERLAYS = sorted(path.name for path in (FOLDER / "overlays").iterdir())
COMPONENTS = sorted(path.name for path in (FOLDER / "components").iterdir())
FIELDS = {"apiVersion", "kind", "resources", "components", "labels", "images", "patches"}


def read(path: Path) -> list[Json]:
    """The documents of a YAML file, which the caller may change."""
    return copy.deepcopy(_parsed(path))


@cache
def _parsed(path: Path) -> list[Json]:
    return [document for document in yaml.safe_load_all(path.read_text("utf-8")) if document]


def render(folder: Path) -> list[Json]:
    """The objects of a kustomization, as `kubectl apply -k` sends them."""
    return _apply(folder, [])


def with_component(overlay: str, component: str) -> list[Json]:
    """The objects of an overlay to which a component is added."""
    return _apply(FOLDER / "components" / component, render(FOLDER / "overlays" / overlay))


def only(objects: list[Json], kind: str) -> Json:
    """The only object of a kind."""
    (found,) = (each for each in objects if each["kind"] == kind)
    return found


def _apply(folder: Path, given: list[Json]) -> list[Json]:
    """The given objects and those of a kustomization. The kustomization's changes are applied to all of them."""
    (kustomization,) = read(folder / "kustomization.yaml")
    assert kustomization.keys() <= FIELDS, "this renderer lacks a field"
    objects = list(given)
    for name in kustomization.get("resources", []):
        objects += render(folder / name) if (folder / name).is_dir() else read(folder / name)
    for name in kustomization.get("components", []):
        objects = _apply(folder / name, objects)
    for patch in kustomization.get("patches", []):
        objects = _patched(objects, folder, patch)
    for entry in kustomization.get("labels", []):
        for each in objects:
            each["metadata"]["labels"] = {**each["metadata"].get("labels", {}), **entry["pairs"]}
    for image in kustomization.get("images", []):
        for container in only(objects, "Deployment")["spec"]["template"]["spec"]["containers"]:
            if container["image"] == image["name"]:
                container["image"] = f"{image['newName']}:{image['newTag']}"
    return objects


def _patched(objects: list[Json], folder: Path, patch: Json) -> list[Json]:
    if "path" in patch:
        (change,) = read(folder / patch["path"])
        key = (change["kind"], change["metadata"]["name"])
        assert key in {(each["kind"], each["metadata"]["name"]) for each in objects}
        return [
            _merged(each, change) if (each["kind"], each["metadata"]["name"]) == key else each
            for each in objects
        ]
    target = copy.deepcopy(only(objects, patch["target"]["kind"]))
    for operation in yaml.safe_load(patch["patch"]):
        *parents, last = operation["path"].strip("/").split("/")
        assert operation["op"] == "remove", "this renderer lacks the operation"
        inner = target
        for parent in parents:
            inner = inner[parent]
        del inner[last]
    return [target if each["kind"] == target["kind"] else each for each in objects]


def _merged(old: Any, new: Any) -> Any:
    """A strategic merge: mappings by key, lists of objects by name. Anything else is replaced."""
    if isinstance(old, dict) and isinstance(new, dict):
        return {
            key: _merged(old[key], new[key]) if key in old and key in new else {**old, **new}[key]
            for key in {**old, **new}
        }
    if isinstance(old, list) and isinstance(new, list) and all("name" in each for each in [*old, *new]):
        changes = {each["name"]: each for each in new}
        known = [each["name"] for each in old]
        return [
            *(each for each in new if each["name"] not in known),  # Kustomize puts new ones first
            *(_merged(each, changes.get(each["name"], {})) for each in old),
        ]
    return copy.deepcopy(new)
