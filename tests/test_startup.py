"""What a start tells before it loads anything."""

from __future__ import annotations

import logging

import pytest

from app.startup import warn_of_python


@pytest.mark.parametrize(
    ("running", "at_least"),
    [
        ((3, 11, 13), "3.11.14"),
        ((3, 11, 14), None),
        ((3, 12, 1), "3.12.12"),
        ((3, 13, 6), None),
        ((3, 14, 0), None),
    ],
)
def test_an_interpreter_with_a_known_weakness_is_named(
    running: tuple[int, int, int], at_least: str | None, caplog: pytest.LogCaptureFixture
) -> None:
    warn_of_python(running)
    said = [record.__dict__["fields"] for record in caplog.records if record.levelno == logging.WARNING]
    wanted = {"running": ".".join(map(str, running)), "at_least": at_least, "mends": "CVE-2025-6069"}
    assert said == ([wanted] if at_least else [])
