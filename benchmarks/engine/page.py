"""Write the figures of docs/performance.md and docs/operations.md from the committed results.

`BLOCKS[NAME]` formats the text between `<!-- figures: NAME -->` and `<!-- end -->`.

    python -m benchmarks.engine.page
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks import server_tables
from benchmarks.engine import page_tables
from benchmarks.engine.summary import Read, summary_table
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


def _of(file: str, make: Callable[[dict[str, Any]], str]) -> Callable[[Read], str]:
    """A block with the figures of one file. make: formats the file's content."""
    return lambda read: make(read(file))


# Name -> the function that formats the block.
BLOCKS: dict[str, Callable[[Read], str]] = {
    "summary": summary_table,
    "machine": _of("engine.json", page_tables.measured_on),
    "goals": _of("engine.json", page_tables.goals_tables),
    "arrivals": _of("engine.json", page_tables.arrivals_table),
    "machine-amd": _of("engine_amd.json", page_tables.measured_on),
    "goals-amd": _of("engine_amd.json", page_tables.goals_tables),
    "arrivals-amd": _of("engine_amd.json", page_tables.arrivals_table),
    "machine-zen4": _of("engine_zen4.json", page_tables.measured_on),
    "goals-zen4": _of("engine_zen4.json", page_tables.goals_tables),
    "arrivals-zen4": _of("engine_zen4.json", page_tables.arrivals_table),
    "machine-avx2": _of("engine_avx2.json", page_tables.measured_on),
    "goals-avx2": _of("engine_avx2.json", page_tables.goals_tables),
    "machine-avxvnni": _of("engine_avxvnni.json", page_tables.measured_on),
    "goals-avxvnni": _of("engine_avxvnni.json", page_tables.goals_tables),
    "steps-avx2-small": _of("step_avx2.json", lambda result: page_tables.target_table(result, "avx2")),
    "steps-avx2-base": _of("step_avx2_base.json", lambda result: page_tables.target_table(result, "avx2")),
    "ssru-small": _of("ssru_small.json", page_tables.ssru_table),
    "ssru-base": _of("ssru_base.json", page_tables.ssru_table),
    "marian-intel": _of("marian_intel.json", page_tables.marian_table),
    "marian": _of("marian.json", page_tables.marian_table),
    "quality": _of("engine_quality.json", page_tables.quality_tables),
    "memory": _of("engine_memory.json", _memory),
    "starts": _of("footprint.json", server_tables.starts_table),
    "steps": _of("footprint.json", server_tables.steps_table),
    "soak": _of("soak.json", server_tables.soak_table),
    "fairness": _of("fairness.json", server_tables.fairness_table),
    "event-loop": _of("event_loop.json", server_tables.event_loop_table),
    "many-models": _of("many_models.json", server_tables.many_models_table),
    "swaps": _of("swaps.json", server_tables.swaps_sentences),
    "model-shares": _of("model_shares.json", server_tables.model_shares_table),
    "overload": _of("overload.json", server_tables.overload_tables),
    "small-files": _of("files.json", server_tables.small_files_table),
    "large-files": _of("files.json", server_tables.large_files_table),
    "traces": _of("traces.json", server_tables.traces_table),
    "worker-deaths": _of("worker_deaths.json", server_tables.deaths_table),
    "attacks": _of("attacks.json", server_tables.attacks_table),
}


def filled(page: str, results: Path) -> str:
    """The page with every block rebuilt from `results`. Raises KeyError for an unknown block."""

    def read(file: str) -> dict[str, Any]:
        content: dict[str, Any] = json.loads((results / file).read_text("utf-8"))
        return content

    def text_of(name: str) -> str:
        try:
            return BLOCKS[name](read)
        except FileNotFoundError:
            return NOT_MEASURED

    return fill_blocks(page, text_of)


def main() -> int:
    """Write the pages. Returns the exit code."""
    argparse.ArgumentParser(description=__doc__).parse_args()
    for page in PAGES:
        page.write_text(filled(page.read_text("utf-8"), RESULTS), "utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
