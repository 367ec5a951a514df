"""Admission: its bounds, and the refusal of requests that would miss their deadline. The test sets the clock."""

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
# Seconds to decode a sentence of USUAL_SENTENCE_TOKENS at one step a token. Until a text is segmented, its longest
# sentence is assumed to have at most this length.
DECODE_TIME_S = USUAL_SENTENCE_TOKENS * STEP_S


class AdmissionDriver:
    """An admission with a clock that the test sets. now: its time in seconds."""

    def __init__(self, limits: EngineLimits | None = None, *, num_workers: int = 1) -> None:
        self.now = 0.0
        self.admission = Admission(
            limits or EngineLimits(max_pending_tokens=10**9), num_workers=num_workers, clock=lambda: self.now
        )

    def reservation(
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

    def reserve(self, num_sentences: int, num_tokens: int, *, caller: str = "a") -> Reservation:
        return self.reservation(num_sentences, num_tokens, caller=caller).__enter__()

    def report_steps(
        self, *, num_steps: int, num_rows: int, num_waiting: int = 1, step_s: float = STEP_S
    ) -> None:
        """Report steps of num_rows rows, and one sentence of 10 tokens that ended after 10 steps."""
        steps = [
            StepStats(num_rows=num_rows, num_waiting=num_waiting, step_time_s=step_s)
            for _ in range(num_steps)
        ]
        self.admission.speed.measure(Report([ended(10, num_steps=10)], steps))

    def refusal(self, reservation: Reservation) -> Overloaded:
        with pytest.raises(Overloaded) as caught:
            reservation.__enter__()
        return caught.value

    def wait_s(self, num_sentences: int, num_tokens: int, *, caller: str = "a") -> float | None:
        return self.admission.expected_wait_s(self.reservation(num_sentences, num_tokens, caller=caller))

    @property
    def tokens_per_s(self) -> float | None:
        """Source subwords a second, if all sentences are greedy; None while the speed is unknown."""
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
    """64 rows at 10 ms a step are 6,400 row-steps a second. A token takes one row-step."""
    driver = AdmissionDriver()
    for _ in range(100):
        driver.report_steps(num_steps=10, num_rows=1, num_waiting=0)  # little load: 100 tokens a second
    assert driver.tokens_per_s is None, "the rows were never full"
    driver.report_steps(num_steps=MIN_FULL_STEPS - 1, num_rows=64)
    assert driver.tokens_per_s is None, "the rows were full too seldom"
    driver.report_steps(num_steps=1, num_rows=64)
    assert driver.tokens_per_s == pytest.approx(6400)
    for _ in range(100):
        driver.report_steps(num_steps=10, num_rows=1, num_waiting=0)
    assert driver.tokens_per_s == pytest.approx(6400)


def test_speed_follows_the_machine_and_the_requests() -> None:
    driver = AdmissionDriver()
    driver.report_steps(num_steps=100, num_rows=64)
    for _ in range(60):
        # Another process takes half of the machine.
        driver.report_steps(num_steps=100, num_rows=64, step_s=2 * STEP_S)
    assert driver.tokens_per_s == pytest.approx(3200, rel=0.01)
    beam = DecodingOptions(beam_size=4, max_target_length=12)
    driver.admission.speed.measure(Report([ended(10, num_steps=10, options=beam)] * 20_000, []))
    assert driver.tokens_per_s == pytest.approx(3200, rel=0.01), (
        "a beam has four times the rows for the same tokens"
    )
    lengthy = DecodingOptions(beam_size=1, min_target_length=110, max_target_length=200)
    driver.admission.speed.measure(Report([ended(10, num_steps=110, options=lengthy)] * 20_000, []))
    assert driver.tokens_per_s == pytest.approx(3200, rel=0.01), "forced steps are counted apart"
    driver.admission.speed.measure(Report([ended(10, num_steps=40)] * 20_000, []))
    assert driver.tokens_per_s == pytest.approx(800, rel=0.01)


def test_a_slower_engine_is_measured_within_seconds() -> None:
    driver = AdmissionDriver()
    driver.report_steps(num_steps=1000, num_rows=64)
    driver.report_steps(num_steps=200, num_rows=64, step_s=2 * STEP_S)  # four seconds
    assert driver.tokens_per_s is not None
    assert driver.tokens_per_s < 1.2 * 3200


def test_a_retry_adds_steps_but_no_tokens() -> None:
    """The cost of a request counts no retries, so the measured steps a token include them."""
    driver = AdmissionDriver()
    driver.report_steps(num_steps=100, num_rows=64)
    driver.admission.speed.measure(
        Report([ended(10, num_steps=10), ended(10, num_steps=10, is_retry=True)] * 9999, [])
    )
    assert driver.tokens_per_s == pytest.approx(3200, rel=0.01)


def test_a_slow_speed_is_forgotten_after_seconds_without_full_rows() -> None:
    """Otherwise the refusals keep the rows from filling, and the recovered speed is never measured."""
    driver = AdmissionDriver()
    driver.report_steps(num_steps=MIN_FULL_STEPS, num_rows=64, step_s=10.0)
    assert driver.tokens_per_s == pytest.approx(6.4)
    driver.reserve(1, 64)
    assert driver.refusal(driver.reservation(1, 64, deadline=5.0)).would_be_late
    driver.now = MAX_FULL_AGE_S + 0.1
    driver.reservation(1, 64, deadline=driver.now + 5.0).__enter__()
    driver.report_steps(num_steps=10, num_rows=2, num_waiting=0)
    driver.report_steps(num_steps=MIN_FULL_STEPS - 1, num_rows=64)
    assert driver.tokens_per_s is None
    driver.report_steps(num_steps=1, num_rows=64)
    assert driver.tokens_per_s == pytest.approx(6400), "the slow steps do not count"


@pytest.mark.parametrize("num_workers", [1, 2])
def test_the_workers_share_the_queue(num_workers: int) -> None:
    """Each step is of one worker, with 64 rows in 10 ms."""
    driver = AdmissionDriver(num_workers=num_workers)
    driver.report_steps(num_steps=100, num_rows=64)
    driver.reserve(100, 6400)
    assert driver.admission.drain_time_s() == pytest.approx(1.0 / num_workers)


def test_idle_rows_of_beams_count_as_used() -> None:
    driver = AdmissionDriver()
    full = StepStats(num_rows=16, num_idle_rows=48, num_waiting=1, step_time_s=STEP_S)
    driver.admission.speed.measure(Report([ended(10, num_steps=10)], [full] * MIN_FULL_STEPS))
    assert driver.tokens_per_s == pytest.approx(6400)


def test_no_deadline_is_checked_while_the_speed_is_unknown() -> None:
    driver = AdmissionDriver()
    driver.reserve(1000, 1_000_000)
    driver.reservation(1, 10, deadline=0.001).__enter__()
    assert driver.wait_s(1, 10, caller="a") is None
    assert driver.admission.drain_time_s() is None


def test_a_request_that_would_be_late_is_refused_with_retry_after() -> None:
    driver = AdmissionDriver()
    driver.report_steps(num_steps=100, num_rows=64)
    held = [driver.reserve(1, 64) for _ in range(500)]  # 5 s of work
    assert driver.admission.drain_time_s() == pytest.approx(5.0)
    wait_s = driver.wait_s(1, 64, caller="a")
    assert wait_s == pytest.approx(5.01 + DECODE_TIME_S)
    assert wait_s is not None
    refusal = driver.refusal(driver.reservation(1, 64, deadline=2.0))
    assert refusal.would_be_late
    assert refusal.retry_after_s == pytest.approx(wait_s * DEADLINE_MARGIN - 2.0)
    slightly_late = driver.reservation(1, 64, deadline=wait_s * DEADLINE_MARGIN - 0.01)
    assert driver.refusal(slightly_late).retry_after_s == pytest.approx(5.0), (
        "the time until the queue is empty"
    )
    driver.reservation(1, 64, deadline=wait_s * DEADLINE_MARGIN + 0.01).__enter__()
    driver.reservation(1, 64).__enter__()  # without a deadline it is accepted
    for reservation in held[:460]:
        reservation.__exit__(None, None, None)
    driver.reservation(1, 64, deadline=2.0).__enter__()
    assert driver.admission.num_tokens == 43 * 64


def test_a_deadline_is_checked_again_once_the_cost_is_known() -> None:
    """A sentence of 64 tokens takes 0.64 s of decoding. If a retry is likely, `longest` is 128: 1.28 s."""
    driver = AdmissionDriver()
    driver.report_steps(num_steps=100, num_rows=64)
    driver.reserve(1, 64)
    reservation = driver.reservation(1, 10, deadline=0.98).__enter__()
    reservation.resize(cost_of([10]), longest=10)
    reservation.resize(cost_of([20, 44]), longest=44)  # two sentences run side by side
    with pytest.raises(Overloaded) as caught:
        reservation.resize(cost_of([64]), longest=64)
    assert caught.value.would_be_late
    assert driver.admission.num_tokens == 128, "the reservation counts until its scope ends"
    reservation.__exit__(None, None, None)
    assert driver.admission.num_tokens == 64
    patient = driver.reservation(1, 10, deadline=1.5).__enter__()
    patient.resize(cost_of([64]), longest=64)
    with pytest.raises(Overloaded):
        patient.resize(cost_of([64]), longest=128)
    driver.now = 2.0  # after the deadline
    patient.resize(cost_of([]), longest=0)  # all sentences cached: no cost, so no refusal


def test_a_request_whose_sentences_are_all_cached_delays_no_other() -> None:
    driver = AdmissionDriver()
    driver.report_steps(num_steps=100, num_rows=64)
    driver.reserve(1, 64).resize(cost_of([]), longest=0)
    assert driver.wait_s(1, 64) == pytest.approx(0.01 + DECODE_TIME_S)


def test_a_request_alone_is_not_refused_for_its_cost() -> None:
    driver = AdmissionDriver()
    driver.report_steps(num_steps=100, num_rows=64)
    with driver.reservation(1, 10, deadline=0.1) as alone:
        alone.resize(cost_of([64] * 100), longest=64)
    assert driver.admission.num_tokens == 0


def test_an_empty_engine_accepts_any_request() -> None:
    driver = AdmissionDriver()
    driver.report_steps(num_steps=100, num_rows=64)
    with driver.reservation(1, 10**6, deadline=0.001):
        driver.refusal(driver.reservation(1, 1, deadline=0.001))
    driver.reservation(1, 10**6, deadline=0.001).__enter__()


def test_a_short_request_waits_neither_for_a_long_one_nor_for_another_callers_queue() -> None:
    driver = AdmissionDriver()
    driver.report_steps(num_steps=100, num_rows=64)
    long_request = driver.reserve(1000, 64_000)  # 10 s
    assert driver.wait_s(1, 64, caller="a") == pytest.approx(0.02 + DECODE_TIME_S)
    assert driver.wait_s(10, 640, caller="a") == pytest.approx(0.2 + DECODE_TIME_S)
    long_request.__exit__(None, None, None)
    for _ in range(1000):
        driver.reserve(1, 64, caller="flood")  # 10 s
    assert driver.wait_s(1, 64, caller="flood") == pytest.approx(10.01 + DECODE_TIME_S)
    assert driver.wait_s(1, 64, caller="quiet") == pytest.approx(0.02 + DECODE_TIME_S)
    driver.reservation(1, 64, caller="quiet", deadline=1.0).__enter__()
    assert driver.refusal(driver.reservation(1, 64, caller="flood", deadline=5.0)).would_be_late


def test_retry_after_follows_the_queue_and_the_measured_speed() -> None:
    driver = AdmissionDriver(EngineLimits(max_pending_tokens=64_000))

    def retry_after_s() -> float:
        refusal = driver.refusal(driver.reservation(1, 64_000))
        assert not refusal.would_be_late
        return refusal.retry_after_s

    held = driver.reserve(10, 51_200)
    assert retry_after_s() == 1.0  # the speed is unknown
    driver.report_steps(num_steps=100, num_rows=64)
    assert retry_after_s() == pytest.approx(51_200 / 6400)
    held.resize(cost_of([640]), longest=640)
    assert retry_after_s() == 1.0  # 0.1 s, below the minimum
    held.resize(cost_of([10**6]), longest=10**6)
    assert retry_after_s() == 60.0
    held.__exit__(None, None, None)
    assert (driver.admission.num_sentences, driver.admission.num_tokens) == (0, 0)


def test_callers_share_the_bounds_and_a_single_caller_may_use_all() -> None:
    driver = AdmissionDriver(EngineLimits(max_pending_sentences=100, max_pending_tokens=1000))
    for _ in range(10):
        driver.reserve(10, 100, caller="loud")
    assert not driver.refusal(driver.reservation(1, 10, caller="loud")).would_be_late, "the queue is full"
    own = [driver.reserve(10, 100, caller="quiet") for _ in range(5)]
    driver.refusal(driver.reservation(1, 10, caller="quiet"))  # its share is a half
    driver.refusal(driver.reservation(1, 10, caller="loud"))
    third = driver.reserve(1, 10, caller="third")
    own.pop().__exit__(None, None, None)
    driver.refusal(driver.reservation(1, 10, caller="quiet"))  # its share is a third
    third.__exit__(None, None, None)
    driver.reserve(10, 100, caller="quiet")


def test_new_callers_are_accepted_up_to_twice_the_bounds() -> None:
    """Accepted work is bounded even if one client has many addresses."""
    driver = AdmissionDriver(EngineLimits(max_pending_sentences=100, max_pending_tokens=10**6))
    for number in range(NEWCOMERS_BOUND * 10):
        driver.reserve(10, 100, caller=str(number))
    driver.refusal(driver.reservation(1, 10, caller="newcomer"))


def test_the_bounds_are_checked_again_once_the_cost_is_known() -> None:
    """A request counts as one sentence until it is split. So several long requests can be accepted at first."""
    driver = AdmissionDriver(EngineLimits(max_pending_sentences=100, max_pending_tokens=10**6))
    first, second, third = (driver.reserve(1, 10) for _ in range(3))
    first.resize(cost_of([10] * 50), longest=10)
    second.resize(cost_of([10] * 49), longest=10)
    with pytest.raises(Overloaded) as caught:
        third.resize(cost_of([10] * 50), longest=10)
    assert not caught.value.would_be_late, "the queue is full"
    third.__exit__(None, None, None)
    assert driver.admission.num_sentences == 99
    newcomer = driver.reserve(1, 10, caller="newcomer")
    newcomer.resize(cost_of([10] * 101), longest=10)  # 99 + 101 sentences: twice the bound
    with pytest.raises(Overloaded):
        newcomer.resize(cost_of([10] * 102), longest=10)
    first.resize(cost_of([10] * 50), longest=10)  # above its share by now, but it has not grown
    first.resize(cost_of([10]), longest=10)
    with pytest.raises(Overloaded):
        first.resize(cost_of([10] * 2), longest=10)
    for reservation in (first, second, newcomer):
        reservation.__exit__(None, None, None)
    assert (driver.admission.num_sentences, driver.admission.num_tokens) == (0, 0)
    assert not driver.admission._held
    assert not driver.admission._totals


def test_more_subwords_than_estimated_are_checked_too() -> None:
    driver = AdmissionDriver(EngineLimits(max_pending_tokens=1000))
    driver.reserve(1, 500)
    other = driver.reserve(1, 10)
    other.resize(cost_of([500]), longest=500)
    with pytest.raises(Overloaded):
        other.resize(cost_of([501]), longest=501)


def test_the_cost_of_a_request_counts_its_rows_and_steps() -> None:
    driver = AdmissionDriver()
    driver.report_steps(num_steps=100, num_rows=64)
    driver.reserve(1, 64)
    wide = DecodingOptions(beam_size=16, max_target_length=12)
    lengthy = DecodingOptions(beam_size=16, min_target_length=200, max_target_length=256)
    wait_times_s = [
        driver.admission.expected_wait_s(driver.reservation(60, 600, options=options))
        for options in (NARROW, wide, lengthy)
    ]
    rows_a_second = 6400
    decode_times_s = [
        seconds - DECODE_TIME_S - 64 / rows_a_second for seconds in wait_times_s if seconds is not None
    ]
    assert decode_times_s == pytest.approx([600 / 6400, 16 * 600 / 6400, 16 * 60 * 200 / 6400])
    driver.refusal(driver.reservation(60, 600, options=lengthy, deadline=20.0))


def test_the_speed_of_the_warm_up_is_the_first_estimate() -> None:
    driver = AdmissionDriver()
    driver.report_steps(num_steps=100, num_rows=32, num_waiting=0)
    driver.reserve(1, 64)
    driver.reservation(1, 64, deadline=0.001).__enter__()  # the warm-up is not over yet
    driver.admission.speed.end_warm_up()
    assert driver.tokens_per_s == pytest.approx(3200)
    driver.report_steps(num_steps=100, num_rows=8, num_waiting=0)
    assert driver.tokens_per_s == pytest.approx(3200), "later steps of few rows do not count"
    refusal = driver.refusal(driver.reservation(1000, 64_000, deadline=10.0))
    assert refusal.retry_after_s == pytest.approx((64_000 + 64) / 3200 * DEADLINE_MARGIN - 10.0, rel=0.1)
    driver.report_steps(num_steps=MIN_FULL_STEPS, num_rows=64)
    assert driver.tokens_per_s == pytest.approx(6400), "steps with full rows replace it"


def test_steps_with_paused_sequences_do_not_count_as_full() -> None:
    driver = AdmissionDriver()
    driver.report_steps(num_steps=MIN_FULL_STEPS, num_rows=64)
    with_paused = StepStats(num_rows=1, num_waiting=9, num_paused=63, step_time_s=STEP_S)
    driver.admission.speed.measure(Report([], [with_paused] * 100))
    assert driver.tokens_per_s == pytest.approx(6400)


def test_retry_after_is_the_drain_time_of_the_callers_own_queue() -> None:
    driver = AdmissionDriver(EngineLimits(max_pending_sentences=100))
    driver.report_steps(num_steps=100, num_rows=64)
    driver.reserve(40, 64_000, caller="loud")
    driver.reserve(50, 12_800, caller="quiet")
    refusal = driver.refusal(driver.reservation(1, 10, caller="quiet"))
    # With two callers, each gets half of the speed.
    assert refusal.retry_after_s == pytest.approx(2 * 12_800 / 6400)
