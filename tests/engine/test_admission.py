"""Admission: bounds, and refusals of requests that would be late. The test sets the clock."""

from __future__ import annotations

import numpy as np
import pytest

from app.decoding.options import DecodingOptions
from app.decoding.search import new_search
from app.engine.admission import (
    DEADLINE_MARGIN,
    NEWCOMERS_BOUND,
    USUAL_SENTENCE_TOKENS,
    Admission,
    Reservation,
)
from app.engine.limits import EngineLimits
from app.engine.messages import Report
from app.engine.sequence import Sequence, SequenceResult
from app.engine.speed import MAX_FULL_AGE_S, MIN_FULL_STEPS, Cost
from app.engine.stats import StepStats
from app.errors import Overloaded
from tests.engine.fake_runner import EOS, LIMITS

NARROW = DecodingOptions(beam_size=1, max_target_length=12)
STEP_S = 0.01
OWN_S = USUAL_SENTENCE_TOKENS * STEP_S  # decoding time of a text that is not segmented yet: a step a token


class Gate:
    """An admission with a clock that the test sets. now: its time in seconds."""

    def __init__(self, limits: EngineLimits | None = None) -> None:
        self.now = 0.0
        self.admission = Admission(limits or EngineLimits(max_pending_tokens=10**9), clock=lambda: self.now)

    def place(
        self,
        num_sentences: int,
        num_tokens: int,
        *,
        caller: str = "a",
        deadline: float | None = None,
        options: DecodingOptions | None = None,
    ) -> Reservation:
        cost = Cost.of(num_sentences, num_tokens, options)
        return Reservation(self.admission, cost, caller=caller, deadline=deadline)

    def hold(self, num_sentences: int, num_tokens: int, *, caller: str = "a") -> Reservation:
        return self.place(num_sentences, num_tokens, caller=caller).__enter__()

    def work(self, *, num_steps: int, num_rows: int, num_waiting: int = 1, step_s: float = STEP_S) -> None:
        """Report steps of num_rows rows, and that as many sentences of 10 tokens ended after 10 steps each."""
        steps = [
            StepStats(num_rows=num_rows, num_waiting=num_waiting, step_time_s=step_s)
            for _ in range(num_steps)
        ]
        self.admission.speed.measure(Report([ended(10, num_steps=10)], steps))

    def refusal(self, place: Reservation) -> Overloaded:
        with pytest.raises(Overloaded) as caught:
            place.__enter__()
        return caught.value

    def wait_s(self, num_sentences: int, num_tokens: int, *, caller: str = "a") -> float | None:
        return self.admission.expected_wait_s(self.place(num_sentences, num_tokens, caller=caller))

    @property
    def tokens_per_s(self) -> float | None:
        """Source subwords a second, of greedy sentences."""
        speed = self.admission.speed
        row_steps_per_s = speed.row_steps_per_s
        return None if row_steps_per_s is None else row_steps_per_s * 1000 / speed.row_steps(Cost.of(1, 1000))


def cost_of(lengths: list[int]) -> Cost:
    return Cost.of(len(lengths), sum(lengths))


def ended(
    num_tokens: int, *, num_steps: int, options: DecodingOptions = NARROW, is_retry: bool = False
) -> Sequence:
    source = np.full(num_tokens, 5, np.int32)
    search = new_search(options, bos_id=LIMITS.bos_id, eos_id=EOS)
    sequence = Sequence(source, options, "request", "caller", 1e9, 0.0, search, is_retry=is_retry)
    sequence.outcome = SequenceResult([], 0.0, 0.0, 0.0, num_steps)
    return sequence


def test_speed_is_measured_with_full_rows_only() -> None:
    """64 rows at 10 ms a step are 6,400 row-steps a second; a token takes one of them."""
    gate = Gate()
    for _ in range(100):
        gate.work(num_steps=10, num_rows=1, num_waiting=0)  # little load: 100 tokens a second
    assert gate.tokens_per_s is None, "the rows were never full"
    gate.work(num_steps=MIN_FULL_STEPS - 1, num_rows=64)
    assert gate.tokens_per_s is None, "the rows were full too seldom"
    gate.work(num_steps=1, num_rows=64)
    assert gate.tokens_per_s == pytest.approx(6400)
    for _ in range(100):
        gate.work(num_steps=10, num_rows=1, num_waiting=0)
    assert gate.tokens_per_s == pytest.approx(6400)


def test_speed_follows_the_machine_and_the_requests() -> None:
    gate = Gate()
    gate.work(num_steps=100, num_rows=64)
    for _ in range(60):
        gate.work(num_steps=100, num_rows=64, step_s=2 * STEP_S)  # another process takes half of the machine
    assert gate.tokens_per_s == pytest.approx(3200, rel=0.01)
    beam = DecodingOptions(beam_size=4, max_target_length=12)
    gate.admission.speed.measure(Report([ended(10, num_steps=10, options=beam)] * 20_000, []))
    assert gate.tokens_per_s == pytest.approx(3200, rel=0.01), "a beam takes four times as many rows"
    lengthy = DecodingOptions(beam_size=1, min_target_length=110, max_target_length=200)
    gate.admission.speed.measure(Report([ended(10, num_steps=110, options=lengthy)] * 20_000, []))
    assert gate.tokens_per_s == pytest.approx(3200, rel=0.01), "steps of a minimum length are counted apart"
    gate.admission.speed.measure(Report([ended(10, num_steps=40)] * 20_000, []))
    assert gate.tokens_per_s == pytest.approx(800, rel=0.01)


def test_a_slower_engine_is_measured_within_seconds() -> None:
    gate = Gate()
    gate.work(num_steps=1000, num_rows=64)
    gate.work(num_steps=200, num_rows=64, step_s=2 * STEP_S)  # four seconds
    assert gate.tokens_per_s is not None
    assert gate.tokens_per_s < 1.2 * 3200


def test_a_retry_adds_steps_but_no_tokens() -> None:
    """The cost of a request does not count retries, so the steps a token must include them."""
    gate = Gate()
    gate.work(num_steps=100, num_rows=64)
    gate.admission.speed.measure(
        Report([ended(10, num_steps=10), ended(10, num_steps=10, is_retry=True)] * 9999, [])
    )
    assert gate.tokens_per_s == pytest.approx(3200, rel=0.01)


def test_a_slow_minute_is_dropped() -> None:
    """Otherwise refusals keep the rows from filling, and the recovery would never be measured."""
    gate = Gate()
    gate.work(num_steps=MIN_FULL_STEPS, num_rows=64, step_s=10.0)
    assert gate.tokens_per_s == pytest.approx(6.4)
    gate.hold(1, 64)
    assert gate.refusal(gate.place(1, 64, deadline=5.0)).is_foreseen
    gate.now = MAX_FULL_AGE_S + 0.1
    gate.place(1, 64, deadline=gate.now + 5.0).__enter__()
    gate.work(num_steps=10, num_rows=2, num_waiting=0)
    gate.work(num_steps=MIN_FULL_STEPS - 1, num_rows=64)
    assert gate.tokens_per_s is None
    gate.work(num_steps=1, num_rows=64)
    assert gate.tokens_per_s == pytest.approx(6400), "the slow steps do not count"


def test_idle_rows_of_beams_count_as_used() -> None:
    gate = Gate()
    full = StepStats(num_rows=16, num_idle_rows=48, num_waiting=1, step_time_s=STEP_S)
    gate.admission.speed.measure(Report([ended(10, num_steps=10)], [full] * MIN_FULL_STEPS))
    assert gate.tokens_per_s == pytest.approx(6400)


def test_no_deadline_is_checked_while_the_speed_is_unknown() -> None:
    gate = Gate()
    gate.hold(1000, 1_000_000)
    gate.place(1, 10, deadline=0.001).__enter__()
    assert gate.wait_s(1, 10, caller="a") is None
    assert gate.admission.drain_time_s() is None


def test_a_request_that_would_be_late_is_refused_with_retry_after() -> None:
    gate = Gate()
    gate.work(num_steps=100, num_rows=64)
    held = [gate.hold(1, 64) for _ in range(500)]  # 5 s of work
    assert gate.admission.drain_time_s() == pytest.approx(5.0)
    wait_s = gate.wait_s(1, 64, caller="a")
    assert wait_s == pytest.approx(5.01 + OWN_S)
    assert wait_s is not None
    refusal = gate.refusal(gate.place(1, 64, deadline=2.0))
    assert refusal.is_foreseen
    assert refusal.retry_after_s == pytest.approx(wait_s * DEADLINE_MARGIN - 2.0)
    gate.refusal(gate.place(1, 64, deadline=wait_s * DEADLINE_MARGIN - 0.01))
    gate.place(1, 64, deadline=wait_s * DEADLINE_MARGIN + 0.01).__enter__()
    gate.place(1, 64).__enter__()  # without a deadline it is accepted
    for place in held[:460]:
        place.__exit__(None, None, None)
    gate.place(1, 64, deadline=2.0).__enter__()
    assert gate.admission.num_tokens == 43 * 64


def test_a_deadline_is_checked_again_once_the_cost_is_known() -> None:
    """A sentence of 64 tokens takes 0.64 s of decoding, and 1.28 s if it is likely to be decoded twice."""
    gate = Gate()
    gate.work(num_steps=100, num_rows=64)
    gate.hold(1, 64)
    place = gate.place(1, 10, deadline=0.98).__enter__()
    place.resize(cost_of([10]), longest=10)
    place.resize(cost_of([20, 44]), longest=44)  # two sentences run side by side
    with pytest.raises(Overloaded) as caught:
        place.resize(cost_of([64]), longest=64)
    assert caught.value.is_foreseen
    assert gate.admission.num_tokens == 128, "it counts until its scope ends"
    place.__exit__(None, None, None)
    assert gate.admission.num_tokens == 64
    patient = gate.place(1, 10, deadline=1.5).__enter__()
    patient.resize(cost_of([64]), longest=64)
    with pytest.raises(Overloaded):
        patient.resize(cost_of([64]), longest=128)
    patient.resize(cost_of([]), longest=0)  # all sentences cached: no cost, so no refusal


def test_a_request_alone_is_not_refused_for_its_cost() -> None:
    gate = Gate()
    gate.work(num_steps=100, num_rows=64)
    with gate.place(1, 10, deadline=0.1) as alone:
        alone.resize(cost_of([64] * 100), longest=64)
    assert gate.admission.num_tokens == 0


def test_an_empty_engine_accepts_any_request() -> None:
    gate = Gate()
    gate.work(num_steps=100, num_rows=64)
    with gate.place(1, 10**6, deadline=0.001):
        gate.refusal(gate.place(1, 1, deadline=0.001))
    gate.place(1, 10**6, deadline=0.001).__enter__()


def test_a_short_request_waits_neither_for_a_long_one_nor_for_another_callers_queue() -> None:
    gate = Gate()
    gate.work(num_steps=100, num_rows=64)
    book = gate.hold(1000, 64_000)  # 10 s
    assert gate.wait_s(1, 64, caller="a") == pytest.approx(0.02 + OWN_S)
    assert gate.wait_s(10, 640, caller="a") == pytest.approx(0.2 + OWN_S)
    book.__exit__(None, None, None)
    for _ in range(1000):
        gate.hold(1, 64, caller="flood")  # 10 s
    assert gate.wait_s(1, 64, caller="flood") == pytest.approx(10.01 + OWN_S)
    assert gate.wait_s(1, 64, caller="quiet") == pytest.approx(0.02 + OWN_S)
    gate.place(1, 64, caller="quiet", deadline=1.0).__enter__()
    assert gate.refusal(gate.place(1, 64, caller="flood", deadline=5.0)).is_foreseen


def test_retry_after_follows_the_queue_and_the_measured_speed() -> None:
    gate = Gate(EngineLimits(max_pending_tokens=64_000))

    def retry_after_s() -> float:
        refusal = gate.refusal(gate.place(1, 64_000))
        assert not refusal.is_foreseen
        return refusal.retry_after_s

    held = gate.hold(10, 51_200)
    assert retry_after_s() == 1.0  # the speed is unknown
    gate.work(num_steps=100, num_rows=64)
    assert retry_after_s() == pytest.approx(51_200 / 6400)
    held.resize(cost_of([640]), longest=640)
    assert retry_after_s() == 1.0  # 0.1 s, below the minimum
    held.resize(cost_of([10**6]), longest=10**6)
    assert retry_after_s() == 60.0
    held.__exit__(None, None, None)
    assert (gate.admission.num_sentences, gate.admission.num_tokens) == (0, 0)


def test_callers_share_the_bounds_and_one_alone_has_all() -> None:
    gate = Gate(EngineLimits(max_pending_sentences=100, max_pending_tokens=1000))
    for _ in range(10):
        gate.hold(10, 100, caller="loud")
    assert not gate.refusal(gate.place(1, 10, caller="loud")).is_foreseen, "all is in use"
    own = [gate.hold(10, 100, caller="quiet") for _ in range(5)]
    gate.refusal(gate.place(1, 10, caller="quiet"))  # its share is a half
    gate.refusal(gate.place(1, 10, caller="loud"))
    third = gate.hold(1, 10, caller="third")
    own.pop().__exit__(None, None, None)
    gate.refusal(gate.place(1, 10, caller="quiet"))  # its share is a third
    third.__exit__(None, None, None)
    gate.hold(10, 100, caller="quiet")


def test_new_callers_are_admitted_up_to_twice_the_bounds() -> None:
    """Accepted work is bounded even if one client has many addresses."""
    gate = Gate(EngineLimits(max_pending_sentences=100, max_pending_tokens=10**6))
    for number in range(NEWCOMERS_BOUND * 10):
        gate.hold(10, 100, caller=str(number))
    gate.refusal(gate.place(1, 10, caller="newcomer"))


def test_the_cost_of_a_request_counts_its_rows_and_steps() -> None:
    gate = Gate()
    gate.work(num_steps=100, num_rows=64)
    gate.hold(1, 64)
    wide = DecodingOptions(beam_size=16, max_target_length=12)
    lengthy = DecodingOptions(beam_size=16, min_target_length=200, max_target_length=256)
    seen_s = [
        gate.admission.expected_wait_s(gate.place(60, 600, options=options))
        for options in (NARROW, wide, lengthy)
    ]
    rows_a_second = 6400
    taken_s = [seconds - OWN_S - 64 / rows_a_second for seconds in seen_s if seconds is not None]
    assert taken_s == pytest.approx([600 / 6400, 16 * 600 / 6400, 16 * 60 * 200 / 6400])
    gate.refusal(gate.place(60, 600, options=lengthy, deadline=20.0))


def test_the_warm_up_is_the_first_estimate() -> None:
    gate = Gate()
    gate.work(num_steps=100, num_rows=32, num_waiting=0)
    gate.hold(1, 64)
    gate.place(1, 64, deadline=0.001).__enter__()  # the warm-up is not over yet
    gate.admission.speed.end_guessing()
    assert gate.tokens_per_s == pytest.approx(3200)
    gate.work(num_steps=100, num_rows=8, num_waiting=0)
    assert gate.tokens_per_s == pytest.approx(3200), "later steps of few rows do not count"
    refusal = gate.refusal(gate.place(1000, 64_000, deadline=10.0))
    assert refusal.retry_after_s == pytest.approx((64_000 + 64) / 3200 * DEADLINE_MARGIN - 10.0, rel=0.1)
    gate.work(num_steps=MIN_FULL_STEPS, num_rows=64)
    assert gate.tokens_per_s == pytest.approx(6400), "steps with full rows replace it"


def test_steps_with_paused_sequences_do_not_count_as_full() -> None:
    gate = Gate()
    gate.work(num_steps=MIN_FULL_STEPS, num_rows=64)
    apart = StepStats(num_rows=1, num_waiting=9, num_paused=63, step_time_s=STEP_S)
    gate.admission.speed.measure(Report([], [apart] * 100))
    assert gate.tokens_per_s == pytest.approx(6400)


def test_retry_after_is_the_drain_time_of_the_callers_own_queue() -> None:
    gate = Gate(EngineLimits(max_pending_sentences=100))
    gate.work(num_steps=100, num_rows=64)
    gate.hold(40, 64_000, caller="loud")
    gate.hold(50, 12_800, caller="quiet")
    refusal = gate.refusal(gate.place(1, 10, caller="quiet"))
    assert refusal.retry_after_s == pytest.approx(2 * 12_800 / 6400)
