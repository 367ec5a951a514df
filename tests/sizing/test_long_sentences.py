"""Sentences that are longer than the model takes: the simulated server halves them, as the real one does."""

from __future__ import annotations

from dataclasses import asdict, replace
from pathlib import Path

import pytest

from tests.sizing.test_simulation import COSTS, LIMITS, SERIAL, serve_figures
from transduce.cli import main
from transduce.loadtest.plan import Target
from transduce.loadtest.workload import built_in
from transduce.sizing import measure
from transduce.sizing.costs import Costs
from transduce.sizing.measure import ENGINE_PHASES
from transduce.sizing.simulation import latencies_s, saturated_rate

# Two rows of one sentence each, in steps of 1 ms.
TWO_ROWS = replace(SERIAL, max_rows=2, max_source_length=20)


def test_the_parts_of_a_long_sentence_are_decoded_at_once() -> None:
    """The second part of 15 subwords waits for the first step of the first part."""
    assert latencies_s(TWO_ROWS, [20], [0.0]) == pytest.approx([0.020])
    assert latencies_s(TWO_ROWS, [30], [0.0]) == pytest.approx([0.016])


def test_a_request_is_answered_once_after_its_last_part() -> None:
    """41 subwords are 4 parts of at most 11 subwords. Two parts are decoded at a time."""
    assert latencies_s(TWO_ROWS, [41], [0.0]) == pytest.approx([0.022], abs=0.0011)
    assert saturated_rate(TWO_ROWS, [40] * 400, num_clients=4) == pytest.approx(50, rel=0.02)


@pytest.mark.parametrize("longest", [100, 512, 1000])
def test_every_length_is_simulated(longest: int) -> None:
    costs = replace(COSTS, max_source_length=longest)
    assert len(latencies_s(costs, [longest, longest + 1, 2000], [0.0, 1.0, 2.0])) == 3


def test_the_longest_source_is_read_from_the_model(monkeypatch: pytest.MonkeyPatch) -> None:
    serve_figures(ENGINE_PHASES, LIMITS, monkeypatch)
    model = {"name": "m", "version": "1", "defaults": {"beam_size": 4}, "max_source_length": 100}
    monkeypatch.setattr(measure, "_model", lambda _target: model)
    costs = measure.measure(Target("http://127.0.0.1:1"), built_in("short"), seconds=0.1)
    assert costs.max_source_length == 100


def test_costs_that_were_saved_without_the_longest_source_are_read() -> None:
    fields = asdict(COSTS)
    del fields["max_source_length"]
    assert Costs.parse(fields) == COSTS


@pytest.mark.seconds
def test_sentences_of_many_words_are_sized(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, value in (("NUM_REQUESTS", 100), ("SATURATING_CLIENTS", 16), ("SEEDS", (1,))):
        monkeypatch.setattr(f"transduce.sizing.capacity.{name}", value)
    file = tmp_path / "costs.json"
    COSTS.save(file)
    assert main(["size", "--costs", str(file), "--words", "260", "--rate", "1", "--slo", "p99=20s"]) == 0
    assert "1 requests/s need 1 servers" in capsys.readouterr().out
