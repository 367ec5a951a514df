"""The kinds of tests: `make test-fast` leaves some out, and each run prints how many of each kind ran."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import pytest

# Each kind is a marker of pytest. A test with several of these markers has the first of them as its kind.
KINDS = ("gpu", "gpu_stub", "browser", "ray", "load", "training", "server", "native", "house_rules")
REST = "other"
# The kinds of tests without such a marker, by their folder in tests/.
FOLDERS = {
    "gpu_stub": "gpu_stub",
    "web": "browser",
    "loadtest": "load",
    "api": "server",
    "e2e": "server",
    "runtime/native": "native",
    "house_rules": "house_rules",
}
OUTCOMES = ("passed", "failed", "error", "skipped", "xfailed", "xpassed")


def kind_of(path: Path, markers: Iterable[str]) -> str:
    """The kind of a test. path: its file, relative to tests/. markers: the names of its markers."""
    names = set(markers)
    for kind in KINDS:
        if kind in names:
            return kind
    return _kind_of_file(path)


@cache
def _kind_of_file(path: Path) -> str:
    return next((kind for folder, kind in FOLDERS.items() if path.is_relative_to(folder)), REST)


def target_params(targets: Sequence[str]) -> list[Any]:
    """Parameters for targets of the native operators. All but the first and fastest have the marker `slower_target`.

    `make test-fast` leaves out tests with this marker.
    """
    return [*targets[:1], *(pytest.param(name, marks=pytest.mark.slower_target) for name in targets[1:])]


def set_kinds(items: Iterable[pytest.Item], folder: Path) -> None:
    """Mark each test with its kind, and add the kind to its reports. folder: the folder of all tests."""
    for item in items:
        path = item.path.relative_to(folder) if item.path.is_relative_to(folder) else item.path
        kind = kind_of(path, (mark.name for mark in item.iter_markers()))
        if kind != REST:
            item.add_marker(kind)
        item.user_properties.append(("kind", kind))


def count_line(reports: Iterable[tuple[str, str]]) -> str:
    """Count the tests of each kind that ran or were skipped. reports: the kind and outcome of each test."""
    ran, skipped = Counter[str](), Counter[str]()
    for kind, outcome in reports:
        (skipped if outcome == "skipped" else ran)[kind] += 1
    parts = [
        f"{ran[kind]} {kind}" + (f" ({skipped[kind]} skipped)" if skipped[kind] else "")
        for kind in (*KINDS, REST)
    ]
    return "tests that ran: " + ", ".join(parts)
