"""What `transduce top` computes and draws at the limits of its figures."""

from __future__ import annotations

import dataclasses

import pytest

from transduce.top.command import MAX_INTERVAL_S, MIN_INTERVAL_S, interval
from transduce.top.frame import compare
from transduce.top.scrape import Scrape
from transduce.top.view import BAR_WIDTH, NEARLY_FULL, _bar, _outcomes


@pytest.mark.parametrize("seconds", [MIN_INTERVAL_S, MAX_INTERVAL_S])
def test_the_shortest_and_the_longest_interval_are_accepted(seconds: float) -> None:
    assert interval(str(seconds)) == seconds


def test_a_worker_is_stalled_above_the_limit_and_workers_have_the_order_of_their_numbers() -> None:
    workers = [
        ({"worker": name, "model": "m"}, age_s) for name, age_s in (("10", 0.0), ("2", 1.0), ("1", 1.1))
    ]
    rows = [(labels, 4.0) for labels, _ in workers]
    samples = {"worker_step_age_seconds": workers, "worker_rows": rows, "worker_rows_limit": rows}
    found = compare(None, Scrape(0.0, {**samples, "step_age_limit_seconds": [({}, 1.0)]})).workers
    assert [(each.number, each.state) for each in found] == [("1", "stalled"), ("2", "busy"), ("10", "idle")]


@pytest.mark.parametrize(
    ("value", "num_full", "colour"),
    [(0.0, 0, "green"), (89.0, 18, "green"), (100 * NEARLY_FULL, 18, "red"), (250.0, BAR_WIDTH, "red")],
)
def test_a_bar_is_never_wider_than_its_limit_and_red_when_nearly_full(
    value: float, num_full: int, colour: str
) -> None:
    bar = _bar(value, 100.0)
    assert bar.plain == "#" * num_full + "." * (BAR_WIDTH - num_full)
    assert bar.style == colour


def test_what_did_not_occur_in_the_interval_is_not_listed() -> None:
    frame = dataclasses.replace(
        compare(None, Scrape(0.0)), statuses={"200": 2.0, "503": 0.0}, rejected={"x": 0.0}
    )
    assert [list(column.cells) for column in _outcomes(frame).columns] == [
        ["answers", "refused"],
        ["200: 2.0/s", "-"],
    ]
