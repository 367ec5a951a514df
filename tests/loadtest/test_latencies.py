"""The latencies, rates and objectives of runs on simulated time: no latency is understated, and each figure is exact.

The resolution of the time, and the tester's own time per request, are a few turns of the event loop: less than 1 ms.
"""

from __future__ import annotations

import dataclasses
import gc
import itertools

import pytest

from tests.loadtest.replies import Replies
from tests.loadtest.simulated_clock import advance, simulated_record, simulated_run
from tests.loadtest.test_run import plan
from transduce.loadtest.arrivals import Arrivals, ClosedLoop, Phase
from transduce.loadtest.result import RunRecord, make_result
from transduce.loadtest.runner import Progress
from transduce.loadtest.sample import DISCONNECTED, TIMEOUT, Sample
from transduce.loadtest.slo import Slo

URL = "http://127.0.0.1:1"


def test_outcomes_refusals_and_attained_shares_are_counted() -> None:
    kinds = "200,429,500,cut,garbage,never,503,fewer"
    result = simulated_run(plan(URL, 80.0, 2.0, timeout_s=0.8), kinds=kinds)
    assert result.num_sent == 160
    assert result.outcomes == {
        "ok": 20,
        "bad_answer": 40,
        "connection_lost": 20,
        "http_429": 20,
        "http_500": 20,
        "http_503": 20,
        "timeout": 20,
    }
    assert result.warm_up_outcomes == {name: num // 4 for name, num in result.outcomes.items()}
    assert result.refusals is not None
    assert result.refusals.num == 60
    assert result.latency is not None
    assert result.latency.num == 20
    assert result.attained[0].share == 20 / 160
    assert not result.meets_slos
    assert sum(moment.num_failed for moment in result.timeline) == 140


def test_a_response_may_follow_an_interim_response() -> None:
    result = simulated_run(plan(URL, 40.0, 1.0, kind="constant"), kinds="hints")
    assert result.outcomes == {"ok": 40}
    assert set(result.phases_ms) == {"queue", "decode"}
    assert result.num_connections == 1


def test_a_request_times_out_from_its_due_time() -> None:
    """A request that the tester begins late has less time left."""
    made = plan(URL, 20.0, 1.0, kind="constant", warm_up_s=0.0, timeout_s=0.9)
    samples = simulated_record(made, Replies(kinds=["never"]), lambda progress: advance(0.2)).samples
    assert {sample.outcome for sample in samples} == {"timeout"}
    late = [sample for sample in samples if sample.lag_s > 0.1]
    assert late
    assert min(sample.latency_s for sample in late) == pytest.approx(0.9, abs=0.002)


@pytest.mark.parametrize("max_connections", [None, 1])
def test_a_stall_counts_for_every_request_due_during_it(max_connections: int | None) -> None:
    """50 requests/s, and a stall from 1.0 s to 2.0 s: the requests that are due in the stall wait up to a second.

    A tester that waits for each response would see only one slow request in a hundred.
    """
    made = plan(URL, 50.0, 3.0, kind="constant", warm_up_s=0.0, max_connections=max_connections)
    result = simulated_run(made, service_ms=2.0, stall=(1.0, 2.0))
    assert result.is_valid
    assert result.outcomes == {"ok": 150}
    assert result.latency is not None
    assert result.uncorrected_latency is not None
    # A third of the requests are due in the stall. The queue after it takes 0.1 s.
    assert result.latency.percentiles["p90"] == pytest.approx(730, abs=10)
    assert result.latency.max_ms == pytest.approx(992, abs=10)
    assert result.attained[0].share == pytest.approx(1 - 28 / 150, abs=1.5 / 150)
    assert not result.meets_slos
    if max_connections == 1:
        assert result.uncorrected_latency.percentiles["p95"] < 4
        assert result.uncorrected_latency.max_ms == pytest.approx(992, abs=10)
    medians = [moment.p50_ms for moment in result.timeline if moment.p50_ms is not None]
    assert medians == pytest.approx([2, 540, 2], abs=15)


def test_a_late_tester_invalidates_the_run() -> None:
    """The event loop is blocked for 100 ms twice a second: a fifth of the requests are late."""
    late = simulated_run(plan(URL, 100.0, 2.0), lambda progress: advance(0.1), service_ms=1.0)
    allowed = simulated_run(
        plan(URL, 100.0, 2.0, max_lag_s=0.11), lambda progress: advance(0.1), service_ms=1.0
    )
    undisturbed = simulated_run(plan(URL, 100.0, 2.0), service_ms=1.0)
    assert not late.is_valid
    assert "late" in late.problems[0]
    assert late.lag is not None
    assert 80 < late.lag.p99_ms < 101
    assert late.loop_lag is not None
    assert 80 < late.loop_lag.max_ms < 101
    assert allowed.is_valid
    assert undisturbed.is_valid


def test_the_lag_counts_in_latency_but_not_in_uncorrected_latency() -> None:
    result = simulated_run(plan(URL, 20.0, 1.5), lambda progress: advance(0.4), service_ms=1.0)
    assert result.lag is not None
    assert result.latency is not None
    assert result.uncorrected_latency is not None
    assert result.lag.max_ms > 300
    assert result.latency.max_ms >= result.lag.max_ms + 1
    assert result.uncorrected_latency.percentiles["p75"] < 20


class SlowArrivals(Arrivals):
    """Drawing the times takes a second, as for a million requests."""

    def times_s(self, seed: int) -> list[float]:
        advance(1.0)
        return super().times_s(seed)


@pytest.mark.parametrize("slow", ["collection", "arrivals"])
def test_slow_preparation_makes_no_request_late(slow: str) -> None:
    """Nor is a request of the warm-up late. Late requests would all be sent at once, and leave a queue for the run."""
    num_collections = 0

    def collect(phase: str, info: dict[str, int]) -> None:
        """A collection takes a second, as in a process with much memory."""
        nonlocal num_collections
        if slow == "collection" and phase == "stop":
            num_collections += 1
            advance(1.0)

    load = (SlowArrivals if slow == "arrivals" else Arrivals)((Phase(40.0, 0.5),), "constant")
    gc.disable()  # only the collections of the tester
    gc.callbacks.append(collect)
    try:
        record = simulated_record(plan(URL, 1.0, 1.0, load=load), Replies())
    finally:
        gc.callbacks.remove(collect)
        gc.enable()
    assert num_collections == (slow == "collection")
    assert [sample.scheduled_s < 0 for sample in record.samples].count(True) == 20
    assert max(sample.lag_s for sample in record.samples) < 0.001


def test_rates_count_the_responses_that_arrive_during_the_run() -> None:
    result = simulated_run(plan(URL, 60.0, 2.0, kind="constant"), service_ms=1.0)
    assert result.offered_rate == 60.0
    assert result.achieved_rate == result.goodput == pytest.approx(60.0, abs=0.5)
    assert result.per_s["sentences"] == result.achieved_rate
    assert result.per_s["source_tokens"] == result.per_s["target_tokens"] == 2 * result.achieved_rate
    assert result.per_s["source_words"] > 200
    # The server stalls until after the run, so only the responses of the first half second count.
    queued = simulated_run(plan(URL, 60.0, 2.0, kind="constant", warm_up_s=0.0), stall=(0.5, 3.0))
    assert queued.achieved_rate == pytest.approx(15.0, abs=0.5)
    assert queued.outcomes == {"ok": 120}


def test_a_closed_loop_finds_the_capacity() -> None:
    """Eight requests are always open, and each takes the server 10 ms, so a response takes 80 ms."""
    result = simulated_run(plan(URL, 1.0, 1.0, load=ClosedLoop(8, 3.0)), service_ms=10.0)
    assert result.mode == "closed"
    assert result.achieved_rate == pytest.approx(100.0, abs=1)
    assert result.lag is None
    assert result.max_open == 8
    assert result.latency is not None
    assert result.latency.p50_ms == pytest.approx(80.0, abs=1)


def test_a_phase_has_no_recovery_if_its_last_request_missed_the_objective() -> None:
    phases = (Phase(20.0, 1.0), Phase(4.0, 1.0))
    objective = Slo.parse("p99=5ms")
    result = simulated_run(
        plan(URL, 1.0, 1.0, load=Arrivals(phases, "constant"), slos=(objective,)), service_ms=10.0
    )
    assert [(phase.num_sent, phase.recovery_s) for phase in result.phases] == [(20, None), (4, None)]


@pytest.mark.parametrize("is_enabled", [True, False])
def test_a_run_leaves_the_garbage_collector_as_it_was(is_enabled: bool) -> None:
    was_enabled = gc.isenabled()
    try:
        gc.enable() if is_enabled else gc.disable()
        simulated_record(plan(URL, 20.0, 0.2), Replies())
        assert gc.isenabled() == is_enabled
    finally:
        gc.enable() if was_enabled else gc.disable()


def test_a_request_is_given_up_within_its_time_limit_or_times_out() -> None:
    made = plan(URL, 40.0, 1.0, timeout_s=0.2)
    workload = dataclasses.replace(made.workload, disconnect_share=1.0, disconnect_within_s=0.4)
    reports: list[tuple[int, int]] = []

    def report(progress: Progress) -> None:
        reports.append((progress.num_failed, sum(each.outcome == TIMEOUT for each in progress.samples)))

    made = dataclasses.replace(made, workload=workload)
    samples = simulated_record(made, Replies(kinds=("never",)), report).samples
    for outcome, shortest_s in ((DISCONNECTED, 0.0), (TIMEOUT, 0.2)):
        latencies_s = [each.latency_s for each in samples if each.outcome == outcome]
        assert len(latencies_s) > 10
        assert shortest_s <= min(latencies_s) <= max(latencies_s) < 0.201
    assert reports[-1][0] > 0
    assert all(num_failed == num_timeouts for num_failed, num_timeouts in reports)


def test_a_request_due_at_the_start_of_a_phase_belongs_to_this_phase_alone() -> None:
    phases = (Phase(1.0, 1.0), Phase(1.0, 1.0))
    samples = [Sample(0, 0, scheduled_s=1.0, num_words=1, ended_s=1.1, outcome="ok")]
    result = make_result(plan(URL, 1.0, 1.0, load=Arrivals(phases)), RunRecord("now", samples, num_sent=1))
    assert [phase.num_sent for phase in result.phases] == [0, 1]


def test_recovery_lasts_until_the_queue_of_an_overload_is_short_enough() -> None:
    """Half a second at twice the capacity leaves a queue of 50 requests, half a second of work."""
    phases = (Phase(20.0, 1.0), Phase(200.0, 0.5), Phase(20.0, 2.0))
    load = Arrivals(phases, "constant")
    result = simulated_run(plan(URL, 1.0, 1.0, load=load, slos=(Slo.parse("p99=200ms"),)), service_ms=10.0)
    before, during, after = result.phases
    assert before.recovery_s == 0.0
    assert before.attained_share == 1.0
    assert during.recovery_s is None
    # At first the queue is 0.5 s of work. It shrinks by 0.8 s a second, so it is 0.2 s after 0.375 s.
    assert after.recovery_s == pytest.approx(0.375, abs=0.05)
    assert [phase.num_sent for phase in result.phases] == [20, 100, 40]


def test_a_single_connection_sends_one_request_after_another() -> None:
    """Two requests are due while one is served: the wait is latency, but not uncorrected latency."""
    made = plan(URL, 100.0, 1.0, kind="constant", warm_up_s=0.0, max_connections=1)
    samples = simulated_record(made, Replies(0.02)).samples
    waits = [each.latency_s - each.uncorrected_latency_s for each in samples]
    # The last of 100 requests is due at 0.99 s. It is sent after the 99 other requests. The first request is on time.
    assert waits[-1] == pytest.approx(99 * 0.02 - 0.99 + samples[0].scheduled_s, abs=0.05)
    assert all(later >= wait for wait, later in itertools.pairwise(waits))
    assert [each.uncorrected_latency_s for each in samples] == pytest.approx([0.02] * 100, abs=0.001)
