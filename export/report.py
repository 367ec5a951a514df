"""The report of `verify`, as lines and as JSON. `export --scores` reads its scores."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter

from app.bundle import Score

SCORES = TypeAdapter(tuple[Score, ...])


class ReportError(ValueError):
    """The file holds no valid scores."""


@dataclass(frozen=True)
class Check:
    """One comparison. value: the measured figure, or None. limit: its maximum, or None."""

    name: str
    is_passed: bool
    detail: str
    value: float | None = None
    limit: float | None = None

    def line(self) -> str:
        """The check as one line of text."""
        return f"{'ok    ' if self.is_passed else 'FAILED'} {self.name}: {self.detail}"


@dataclass(frozen=True)
class Report:
    """All comparisons of a bundle. skipped: comparisons that were not made, with the reason."""

    bundle: str
    version: str
    checks: tuple[Check, ...]
    skipped: tuple[str, ...]
    scores: tuple[Score, ...]

    @property
    def is_passed(self) -> bool:
        """Whether every check passes."""
        return all(check.is_passed for check in self.checks)

    def to_json(self) -> dict[str, Any]:
        """The report as a JSON object. A value that is no finite number, such as the mean of no scores, is null."""
        return {
            "bundle": self.bundle,
            "version": self.version,
            "is_passed": self.is_passed,
            "checks": [
                vars(check) | {"value": check.value if math.isfinite(check.value or 0.0) else None}
                for check in self.checks
            ],
            "skipped": list(self.skipped),
            "scores": [score.model_dump(mode="json") for score in self.scores],
        }


def read_scores(path: Path) -> tuple[Score, ...]:
    """Scores from a report of `verify`, or from a JSON list of scores. Raises ReportError."""
    try:
        content = json.loads(path.read_text("utf-8"))
        return SCORES.validate_python(content["scores"] if isinstance(content, dict) else content)
    except (OSError, KeyError, ValueError, RecursionError) as error:
        raise ReportError(f"{path} holds no scores: {error}") from error
