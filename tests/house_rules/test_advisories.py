"""A package that pip-audit skips counts as not checked."""

from __future__ import annotations

from typing import Any

import pytest

from tests.house_rules.advisories import read_report

GOOD: dict[str, Any] = {"name": "a", "version": "1", "vulns": []}
BAD: dict[str, Any] = {"name": "b", "version": "2", "vulns": [{"id": "CVE-1"}]}
SKIPPED: dict[str, Any] = {"name": "c", "skip_reason": "not found"}


@pytest.mark.parametrize(
    ("packages", "exit_code", "line"),
    [
        ([GOOD], 0, "1 of 1 packages checked, 0 vulnerabilities"),
        ([GOOD, BAD, SKIPPED], 1, "b 2: CVE-1"),
        ([GOOD, SKIPPED], 2, "NOT CHECKED, because the advisory database does not know them: c"),
        ([], 2, "NOT CHECKED, because the advisory database does not know them: all"),
    ],
)
def test_what_a_report_says(packages: list[dict[str, Any]], exit_code: int, line: str) -> None:
    lines, actual_code = read_report({"dependencies": packages})
    assert actual_code == exit_code
    assert line in lines
