"""Finds the highest arrival rate at which 95 % of the sentences are answered in time. The engines alternate."""

from __future__ import annotations

import math
import time
from typing import Any

import numpy as np

from benchmarks.engine.cases import SEED, shuffle
from benchmarks.engine.compare import REST_S, ComparisonOptions, arguments_of, print_progress
from benchmarks.engine.jobs import ArrivalResult, Arrivals, PeerSettings
from benchmarks.engine.search import Choice, PeerPool
from benchmarks.engine.weights import QUANTIZATION, ModelPair
from benchmarks.engine.worker import Worker

# Seconds. A rate succeeds if the 95th percentile of the latency is at most this.
LIMIT_S = 1.0
# Factors between a rate and the next one. The fine factor is the precision of the result.
COARSE, FINE = 1.25, 1.08
MOST_TRIALS = 12
# The first rate, as a share of the engine's throughput when it translates a corpus in one call.
FIRST_SHARE = 0.6


class ArrivalRateSearch:
    """Tries rates in ascending order: coarse steps until one fails, then fine steps from the last success."""

    def __init__(self, first: float) -> None:
        self.rate = first
        self.highest = 0.0
        self.trials: list[dict[str, float | None]] = []
        self._failed = math.inf
        self._step = COARSE

    @property
    def is_done(self) -> bool:
        """Whether the next rate has already failed, or the trials are used up."""
        return len(self.trials) >= MOST_TRIALS or (self._step == FINE and self.rate >= self._failed)

    def record(self, answered: ArrivalResult) -> None:
        """Record the result at `rate`, and set the next rate."""
        p95 = percentile(answered, 0.95)
        self.trials.append({
            "rate": self.rate,
            "p50_s": finite(percentile(answered, 0.5)),
            "p95_s": finite(p95),
            "num_sentences": len(answered.latencies_s),
            "sent_late_p99_s": sorted(answered.sent_late_s)[int(0.99 * len(answered.sent_late_s))],
        })  # fmt: skip
        if p95 <= LIMIT_S:
            self.highest = self.rate
            self.rate *= self._step
            return
        self._failed = self.rate
        if not self.highest:
            self.rate /= 2.0
        elif self._step == COARSE:
            self._step = FINE
            self.rate = self.highest * FINE


def percentile(answered: ArrivalResult, share: float) -> float:
    """A percentile of the latencies. An unanswered sentence counts as infinite."""
    latencies = sorted(math.inf if each is None else each for each in answered.latencies_s)
    return latencies[min(len(latencies) - 1, math.ceil(share * len(latencies)) - 1)]


def finite(value: float) -> float | None:
    """The value, or None for infinity, which JSON cannot represent."""
    return value if math.isfinite(value) else None


def arrivals_at(
    rate: float, sentences: list[list[int]], *, beam_size: int, max_target_length: int, seconds: float
) -> Arrivals:
    """Poisson arrivals for `seconds` seconds. All rates have the same random gaps, scaled to the rate."""
    count = max(20, round(rate * seconds))
    gaps = np.random.default_rng(SEED).exponential(1.0, count) / rate
    repeated = sentences * -(-count // len(sentences))
    return Arrivals(repeated[:count], gaps.tolist(), beam_size, max_target_length, limit_s=2 * LIMIT_S)


def search_rates(
    prepared: ModelPair,
    sentences: list[list[int]],
    corpus_rows: list[dict[str, Any]],
    options: ComparisonOptions,
    *,
    seconds: float,
) -> list[dict[str, Any]]:
    """The highest rate of each engine for each beam size. corpus_rows: both engines' results on a whole corpus."""
    pool = PeerPool(
        str(prepared.peer),
        QUANTIZATION[prepared.precision],
        num_threads=options.num_threads,
        is_quick=options.is_quick,
    )
    found = []
    try:
        with Worker("ours", arguments_of(prepared, options)) as ours:
            for row in corpus_rows:
                shared = {
                    "sentences": shuffle(sentences),
                    "beam_size": row["beam_size"],
                    "max_target_length": row["max_target_length"],
                }
                choice = _choose(pool, row, shared, seconds=seconds / 2, num_threads=options.num_threads)
                ladders = {
                    "ours": ArrivalRateSearch(row["sentences_per_s"] * FIRST_SHARE),
                    "peer": ArrivalRateSearch(row["peer_sentences_per_s"] * FIRST_SHARE),
                }
                while not all(ladder.is_done for ladder in ladders.values()):
                    for name, ladder in ladders.items():
                        if ladder.is_done:
                            continue
                        arrivals = arrivals_at(ladder.rate, seconds=seconds, **shared)
                        time.sleep(REST_S)
                        worker = ours if name == "ours" else pool.worker(choice.backend)
                        ladder.record(worker.arrive(arrivals, None if name == "ours" else choice.settings))
                found.append(_result(prepared, row, ladders, choice))
                print_progress(
                    f"arrivals {found[-1]['ours_per_s']:.0f}/s, peer {found[-1]['peer_per_s']:.0f}/s"
                )
    finally:
        pool.close()
    return found


def _choose(
    pool: PeerPool, row: dict[str, Any], shared: dict[str, Any], *, seconds: float, num_threads: int
) -> Choice:
    """CTranslate2's settings: the best backend on the corpus, and the threads that are faster near the highest rate."""
    best = row["peer_tried"][0]["backend"]
    found = []
    for inter, intra in sorted({(1, num_threads), (num_threads, 1)}):
        choice = Choice(best, PeerSettings(inter, intra))
        arrivals = arrivals_at(0.8 * row["peer_sentences_per_s"], seconds=seconds, **shared)
        answered = pool.worker(best).arrive(arrivals, choice.settings)
        found.append((percentile(answered, 0.95), percentile(answered, 0.5), inter, choice))
    return min(found, key=lambda each: each[:3])[3]


def _result(
    prepared: ModelPair, row: dict[str, Any], ladders: dict[str, ArrivalRateSearch], choice: Choice
) -> dict[str, Any]:
    ours, theirs = ladders["ours"].highest, ladders["peer"].highest
    return {
        "model": prepared.name,
        "precision": prepared.precision,
        "beam_size": row["beam_size"],
        "ours_per_s": ours,
        "peer_per_s": theirs,
        "ratio": ours / theirs if theirs else None,
        "peer_choice": choice.describe(),
        "ours_trials": ladders["ours"].trials,
        "peer_trials": ladders["peer"].trials,
    }
