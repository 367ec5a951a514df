"""What `verify` found, as lines and as JSON; its scores are what `export --scores` reads."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter, ValidationError

from app.bundle import Score

SCORES = TypeAdapter(tuple[Score, ...])


class ReportError(ValueError):
    """A file of scores that is not one."""


@dataclass(frozen=True)
class Check:
    """One comparison. `value` and `limit`: the figure and what it may be at most, where there is one."""

    name: str
    is_passed: bool
    detail: str
    value: float | None = None
    limit: float | None = None

    def line(self) -> str:
        """One line for a person."""
        return f"{'ok    ' if self.is_passed else 'FAILED'} {self.name}: {self.detail}"


@dataclass(frozen=True)
class Report:
    """All comparisons of a bundle. `skipped`: what was not compared, and why."""

    bundle: str
    version: str
    checks: tuple[Check, ...]
    skipped: tuple[str, ...]
    scores: tuple[Score, ...]

    @property
    def is_passed(self) -> bool:
        """Whether every check holds."""
        return all(check.is_passed for check in self.checks)

    def to_json(self) -> dict[str, Any]:
        """The report as a JSON object."""
        return {
            "bundle": self.bundle,
            "version": self.version,
            "is_passed": self.is_passed,
            "checks": [vars(check) for check in self.checks],
            "skipped": list(self.skipped),
            "scores": [score.model_dump(mode="json") for score in self.scores],
        }


def read_scores(path: Path) -> tuple[Score, ...]:
    """Scores from a report of `verify`, or from a bare list of them. Raises ReportError."""
    try:
        content = json.loads(path.read_text("utf-8"))
        return SCORES.validate_python(content["scores"] if isinstance(content, dict) else content)
    except (OSError, KeyError, ValidationError, ValueError) as error:
        raise ReportError(f"{path} holds no scores: {error}") from error
