"""Every link between pages of the project leads to an existing file and heading."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

import pytest

from tests.house_rules.project import ROOT, project_files

LINK = re.compile(r"(?<!\\)\]\(([^)\s]+)\)")
HEADING = re.compile(r"^#{1,6} +(.+?) *$", re.MULTILINE)
FENCE = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)
CODE = re.compile(r"`[^`\n]*`")
PAGES = [path for path in project_files() if path.suffix == ".md"]


def anchor_of(heading: str) -> str:
    """GitHub's fragment of a heading: lower case, no punctuation, hyphens for spaces."""
    text = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).lower()
    return re.sub(r"[^\w\- ]", "", text).replace(" ", "-")


@cache
def anchors(path: Path) -> frozenset[str]:
    return frozenset(
        anchor_of(heading) for heading in HEADING.findall(FENCE.sub("", path.read_text("utf-8")))
    )


def broken_links(path: Path) -> list[str]:
    """The broken links of a page. Links to other sites are not checked."""
    text = CODE.sub("", FENCE.sub("", path.read_text("utf-8")))
    broken = []
    for link in LINK.findall(text):
        if "://" in link or link.startswith("mailto:"):
            continue
        name, _, fragment = link.partition("#")
        target = (path.parent / name).resolve() if name else path
        if not target.exists() or (fragment and fragment not in anchors(target)):
            broken.append(link)
    return broken


@pytest.mark.parametrize("path", PAGES, ids=str)
def test_every_link_leads_somewhere(path: Path) -> None:
    assert broken_links(ROOT / path) == []


def test_a_broken_link_is_found(tmp_path: Path) -> None:
    (tmp_path / "other.md").write_text("# A title: with `code`\n", "utf-8")
    page = tmp_path / "page.md"
    page.write_text(
        "# Here\n[a](other.md#a-title-with-code) [b](#here) [c](other.md#nowhere) [d](none.md) `[e](code.md)`\n",
        "utf-8",
    )
    assert broken_links(page) == ["other.md#nowhere", "none.md"]
