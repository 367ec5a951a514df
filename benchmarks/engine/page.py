"""The figures in docs/performance.md, from the committed results: no figure there is written by hand.

A block between `<!-- figures: NAME -->` and `<!-- end -->` is what `BLOCKS[NAME]` makes of its result.

    python -m benchmarks.engine.page
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks.engine import report
from benchmarks.engine.goals import goal_header, goal_lines
from benchmarks.machine import ROOT
from benchmarks.page_blocks import fill_blocks

PAGE = ROOT / "docs" / "performance.md"
RESULTS = ROOT / "benchmarks" / "results"
NOT_MEASURED = "Not measured yet."


def _machine(result: dict[str, Any]) -> str:
    return f"{report.measured_on(result)}\n\n`{result['command']}`"


def _goals(result: dict[str, Any]) -> str:
    return report.table(goal_header(result), goal_lines(result))


def _times(result: dict[str, Any]) -> str:
    return report.times_table(result["cases"])


def _arrivals(result: dict[str, Any]) -> str:
    return report.arrivals_table(result["arrivals"])


def _memory(result: dict[str, Any]) -> str:
    return (
        f"{result['minutes']:g} minutes, {result['num_sentences']:,} sentences: {result['least_mb']:.1f} to "
        f"{result['most_mb']:.1f} MB resident, {result['slope_mb_per_minute']:+.3f} MB a minute, standard error "
        f"{result['standard_error']:.3f}: {'flat' if result['is_flat'] else 'not flat'}. "
        f"{result['machine']['cpu']}, commit {result['commit']}; `{result['command']}`."
    )


# Name -> the result that it is made of, and how.
BLOCKS: dict[str, tuple[str, Callable[[dict[str, Any]], str]]] = {
    "machine": ("engine.json", _machine),
    "goals": ("engine.json", _goals),
    "times": ("engine.json", _times),
    "arrivals": ("engine.json", _arrivals),
    "machine-amd": ("engine_amd.json", _machine),
    "goals-amd": ("engine_amd.json", _goals),
    "times-amd": ("engine_amd.json", _times),
    "arrivals-amd": ("engine_amd.json", _arrivals),
    "where": ("engine.json", lambda result: report.where_table(result["cases"])),
    "operators": ("engine.json", lambda result: report.parts_tables(result["cases"])),
    "quality": ("engine_quality.json", report.quality_table),
    "memory": ("engine_memory.json", _memory),
}


def filled(page: str, results: Path) -> str:
    """The page with every block made anew. Raises KeyError for a block of an unknown name."""

    def text_of(name: str) -> str:
        file, make = BLOCKS[name]
        path = results / file
        return make(json.loads(path.read_text("utf-8"))) if path.exists() else NOT_MEASURED

    return fill_blocks(page, text_of)


def main() -> int:
    """Write the page."""
    PAGE.write_text(filled(PAGE.read_text("utf-8"), RESULTS), "utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
