"""Write the figures of docs/performance.md and docs/operations.md from the committed results.

`BLOCKS[NAME]` formats the text between `<!-- figures: NAME -->` and `<!-- end -->`.

    python -m benchmarks.engine.page
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks import server_tables
from benchmarks.engine import page_tables
from benchmarks.machine import ROOT
from benchmarks.page_blocks import fill_blocks

PAGES = (ROOT / "docs" / "performance.md", ROOT / "docs" / "operations.md")
RESULTS = ROOT / "benchmarks" / "results"
NOT_MEASURED = "Not measured yet."


def _memory(result: dict[str, Any]) -> str:
    return (
        f"{result['minutes']:g} minutes, {result['num_sentences']:,} sentences: {result['least_mb']:.1f} to "
        f"{result['most_mb']:.1f} MB resident, {result['slope_mb_per_minute']:+.3f} MB a minute, standard error "
        f"{result['standard_error']:.3f}: {'flat' if result['is_flat'] else 'not flat'}. "
        f"{result['machine']['cpu']}, commit {result['commit']}; `{result['command']}`."
    )


# Name -> the result file, and the function that formats its content.
BLOCKS: dict[str, tuple[str, Callable[[dict[str, Any]], str]]] = {
    "machine": ("engine.json", page_tables.measured_on),
    "goals": ("engine.json", page_tables.goals_tables),
    "arrivals": ("engine.json", lambda result: page_tables.arrivals_table(result["arrivals"])),
    "machine-amd": ("engine_amd.json", page_tables.measured_on),
    "goals-amd": ("engine_amd.json", page_tables.goals_tables),
    "arrivals-amd": ("engine_amd.json", lambda result: page_tables.arrivals_table(result["arrivals"])),
    "machine-avx2": ("engine_avx2.json", page_tables.measured_on),
    "goals-avx2": ("engine_avx2.json", page_tables.goals_tables),
    "steps-avx2-small": ("step_avx2.json", lambda result: page_tables.target_table(result, "avx2")),
    "steps-avx2-base": ("step_avx2_base.json", lambda result: page_tables.target_table(result, "avx2")),
    "ssru-small": ("ssru_small.json", page_tables.ssru_table),
    "ssru-base": ("ssru_base.json", page_tables.ssru_table),
    "marian": ("marian.json", page_tables.marian_table),
    "quality": ("engine_quality.json", page_tables.quality_tables),
    "memory": ("engine_memory.json", _memory),
    "starts": ("footprint.json", server_tables.starts_table),
    "steps": ("footprint.json", server_tables.steps_table),
    "soak": ("soak.json", server_tables.soak_table),
    "fairness": ("fairness.json", server_tables.fairness_table),
    "event-loop": ("event_loop.json", server_tables.event_loop_table),
    "many-models": ("many_models.json", server_tables.many_models_table),
    "swaps": ("swaps.json", server_tables.swaps_sentences),
    "model-shares": ("model_shares.json", server_tables.model_shares_table),
    "overload": ("overload.json", server_tables.overload_tables),
    "small-files": ("files.json", server_tables.small_files_table),
    "large-files": ("files.json", server_tables.large_files_table),
    "traces": ("traces.json", server_tables.traces_table),
    "worker-deaths": ("worker_deaths.json", server_tables.deaths_table),
    "attacks": ("attacks.json", server_tables.attacks_table),
}


def filled(page: str, results: Path) -> str:
    """The page with every block rebuilt from `results`. Raises KeyError for an unknown block."""

    def text_of(name: str) -> str:
        file, make = BLOCKS[name]
        path = results / file
        return make(json.loads(path.read_text("utf-8"))) if path.exists() else NOT_MEASURED

    return fill_blocks(page, text_of)


def main() -> int:
    """Write the pages. Returns the exit code."""
    for page in PAGES:
        page.write_text(filled(page.read_text("utf-8"), RESULTS), "utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
