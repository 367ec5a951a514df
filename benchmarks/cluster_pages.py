"""Write the figures of docs/ray.md and docs/sizing.md from the committed results.

`benchmarks.ray` and `benchmarks.sizing` measure them.

    python -m benchmarks.cluster_pages
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from benchmarks.engine.report import table
from benchmarks.machine import ROOT
from benchmarks.page_blocks import fill_blocks
from benchmarks.ray import RESULT as RAY
from benchmarks.sizing import RESULT as SIZING
from benchmarks.sizing import SLO, TOLERANCE
from transduce.loadtest.workload import built_in
from transduce.sizing.capacity import Capacity, plan
from transduce.sizing.measure import CLIENTS

PAGES = {ROOT / "docs" / "ray.md": RAY, ROOT / "docs" / "sizing.md": SIZING}
PRICE_A_CORE = 0.05  # for an hour, in any currency
# Rows of the table of machines: the number of machines, and the number of cores used on each.
SCALES = ((1, 1), (1, 2), (1, 8), (10, 8), (100, 8), (1000, 8))


def provenance(result: dict[str, Any]) -> str:
    """Machine, load, commit and command of a result, and whether the machine did other work."""
    machine = result["machine"]
    is_busy = machine["load_average_before"] > machine["num_cores"]
    return ("**Preliminary: the machine did other work meanwhile.** " if is_busy else "") + (
        f"{machine['num_cores']} cores of {machine['cpu']}, load average {machine['load_average_before']} before the "
        f"run, commit {result['commit']}, `{result['command']}`."
    )


def ray_table(result: dict[str, Any]) -> str:
    """Throughput and the latency of one request, on Ray and on the server."""
    found = result["figures"]
    many, one = found["answers_per_s"], found["one_client_ms"]
    rows = [
        (title, f"{median(of['server']):.1f}", f"{median(of['ray']):.1f}", f"{of['ratio']:.2f}")
        for title, of in (("answers/s, 64 clients", many), ("one request, ms", one))
    ]
    memory = found["memory_mb"]
    return "\n".join([
        table(("", "server, 2 workers", "Ray, 2 replicas", "ratio"), rows),
        "",
        f"Ray adds {one['difference']:.1f} ms to a request of a single client. All of its processes together use "
        f"{memory['ray']:,.0f} MB of memory, where the server uses {memory['server']:,.0f} MB, and without requests "
        f"{found['idle_cores_of_ray']:.2f} of a core. Of {found['answers']['num_compared']} answers, "
        f"{found['answers']['num_different']} differed. The ratios are medians of alternating passes. "
        + provenance(result),
    ])  # fmt: skip


def sizing_table(result: dict[str, Any]) -> str:
    """Simulated and measured latencies."""
    found = result["figures"]
    rows = [
        (
            f"{one['rate']:.1f} ({one['share']:.0%})",
            *(f"{one['simulated_ms'][name]:.0f}" for name in ("p50", "p99")),
            *(f"{one['measured_ms'][name]:.0f}" for name in ("p50", "p99")),
            f"{one['ratio']['p50']:.2f}, {one['ratio']['p99']:.2f}",
        )
        for one in found["points"]
    ]
    header = (
        "requests/s (of saturation)", "simulated p50, ms", "p99, ms", "measured p50, ms", "p99, ms", "ratios",
    )  # fmt: skip
    loops = ", ".join(
        f"{one['simulated_per_s']:.1f} and {one['measured_per_s']:.1f} ({clients})"
        for one, clients in zip(found["closed_loops"], loop_clients(found["closed_loops"]), strict=True)
    )
    verdict = "All ratios are" if found["agrees"] else "Not all ratios are"
    return "\n".join([
        table(header, rows),
        "",
        f"{verdict} within {TOLERANCE:.0%}. Answers/s of closed loops, simulated and measured: {loops}. "
        + provenance(result),
    ])  # fmt: skip


def loop_clients(loops: Sequence[dict[str, Any]]) -> list[str]:
    """The number of clients of each closed loop, in words. `measure.merged` may have joined loops into one."""
    words = []
    left = iter(CLIENTS)
    for num_clients in (one["num_clients"] for one in loops):
        first = next(left)
        last = first
        while last < num_clients:
            last = next(left)
        joined = f"{first} to {last} clients, measured as their mean and simulated with {last}"
        words.append(joined if first < last else "1 client" if num_clients == 1 else f"{num_clients} clients")
    return words


def scale_table(result: dict[str, Any]) -> str:
    """For each number of machines: the rate that they answer within the SLO, and the price."""
    found = result["figures"]
    capacity = Capacity(found["saturated_per_s"], found["within_slo_per_s"])
    words = [len(spec.texts[0].split()) for spec in built_in("news").requests]
    characters = sum(words) / len(words) * found["costs"]["characters_per_word"]
    rows = []
    for num_machines, num_cores in SCALES:
        num_servers = num_machines * num_cores
        rate = num_servers * capacity.rate
        # Slightly below the rate. At the rate itself, rounding can require one more server.
        price = plan(capacity, rate=rate * (1 - 1e-9), characters=characters, price=PRICE_A_CORE, spare=0)
        rows.append((
            f"{num_machines:,} x {num_cores} cores" if num_cores > 1 else "1 core",
            f"{rate:,.1f}",
            f"{rate * characters * 3600 / 1e6:,.1f}",
            f"{price.price_per_hour:,.2f}",
            f"{price.price_per_million:.4f}",
        ))  # fmt: skip
    header = (
        "machines",
        f"requests/s within {SLO}",
        "million characters/h",
        "price/h",
        "price/million characters",
    )
    return table(header, rows)


def median(values: list[float]) -> float:
    """The middle value. With an even number of values, the upper one of the two in the middle."""
    return sorted(values)[len(values) // 2]


BLOCKS: dict[str, Callable[[dict[str, Any]], str]] = {
    "ray": ray_table,
    "sizing": sizing_table,
    "scale": scale_table,
}


def filled(page: str, path: Path) -> str:
    """The page with the figures of the result file at `path`. Raises KeyError for an unknown block."""
    result = json.loads(path.read_text("utf-8"))
    return fill_blocks(page, lambda name: BLOCKS[name](result))


def main() -> int:
    """Write the pages. Returns the exit code, 0."""
    argparse.ArgumentParser(description=__doc__).parse_args()
    for page, result in PAGES.items():
        page.write_text(filled(page.read_text("utf-8"), result), "utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
