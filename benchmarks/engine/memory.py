"""Measure whether resident memory grows under random lengths and beam sizes: the slope and its standard error.

The system assigns a page of the caches or of scratch memory when the page is first written. The number of such pages
is bounded. Random requests would take half an hour to come near the bound, so the run begins with the largest requests.

    python -m benchmarks.engine.memory --minutes 10
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import psutil

from app.bundle import Bundle, load_bundle
from app.bundle_folders import find_bundles
from app.decoding.options import DecodingOptions
from app.engine.engine import Engine
from app.errors import BundleError, SettingsError
from app.runtime.machine import num_usable_cores
from app.runtime.ort_runner import load_runner
from app.settings import load_settings
from app.workers.thread_worker import ThreadWorker
from benchmarks.engine.ours import FOREVER, LIMITS
from benchmarks.machine import describe_run

RESULT = Path(__file__).resolve().parents[1] / "results" / "engine_memory.json"
BEAM_SIZES = (1, 1, 2, 4, 4, 8)
LONGEST_TARGET = 60
FIRST_ID = 4  # the first id that is not a special token
NUM_BLOCKS = 10
# Memory is flat if its slope is within this many standard errors of 0, or negligible.
NUM_ERRORS = 2.0
NEGLIGIBLE_MB_PER_MINUTE = 0.05


@dataclass(frozen=True)
class Slope:
    """Megabytes per minute with the standard error, and the median of each block of samples."""

    mb_per_minute: float
    standard_error: float
    block_medians_mb: list[float]

    @property
    def is_flat(self) -> bool:
        """Whether the slope is within its noise, or negligible."""
        return abs(self.mb_per_minute) <= max(NUM_ERRORS * self.standard_error, NEGLIGIBLE_MB_PER_MINUTE)


def slope_of(minutes: Sequence[float], megabytes: Sequence[float]) -> Slope:
    """Fit a line by least squares through the medians of NUM_BLOCKS blocks of samples.

    The medians are far enough apart in time to be independent. Raises ValueError for fewer than 3 samples per block.
    """
    if len(minutes) < 3 * NUM_BLOCKS:
        raise ValueError(
            f"{len(minutes)} samples of memory are too few: at least {3 * NUM_BLOCKS} are needed"
        )
    blocks = np.array_split(np.arange(len(minutes)), NUM_BLOCKS)
    x = np.array([np.mean(np.take(minutes, block)) for block in blocks])
    y = np.array([np.median(np.take(megabytes, block)) for block in blocks])
    centred = x - x.mean()
    slope = float(centred @ y / (centred @ centred))
    residuals = y - y.mean() - slope * centred
    error = float(np.sqrt(residuals @ residuals / (NUM_BLOCKS - 2) / (centred @ centred)))
    return Slope(slope, error, y.tolist())


class Load:
    """Closed-loop clients that submit random sentences with random beam sizes."""

    def __init__(self, engine: Engine, *, num_clients: int, seconds: float) -> None:
        self._engine = engine
        self._num_clients = num_clients
        self._random = random.Random(1)
        self._seconds = seconds
        self._until = 0.0
        self.num_sentences = 0

    async def run(self) -> None:
        """Run all clients until the time is over."""
        self._until = time.monotonic() + self._seconds
        await asyncio.gather(*(self._client() for _ in range(self._num_clients)))

    async def fill_all_rows(self, num_rows: int) -> None:
        """Write once to all memory that requests can use.

        The longest sentences come first. Their targets have a minimum length, so they write every column that a
        request of this run can reach, in all rows. Then 1, 2, 3... short sentences run at once, so that there is a step
        with every number of rows.
        """
        source, target = self._engine.limits.max_source_length, self._longest_target
        beam_sizes = sorted(set(BEAM_SIZES))
        for beam_size in beam_sizes:
            options = DecodingOptions(beam_size, max_target_length=target, min_target_length=target)
            await asyncio.gather(*(self._send(source, options) for _ in range(num_rows // beam_size)))
        for beam_size in beam_sizes:
            options = DecodingOptions(beam_size, max_target_length=target)
            for count in range(1, num_rows // beam_size + 1):
                await asyncio.gather(*(self._send(2, options) for _ in range(count)))

    @property
    def _longest_target(self) -> int:
        return min(LONGEST_TARGET, self._engine.limits.max_target_length - 1)

    async def _client(self) -> None:
        while time.monotonic() < self._until:
            length = self._random.randint(1, self._engine.limits.max_source_length)
            longest = self._random.randint(1, self._longest_target)
            beam_size = self._random.choice(BEAM_SIZES)
            await self._send(length, DecodingOptions(beam_size, max_target_length=longest))
            self.num_sentences += 1

    async def _send(self, length: int, options: DecodingOptions) -> None:
        vocab_size = self._engine.limits.vocab_size
        ids = [self._random.randrange(FIRST_ID, vocab_size) for _ in range(length)]
        await self._engine.submit(ids, options, request_id="", caller="", deadline=FOREVER)


async def sample(seconds: float, interval_s: float) -> tuple[list[float], list[float]]:
    """Sample resident memory. Returns minutes since the start, and megabytes at each time."""
    process = psutil.Process()
    minutes, megabytes = [], []
    started_at = time.monotonic()
    while (age_s := time.monotonic() - started_at) < seconds:
        minutes.append(age_s / 60)
        megabytes.append(process.memory_info().rss / 1e6)
        await asyncio.sleep(interval_s)
    return minutes, megabytes


async def measure(args: argparse.Namespace, bundle: Bundle) -> dict[str, Any]:
    """Run the load and sample memory after the warm-up. In the warm-up, bounded memory reaches its bound."""
    runner = load_runner(
        bundle,
        precision=args.precision,
        device="cpu",
        num_rows=args.num_rows,
        num_threads=num_usable_cores(),
    )
    engine = Engine([ThreadWorker(runner)], settings=LIMITS)
    engine.start()
    seconds, warm_up_s = args.minutes * 60, args.minutes * 60 * args.warm_up
    load = Load(engine, num_clients=args.num_clients, seconds=warm_up_s + seconds)
    process = psutil.Process()
    before_mb = process.memory_info().rss / 1e6
    await load.fill_all_rows(args.num_rows)
    filled_mb = process.memory_info().rss / 1e6
    task = asyncio.create_task(load.run())
    await asyncio.sleep(warm_up_s)
    minutes, megabytes = await sample(seconds, seconds / args.num_samples)
    await task
    await engine.close(drain_timeout_s=0.0)
    slope = slope_of(minutes, megabytes)
    return {
        "num_sentences": load.num_sentences,
        "before_mb": before_mb,
        "after_fill_mb": filled_mb,
        "least_mb": min(megabytes),
        "most_mb": max(megabytes),
        "slope_mb_per_minute": slope.mb_per_minute,
        "standard_error": slope.standard_error,
        "is_flat": slope.is_flat,
        "block_medians_mb": slope.block_medians_mb,
    }


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, write JSON and print it. Returns the exit code: 1 if memory is not flat."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("--bundle", type=Path, help="the bundle that is measured (default: the bundled model)")
    add("--precision", default="auto", help="precision of the model (default: auto, as in a server)")
    add("--minutes", type=float, default=10.0, help="duration after the warm-up (default: 10)")
    add(
        "--warm-up",
        type=float,
        default=0.2,
        help="duration of the warm-up, as a share of --minutes (default: 0.2)",
    )
    add("--num-samples", type=int, default=600, help="number of memory samples (default: 600)")
    add("--num-rows", type=int, default=64, help="cache rows of the engine (default: 64)")
    add("--num-clients", type=int, default=24, help="closed-loop clients (default: 24)")
    add("--output", type=Path, default=RESULT, help="JSON file")
    args = parser.parse_args(arguments)
    try:
        bundle = load_bundle(args.bundle or find_bundles(load_settings())[0])
    except (BundleError, SettingsError) as error:
        parser.exit(2, "".join(f"{problem}\n" for problem in error.problems))
    run = describe_run("benchmarks.engine.memory", arguments)
    found = asyncio.run(measure(args, bundle))
    result = {
        **run,
        "model": f"{bundle.manifest.name} {bundle.manifest.version}",
        "minutes": args.minutes,
        **found,
    }
    args.output.parent.mkdir(parents=True, exist_ok=True)
    args.output.write_text(json.dumps(result, indent=1) + "\n", "utf-8")
    print(json.dumps(found, indent=1))
    return 0 if found["is_flat"] else 1


if __name__ == "__main__":
    sys.exit(main())
