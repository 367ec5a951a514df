"""The engine comparison: rates, arrivals, layouts, batches, time breakdown, memory slope, and its sentence pairs."""

from __future__ import annotations

import asyncio
import lzma
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from benchmarks.engine.arrivals import WindowBatcher, submit_at_arrivals
from benchmarks.engine.breakdown import PYTHON, RUNTIME, ProfiledTimes, where_time_goes
from benchmarks.engine.cases import Case, read_pairs
from benchmarks.engine.goals import LIMIT_S
from benchmarks.engine.jobs import ArrivalResult, Job, JobResult
from benchmarks.engine.layouts import Layouts
from benchmarks.engine.memory import slope_of
from benchmarks.engine.profiled import OTHER, category_of, operators_of, runs_of
from benchmarks.engine.rates import COARSE, FINE, ArrivalRateSearch, percentile

TIMEOUT_S = 20.0
NEVER_S = 3600.0  # seconds; a window that does not end during a test


def answered(latency_s: float | None) -> ArrivalResult:
    return ArrivalResult([latency_s] * 20, [0.0] * 20)


def finished(search: ArrivalRateSearch, *, sustained: float) -> ArrivalRateSearch:
    """The finished search of an engine that answers in time up to the rate `sustained`, and not at all above it."""
    while not search.is_done:
        search.record(answered(0.5 if search.rate <= sustained else None))
    return search


@pytest.mark.parametrize("sustained", [57.0, 100.0, 103.0, 149.0, 300.0])
def test_the_highest_rate_is_found_to_a_fine_step(sustained: float) -> None:
    search = finished(ArrivalRateSearch(100.0), sustained=sustained)
    assert sustained / FINE < search.highest <= sustained


def test_rates_rise_in_coarse_steps_until_one_fails() -> None:
    rates = [trial["rate"] for trial in finished(ArrivalRateSearch(100.0), sustained=160.0).trials]
    steps = (1.0, COARSE, COARSE**2, COARSE**3, COARSE**2 * FINE)
    assert rates[:5] == pytest.approx([100.0 * step for step in steps])
    assert len(set(rates)) == len(rates)


def test_a_latency_at_the_limit_succeeds_and_one_above_fails() -> None:
    search = ArrivalRateSearch(10.0)
    search.record(answered(LIMIT_S))
    assert search.highest == 10.0
    search.record(answered(LIMIT_S * 1.001))
    assert search.highest == 10.0


def test_an_unanswered_sentence_counts_as_late() -> None:
    latencies: list[float | None] = [0.1] * 94 + [None] * 6
    assert percentile(ArrivalResult(latencies, []), 0.95) == float("inf")
    assert percentile(ArrivalResult(latencies, []), 0.94) == 0.1


def test_the_p99_delay_of_the_tester_is_a_nearest_rank() -> None:
    search = ArrivalRateSearch(10.0)
    search.record(ArrivalResult([0.1] * 100, [0.0] * 98 + [1.0, 9.0]))
    assert search.trials[0]["sent_late_p99_s"] == 1.0


def test_latency_counts_from_the_due_time() -> None:
    """A blocked event loop submits the second sentence late. The delay is part of its latency."""

    async def translate(index: int) -> None:
        if index == 0:
            time.sleep(0.05)  # noqa: ASYNC251 - blocks the event loop

    found = asyncio.run(submit_at_arrivals(translate, [0.0, 0.001], limit_s=100.0))
    second = found.latencies_s[1]
    assert second is not None
    assert second >= 0.04


def test_a_sentence_without_an_answer_within_the_limit_has_no_latency() -> None:
    async def translate(index: int) -> None:
        if index:
            await asyncio.Event().wait()

    found = asyncio.run(submit_at_arrivals(translate, [0.0, 0.0], limit_s=0.5))
    assert found.latencies_s[0] is not None
    assert found.latencies_s[1] is None


class TimedWorker:
    """A fake of Transduce's process.

    times_s: for each number of workers, the seconds that the calls of `translate` report, in order.
    """

    times_s: dict[int, list[float]]

    def __init__(self, kind: str, arguments: dict[str, Any]) -> None:
        assert kind == "ours"
        self._own = iter(self.times_s[arguments["num_workers"]])

    def translate(self, job: Job) -> JobResult:
        return JobResult([next(self._own)], [])

    def close(self) -> None:
        pass


def layouts_of(monkeypatch: pytest.MonkeyPatch, num_threads: int, times_s: dict[int, list[float]]) -> Layouts:
    monkeypatch.setattr(TimedWorker, "times_s", times_s, raising=False)
    monkeypatch.setattr("benchmarks.engine.layouts.Worker", TimedWorker)
    return Layouts({"num_threads": num_threads})


def given_at_once(num_sentences: int, beam_size: int = 1) -> Case:
    job = Job([[[5, 2]] * num_sentences], beam_size, 10, is_forced=True)
    return Case("given", num_sentences, job)


@pytest.mark.parametrize(("times_s", "quickest"), [([9.0, 2.0], 2), ([9.0, 4.0], 1)])
def test_the_layout_with_the_lowest_time_of_any_trial_is_chosen(
    monkeypatch: pytest.MonkeyPatch, times_s: list[float], quickest: int
) -> None:
    layouts = layouts_of(monkeypatch, 2, {1: [3.0, 5.0], 2: times_s})
    assert layouts.search(given_at_once(128)).num_workers == quickest


def test_few_rows_or_one_thread_get_one_process_without_a_trial(monkeypatch: pytest.MonkeyPatch) -> None:
    nothing: dict[int, list[float]] = {1: [], 2: []}
    assert layouts_of(monkeypatch, 2, nothing).search(given_at_once(8, beam_size=4)).describe() == "1 x 2"
    assert layouts_of(monkeypatch, 1, nothing).search(given_at_once(128)).describe() == "1 x 1"


def test_there_are_no_more_processes_than_the_server_starts(monkeypatch: pytest.MonkeyPatch) -> None:
    layouts = layouts_of(monkeypatch, 16, {1: [3.0, 3.0], 4: [1.0, 1.0]})
    assert layouts.search(given_at_once(33)).describe() == "4 x 4"


def batches(
    count: int, *, window_s: float, max_size: int, num_workers: int, hold: Callable[[int], None]
) -> list[list[int]]:
    """The batches of `count` sentences that are submitted at once. hold: called in each batch with the batch number."""
    seen: list[list[int]] = []
    lock = threading.Lock()

    def translate_batch(sentences: list[Any]) -> list[Any]:
        with lock:
            seen.append(sentences)
            number = len(seen)
        hold(number)
        return [sentence * 10 for sentence in sentences]

    async def run() -> list[Any]:
        with ThreadPoolExecutor(num_workers) as executor:
            batcher = WindowBatcher(
                translate_batch,
                executor=executor,
                num_workers=num_workers,
                window_s=window_s,
                max_size=max_size,
            )
            answers = asyncio.gather(*(batcher.translate(number) for number in range(count)))
            return await asyncio.wait_for(answers, TIMEOUT_S)

    assert asyncio.run(run()) == [number * 10 for number in range(count)]
    return seen


def test_a_full_batch_starts_at_once_and_the_rest_after_its_window() -> None:
    found = batches(7, window_s=0.01, max_size=3, num_workers=1, hold=lambda _: None)
    assert found == [[0, 1, 2], [3, 4, 5], [6]]
    full = batches(6, window_s=NEVER_S, max_size=3, num_workers=1, hold=lambda _: None)
    assert full == [[0, 1, 2], [3, 4, 5]]


def test_several_workers_run_batches_at_the_same_time() -> None:
    both = threading.Barrier(2, timeout=TIMEOUT_S)
    batches(4, window_s=NEVER_S, max_size=2, num_workers=2, hold=lambda _: wait(both))


def wait(barrier: threading.Barrier) -> None:
    barrier.wait()


@pytest.mark.parametrize("kind", [RuntimeError, ValueError])
def test_an_error_reaches_every_sentence_of_the_batch(kind: type[Exception]) -> None:
    def broken(sentences: list[Any]) -> list[Any]:
        raise kind("no")

    async def run() -> list[Any]:
        with ThreadPoolExecutor(1) as executor:
            batcher = WindowBatcher(broken, executor=executor, num_workers=1, window_s=NEVER_S, max_size=3)
            answers = asyncio.gather(*(batcher.translate(n) for n in range(3)), return_exceptions=True)
            return await asyncio.wait_for(answers, TIMEOUT_S)

    assert [type(each) for each in asyncio.run(run())] == [kind] * 3


def event(name: str, ts: int, dur: int, operator: str = "") -> dict[str, Any]:
    if operator:
        return {
            "cat": "Node",
            "name": f"{name}_kernel_time",
            "ts": ts,
            "dur": dur,
            "args": {"op_name": operator},
        }
    return {"cat": "Session", "name": name, "ts": ts, "dur": dur}


def test_kernels_count_to_the_run_in_which_they_began_or_to_the_next() -> None:
    events = [
        event("model_loading", 0, 50),
        event("model_run", 200, 40),
        event("a", 110, 20, "MatMul"),
        event("b", 135, 5, "Gemm"),
        event("ends after its run", 141, 20, "NoSuchOperator"),
        event("between the runs", 170, 7, "TopK"),
        event("after the last run", 250, 7, "TopK"),
        event("model_run", 100, 50),
        event("d", 210, 30, "FeedForward"),
    ]
    first, second = runs_of(events)
    assert first.total_s == pytest.approx(50e-6)
    assert first.kernels_s == pytest.approx({"matrix products": 25e-6, OTHER: 20e-6})
    assert second.kernels_s == pytest.approx({"top-k": 7e-6, "feed-forward sub-layer": 30e-6})


def test_operators_of_both_kinds_of_graphs_have_a_category() -> None:
    for operator in (
        "DecoderSteps",
        "Encoder",
        "SelfAttentionStep",
        "GroupQueryAttention",
        "MatMulIntegerToFloat",
        "TopK",
        "RowAttention",
    ):
        assert category_of(operator) != OTHER


def test_row_maxima_count_as_quantisation_and_chunk_maxima_as_top_k() -> None:
    events = [event("model_run", 0, 100), event("a", 1, 20, "ReduceMax"), event("b", 30, 5, "ReduceMax")]
    for kernel, shape in zip(events[1:], ([4, 1], [4, 120]), strict=True):
        kernel["args"]["output_type_shape"] = [{"float": shape}]
    assert runs_of(events)[0].kernels_s == pytest.approx({"quantisation": 20e-6, "top-k": 5e-6})
    assert {category_of(name) for name in operators_of(events)} == {"quantisation", "top-k"}


def row(**changes: Any) -> dict[str, Any]:
    """Two calls, a second each. In both together: 0.2 s in the encoder, 1.6 s in the decoder, 20 steps."""
    spent = {
        "num_steps": 20, "num_rows": 20, "step_s": 1.95, "encode_s": 0.25, "encoder_s": 0.2, "decoder_s": 1.6,
        "num_encoder_runs": 2, "num_decoder_runs": 20, "cpu_s": 3.0, "blocks_s": {},
    }  # fmt: skip
    return {"calls_s": 2.0, "num_calls": 2, "num_groups": 1, "spent": {**spent, **changes}}


def test_the_parts_add_up_to_the_measured_time() -> None:
    profiled = ProfiledTimes(
        {"encoder": {"embedding": 0.02}, "decoder": {"attention": 0.3, "matrix products": 0.1}}, {}, 0.011
    )
    where = where_time_goes(row(), profiled, num_threads=2)
    assert sum(where["parts_ms"].values()) == pytest.approx(1000.0)
    assert where["parts_ms"]["attention"] == pytest.approx(300.0)
    assert where["parts_ms"][RUNTIME] == pytest.approx(80.0 + 400.0 - 11.0)
    assert where["parts_ms"][PYTHON] == pytest.approx(100.0 + 11.0)
    assert where["step_ms"] == pytest.approx(85.0)
    assert where["step_python_share"] == pytest.approx((0.05 + 0.01) / 0.85)
    assert where["idle_share"] == pytest.approx(0.25)


def test_kernels_that_took_longer_when_profiled_are_scaled_to_the_measured_time() -> None:
    profiled = ProfiledTimes({"encoder": {}, "decoder": {"attention": 1.2, "matrix products": 0.4}}, {}, 0.0)
    parts = where_time_goes(row(), profiled, num_threads=2)["parts_ms"]
    assert parts["attention"] == pytest.approx(600.0)
    assert parts["matrix products"] == pytest.approx(200.0)
    assert parts[RUNTIME] == pytest.approx(100.0), "the encoder's time, because none of its kernels is known"


def test_native_kernels_have_the_time_that_they_counted_in_the_measured_run() -> None:
    """The profiled run may be the first to write to its caches, which takes longer."""
    profiled = ProfiledTimes(
        {"encoder": {"cross keys and values": 0.1}, "decoder": {"attention": 0.8}}, {}, 0.0
    )
    measured = row(blocks_s={"encoder": {"cross keys and values": 0.04}, "decoder": {"attention": 1.0}})
    parts = where_time_goes(measured, profiled, num_threads=2)["parts_ms"]
    assert parts["cross keys and values"] == pytest.approx(20.0)
    assert parts["attention"] == pytest.approx(500.0)
    assert parts[RUNTIME] == pytest.approx(80.0 + 300.0)


def samples(growth: float) -> tuple[list[float], list[float]]:
    """The times in minutes, and the memory in MB at each time: a sample each second for ten minutes.

    growth: MB per minute.
    """
    minutes = [number / 60 for number in range(600)]
    return minutes, [
        300.0 + growth * minute + (number * 7919 % 13) / 10 for number, minute in enumerate(minutes)
    ]


def test_memory_that_grows_is_not_flat() -> None:
    slope = slope_of(*samples(1.0))
    assert slope.mb_per_minute == pytest.approx(1.0, abs=0.05)
    assert not slope.is_flat


def test_memory_that_varies_without_growth_is_flat() -> None:
    slope = slope_of(*samples(0.0))
    assert slope.is_flat
    assert len(slope.block_medians_mb) == 10


def test_too_few_samples_are_an_error() -> None:
    with pytest.raises(ValueError, match="29 samples"):
        slope_of([0.0] * 29, [0.0] * 29)


def test_a_table_may_have_a_column_of_domains(tmp_path: Path) -> None:
    for number, lines in enumerate(("A cat.\tEine Katze.\n", "home\tA cat.\tEine Katze.\n")):
        path = tmp_path / f"test.{number}.tsv.xz"
        path.write_bytes(lzma.compress(lines.encode()))
        assert read_pairs(path) == [("A cat.", "Eine Katze.")]
