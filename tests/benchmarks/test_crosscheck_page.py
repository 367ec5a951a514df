"""The page's table of load testers comes from the committed result, and the benchmark's workload is stable."""

from __future__ import annotations

import json
from typing import Any

import pytest

from benchmarks.loadtest_alternation import agrees
from benchmarks.loadtest_crosscheck import CHARACTERS, NUM_TEXTS, PERCENTILES, RESULT, workload
from benchmarks.loadtest_crosscheck_page import BLOCKS, PAGE, filled, table_of_testers
from transduce.loadtest.percentiles import rank_of


def test_every_figure_of_the_page_is_in_the_committed_result() -> None:
    text = PAGE.read_text("utf-8")
    assert filled(text, RESULT) == text, "run python -m benchmarks.loadtest_crosscheck_page"
    assert all(f"<!-- figures: {name} -->" in text for name in BLOCKS)


def test_a_tester_that_disagrees_is_reported() -> None:
    latency_ms = {"p50": 20.0, "p75": 30.0, "p90": 40.0, "p99": 50.0}
    result: Any = {
        "translation": {
            "rate": 12.0, "transduce": {"latency_ms": latency_ms}, "wrk2": {"latency_ms": latency_ms | {"p75": 34.0}},
            "agrees": {"wrk2": False},
        }
    }  # fmt: skip
    own, other = table_of_testers(result).splitlines()[-2:]
    assert own == "| transduce loadtest | 20.0 | 30.0 | 40.0 | 50.0 |  |"
    assert other == "| wrk2 | 20.0 | 34.0 | 40.0 | 50.0 | no |"


@pytest.mark.parametrize(
    ("other", "own", "same"), [(33.0, 30.0, True), (33.1, 30.0, False), (4.9, 4.0, True)]
)
def test_latencies_agree_within_a_tenth_or_a_millisecond(other: float, own: float, *, same: bool) -> None:
    assert agrees(other, own) is same


def test_the_sentences_go_from_short_to_long_in_small_steps() -> None:
    texts = [request_spec.texts[0] for request_spec in workload().requests]
    lengths = [len(text) for text in texts]
    low, high = CHARACTERS
    assert len(set(texts)) == NUM_TEXTS
    assert not any(map(str.isdigit, "".join(texts)))
    assert (min(lengths), max(lengths)) == (low, high)
    lengths.sort()
    for name in PERCENTILES:
        rank = rank_of(NUM_TEXTS, float(name[1:]))
        around = lengths[max(0, rank - 2) : rank + 1]
        assert max(around) - min(around) <= 14, name


def test_every_part_has_its_command_commit_machine_and_versions() -> None:
    for part in json.loads(RESULT.read_text("utf-8")).values():
        assert {"command", "commit", "machine", "versions"} <= part.keys()
