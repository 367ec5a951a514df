"""Callers share a worker's rows and time. The runner skips paused rows, and advances the clock."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from app.decoding.options import DecodingOptions
from app.engine.caller_fairness import DECAY_S, MAX_PAUSE_RATIO, TOLERANCE_S, CallerFairness
from app.engine.messages import Join
from app.engine.sequence import Status
from app.engine.stats import StepStats
from app.runtime.interface import FREE_ROW_ID, Limits, StepInput, StepOutput
from tests.engine.beam_runner import BeamRunner
from tests.engine.core_driver import CoreDriver, assert_same, expected, hypotheses_of
from tests.engine.fake_runner import EOS, LIMITS, FakeRunner
from tests.native_kernels import NEEDS_NATIVE

STEP_S, ROW_S = 0.001, 0.001
FAIR_LIMITS = replace(
    LIMITS, num_rows=20, num_kept_rows=4, skips_free_rows=True, max_steps=8, max_target_length=40
)
GREEDY = DecodingOptions(beam_size=1, max_target_length=30)
BEAM = DecodingOptions(beam_size=4, max_target_length=30)
# The host, not the runner, takes every step of a search with these options.
GUIDED = DecodingOptions(beam_size=2, max_target_length=30, min_target_length=20)


class TimedRunner(FakeRunner):
    """A runner whose step takes STEP_S, and ROW_S for each row that it does not skip, on the driver's clock.

    stepped: the number of these rows in each decode.
    """

    def __init__(self, limits: Limits = FAIR_LIMITS) -> None:
        super().__init__(limits, eos_bonus=-30.0)
        self.driver: TimedDriver
        self.stepped: list[int] = []

    def decode(self, step: StepInput) -> StepOutput:
        output = super().decode(step)
        self.stepped.append(int((step.ids != FREE_ROW_ID).sum()))
        self.driver.now += output.num_steps * (STEP_S + ROW_S * self.stepped[-1])
        return output


class TimedBeamRunner(TimedRunner, BeamRunner):
    """A timed runner that advances beams. The rows of beams take no time."""

    def __init__(self) -> None:
        super().__init__(replace(FAIR_LIMITS, advances_beams=True))


class TimedDriver(CoreDriver):
    def __init__(self, runner: TimedRunner | None = None) -> None:
        self.timed = runner or TimedRunner()
        self.timed.driver = self
        super().__init__(self.timed)

    def rows_of(self, caller: str) -> int:
        return self.core.scheduler.num_held_rows.get(caller, 0)


def submit_loud(driver: TimedDriver, count: int = 200, options: DecodingOptions = GREEDY) -> None:
    for number in range(count):
        driver.submit([5 + number % 7, EOS], options, request_id=f"r{number % 3}", caller="loud")


def test_a_caller_alone_holds_all_rows_but_the_kept_ones() -> None:
    """Of the 20 rows, 4 are kept free for callers that arrive later."""
    driver = TimedDriver()
    submit_loud(driver)
    driver.step()
    assert driver.rows_of("loud") == 16


def test_a_new_caller_gets_rows_at_once_and_no_more_than_its_share() -> None:
    driver = TimedDriver()
    submit_loud(driver)
    driver.step()
    single = driver.submit([6, EOS], GREEDY, caller="quiet")
    driver.step()
    assert single.status is Status.RUNNING
    for _ in range(50):
        driver.submit([6, EOS], GREEDY, request_id="more", caller="quiet")
    driver.step()
    assert 1 < driver.rows_of("quiet") < 4
    third = driver.submit([7, EOS], GREEDY, caller="third")
    driver.step()
    assert third.status is Status.RUNNING, "some rows stay free for the next caller"


def test_rows_that_become_free_go_to_the_new_caller() -> None:
    driver = TimedDriver()
    submit_loud(driver)
    driver.step()
    for _ in range(200):
        driver.submit([6, EOS], GREEDY, request_id="many", caller="quiet")
    for _ in range(300):
        driver.step()
    assert driver.rows_of("loud") == pytest.approx(driver.rows_of("quiet"), abs=2)
    assert driver.core.scheduler.row_allocator.num_reserved < 20


@pytest.mark.parametrize("options", [GREEDY, BEAM, GUIDED], ids=["greedy", "beam", "guided"])
def test_a_single_sentence_is_stepped_without_the_other_callers_rows(options: DecodingOptions) -> None:
    driver = TimedDriver()
    submit_loud(driver, options=options)
    for _ in range(10):
        driver.step()
    single = driver.submit([6, EOS], GREEDY, caller="quiet")
    driver.timed.stepped.clear()
    began_at = driver.now
    while single.status is not Status.ENDED:
        driver.step()
    alone_s = 31 * (STEP_S + ROW_S)
    assert driver.timed.stepped.count(1) > 0.8 * len(driver.timed.stepped)
    assert driver.now - began_at < 1.8 * alone_s


def test_paused_sequences_are_stepped_regularly() -> None:
    driver = TimedDriver()
    submit_loud(driver)
    for _ in range(10):
        driver.step()
    paused_s = longest_s = 0.0
    for number in range(60):
        driver.submit([6, EOS], GREEDY, request_id=str(number), caller=f"quiet {number}")
        driver.timed.stepped.clear()
        before = driver.now
        driver.step()
        # A step of more than 8 rows includes those of the loud caller.
        paused_s = 0.0 if driver.timed.stepped[-1] > 8 else paused_s + driver.now - before
        longest_s = max(longest_s, paused_s)
    assert 0.0 < longest_s < 2 * MAX_PAUSE_RATIO * (STEP_S + 20 * ROW_S)


def test_a_pause_ends_in_time_if_calls_take_several_steps() -> None:
    driver = TimedDriver()
    submit_loud(driver, 16)
    for _ in range(3):
        driver.step()
    assert driver.timed.steps == [1, 8, 8]
    for _ in range(3):
        driver.submit([6, EOS], replace(GREEDY, max_target_length=39), caller="quiet")
    paused_at = paused_until = driver.now
    driver.step()
    while driver.timed.stepped[-1] == 3:
        paused_until = driver.now
        driver.step()
    assert driver.timed.stepped[-1] == 19
    limit_s = MAX_PAUSE_RATIO * (STEP_S + 16 * ROW_S)
    # The last step begins before the limit.
    assert limit_s <= paused_until - paused_at < limit_s + STEP_S + 3 * ROW_S


@pytest.mark.seconds
@pytest.mark.parametrize("make_runner", [TimedRunner, pytest.param(TimedBeamRunner, marks=NEEDS_NATIVE)])
def test_pauses_do_not_change_answers(make_runner: type[TimedRunner]) -> None:
    """Callers submit sentences of every kind at random times. Each sentence has the answer that it has alone."""
    rng = random.Random(4)
    driver = TimedDriver(make_runner())
    jobs = []
    was_paused = was_beam_paused = False
    for number in range(150):
        options = rng.choice([GREEDY, BEAM, GUIDED])
        source = [*(rng.randrange(4, 40) for _ in range(rng.randrange(1, 8))), EOS]
        caller = rng.choice(["loud"] * 6 + ["quiet", f"guest {number}"])
        jobs.append((source, options, driver.submit(source, options, request_id=str(number), caller=caller)))
        for _ in range(rng.randrange(4)):
            driver.step()
        was_paused |= bool(driver.core._batch._paused)
        was_beam_paused |= any(paused.beam is not None for paused in driver.core._batch._paused)
    driver.run()
    assert was_paused
    assert was_beam_paused is driver.timed.limits.advances_beams
    for source, options, sequence in jobs:
        assert_same(hypotheses_of(sequence), expected(source, options, driver.timed))
    assert not driver.core.scheduler.num_held_rows


def test_a_paused_sentence_can_be_cancelled() -> None:
    driver = TimedDriver()
    submit_loud(driver, 8)
    for _ in range(2):
        driver.step()
    driver.submit([6, EOS], GREEDY, caller="quiet")
    for _ in range(2):
        driver.step()
    assert driver.timed.stepped[-1] == 1
    paused = next(iter(driver.core.scheduler.running))
    assert paused.caller == "loud"
    driver.cancel(paused)
    driver.run()
    assert len(driver.ended) == 8
    steps = [step for report in driver.reports for step in report.steps]
    assert {step.num_idle_rows for step in steps if step.num_paused} == {0}, "paused rows are not idle"


def test_a_shared_sentence_moves_to_the_caller_with_fewer_rows() -> None:
    driver = TimedDriver()
    submit_loud(driver, 16)
    driver.step()
    shared = next(iter(driver.core.scheduler.running))
    driver.core.inbox.put(Join(shared, "quiet", "line", 1e9))
    driver.step()
    assert (driver.rows_of("loud"), driver.rows_of("quiet")) == (15, 1)
    driver.run()
    assert not driver.core.scheduler.num_held_rows


@pytest.mark.parametrize("num_rows", [3, 12])
def test_a_shared_sentence_stays_with_its_caller_unless_the_other_has_fewer_rows(num_rows: int) -> None:
    driver = TimedDriver()
    shared, *_ = [driver.submit([5 + number, EOS], GREEDY, caller="few") for number in range(3)]
    submit_loud(driver, num_rows)
    driver.step()
    driver.core.inbox.put(Join(shared, "loud", "line", 1e9))
    driver.step()
    assert (driver.rows_of("few"), driver.rows_of("loud")) == (3, num_rows)


def test_a_wide_first_sentence_is_not_starved() -> None:
    """Rows become free one by one. Without the wide sentence, each would go to one of the narrow sentences."""
    driver = TimedDriver()

    def submit_narrow(number: int, caller: str) -> None:
        options = replace(GREEDY, max_target_length=5 + number * 7 % 26)
        driver.submit([6, EOS], options, request_id="r", caller=caller)

    for number in range(200):
        submit_narrow(number, "loud")
    driver.step()
    wide = driver.submit([7, EOS], replace(BEAM, beam_size=12), caller="wide")
    for number in range(100):
        for caller in range(6):
            submit_narrow(number + caller, f"narrow {number % 3} {caller}")
        driver.step()
    assert wide.status is not Status.WAITING


def steps(time_s: float, *, num_paused: int = 0) -> StepStats:
    return StepStats(step_time_s=time_s, num_paused=num_paused)


def test_the_caller_with_less_used_time_runs_alone_until_both_are_equal() -> None:
    fairness = CallerFairness()
    fairness.record({"loud": 16}, steps(0.2), 1.0)
    assert fairness.choose(["loud"]) is None
    assert fairness.choose(["loud", "quiet"]) == frozenset({"quiet"})
    fairness.record({"quiet": 1}, steps(0.2 - TOLERANCE_S / 2, num_paused=16), 1.2)
    assert fairness.choose(["loud", "quiet"]) is None


def test_used_time_decays() -> None:
    fairness = CallerFairness()
    fairness.record({"loud": 16}, steps(0.2), 1.0)
    fairness.record({"other": 1}, steps(0.001), 1.0 + 3 * DECAY_S)
    assert fairness.choose(["loud", "quiet"]) is None


def test_a_steps_time_is_divided_among_callers_by_their_rows() -> None:
    fairness = CallerFairness()
    fairness.record({"loud": 15, "quiet": 1}, steps(0.2), 1.0)
    assert fairness.choose(["loud", "quiet"]) == frozenset({"quiet"})
