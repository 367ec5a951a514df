"""Compares the simulated server with times that are calculated by hand or by a formula."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from unittest.mock import Mock

import pytest

from transduce.errors import CommandError
from transduce.loadtest.dialects import ParsedResponse
from transduce.loadtest.plan import Target
from transduce.loadtest.sample import Sample
from transduce.loadtest.slo import Slo
from transduce.loadtest.workload import built_in
from transduce.sizing import capacity as capacity_module
from transduce.sizing import measure
from transduce.sizing.capacity import SEEDS, Capacity, capacity, lengths_of, num_saturating_clients, plan
from transduce.sizing.costs import Costs, Level
from transduce.sizing.measure import ENGINE_PHASES, line_of_subwords, merged
from transduce.sizing.simulation import latencies_s, poisson_times_s, saturated_rate

LIMITS = {'transduce_worker_rows_limit{model="m",worker="0"}': 64.0}


@dataclass(frozen=True)
class Scraped:
    """What `Samples.scrape` returns."""

    values: dict[str, float]

    def since(self, _earlier: Scraped) -> Callable[[str], float]:
        return lambda name: 20.0 if name == measure.BUSY_S else 10.0


def serve_figures(
    phases: tuple[str, ...],
    metrics: dict[str, float],
    monkeypatch: pytest.MonkeyPatch,
    rate: float = 1.0,
    cached_share: float = 0.0,
) -> None:
    """Replace the server that `measure` asks. A request takes 5 ms, and each phase 1 ms of it.

    phases: the names in its Server-Timing header. metrics: its gauges. rate: answered requests a second. cached_share:
    the share of the sentences that are answered from its cache.
    """
    result = Mock(
        outcomes={"ok": 3},
        latency=Mock(mean_ms=5.0),
        achieved_rate=rate,
        cached_share=cached_share,
        phases_ms={name: {"mean": 1.0} for name in phases},
    )
    monkeypatch.setattr(measure, "run", lambda _plan, _keep: result)
    monkeypatch.setattr(measure.Samples, "scrape", lambda _target: Scraped(metrics))
    monkeypatch.setattr(
        measure, "_model", lambda _target: {"name": "m", "version": "1", "defaults": {"beam_size": 4}}
    )
    monkeypatch.setattr(measure, "line_of_subwords", lambda _samples: (0.0, 1.0))


@pytest.mark.parametrize(
    ("phases", "metrics", "message"),
    [
        ((), LIMITS, "no Server-Timing"),
        (("queue", "encode"), LIMITS, "no Server-Timing"),
        (ENGINE_PHASES, {}, "no metrics of its workers"),
    ],
)
def test_a_server_without_the_needed_figures_is_one_error(
    phases: tuple[str, ...], metrics: dict[str, float], message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    serve_figures(phases, metrics, monkeypatch)
    with pytest.raises(CommandError, match=message):
        measure.measure(Target("http://127.0.0.1:1"), built_in("short"), seconds=0.1)


def test_only_the_workers_of_the_measured_model_count(monkeypatch: pytest.MonkeyPatch) -> None:
    others = {f'transduce_worker_rows_limit{{model="m.2",worker="{number}"}}': 32.0 for number in (1, 2)}
    serve_figures(ENGINE_PHASES, others | LIMITS, monkeypatch)
    costs = measure.measure(Target("http://127.0.0.1:1"), built_in("short"), seconds=0.1)
    assert (costs.num_workers, costs.max_rows) == (1, 64)


@pytest.mark.parametrize(("rate", "request_s"), [(0.0, 0.002), (100.0, 0.002), (800.0, 0.00125)])
def test_the_event_loop_works_no_longer_on_a_request_than_its_rate_permits(
    rate: float, request_s: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A request spends 3 of its 5 ms in the engine. The other 2 ms may be time of the network."""
    serve_figures(ENGINE_PHASES, LIMITS, monkeypatch, rate=rate)
    costs = measure.measure(Target("http://127.0.0.1:1"), built_in("short"), seconds=0.1)
    assert costs.request_s == pytest.approx(request_s)


def level(rows: float, step_ms: float, encode_ms: float = 0.0) -> Level:
    return Level(num_clients=1, rows=rows, step_s=step_ms / 1e3, encode_s=encode_ms / 1e3, rate=1.0)


COSTS = Costs(
    name="model 1",
    levels=(level(4, 1.0, 0.1), level(64, 7.0, 0.1)),
    num_workers=1,
    max_rows=64,
    num_kept_rows=0,
    beam_size=4,
    request_s=0.002,
    steps_per_subword=1.0,
    subwords_per_sentence=1.0,
    subwords_per_word=2.0,
    characters_per_word=5.0,
)
# One sentence at a time, in steps of 1 ms.
SERIAL = replace(COSTS, levels=(level(1, 1.0),), max_rows=1, beam_size=1, request_s=0.0)


def test_a_request_of_an_idle_server_takes_the_sum_of_its_parts() -> None:
    found = latencies_s(COSTS, [10, 30], [0.0, 100.0])
    assert found == pytest.approx([0.002 + 10 * (0.0001 + 0.001), 0.002 + 30 * (0.0001 + 0.001)])


@pytest.mark.seconds
@pytest.mark.parametrize("load", [0.4, 0.8])
def test_a_server_of_one_row_waits_as_the_formula_of_its_queue_says(load: float) -> None:
    """M/D/1: the mean wait is load / (2 (1 - load)) service times (Pollaczek and Khinchine)."""
    service_s = 0.010
    found = latencies_s(SERIAL, [10] * 10_000, poisson_times_s(10_000, rate=load / service_s))
    wanted = service_s * (1 + load / (2 * (1 - load)))
    assert statistics.fmean(found) == pytest.approx(wanted, rel=0.06)


def test_requests_of_an_overloaded_server_are_answered_in_order() -> None:
    """A sentence takes 10 ms and one comes every 9 ms, so each waits 1 ms longer than the one before it."""
    found = latencies_s(SERIAL, [10] * 200, [0.009 * number for number in range(200)])
    assert found == pytest.approx([0.010 + 0.001 * number for number in range(200)])


def test_a_full_server_decodes_all_rows_in_each_step() -> None:
    """64 rows hold 16 sentences, which share a step of 7 ms. New sentences are encoded between calls."""
    lengths = [20] * 4000
    per_sentence_s = 20 * 0.007 / 16 + 20 * 0.0001
    assert saturated_rate(replace(COSTS, request_s=0.0), lengths, num_clients=64) == pytest.approx(
        1 / per_sentence_s, rel=0.05
    )


def test_a_sentence_costs_nothing_after_its_end() -> None:
    """The time of a step is in proportion to its rows, so the rate is as high as with one sentence at a time."""
    costs = replace(COSTS, levels=(level(4, 1.0), level(64, 16.0)), request_s=0.0)
    lengths = [15 + number % 11 for number in range(4000)]
    assert saturated_rate(costs, lengths, num_clients=4) == pytest.approx(50, rel=0.01)


def test_requests_of_the_warm_up_are_simulated_and_not_counted() -> None:
    found = latencies_s(SERIAL, [10, 10], [-0.001, 0.0])
    assert found == pytest.approx([0.019])


def test_a_second_worker_takes_the_sentences_for_which_the_first_one_has_no_rows() -> None:
    lengths = [20] * 4000
    one = saturated_rate(replace(COSTS, request_s=0.0), lengths, num_clients=64)
    two = saturated_rate(replace(COSTS, request_s=0.0, num_workers=2), lengths, num_clients=64)
    assert two == pytest.approx(2 * one, rel=0.1)


def test_the_event_loop_bounds_the_rate() -> None:
    quick = replace(COSTS, levels=(level(4, 0.001), level(64, 0.002)), request_s=0.01)
    assert saturated_rate(quick, [5] * 2000, num_clients=64) == pytest.approx(100, rel=0.02)


def test_the_step_time_between_and_beyond_the_measured_rows() -> None:
    times = [COSTS.step_s(rows) for rows in (1, 4, 34, 64, 74)]
    assert times == pytest.approx([0.001, 0.001, 0.004, 0.007, 0.008])
    noisy = replace(COSTS, levels=(level(4, 1.0), level(64, 0.9)))
    assert noisy.step_s(80) == pytest.approx(0.001), "more rows never take less time"


def test_levels_of_similar_rows_become_their_mean() -> None:
    found = merged([level(56.3, 17.0), level(3.9, 1.0), level(54.6, 14.0), level(56.9, 15.5)])
    assert [one.rows for one in found] == pytest.approx([3.9, 55.933], abs=0.01)
    assert [one.step_s for one in found] == pytest.approx([0.001, 0.0155])
    found = merged([level(10.0, 1.0), level(12.0, 1.0), level(15.0, 1.0)])
    assert [one.rows for one in found] == [11.0, 15.0], "all rows of a level are similar to its first"


def sample(words: int, subwords: int | None) -> Sample:
    response = None if subwords is None else ParsedResponse((), subwords, subwords, 1)
    return Sample(index=0, number=0, scheduled_s=0.0, num_words=words, response=response)


def test_the_subwords_of_a_sentence_are_a_constant_plus_a_number_for_each_word() -> None:
    found = line_of_subwords([sample(1, 5), sample(10, 23), sample(4, 11), sample(9, None)])
    assert found == pytest.approx((3, 2))
    assert line_of_subwords([sample(4, 10), sample(4, 14)]) == (0, 3)
    assert line_of_subwords([sample(4, 14), sample(5, 13)]) == (0, 3)
    with pytest.raises(CommandError, match="too short"):
        line_of_subwords([sample(9, None)])


def share_within(slo: Slo, lengths: list[int], rate: float, seed: int) -> float:
    """The share of the requests that are answered within the objective's limit."""
    found = latencies_s(COSTS, lengths, poisson_times_s(len(lengths), rate=rate, seed=seed))
    return sum(one <= slo.limit_s for one in found) / len(found)


@pytest.mark.seconds
def test_the_capacity_is_the_highest_rate_within_the_objective(monkeypatch: pytest.MonkeyPatch) -> None:
    """At this rate the runs of all seeds meet the objective."""
    monkeypatch.setattr(capacity_module, "NUM_REQUESTS", 2000)
    slo = Slo.parse("p99=200ms")
    words = [10, 20]
    found = capacity(COSTS, words, slo)
    lengths = lengths_of(words, COSTS)

    assert found.rate < 0.95 * found.saturated
    assert all(share_within(slo, lengths, found.rate, seed) >= 0.99 for seed in SEEDS)
    assert any(share_within(slo, lengths, found.rate * 1.05, seed) < 0.99 for seed in SEEDS)


@pytest.mark.seconds
def test_the_objective_holds_in_a_run_that_is_longer_than_the_runs_of_the_search() -> None:
    """A run begins with an empty server, and near saturation the queue grows for longer than a run of the search."""
    slo, words = Slo.parse("p99=1s"), [10, 20]
    found = capacity(COSTS, words, slo)
    lengths = [*lengths_of(words, COSTS)] * 5
    assert share_within(slo, lengths, found.rate, seed=9) >= 0.985


@pytest.mark.seconds
def test_a_server_with_many_rows_is_saturated_by_more_clients(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(capacity_module, "SEEDS", (1,))
    greedy = replace(COSTS, levels=(level(1, 1.0), level(512, 4.0)), max_rows=512, beam_size=1, request_s=0.0)
    assert num_saturating_clients(COSTS) == 128
    assert num_saturating_clients(greedy) == 1024
    assert num_saturating_clients(replace(greedy, num_workers=2, beam_size=4)) == 512
    lengths = [COSTS.num_subwords(20)] * 6144
    assert capacity(greedy, [20], Slo.parse("p99=10s")).saturated == pytest.approx(
        saturated_rate(greedy, lengths, num_clients=1024), rel=0.1
    )


@pytest.mark.seconds
def test_an_objective_that_an_idle_server_misses_is_refused() -> None:
    with pytest.raises(CommandError, match="without load misses p99=20ms"):
        capacity(COSTS, [20], Slo.parse("p99=20ms"))


@pytest.mark.parametrize(("rate", "spare", "wanted"), [(40, 0, 1), (41, 0, 2), (81, 1, 4)])
def test_the_servers_and_the_price_of_a_load(rate: float, spare: int, wanted: int) -> None:
    found = plan(Capacity(50, 40), rate=rate, characters=100, price=0.36, spare=spare)
    assert found.num_servers == wanted
    assert found.price_per_hour == pytest.approx(0.36 * wanted)
    assert found.price_per_million == pytest.approx(0.0001 * wanted / rate / 100 * 1e6)


def test_costs_are_saved_and_read(tmp_path: Path) -> None:
    file = tmp_path / "costs.json"
    COSTS.save(file)
    assert Costs.load(file) == COSTS
    file.write_text(file.read_text().replace('"max_rows": 64', '"max_rows": 0'))
    with pytest.raises(CommandError, match="not above 0"):
        Costs.load(file)
    file.write_text("[]")
    with pytest.raises(CommandError, match=r"costs\.json"):
        Costs.load(file)


@pytest.mark.parametrize("rate", [0.0, -1.0, math.nan])
def test_a_rate_that_is_not_above_0_is_refused(rate: float) -> None:
    with pytest.raises(ValueError, match="rate"):
        poisson_times_s(10, rate=rate)
