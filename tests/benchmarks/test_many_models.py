"""The benchmark of many models: its bundles are valid, and its requests follow a Zipf distribution."""

from __future__ import annotations

import itertools
import json
from collections import Counter
from pathlib import Path

import pytest

from app.bundle import load_bundle
from benchmarks.load import TimedAnswer, make_request
from benchmarks.many_models import Outcome, requests_of, table, write_copies


def test_the_copies_are_valid_bundles(tmp_path: Path) -> None:
    names = write_copies(tmp_path, 2)
    for name in names:
        bundle = load_bundle(tmp_path / name)
        assert bundle.manifest.name == name
        assert [*bundle.manifest.variants] == ["int8"]


def test_the_first_models_are_the_most_popular() -> None:
    requests = itertools.islice(requests_of(["a", "b", "c", "d"], exponent=1.0), 4000)
    counts = Counter(json.loads(request.body)["model"] for request in requests)
    shares = [counts[name] / 4000 for name in "abcd"]
    assert shares == pytest.approx([0.48, 0.24, 0.16, 0.12], abs=0.03)


def test_requests_that_waited_for_a_load_are_counted_separately() -> None:
    request = make_request(0, "x", pair=("en", "de"), beam_size=1)
    heads = (b"server-timing: queue;dur=1.00", b"server-timing: queue;dur=1.00, load;dur=900.00")
    answers = [
        TimedAnswer(request, 0.0, 0.0, end, head, b"") for end, head in zip((0.1, 1.0), heads, strict=True)
    ]
    outcome = Outcome(answers)
    assert outcome.latencies_ms(is_warm=True) == [pytest.approx(100.0)]
    assert outcome.latencies_ms(is_warm=False) == [pytest.approx(1000.0)]


def test_the_table_shows_percentiles_or_none() -> None:
    times = {"p50_ms": 10.0, "p99_ms": 20.0}
    resident: dict[str, object] = {"num_answers": 5, "num_errors": 0, "warm": times, "peak_mb": 300.0}
    budget = {
        **resident, "waited_for_load": None, "num_loads": 1, "mean_load_s": 0.5, "budget_mb": 400.0,
    }  # fmt: skip
    shown = table({"budget": budget, "resident": resident})
    assert "| warm requests, p50 / p99 | 10 / 20 ms | 10 / 20 ms |" in shown
    assert "| requests that waited for a load, p50 / p99 | none | none |" in shown
