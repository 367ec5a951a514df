"""Write the tester comparison of docs/load-testing.md from the committed result.

python -m benchmarks.loadtest_crosscheck_page
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks.engine.report import table
from benchmarks.loadtest_crosscheck import PERCENTILES, RESULT
from benchmarks.machine import ROOT
from benchmarks.page_blocks import fill_blocks

PAGE = ROOT / "docs" / "load-testing.md"
SERVERS = {
    "spread": "A server whose answers take known times",
    "stalls": "A server that stalls for 0.8 s of every 4 s",
    "translation": "`transduce serve`",
}
ROWS = (
    ("known_ms", "the known times"),
    ("transduce", "transduce loadtest"),
    ("wrk2", "wrk2"),
    ("transduce_again", "transduce loadtest, again"),
    ("autocannon", "autocannon"),
)
FEW, MANY = "1", "200"


def table_of_testers(result: dict[str, Any]) -> str:
    """A table for each server, with one line per tester."""
    header = ("tester", "p50, ms", "p75, ms", "p90, ms", "p99, ms", "within 10 %")
    tables = []
    for part, server in SERVERS.items():
        if part not in result:
            continue
        lines = []
        for key, name in ROWS:
            if key not in result[part]:
                continue
            found = result[part][key]
            latency_ms = found.get("latency_ms", found)
            agrees = result[part]["agrees"].get(key)
            cells = [f"{latency_ms[percentile]:.1f}" for percentile in PERCENTILES]
            lines.append((name, *cells, "" if agrees is None else "yes" if agrees else "no"))
        tables.append(f"**{server}, {result[part]['rate']:g} requests/s**\n\n{table(header, lines)}")
    return "\n\n".join(tables)


def cost_in_words(result: dict[str, Any]) -> str:
    """CPU time per request of the tester."""
    found = result["cost"]["cpu_of_a_request_by_requests_under_way"]
    few, many = found[FEW], found[MANY]
    return (
        f"A request costs the tester {few['transduce_us']:.0f} µs of processor time with one under way and "
        f"{many['transduce_us']:.0f} µs with {MANY}. With httpx it costs {few['httpx_us'] / 1e3:.1f} ms and "
        f"{many['httpx_us'] / 1e3:.1f} ms, more than the lag that the tester allows itself. So it has its own "
        "connections, over httptools' parser."
    )


BLOCKS: dict[str, Callable[[dict[str, Any]], str]] = {"testers": table_of_testers, "cost": cost_in_words}


def filled(page: str, path: Path) -> str:
    """The page with its blocks rebuilt from the result at `path`. Raises KeyError for an unknown block."""
    result = json.loads(path.read_text("utf-8"))
    return fill_blocks(page, lambda name: BLOCKS[name](result))


def main() -> int:
    """Write the page."""
    PAGE.write_text(filled(PAGE.read_text("utf-8"), RESULT), "utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
