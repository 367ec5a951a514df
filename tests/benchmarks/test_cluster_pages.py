"""The figures of docs/ray.md and docs/sizing.md are those of the committed results."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.cluster_pages import PAGES, filled


@pytest.mark.parametrize("page", PAGES, ids=lambda path: path.name)
def test_every_figure_is_in_the_committed_result(page: Path) -> None:
    text = page.read_text("utf-8")
    assert filled(text, PAGES[page]) == text, "run python -m benchmarks.cluster_pages"


def test_a_changed_figure_is_detected() -> None:
    for page, result in PAGES.items():
        text = page.read_text("utf-8").replace(" | ", " | 1", 40)
        assert filled(text, result) != text
