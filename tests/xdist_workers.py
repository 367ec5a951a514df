"""Schedules tests in several xdist workers (`make test`). A test marked `alone` runs while no other test runs."""

from __future__ import annotations

import fcntl
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest


class XdistWorker:
    """A pytest plugin of each xdist worker. folder: the folder of two lock files, which all workers share."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        """Sort the files. Files with a slow test come first, and files with an `alone` test come last.

        At the end few tests are left, so few workers wait for an `alone` test.
        """
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
    """Replace lone surrogates. A test may log them, but a message to the main process cannot contain them."""
    if isinstance(value, dict):
        return {key: encodable(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return type(value)(encodable(each) for each in value)
    return value.encode("utf-8", "backslashreplace").decode() if isinstance(value, str) else value


@contextmanager
def turn(folder: Path, *, is_alone: bool) -> Iterator[None]:
    """Hold a lock around a test: shared with other tests, or exclusive if it is alone."""
    with (folder / "queue.lock").open("w") as queue, (folder / "run.lock").open("w") as run:
        # A test that waits for the exclusive lock holds the queue, so that later tests cannot overtake it.
        fcntl.flock(queue, fcntl.LOCK_EX)
        fcntl.flock(run, fcntl.LOCK_EX if is_alone else fcntl.LOCK_SH)
        fcntl.flock(queue, fcntl.LOCK_UN)
        try:
            yield
        finally:
            # Closing is not enough, because a child process may have the file open.
            fcntl.flock(run, fcntl.LOCK_UN)
