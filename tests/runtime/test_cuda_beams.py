"""Beams on a GPU, tested on a CPU: kernel steps and engine answers equal those of `BeamSearch` bit for bit."""

from __future__ import annotations

import random
from copy import deepcopy
from dataclasses import replace
from itertools import cycle
from typing import Any

import numpy as np
import pytest

from app.decoding.options import DecodingOptions
from app.engine.beams import can_offload, offload, reclaim
from app.runtime.beams import BeamOutcome, SharedBeam
from app.runtime.cuda_beams import BeamSteps, states_of
from app.runtime.cuda_copies import make_copier
from app.runtime.cuda_kernels import Kernels
from app.runtime.cuda_memory import Cuda
from app.runtime.cuda_pool import CudaPool
from app.runtime.cuda_step import BoundStep, Result, StepInputs, StepShape
from app.runtime.interface import Limits, StepInput
from app.runtime.kv_cache import PoolShape
from app.runtime.stop_condition import StopCondition, WakeFlag
from model.config import EOS_ID
from tests.engine.core_driver import CoreDriver, hypotheses_of
from tests.export.tiny import random_sources
from tests.runtime.host_cuda import Both, HostCuda, host_cuda, read_cuda
from tests.runtime.host_kernels import KINDS, host_kernels, load_ending
from tests.runtime.native.test_beams import (
    BOS,
    EOS,
    NUM_TABLE_ROWS,
    Candidates,
    SearchWithRows,
    random_candidates,
    random_options,
)

MAX_STEPS = 6
BEAMS = [
    DecodingOptions(beam_size=size, num_hypotheses=size, max_target_length=20, loop_guard=has_guard)
    for size, has_guard in ((4, False), (4, True), (2, False))
]
# A call takes one step if a beam in it records attention, or if it has a greedy sentence beside beams.
MIXED = [*BEAMS, replace(BEAMS[0], alignment=True), DecodingOptions(beam_size=1, max_target_length=20)]
LIMITS = Limits(NUM_TABLE_ROWS, 8, 24, 60, bos_id=BOS, eos_id=EOS, max_steps=MAX_STEPS)
SHAPE = PoolShape(
    num_planes=2, num_rows=NUM_TABLE_ROWS, num_heads=1, capacity=24, head_dim=4, dtype="float32"
)


class ScriptedDecoder:
    """A decoder whose candidates are given, with the beams' part of the GPU runner and a cache."""

    def __init__(self, cuda: Cuda, kernels: Kernels, width: int) -> None:
        self.cuda = cuda
        self.pool = CudaPool(SHAPE, cuda, make_copier(cuda, kernels, 16), staging=0)
        self.inputs = StepInputs(cuda, NUM_TABLE_ROWS)
        self.steps = BeamSteps(cuda, kernels, self.inputs, self.pool, limits=LIMITS)
        cuda.wait()
        read_cuda(self.pool, SHAPE)[:] = np.random.default_rng(1).standard_normal(
            (SHAPE.num_planes, SHAPE.num_rows, SHAPE.num_heads, SHAPE.capacity, SHAPE.head_dim)
        )
        self.scores, self.ids = (np.zeros((NUM_TABLE_ROWS, width), kind) for kind in (np.float32, np.int64))
        results = {
            name: Result(values.ctypes.data, np.zeros(0, np.uint8), values)
            for name, values in (("top_log_probabilities", self.scores), ("top_ids", self.ids))
        }
        self.bound = BoundStep(StepShape(NUM_TABLE_ROWS, width, ()), None, None, results)

    def call(self, beams: list[SharedBeam], script: list[Candidates]) -> list[int]:
        """The outcomes of a call that takes a step for each entry of the script."""
        left = iter(script)

        def decode() -> None:
            self.cuda.library.run_pending()
            self.scores[:], self.ids[:] = next(left)

        zeros = np.zeros(NUM_TABLE_ROWS, np.int32)
        step = StepInput(zeros, zeros, self.ids.shape[1], len(script), beams=beams)
        assert self.steps.enqueue(step, states_of(beams), self.bound, decode) == len(script)
        self.cuda.wait()
        return self.steps.apply(beams, len(script), None)

    def cache(self) -> Any:
        return read_cuda(self.pool, SHAPE)


def copy_columns(cache: Any, copies: list[tuple[int, ...]]) -> None:
    before = cache.copy()
    for source, target, _, end in copies:
        cache[:, target, :, :end] = before[:, source, :, :end]


@pytest.mark.seconds
@pytest.mark.parametrize("beam_size", [2, 3, 4, 5, 8, 16])
def test_calls_equal_the_steps_of_the_search(
    library: Any, monkeypatch: pytest.MonkeyPatch, beam_size: int
) -> None:
    """Sums, subwords, ended hypotheses, rows and the copies of cache columns, over calls of random lengths."""
    seen: set[int] = set()
    cuda = host_cuda(HostCuda(is_late=True))
    kernels = host_kernels(cuda, library, monkeypatch, num_threads=3 if beam_size == 4 else 1)
    width = beam_size + 3
    decoder = ScriptedDecoder(cuda, kernels, width)
    for seed in range(12 if beam_size == 4 else 60):
        rng = random.Random(1000 * beam_size + seed)
        expected = SearchWithRows(random_options(rng, beam_size))
        if seed % 2:
            expected.step(without_first_end(random_candidates(rng, width)))
        if expected.search.is_done or not can_offload(expected.sequence):
            continue
        offloaded = deepcopy(expected)
        if seed % 2:
            offload(offloaded.sequence)
        else:
            offloaded.offload()
        while offloaded.sequence.beam is not None:
            script = [random_candidates(rng, width) for _ in range(rng.randint(1, MAX_STEPS))]
            seen.add(take_both(expected, offloaded, decoder, script))
        assert offloaded.search.hypotheses() == expected.search.hypotheses()
        assert offloaded.search.is_done == expected.search.is_done
        if not expected.search.is_done:
            assert offloaded.search.prefixes() == expected.search.prefixes()
            assert offloaded.search.totals == expected.search.totals
            assert offloaded.sequence.rows == expected.sequence.rows
    assert seen == set(BeamOutcome)


def take_both(
    expected: SearchWithRows, offloaded: SearchWithRows, decoder: ScriptedDecoder, script: list[Candidates]
) -> int:
    """Take a call's steps with a search, and with a beam on the GPU. Returns the beam's outcome.

    A beam that does not continue is reclaimed. If the GPU left a step undecided, the beam then takes this step on the
    host.
    """
    beam = offloaded.sequence.beam
    assert beam is not None
    cache, length = decoder.cache().copy(), beam.length
    (outcome,) = decoder.call([beam], script)
    num_taken = beam.length - length
    offloaded.sequence.length += num_taken
    for candidates in script[:num_taken]:
        copy_columns(
            cache, expected.step(without_first_end(candidates, is_first=not expected.sequence.length))
        )
        assert not expected.search.is_done
    np.testing.assert_array_equal(decoder.cache(), cache)
    if outcome == BeamOutcome.CONTINUES:
        assert num_taken == len(script)
        assert beam.rows == expected.sequence.rows
        return outcome
    last = without_first_end(script[num_taken], is_first=not expected.sequence.length)
    reclaim(offloaded.sequence, offloaded.allocator, is_done=outcome == BeamOutcome.DONE)
    copies = expected.step(last)
    if outcome == BeamOutcome.UNDECIDED:
        assert offloaded.step(last) == copies
    else:
        assert expected.search.is_done
    return outcome


def without_first_end(candidates: Candidates, *, is_first: bool = True) -> Candidates:
    """The candidates with the end token last and impossible, as a first step has them. Unchanged if not is_first."""
    if not is_first:
        return candidates
    scores, ids = candidates[0].copy(), candidates[1]
    order = (ids == EOS).argsort(axis=1, kind="stable")
    scores[ids == EOS] = -np.inf
    return np.take_along_axis(scores, order, 1), np.take_along_axis(ids, order, 1)


def test_several_beams_share_a_call(library: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Beams of other sizes, one of which is undecided, change nothing about a beam."""
    cuda = host_cuda(HostCuda(is_late=True))
    decoder = ScriptedDecoder(cuda, host_kernels(cuda, library, monkeypatch), 8)
    rng = random.Random(5)
    script = [random_candidates(rng, 8) for _ in range(4)]
    states = []
    for together in (False, True):
        beams = [
            SharedBeam(
                start_and_end=(BOS, EOS),
                rows=rows,
                history=([], [], []),
                max_length=length,
                num_to_complete=9,
            )
            for rows, length in (([1, 4, 2], 8), ([3, 0], 1), ([9, 6, 7, 8, 5], 8))
        ]
        outcomes = (
            [decoder.call([beam], script)[0] for beam in beams]
            if not together
            else decoder.call(beams, script)
        )
        states.append((outcomes, [(beam.history(), beam.rows, beam.ended()) for beam in beams]))
    assert states[0] == states[1]
    assert states[0][0][1] == BeamOutcome.UNDECIDED
    assert [len(state[0][0]) for state in states[0][1]][1] == 2
    assert any(ended for _, _, ended in states[0][1])


@pytest.mark.parametrize(("place", "value"), [((2, 0), np.inf), ((2, 0), -np.inf), ((1, 3), np.nan)])
def test_a_step_with_invalid_scores_is_left_to_the_search(
    library: Any, monkeypatch: pytest.MonkeyPatch, place: tuple[int, int], value: float
) -> None:
    """The kernel leaves a step to the search if a row's best score is not finite, or another score is NaN."""
    cuda = host_cuda(HostCuda(is_late=True))
    decoder = ScriptedDecoder(cuda, host_kernels(cuda, library, monkeypatch), 4)
    beam = SharedBeam(
        start_and_end=(BOS, EOS), rows=[0, 2, 1], history=([5, 6, 7], [0, 0, 0], [-1.0, -2.0, -3.0]),
        max_length=9, num_to_complete=3,
    )  # fmt: skip
    before = beam.history()
    scores, ids = random_candidates(random.Random(1), 4)
    scores[place] = value
    assert decoder.call([beam], [(scores, ids), random_candidates(random.Random(2), 4)]) == [
        BeamOutcome.UNDECIDED
    ]
    assert (beam.history(), beam.rows, beam.ended()) == (before, [0, 2, 1], [])


@pytest.fixture(scope="module", params=KINDS)
def both(request: pytest.FixtureRequest, library: Any, tmp_path_factory: pytest.TempPathFactory) -> Both:
    """A CPU runner, a GPU runner, and the decoder session of the GPU runner."""
    return load_ending(request.param, library, tmp_path_factory.mktemp("bundle"), num_rows=24)


@pytest.mark.parametrize("kinds", [BEAMS, MIXED], ids=["beams", "mixed"])
def test_the_engine_gives_the_answers_of_the_search(both: Both, kinds: list[DecodingOptions]) -> None:
    """Sentences arrive while others run. When some end, the rows of the others are compacted."""
    answers, num_steps = [], []
    for runner in both[:2]:
        rng = random.Random(1)
        driver = CoreDriver(runner)
        sequences = []
        for source, options in zip(random_sources(11, 20), cycle(kinds), strict=False):
            if options.alignment and not runner.limits.has_alignment:
                options = replace(options, alignment=False)
            sequences.append(driver.submit(source.tolist(), options))
            if rng.random() < 0.5:
                driver.step()
        driver.run()
        answers.append([hypotheses_of(sequence) for sequence in sequences])
        num_steps.append(max(step.num_steps for report in driver.reports for step in report.steps))
    assert answers[0] == answers[1]
    assert num_steps[0] == 1
    assert kinds is MIXED or num_steps[1] > 2
    assert len({len(one.ids) for several in answers[0] for one in several}) > 2


def test_a_set_wake_flag_ends_a_call_of_beams(both: Both) -> None:
    wake_flag = WakeFlag()
    wake_flag.set()
    runner = both[1]
    for min_steps in (1, 3):
        runner.encode(random_sources(3, 1) * 4, [0, 1, 2, 3])
        beam = SharedBeam(
            start_and_end=(BOS if runner.limits.prefill_id is not None else runner.limits.bos_id, EOS_ID),
            rows=[0, 1, 2, 3], history=([], [], []), max_length=20, num_to_complete=99,
        )  # fmt: skip
        zeros = np.zeros(4, np.int32)
        stop = StopCondition(wake_flag=wake_flag, min_steps=min_steps)
        output = runner.decode(StepInput(zeros, zeros, 5, 9, beams=[beam], stop=stop))
        assert (output.num_steps, beam.length) == (min_steps, min_steps)
        assert output.ids.shape == (4, 5)
