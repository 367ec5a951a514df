"""Measure the engine's Python time per step, with a runner that computes nothing.

All rows stay occupied. At every step, the hypotheses of a beam continue random hypotheses of the step before, as in a
difficult sentence. Prints microseconds per step and per row: the median of the fastest run.

Options of guided searches are measured separately, because in a shared step their time delays all sentences of the
step. `no_repeat_ngram_size` and `sampling` read full distributions. The runner gives a row the same distribution at
every step. In these cases the hypotheses of a beam change rows at almost every step, but not at random.

    python -m benchmarks.scheduler_overhead
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from app.decoding.options import DecodingOptions, Sampling
from app.decoding.search import new_search
from app.engine.core import EngineCore
from app.engine.limits import EngineLimits
from app.engine.messages import Submit
from app.engine.sequence import Sequence as Sentence
from app.runtime.interface import Int32s, Limits, StepInput, StepOutput
from model.data_arguments import positive

BOS, EOS = 1, 2
VOCAB_SIZE = 8000
MIN_STEPS = 3  # the first and the last step are not measured
NUM_PREPARED = 61  # outputs that are prepared before the clock starts and then used cyclically
PLAIN = "none"
# Decoding options of the sentences, by name.
OPTIONS: dict[str, dict[str, Any]] = {
    PLAIN: {},
    "no_repeat_ngram_size": {"no_repeat_ngram_size": 3},
    "sampling": {"sampling": Sampling(top_p=0.9)},
    "num_alternatives": {"num_alternatives": 4},
}


class IdleRunner:
    """A runner that responds at once with prepared candidates, none of which is the end token."""

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
        self.distributions = rng.normal(-9.0, 1.0, (num_rows, VOCAB_SIZE)).astype(np.float32)
        self.distributions[:, EOS] = -99.0
        self.num_decodes = 0

    def encode(self, sources: Sequence[Int32s], rows: Sequence[int]) -> None:
        """No effect."""

    def decode(self, step: StepInput) -> StepOutput:
        """The next prepared candidates for these rows."""
        self.num_decodes += 1
        index, num_rows = self.num_decodes % NUM_PREPARED, len(step.ids)
        distributions = self.distributions[:num_rows] if step.wants_distributions else None
        return StepOutput(self.scores[index, :num_rows], self.ids[index, :num_rows], distributions)

    def share_cores(self, num_sharing: int) -> None:
        """No effect."""

    def copy_rows(self, sources: Int32s, targets: Int32s, lengths: Int32s) -> None:
        """No effect."""

    def reorder(self, sources: Int32s, targets: Int32s, lengths: Int32s, shared: Int32s) -> None:
        """No effect."""


def measure(*, num_rows: int, beam_size: int, num_steps: int, option: str = PLAIN) -> float:
    """Median microseconds of a step with num_rows rows, num_rows / beam_size sentences. option: a key of OPTIONS."""
    options = DecodingOptions(beam_size=beam_size, max_target_length=num_steps, **OPTIONS[option])
    num_candidates = new_search(options, bos_id=BOS, eos_id=EOS).num_candidates
    runner = IdleRunner(num_rows=num_rows, num_candidates=num_candidates, num_steps=num_steps)
    core = EngineCore(runner, EngineLimits(max_encode_tokens=64 * num_rows), report=lambda _report: None)
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


def steps(text: str) -> int:
    """Parse a whole number of at least MIN_STEPS. Raises ArgumentTypeError."""
    if (number := positive(text)) < MIN_STEPS:
        raise argparse.ArgumentTypeError(f"{text!r} is less than {MIN_STEPS}")
    return number


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and print; returns the exit code."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument(
        "--num-steps",
        type=steps,
        default=1000,
        help=f"steps of one run, at least {MIN_STEPS}; with an option a tenth as many, but at least 10 "
        "(default: 1000)",
    )
    parser.add_argument(
        "--num-runs",
        type=positive,
        default=5,
        help="runs of a case, at least 1; the fastest counts (default: 5)",
    )
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    options = parser.parse_args(arguments)
    cases = [
        Case(beam_size, num_rows, PLAIN)
        for beam_size in (1, 4)
        for num_rows in (1, 8, 32, 64)
        if num_rows >= beam_size
    ]
    cases += [Case(beam_size, 8, option) for option in OPTIONS for beam_size in (1, 4) if option != PLAIN]
    cases = [case for case in cases if case.option != "sampling" or case.beam_size == 1]
    times = {case: min(_runs(case, options.num_steps, options.num_runs)) for case in cases}
    if options.json:
        print(json.dumps([{**case._asdict(), "step_us": step_us} for case, step_us in times.items()]))
        return 0
    print("| beam | rows | option | µs a step | µs a row |\n|---|---|---|---|---|")
    for case, step_us in times.items():
        print(f"| {case.beam_size} | {case.num_rows} | {case.option} |", end="")
        print(f" {step_us:.1f} | {step_us / case.num_rows:.2f} |")
    return 0


class Case(NamedTuple):
    """One case. option: a key of OPTIONS."""

    beam_size: int
    num_rows: int
    option: str


def _runs(case: Case, num_steps: int, num_runs: int) -> list[float]:
    """Microseconds per step, by run. Steps of guided searches are slow and alike: a tenth of them suffices."""
    num_steps = num_steps if case.option == PLAIN else max(num_steps // 10, 10)
    return [
        measure(num_rows=case.num_rows, beam_size=case.beam_size, num_steps=num_steps, option=case.option)
        for _ in range(num_runs)
    ]


if __name__ == "__main__":
    sys.exit(main())
