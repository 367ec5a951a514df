"""Finds the highest arrival rate at which an engine answers 95 % of the sentences within LIMIT_S seconds.

The search tries one rate after another with each engine. Transduce and CTranslate2, the peer, take turns.
"""

from __future__ import annotations

import math
import time
from dataclasses import replace
from typing import Any

import numpy as np

from benchmarks.engine.cases import SEED, shuffle
from benchmarks.engine.compare import REST_S, ComparisonOptions, arguments_of, pool_of, print_progress
from benchmarks.engine.goals import LIMIT_S
from benchmarks.engine.jobs import ArrivalResult, Arrivals, PeerSettings
from benchmarks.engine.search import Choice, PeerPool
from benchmarks.engine.weights import ModelPair
from benchmarks.engine.worker import Worker
from transduce.loadtest.percentiles import rank_of

# Each rate is the highest one that has succeeded times a factor, first COARSE, then FINE. The result is exact to the
# factor FINE, unless MAX_TRIALS ends the search.
COARSE, FINE = 1.25, 1.08
# The largest number of rates that the search tries for one engine.
MAX_TRIALS = 12
# The first rate, as a share of the engine's throughput when it translates a corpus in one call. If larger, the first
# rate may fail. If smaller, the search takes more trials.
FIRST_SHARE = 0.6
# The rate at which the thread settings of CTranslate2 are compared, as a share of its throughput on a corpus.
CHOICE_SHARE = 0.8
# The minimum number of sentences in a trial. With fewer, the 95th percentile is the maximum.
MIN_SENTENCES = 20


class ArrivalRateSearch:
    """The search for the highest rate that one engine sustains.

    While no rate has succeeded, the search halves the rate. Then it raises the rate in coarse steps until a rate fails.
    Then it continues in fine steps from the highest rate that has succeeded.

    rate: sentences per second that the next trial has. highest: the highest rate that has succeeded, 0 if none has.
    """

    def __init__(self, first_rate: float) -> None:
        self.rate = first_rate
        self.highest = 0.0
        self.trials: list[dict[str, float | None]] = []
        self._failed = math.inf
        self._step = COARSE

    @property
    def is_done(self) -> bool:
        """Whether MAX_TRIALS rates have been tried, or the next fine step is not below the rate that failed last."""
        return len(self.trials) >= MAX_TRIALS or (self._step == FINE and self.rate >= self._failed)

    def record(self, result: ArrivalResult) -> None:
        """Record the result of the trial at `rate`, and set `rate` to the next one."""
        p95 = percentile(result, 0.95)
        self.trials.append({
            "rate": self.rate,
            "p50_s": finite(percentile(result, 0.5)),
            "p95_s": finite(p95),
            "num_sentences": len(result.latencies_s),
            "sent_late_p99_s": sorted(result.sent_late_s)[rank_of(len(result.sent_late_s), 99) - 1],
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


def percentile(result: ArrivalResult, share: float) -> float:
    """A percentile of the latencies in seconds, by nearest rank. An unanswered sentence has an infinite latency.

    share: the percentile as a share of the sentences, above 0 and at most 1.
    """
    latencies = sorted(math.inf if each is None else each for each in result.latencies_s)
    return latencies[rank_of(len(latencies), 100 * share) - 1]


def finite(value: float) -> float | None:
    """The value, or None for infinity, which JSON cannot represent."""
    return value if math.isfinite(value) else None


def arrivals_at(
    rate: float, sentences: list[list[int]], *, beam_size: int, max_target_length: int, seconds: float
) -> Arrivals:
    """Poisson arrivals of `rate` sentences per second for `seconds` seconds, but at least MIN_SENTENCES of them.

    All rates have the same random gaps, scaled to the rate. sentences: source ids with the end token last. They are
    repeated as often as necessary.
    """
    num_sentences = max(MIN_SENTENCES, round(rate * seconds))
    gaps = np.random.default_rng(SEED).exponential(1.0, num_sentences) / rate
    repeated = sentences * math.ceil(num_sentences / len(sentences))
    # After the last arrival, a trial waits for twice the limit. Any later answer is above the limit anyway.
    return Arrivals(
        repeated[:num_sentences], gaps.tolist(), beam_size, max_target_length, limit_s=2 * LIMIT_S
    )


def search_rates(
    prepared: ModelPair,
    sentences: list[list[int]],
    corpus_rows: list[dict[str, Any]],
    options: ComparisonOptions,
    *,
    seconds: float,
) -> list[dict[str, Any]]:
    """Find the highest rate of each engine for each row of corpus_rows, which have different beam sizes.

    sentences: source ids with the end token last. corpus_rows: both engines' results on a whole corpus. seconds: length
    of one trial.
    """
    pool = pool_of(prepared, options)
    results = []
    try:
        with Worker("ours", arguments_of(prepared, options)) as ours:
            for row in corpus_rows:
                arrival_options = {
                    "sentences": shuffle(sentences),
                    "beam_size": row["beam_size"],
                    "max_target_length": row["max_target_length"],
                }
                choice = choose_peer(
                    pool, row, arrival_options, seconds=seconds / 2, num_threads=options.num_threads
                )
                searches = {
                    "ours": ArrivalRateSearch(row["sentences_per_s"] * FIRST_SHARE),
                    "peer": ArrivalRateSearch(row["peer_sentences_per_s"] * FIRST_SHARE),
                }
                while not all(search.is_done for search in searches.values()):
                    for name, search in searches.items():
                        if search.is_done:
                            continue
                        arrivals = arrivals_at(search.rate, seconds=seconds, **arrival_options)
                        time.sleep(REST_S)
                        worker = ours if name == "ours" else pool.worker(choice.backend)
                        search.record(worker.arrive(arrivals, None if name == "ours" else choice.settings))
                results.append(_result(prepared, row, searches, choice, seconds=seconds))
                print_progress(
                    f"arrivals {results[-1]['ours_per_s']:.0f}/s, peer {results[-1]['peer_per_s']:.0f}/s"
                )
    finally:
        pool.close()
    return results


def choose_peer(
    pool: PeerPool, row: dict[str, Any], arrival_options: dict[str, Any], *, seconds: float, num_threads: int
) -> Choice:
    """Choose CTranslate2's settings.

    It keeps the backend that was fastest on the whole corpus, and tries two divisions of the threads: one batch at a
    time with all threads, or several batches at once with one thread each. It tries each division with the batches that
    were fastest on the whole corpus, and with all sentences of a call in one batch. Each trial has the same rate, and
    takes `seconds` seconds.
    """
    of_corpus = Choice(row["peer_backend"], PeerSettings(**row["peer_settings"]))
    trials = []
    for inter_threads, intra_threads in sorted({(1, num_threads), (num_threads, 1)}):
        divided = replace(of_corpus.settings, inter_threads=inter_threads, intra_threads=intra_threads)
        for settings in dict.fromkeys((divided, PeerSettings(inter_threads, intra_threads))):
            choice = replace(of_corpus, settings=settings)
            rate = CHOICE_SHARE * row["peer_sentences_per_s"]
            arrivals = arrivals_at(rate, seconds=seconds, **arrival_options)
            result = pool.worker(choice.backend).arrive(arrivals, settings)
            trials.append((percentile(result, 0.95), percentile(result, 0.5), choice))
    # The smaller p95 wins, then the smaller p50.
    return min(trials, key=lambda trial: trial[:2])[2]


def _result(
    prepared: ModelPair,
    row: dict[str, Any],
    searches: dict[str, ArrivalRateSearch],
    choice: Choice,
    *,
    seconds: float,
) -> dict[str, Any]:
    """The highest rates as a row of the benchmark's JSON file."""
    ours, theirs = searches["ours"].highest, searches["peer"].highest
    return {
        "model": prepared.name,
        "precision": prepared.precision,
        "beam_size": row["beam_size"],
        "trial_s": seconds,
        "ours_per_s": ours,
        "peer_per_s": theirs,
        "ratio": ours / theirs if theirs else None,
        "peer_choice": choice.describe(),
        "ours_trials": searches["ours"].trials,
        "peer_trials": searches["peer"].trials,
    }
