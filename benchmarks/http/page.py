"""Write the tables and other figures in docs/comparison.md, and the Markdown beside each committed result.

`BLOCKS[NAME]` makes the new text between `<!-- figures: NAME -->` and `<!-- end -->`.

    python -m benchmarks.http.page
"""

from __future__ import annotations

import argparse
import functools
import json
import sys
from collections.abc import Callable
from pathlib import Path

from benchmarks.http import report
from benchmarks.http.goals import Parts
from benchmarks.machine import ROOT
from benchmarks.page_blocks import fill_blocks

PAGE = ROOT / "docs" / "comparison.md"
RESULT = ROOT / "benchmarks" / "results" / "http.json"
# Results on other processors, from the same folder: one with tile registers, and a Zen 5. Only their goals are on the
# page, each in a block of its own.
OTHER_RESULTS = {"goals-intel": "http_intel.json", "goals-zen5": "http_zen5.json"}

BLOCKS: dict[str, Callable[[Parts], str]] = {
    "runs": report.runs_table,
    "goals": report.goals_list,
    **dict.fromkeys(OTHER_RESULTS, report.goals_list),
    "losses": report.losses_table,
    "speed": lambda parts: report.speed_table(parts, "latency"),
    "footprint": lambda parts: report.footprint_table(parts, "latency"),
    "quality": report.quality_table,
    "goodput": lambda parts: report.goodput_table(parts, "goodput"),
    "bimodal": report.bimodal_table,
    "shared-speed": lambda parts: report.speed_table(parts, "together"),
    "shared-footprint": lambda parts: report.footprint_table(parts, "together"),
    "shared-goodput": lambda parts: report.goodput_table(parts, "together"),
    "throughput": report.throughput_line,
    "overhead": report.overhead_table,
    "scaling": report.scaling_tables,
}


def filled(page: str, path: Path) -> str:
    """The page with every block rebuilt from the result at `path`, and those of OTHER_RESULTS from the files beside it.

    Without a result, its blocks say that nothing was measured yet. Raises KeyError for an unknown block.
    """
    parts_of = functools.cache(lambda file: _parts(path.with_name(file)))
    return fill_blocks(page, lambda name: BLOCKS[name](parts_of(OTHER_RESULTS.get(name, path.name))))


def _parts(path: Path) -> Parts:
    """The parts of a result; empty without the file."""
    return json.loads(path.read_text("utf-8"))["parts"] if path.exists() else {}


def main() -> int:
    """Write the page, and the Markdown of each result that exists. Returns the exit code."""
    argparse.ArgumentParser(description=__doc__).parse_args()
    PAGE.write_text(filled(PAGE.read_text("utf-8"), RESULT), "utf-8")
    for result in (RESULT, *map(RESULT.with_name, OTHER_RESULTS.values())):
        if result.exists():
            markdown = report.render(json.loads(result.read_text("utf-8")))
            result.with_suffix(".md").write_text(markdown, "utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
