"""The lock-free histograms give the same output as those of prometheus_client. Every step is counted once."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Histogram, disable_created_metrics, generate_latest

from app.engine.stats import StepStats
from app.observability.lock_free import LockFreeHistogram
from app.observability.metrics import MAX_UNCOUNTED_STEPS, Metrics

BOUNDS = (0.5, 1.0, 2.0)
VALUES = (0.1, 0.5, 0.75, 1.0, 3.0, 2.0)
disable_created_metrics()  # type: ignore[no-untyped-call]  # as `Metrics` does


def test_a_histogram_equals_the_librarys() -> None:
    theirs, ours = CollectorRegistry(), CollectorRegistry()
    library = Histogram("waited_seconds", "How long", ("who", "where"), buckets=BOUNDS, registry=theirs)
    own = LockFreeHistogram("waited_seconds", "How long", ("who", "where"), buckets=BOUNDS, registry=ours)
    for number, value in enumerate(VALUES):
        labels = (f"caller {number % 2}", 'a "place"')
        library.labels(*labels).observe(value)
        own.labels(*labels).observe(value)
    assert generate_latest(ours) == generate_latest(theirs)
    assert b'waited_seconds_bucket{le="1.0",where="a \\"place\\"",who="caller 1"} 2.0' in generate_latest(
        ours
    )


def test_a_histogram_without_labels_is_exposed_before_its_first_value() -> None:
    theirs, ours = CollectorRegistry(), CollectorRegistry()
    Histogram("rows", "Rows", buckets=BOUNDS, registry=theirs)
    LockFreeHistogram("rows", "Rows", buckets=BOUNDS, registry=ours).labels()
    assert generate_latest(ours) == generate_latest(theirs)


def test_every_step_is_counted_once_with_scrapes_in_between() -> None:
    metrics = Metrics()
    num_steps = 2 * MAX_UNCOUNTED_STEPS + 10
    for number in range(1, num_steps + 1):
        metrics.record_steps([StepStats(num_rows=2, num_finished=1)])
        if number % 100 == 1:
            assert f"transduce_decode_steps_total {number:.1f}".encode() in metrics.render()
    assert metrics.registry.get_sample_value("transduce_decode_steps_total") == num_steps
    assert metrics.registry.get_sample_value("transduce_batch_size_sum") == 2 * num_steps
    finished = metrics.registry.get_sample_value("transduce_engine_sentences_total", {"outcome": "finished"})
    assert finished == num_steps
