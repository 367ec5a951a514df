"""The order and the reports of the tests in several xdist workers (`make test`)."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

import pytest


class XdistWorker:
    """A pytest plugin of each xdist worker."""

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        """Move the files with a slow test to the front, so that no worker has one of them at the end of the run."""
        slow = {item.path for item in items if item.get_closest_marker("slow")}
        items.sort(key=lambda item: item.path not in slow)

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
