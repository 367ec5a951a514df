"""Write the comparison of load testers in docs/load-testing.md from the committed result.

`benchmarks.loadtest_crosscheck` measures the result.

    python -m benchmarks.loadtest_crosscheck_page
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks.engine.report import table
from benchmarks.loadtest_crosscheck import PERCENTILES, RESULT
from benchmarks.machine import ROOT
from benchmarks.page_blocks import fill_blocks
from transduce.loadtest.plan import DEFAULT_MAX_LAG_S

PAGE = ROOT / "docs" / "load-testing.md"
# Titles of the tables, by the name of the server in the result.
SERVERS = {
    "spread": "A server with known response times",
    "stalls": "A server that stalls for 0.8 s of every 4 s",
    "translation": "`transduce serve`",
}
# Rows of a table: key in the result, and label.
ROWS = (
    ("known_ms", "known response times"),
    ("transduce", "transduce loadtest"),
    ("wrk2", "wrk2"),
    ("autocannon", "autocannon"),
)
# Numbers of concurrent requests, as keys in the result.
FEW, MANY = "1", "200"


def table_of_testers(result: dict[str, Any]) -> str:
    """A table of latency percentiles for each server, with one row per tester.

    The last column says whether a tester agrees with `transduce loadtest` (`benchmarks.loadtest_alternation.agrees`).
    """
    header = ("tester", "p50, ms", "p75, ms", "p90, ms", "p99, ms", "agrees")
    verdicts = {None: "", True: "yes", False: "no"}
    tables = []
    for name, title in SERVERS.items():
        if name not in result:
            continue
        of_server = result[name]
        rows = []
        for key, label in ROWS:
            if key not in of_server:
                continue
            # Only the known response times are not in a field latency_ms.
            latency_ms = of_server[key].get("latency_ms", of_server[key])
            cells = [f"{latency_ms[percentile]:.1f}" for percentile in PERCENTILES]
            rows.append((label, *cells, verdicts[of_server["agrees"].get(key)]))
        tables.append(f"**{title}, {of_server['rate']:g} requests/s**\n\n{table(header, rows)}")
    return "\n\n".join(tables)


def cost_in_words(result: dict[str, Any]) -> str:
    """The CPU time of one request in the tester and in httpx, as sentences."""
    by_concurrency = result["cost"]["cpu_of_a_request_by_requests_under_way"]
    few, many = by_concurrency[FEW], by_concurrency[MANY]
    return (
        f"One request takes {few['transduce_us']:.0f} µs of the tester's CPU time if it is the only one. With {MANY} "
        f"concurrent requests, each takes {many['transduce_us']:.0f} µs. With the HTTP client httpx, the two times "
        f"are {few['httpx_us'] / 1e3:.1f} ms and {many['httpx_us'] / 1e3:.1f} ms. The time with {MANY} "
        f"concurrent requests, {many['httpx_us'] / 1e3:.1f} ms, is more than the lag that the tester allows itself "
        f"({DEFAULT_MAX_LAG_S * 1e3:g} ms). So the tester does not use httpx. It has its own HTTP connections, with "
        "the parser of httptools."
    )


BLOCKS: dict[str, Callable[[dict[str, Any]], str]] = {"testers": table_of_testers, "cost": cost_in_words}


def filled(page: str, path: Path) -> str:
    """The page with the figures of the result file at `path`. Raises KeyError for an unknown block."""
    result = json.loads(path.read_text("utf-8"))
    return fill_blocks(page, lambda name: BLOCKS[name](result))


def main() -> int:
    """Write docs/load-testing.md. Returns the exit code, 0."""
    argparse.ArgumentParser(description=__doc__).parse_args()
    PAGE.write_text(filled(PAGE.read_text("utf-8"), RESULT), "utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
