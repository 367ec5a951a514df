"""Tests in several workers (`make test`; `WORKERS=0` for one process): what measures time has the machine to itself."""

from __future__ import annotations

import fcntl
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest


class XdistWorker:
    """A plugin of each worker. folder: the same for all of them, to hold two locks."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        """File by file: first those with a slow test, so that none of them is begun at the end, last those with one
        that is alone, for which the workers need not wait by then."""
        marks: dict[Path, set[str]] = {}
        for item in items:
            marks.setdefault(item.path, set()).update(mark.name for mark in item.iter_markers())
        items.sort(key=lambda item: ("alone" in marks[item.path], "slow" not in marks[item.path]))

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        with turn(self._folder, is_alone=item.get_closest_marker("alone") is not None):
            return (yield)

    @pytest.hookimpl(wrapper=True)
    def pytest_report_to_serializable(self) -> Generator[None, Any, Any]:
        return encodable((yield))


def encodable(value: Any) -> Any:
    """The same without lone surrogates, such as a test may log: no message to the main process can hold one."""
    if isinstance(value, dict):
        return {key: encodable(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return type(value)(encodable(each) for each in value)
    return value.encode("utf-8", "backslashreplace").decode() if isinstance(value, str) else value


@contextmanager
def turn(folder: Path, *, is_alone: bool) -> Iterator[None]:
    """Beside everybody who is not alone; alone, beside nobody."""
    with (folder / "gate").open("w") as gate, (folder / "floor").open("w") as floor:
        # Through the gate one by one: who waits in it for an empty floor lets nobody else onto it.
        fcntl.flock(gate, fcntl.LOCK_EX)
        fcntl.flock(floor, fcntl.LOCK_EX if is_alone else fcntl.LOCK_SH)
        fcntl.flock(gate, fcntl.LOCK_UN)
        try:
            yield
        finally:
            fcntl.flock(floor, fcntl.LOCK_UN)  # closing would not do: a child process may have the file too
