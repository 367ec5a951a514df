"""The native library's beam steps equal those of `BeamSearch` bit for bit: sums, ended hypotheses, rows, copies."""

from __future__ import annotations

import math
import random
from copy import deepcopy
from dataclasses import replace
from itertools import cycle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from app.decoding.beam import BeamSearch
from app.decoding.options import DecodingOptions
from app.decoding.search import advance
from app.engine.beams import can_offload, offload, reclaim
from app.engine.row_allocator import RowAllocator, RowCopies
from app.engine.sequence import Sequence
from app.errors import EngineFailure
from app.graphs import Precision
from app.runtime import native
from app.runtime.beams import BeamOutcome, SharedBeam
from app.runtime.interface import StepInput
from model.config import BOS_ID, EOS_ID
from tests.engine.core_driver import CoreDriver, hypotheses_of
from tests.export.tiny import VOCAB_SIZE
from tests.runtime.native.test_whole import MAX_LENGTH, NUM_ROWS, load_new, sources

BOS, EOS = 0, 1
# Rows of the cache, each of which has candidates. A beam uses some of them.
NUM_TABLE_ROWS = 20
Candidates = tuple[NDArray[np.float32], NDArray[np.int64]]


def random_candidates(rng: random.Random, k: int) -> Candidates:
    """Random candidates of every row, including impossible subwords. Few scores differ, so many sums are equal."""
    num_rows = NUM_TABLE_ROWS
    steps = [-0.5 * rng.randint(0, 6) for _ in range(num_rows * k)]
    impossible = rng.choice([0.02, 0.02, 0.8])
    steps = [-math.inf if rng.random() < impossible else step for step in steps]
    scores = -np.sort(-np.array(steps, np.float32).reshape(num_rows, k), axis=1)
    scores[:, 0] = np.maximum(scores[:, 0], -9.0)
    ids = np.array([rng.sample(range(EOS + 1, 60), k) for _ in range(num_rows)], np.int64)
    for row in range(num_rows):
        if rng.random() < 0.4:
            ids[row, rng.randrange(k)] = EOS
    return scores, ids


class SearchWithRows:
    """The search and the rows of one sentence."""

    def __init__(self, options: DecodingOptions) -> None:
        self.search = BeamSearch(options, bos_id=BOS, eos_id=EOS)
        source = np.array([EOS], np.int32)
        self.sequence = Sequence(source, options, "request", "caller", 1e9, 0.0, self.search)
        self.allocator = RowAllocator(NUM_TABLE_ROWS)
        self.allocator.admit(self.sequence)

    def step(self, candidates: Candidates) -> list[tuple[int, ...]]:
        """Advance the search and assign rows as the engine does.

        Returns copies: source row, target row, first column, end column.
        """
        advance([self.search], [self.sequence.rows], log_probabilities=candidates[0], ids=candidates[1])
        self.sequence.length += 1
        reorders, spreads = RowCopies(), RowCopies()
        if not self.search.is_done:
            self.allocator.follow_parents(self.sequence, reorders=reorders, spreads=spreads)
        moves = [*reorders.columns().T.tolist(), *spreads.columns().T.tolist()]
        return [(source, target, first, end) for source, target, end, first in moves]

    def offload(self) -> None:
        """Offload the beam with all its rows before the first step."""
        self.allocator.occupy_all(self.sequence, RowCopies())
        offload(self.sequence)


def random_options(rng: random.Random, beam_size: int) -> DecodingOptions:
    patience = rng.choice([0.2, 1.0, 1.0, 2.0])
    return DecodingOptions(
        beam_size=beam_size,
        num_hypotheses=1 if patience < 1 else beam_size,
        max_target_length=rng.randint(2, 20),
        patience=patience,
        loop_guard=rng.random() < 0.3,
    )


@pytest.mark.seconds
@pytest.mark.parametrize("beam_size", [2, 3, 4, 5, 8, 16])
def test_a_step_of_the_library_equals_a_step_of_the_search(beam_size: int) -> None:
    seen: set[BeamOutcome] = set()
    for seed in range(100):
        rng = random.Random(1000 * beam_size + seed)
        expected = SearchWithRows(random_options(rng, beam_size))
        width = beam_size + 1 + rng.randint(0, 3)
        if seed % 2:
            expected.step(random_candidates(rng, width))
        if expected.search.is_done or not can_offload(expected.sequence):
            continue
        offloaded = deepcopy(expected)
        if seed % 2:
            offload(offloaded.sequence)
        else:
            offloaded.offload()
        while offloaded.sequence.beam is not None:
            candidates = random_candidates(rng, width)
            outcome, copies = native.advance_beam(offloaded.sequence.beam.address, *candidates)
            seen.add(BeamOutcome(outcome))
            if outcome == BeamOutcome.UNDECIDED:
                reclaim(offloaded.sequence, offloaded.allocator, is_done=False)
                assert offloaded.step(candidates) == expected.step(candidates)
                break
            assert list(map(tuple, copies)) == expected.step(candidates)
            offloaded.sequence.length += 1
            assert expected.search.is_done == (outcome == BeamOutcome.DONE)
            if outcome == BeamOutcome.DONE:
                reclaim(offloaded.sequence, offloaded.allocator, is_done=True)
            else:
                assert offloaded.sequence.beam.rows == expected.sequence.rows
        assert offloaded.search.hypotheses() == expected.search.hypotheses()
        assert offloaded.search.is_done == expected.search.is_done
        if not expected.search.is_done:
            assert offloaded.search.prefixes() == expected.search.prefixes()
            assert (offloaded.search.totals, offloaded.sequence.rows) == (
                expected.search.totals,
                expected.sequence.rows,
            )
            assert offloaded.sequence.ancestry == expected.sequence.ancestry
    assert seen == set(BeamOutcome)


def test_a_step_with_invalid_scores_is_left_to_the_search() -> None:
    """The library leaves a step to the search if a row's best score is not finite, or another score is NaN."""
    for place, value in (((2, 0), math.inf), ((2, 0), -math.inf), ((1, 3), math.nan)):
        beam = SharedBeam(start_and_end=(BOS, EOS), rows=[0, 2, 1], history=([5, 6, 7], [0, 0, 0], [-1.0, -2.0, -3.0]),
                    max_length=9, num_to_complete=3)  # fmt: skip
        before = beam.history()
        scores, ids = random_candidates(random.Random(1), 4)
        scores[place] = value
        assert native.advance_beam(beam.address, scores, ids) == (BeamOutcome.UNDECIDED, [])
        assert (beam.history(), beam.rows, beam.ended()) == (before, [0, 2, 1], [])


@pytest.mark.parametrize("precision", ["int8", "fp32"])
def test_several_steps_equal_single_steps(precision: Precision, tmp_path: Path) -> None:
    """Beams that the decoder advances, several steps a call, against beams that only the search advances."""
    runner = load_new(tmp_path, precision, norm="pre")
    options = DecodingOptions(beam_size=4, num_hypotheses=4, max_target_length=30)
    kinds = [(4, False), (4, True), (5, False), (7, True)]
    found = []
    for advances in (True, False):
        runner._limits = replace(runner.limits, advances_beams=advances)
        driver = CoreDriver(runner)
        sequences = [
            driver.submit(source.tolist(), replace(options, beam_size=size, alignment=is_aligned))
            for source, (size, is_aligned) in zip(sources(60), cycle(kinds), strict=False)
        ]
        driver.run()
        found.append([hypotheses_of(sequence) for sequence in sequences])
        steps = [step.num_steps for report in driver.reports for step in report.steps]
        assert (max(steps) > 1) == advances
    assert found[0] == found[1]
    assert all(
        any(one.alignment) == kind[1]
        for kind, several in zip(cycle(kinds), found[0], strict=False)
        for one in several
    )
    assert len({len(one.ids) for several in found[0] for one in several}) > 3


@pytest.mark.parametrize(
    ("changes", "match"),
    [
        ({"rows": [0, NUM_ROWS]}, f"row {NUM_ROWS}"),
        ({"rows": [-1, 0]}, "row -1"),
        ({"tokens": [5, VOCAB_SIZE]}, f"token {VOCAB_SIZE}"),
        ({"max_length": 400}, "1 steps of at most 400, and there are"),
        ({"num_columns": MAX_LENGTH + 1}, f"{MAX_LENGTH + 1} columns"),
    ],
)
def test_an_invalid_beam_is_an_error_and_the_next_step_is_right(
    changes: dict[str, Any], match: str, tmp_path: Path
) -> None:
    runner = load_new(tmp_path, "int8", norm="pre")
    runner.encode(sources(4), [0, 1, 2, 3])
    zeros = np.zeros(4, np.int32)
    plain = StepInput(np.full(4, 5, np.int32), zeros, 3)
    expected = runner.decode(plain).ids.copy()
    inputs: dict[str, Any] = {"rows": [0, 1], "tokens": [5, 5], "max_length": 9, **changes}
    history = inputs.pop("tokens"), [0, 0], [-1.0, -1.0]
    beam = SharedBeam(start_and_end=(BOS_ID, EOS_ID), history=history, num_to_complete=2, **inputs)
    with pytest.raises(EngineFailure) as caught:
        runner.decode(replace(plain, beams=[beam]))
    assert match in str(caught.value.__cause__)
    assert beam.length == 1
    np.testing.assert_array_equal(runner.decode(plain).ids, expected)


def test_the_beams_of_a_call_that_fails_before_it_begins_are_not_those_of_the_next_call(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def fails(*_: object) -> None:
        raise EngineFailure("no memory for the outputs")

    runner = load_new(tmp_path, "int8", norm="pre")
    runner.encode(sources(4), [0, 1, 2, 3])
    plain = StepInput(np.full(4, 5, np.int32), np.zeros(4, np.int32), 3)
    expected = runner.decode(plain).ids.copy()
    history = [5, 5], [0, 0], [-1.0, -1.0]
    beam = SharedBeam(
        rows=[0, 1], start_and_end=(BOS_ID, EOS_ID), history=history, num_to_complete=2, max_length=9
    )
    with monkeypatch.context() as patch:
        patch.setattr("app.runtime.session.Session.run", fails)
        with pytest.raises(EngineFailure, match="no memory for the outputs"):
            runner.decode(replace(plain, beams=[beam]))
    np.testing.assert_array_equal(runner.decode(plain).ids, expected)
    assert beam.length == 1
