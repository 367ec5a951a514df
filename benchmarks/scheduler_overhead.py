"""What a step costs in Python: the engine's own time, with a runner that computes nothing.

Rows stay occupied for the whole measurement, and a beam's parents change at random at every step, as in a
sentence that is hard. Prints microseconds a step and a row: of several runs the least disturbed one's median.

    python -m benchmarks.scheduler_overhead
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from collections.abc import Sequence

import numpy as np

from app.decoding.options import DecodingOptions
from app.decoding.search import new_search
from app.engine.core import EngineCore, Submit
from app.engine.limits import EngineLimits
from app.engine.sequence import Sequence as Sentence
from app.runtime.interface import Int32s, Limits, StepInput, StepOutput

BOS, EOS = 1, 2
VOCAB_SIZE = 8000
NUM_PREPARED = 61  # outputs made before the clock starts, used in turn


class IdleRunner:
    """A Runner that answers at once, with candidates prepared before; none of them is the end token."""

    def __init__(self, *, num_rows: int, num_candidates: int, num_steps: int) -> None:
        rng = np.random.default_rng(0)
        self.limits = Limits(
            num_rows=num_rows,
            max_source_length=64,
            max_target_length=num_steps + 2,
            vocab_size=VOCAB_SIZE,
            bos_id=BOS,
            eos_id=EOS,
        )
        shape = (NUM_PREPARED, num_rows, num_candidates)
        self.scores = np.sort(rng.normal(-3.0, 1.0, shape).astype(np.float32))[..., ::-1].copy()
        self.ids = rng.integers(4, VOCAB_SIZE, shape)
        self.num_decodes = 0

    def encode(self, sources: Sequence[Int32s], rows: Sequence[int]) -> None:
        """Nothing."""

    def decode(self, step: StepInput) -> StepOutput:
        """The next prepared candidates of as many rows."""
        self.num_decodes += 1
        turn, num_rows = self.num_decodes % NUM_PREPARED, len(step.ids)
        return StepOutput(self.scores[turn, :num_rows], self.ids[turn, :num_rows])

    def copy_rows(self, sources: Int32s, targets: Int32s, lengths: Int32s) -> None:
        """Nothing."""

    def reorder(self, sources: Int32s, targets: Int32s, lengths: Int32s) -> None:
        """Nothing."""


def measure(*, num_rows: int, beam_size: int, num_steps: int) -> float:
    """Median microseconds of one step with num_rows rows, num_rows / beam_size sentences."""
    num_candidates = 1 if beam_size == 1 else beam_size + 1
    runner = IdleRunner(num_rows=num_rows, num_candidates=num_candidates, num_steps=num_steps)
    core = EngineCore(runner, EngineLimits(max_encode_tokens=64 * num_rows), report=lambda _report: None)
    options = DecodingOptions(beam_size=beam_size, max_target_length=num_steps)
    for number in range(num_rows // beam_size):
        search = new_search(options, bos_id=BOS, eos_id=EOS)
        source = np.array([5, EOS], dtype=np.int32)
        core.inbox.put(Submit(Sentence(source, options, str(number), "caller", 1e18, 0.0, search)))
    core.step()
    times = []
    for _ in range(num_steps - 2):
        started = time.perf_counter()
        core.step()
        times.append(time.perf_counter() - started)
    return statistics.median(times) * 1e6


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and print; returns the exit code."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--num-steps", type=int, default=1000, help="steps of one run (default: 1000)")
    parser.add_argument(
        "--num-runs", type=int, default=5, help="runs, of which the quickest counts (default: 5)"
    )
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    options = parser.parse_args(arguments)
    results = []
    for beam_size in (1, 4):
        for num_rows in (1, 8, 32, 64):
            if num_rows >= beam_size:
                runs = [
                    measure(num_rows=num_rows, beam_size=beam_size, num_steps=options.num_steps)
                    for _ in range(options.num_runs)
                ]
                results.append({"beam_size": beam_size, "num_rows": num_rows, "step_us": min(runs)})
    if options.json:
        print(json.dumps(results))
        return 0
    print("| beam | rows | µs a step | µs a row |\n|---|---|---|---|")
    for result in results:
        print(f"| {result['beam_size']} | {result['num_rows']} |", end="")
        print(f" {result['step_us']:.1f} | {result['step_us'] / result['num_rows']:.2f} |")
    return 0


if __name__ == "__main__":
    sys.exit(main())
