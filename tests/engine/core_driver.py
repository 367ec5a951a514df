"""Drives the engine's core without a thread, on a clock that the test sets."""

from __future__ import annotations

import random
import time
from collections import abc
from collections.abc import Iterable
from functools import lru_cache

import numpy as np

from app.decoding.options import DecodingOptions, Hypothesis
from app.decoding.search import new_search
from app.engine.core import EngineCore
from app.engine.limits import EngineLimits
from app.engine.messages import Cancel, Report, Submit
from app.engine.sequence import Sequence, SequenceResult
from app.runtime.interface import Runner
from tests.decoding.reference_search import reference_search
from tests.engine.fake_runner import EOS, FakeRunner, attention, log_probabilities

SETTINGS = EngineLimits(max_encode_tokens=64)


class CoreDriver:
    """An engine core with a clock that the test sets, and all its reports."""

    def __init__(self, runner: Runner, settings: EngineLimits = SETTINGS) -> None:
        self.runner = runner
        self.now = 0.0
        self.reports: list[Report] = []
        self.reserved_rows: list[int] = []  # the number of reserved rows after each step
        self.core = EngineCore(runner, settings, report=self.reports.append, clock=lambda: self.now)

    def submit(
        self,
        source: abc.Sequence[int],
        options: DecodingOptions,
        *,
        request_id: str = "request",
        caller: str = "caller",
        deadline: float = 1e9,
        streams: bool = False,
    ) -> Sequence:
        """Put a sentence into the inbox. streams: whether its tokens are reported as they are decoded."""
        limits = self.runner.limits
        search = new_search(options, bos_id=limits.bos_id, eos_id=limits.eos_id, source_ids=source)
        ids = np.array(source, dtype=np.int32)
        sequence = Sequence(ids, options, request_id, caller, deadline, self.now, search)
        self.core.inbox.put(Submit(sequence, streams=streams))
        return sequence

    def cancel(self, sequence: Sequence) -> None:
        self.core.inbox.put(Cancel(sequence))

    def step(self) -> None:
        """Run a step and check the invariants of the rows."""
        self.core.step()
        scheduler, allocator = self.core.scheduler, self.core.scheduler.row_allocator
        held = [row for sequence in scheduler.running for row in sequence.rows]
        assert len(held) == len(set(held))
        assert all(row < allocator.end for row in held)
        assert allocator.num_reserved == sum(one.num_reserved_rows for one in scheduler.running)
        assert allocator.num_occupied <= allocator.num_reserved <= allocator.num_rows
        self.reserved_rows.append(allocator.num_reserved)

    def run(self) -> int:
        """Step until there is no work left. Returns the number of steps."""
        steps = 0
        while self.core.scheduler.has_work or not self.core.inbox.empty():
            self.step()
            steps += 1
        return steps

    @property
    def ended(self) -> list[Sequence]:
        return [sequence for report in self.reports for sequence in report.ended]


@lru_cache(maxsize=64)
def deadline_of(engine: abc.Hashable, request_id: str, timeout_s: float) -> float:
    """Return the deadline of all sentences of a request: timeout_s seconds after the first call for the request.

    engine: requests of different engines are different, even if they share a request_id.
    """
    return time.monotonic() + timeout_s


def hypotheses_of(sequence: Sequence) -> list[Hypothesis]:
    assert isinstance(sequence.outcome, SequenceResult), sequence.outcome
    return sequence.outcome.hypotheses


def expected(source: abc.Sequence[int], options: DecodingOptions, runner: FakeRunner) -> list[Hypothesis]:
    """Return the reference search's hypotheses for the fake runner's translation model."""

    def next_scores(prefix: tuple[int, ...]) -> abc.Sequence[float]:
        limits = runner.limits
        target = np.array([limits.bos_id, *prefix], np.int32)
        ids = np.array(source, np.int32)
        bonus = runner.eos_bonus
        scores: list[float] = log_probabilities(
            ids, target, vocab_size=limits.vocab_size, eos_bonus=bonus
        ).tolist()
        return scores

    def attention_after(prefix: tuple[int, ...]) -> abc.Sequence[float]:
        target = np.array([runner.limits.bos_id, *prefix], np.int32)
        shares: list[float] = attention(np.array(source, np.int32), target).tolist()
        return shares

    return reference_search(next_scores, options, eos_id=EOS, attention=attention_after)


def run_in_batch(
    driver: CoreDriver, rng: random.Random, submissions: Iterable[tuple[abc.Sequence[int], DecodingOptions]]
) -> list[Sequence]:
    """Submit sentences at random times while others run. Check each result against the reference search."""
    runner = driver.runner
    assert isinstance(runner, FakeRunner)
    jobs = []
    for source, options in submissions:
        jobs.append((source, options, driver.submit(source, options)))
        for _ in range(rng.randrange(3)):
            driver.step()
    driver.run()
    for source, options, sequence in jobs:
        assert_same(hypotheses_of(sequence), expected(source, options, runner))
    return [sequence for *_, sequence in jobs]


def assert_same(found: list[Hypothesis], reference: list[Hypothesis]) -> None:
    assert [(one.ids, one.finish_reason) for one in found] == [
        (one.ids, one.finish_reason) for one in reference
    ]
    np.testing.assert_allclose([one.score for one in found], [one.score for one in reference], atol=1e-6)
