"""Metrics are named, documented and counted correctly."""

from __future__ import annotations

import math
from dataclasses import replace

from prometheus_client.parser import text_string_to_metric_families

from app.api.http.connections import ConnectionTable
from app.api.http.error_table import ANSWERS, UNEXPECTED, WOULD_BE_LATE, WRONG_KEY
from app.api.service import Service
from app.engine.stats import Health, StepStats, WorkerHealth
from app.observability.cgroup_memory import CgroupMemory
from app.observability.metrics import MAX_UNCOUNTED_STEPS, REASONS, Build, Metrics, ModelInfo
from app.stores.glossaries import GlossaryStore
from app.translator.caching_submitter import SubmitterStats
from app.translator.request import ModelVersion, Timings, Usage
from tests.house_rules.project import ROOT

STEP = StepStats(
    num_rows=8,
    num_idle_rows=3,
    num_wasted_rows=1,
    num_waiting=5,
    num_rows_in_use=11,
    num_admitted=2,
    num_encode_tokens=20,
    num_finished=2,
    num_failed=1,
    num_expired=1,
    num_retried=0,
    num_looped=1,
    encode_time_s=0.01,
    decode_time_s=0.02,
    step_time_s=0.035,
)


def value(metrics: Metrics, name: str, **labels: str) -> float | None:
    return metrics.registry.get_sample_value(name, labels)


def test_steps_are_counted() -> None:
    metrics = Metrics()
    metrics.record_steps([STEP, replace(STEP, num_rows=0, num_encode_tokens=0, num_waiting=4)])
    assert value(metrics, "transduce_decode_steps_total") == 1
    assert value(metrics, "transduce_decode_step_seconds_sum") == 0.02
    assert value(metrics, "transduce_encode_seconds_count") == 1
    assert value(metrics, "transduce_encoded_tokens_total") == 20
    assert value(metrics, "transduce_batch_size_sum") == 8
    assert value(metrics, "transduce_rows_total", use="idle") == 6
    assert value(metrics, "transduce_engine_sentences_total", outcome="finished") == 4
    assert value(metrics, "transduce_engine_sentences_total", outcome="looped") == 2
    assert value(metrics, "transduce_waiting_sentences") == 4
    assert value(metrics, "transduce_worker_busy_seconds_total") == 0.07


def test_requests_are_counted_and_unknown_methods_share_a_label() -> None:
    metrics = Metrics()
    metrics.record_request(route="/v1/translate", method="POST", code=200, seconds=0.1)
    metrics.record_request(route="unmatched", method="X" * 100, code=404, seconds=-1.0)
    assert (
        value(metrics, "transduce_http_requests_total", route="/v1/translate", method="POST", code="200") == 1
    )
    assert value(metrics, "transduce_http_requests_total", route="unmatched", method="other", code="404") == 1
    assert (
        value(metrics, "transduce_http_request_duration_seconds_sum", route="unmatched", method="other") == 0
    )


def test_the_queue_is_read_at_each_scrape() -> None:
    metrics = Metrics()
    pending = [3]
    metrics.readings.track_queue(
        lambda: Health(
            is_alive=True,
            is_stalled=False,
            step_age_s=1.5,
            num_pending_sentences=pending[0],
            num_pending_tokens=40,
            num_workers=2,
            max_pending_sentences=50,
            max_pending_tokens=600,
            stall_limit_s=10.0,
        )
    )
    assert value(metrics, "transduce_queue_depth") == 3
    pending[0] = 0
    assert value(metrics, "transduce_queue_depth") == 0
    assert value(metrics, "transduce_queue_tokens") == 40
    assert value(metrics, "transduce_workers") == 2
    assert value(metrics, "transduce_step_age_seconds") == 1.5
    assert value(metrics, "transduce_queue_depth_limit") == 50
    assert value(metrics, "transduce_queue_tokens_limit") == 600
    assert value(metrics, "transduce_step_age_limit_seconds") == 10


def test_each_worker_has_its_rows_and_its_step() -> None:
    metrics = Metrics()
    workers = [("a", WorkerHealth(3, 0.0, 80)), ("b", WorkerHealth(4, 1.5, 80))]
    metrics.readings.track_workers(lambda: workers, metrics.rows_in_use)
    metrics.record_steps([replace(STEP, worker=4), replace(STEP, worker=4, num_rows_in_use=9)])
    first, second = {"model": "a", "worker": "3"}, {"model": "b", "worker": "4"}
    metrics.render()  # counts the steps
    assert [value(metrics, "transduce_worker_rows", **labels) for labels in (first, second)] == [0, 9]
    assert value(metrics, "transduce_worker_rows_limit", **second) == 80
    assert [value(metrics, "transduce_worker_step_age_seconds", **labels) for labels in (first, second)] == [
        0.0,
        1.5,
    ]
    metrics.forget_workers([4])
    assert value(metrics, "transduce_worker_rows", **second) == 0
    assert value(metrics, "transduce_waiting_sentences") == 0


def test_many_steps_are_counted_before_the_next_scrape() -> None:
    metrics = Metrics()
    metrics.record_steps([STEP] * MAX_UNCOUNTED_STEPS)
    assert metrics.rows_in_use == {}
    metrics.record_steps([STEP])
    assert metrics.rows_in_use == {STEP.worker: STEP.num_rows_in_use}


def usage(model: str, num_sentences: int) -> Usage:
    return Usage(7, 8, num_sentences, Timings(0, 0, 0, 0, 0), model=ModelVersion(model, "1"))


def test_work_is_counted_for_each_model_and_every_count_starts_at_0() -> None:
    metrics = Metrics()
    models = [ModelInfo("a", "1", "int8"), ModelInfo("b", "2", "fp32")]
    metrics.describe(Build("0.1.0", "avx2", "CPUExecutionProvider"), models)
    assert value(metrics, "transduce_model_requests_total", model="b") == 0
    metrics.record_work(usage("b", 3))
    metrics.record_work(usage("b", 2))
    assert value(metrics, "transduce_model_requests_total", model="b") == 2
    assert value(metrics, "transduce_model_sentences_total", model="b") == 5
    assert value(metrics, "transduce_model_sentences_total", model="a") == 0
    assert value(metrics, "transduce_sentences_total") == 5
    assert value(metrics, "transduce_source_tokens_total") == 14


def test_a_reload_replaces_the_build_and_the_models() -> None:
    metrics = Metrics()
    for kernels, version in (("avx2", "1"), ("standard", "2")):
        metrics.describe(Build("0.1.0", kernels, "CPUExecutionProvider"), [ModelInfo("a", version, "int8")])
    labels = {"version": "0.1.0", "kernels": "standard", "providers": "CPUExecutionProvider"}
    assert value(metrics, "transduce_build_info", **labels) == 1
    assert value(metrics, "transduce_build_info", **{**labels, "kernels": "avx2"}) is None
    assert value(metrics, "transduce_model_info", model="a", version="1", precision="int8") is None


def test_the_sentence_cache_is_read_at_each_scrape() -> None:
    metrics = Metrics()
    facts = [
        SubmitterStats(num_hits=2, num_misses=5, num_bytes=900, num_entries=3, num_evicted=1, num_coalesced=4)
    ]
    metrics.readings.track_cache(lambda: facts[0])
    lookups = "transduce_sentence_cache_lookups_total"
    assert [value(metrics, lookups, result=result) for result in ("hit", "miss")] == [2, 5]
    assert value(metrics, "transduce_sentence_cache_bytes") == 900
    assert value(metrics, "transduce_sentence_cache_entries") == 3
    assert value(metrics, "transduce_sentence_cache_evictions_total") == 1
    assert value(metrics, "transduce_coalesced_sentences_total") == 4
    facts[0] = SubmitterStats(num_hits=3)
    assert value(metrics, lookups, result="hit") == 3


def test_an_unknown_drain_time_is_nan() -> None:
    metrics = Metrics()
    health = [Health(True, False, 0.0, 0, 0), Health(True, False, 0.0, 9, 90, drain_time_s=1.5)]
    metrics.readings.track_queue(lambda: health[0])
    assert math.isnan(value(metrics, "transduce_queue_drain_seconds") or 0.0)
    del health[0]
    assert value(metrics, "transduce_queue_drain_seconds") == 1.5


def test_every_metric_is_documented_and_well_named() -> None:
    metrics = Metrics()
    metrics.record_steps([STEP])
    metrics.record_request(route="/livez", method="GET", code=200, seconds=0.1)
    metrics.rejected.labels("queue_full").inc()
    metrics.phase_seconds.labels("decode").observe(1)
    metrics.describe(Build("1", "avx2", "CPUExecutionProvider"), [ModelInfo("a", "1", "fp32")])
    metrics.readings.track_workers(lambda: [("a", WorkerHealth(0, 0.0, 80))], metrics.rows_in_use)
    metrics.readings.track_connections(ConnectionTable(10, 10).counts)
    metrics.readings.track_log(int)
    Service(metrics, GlossaryStore(None))
    metrics.readings.track_queue(lambda: Health(True, False, 0.0, 0, 0))
    metrics.readings.track_cache(SubmitterStats)
    metrics.readings.track_gauges(CgroupMemory().gauges())
    metrics.stream_events.labels("delta").inc()
    families = list(text_string_to_metric_families(metrics.render().decode()))
    ours = [family for family in families if family.name.startswith("transduce_")]
    assert len(ours) > 15
    documented = (ROOT / "docs" / "monitoring.md").read_text("utf-8")
    for family in ours:
        name = f"{family.name}_total" if family.type == "counter" else family.name
        assert f"`{name}`" in documented, name
        assert family.documentation
        assert not family.name.endswith(("_ms", "_milliseconds"))


def test_every_reason_is_shown_before_its_first_request() -> None:
    """Prometheus' rate() sees an increase only if there is an earlier sample."""
    counted = {answer.reason for answer in (*ANSWERS.values(), WOULD_BE_LATE, WRONG_KEY, UNEXPECTED)}
    assert counted | {"unread"} == set(REASONS)
    metrics = Metrics()
    assert [value(metrics, "transduce_rejected_total", reason=reason) for reason in REASONS] == [0] * len(
        REASONS
    )
    assert value(metrics, "transduce_reloads_total", outcome="failed") == 0
