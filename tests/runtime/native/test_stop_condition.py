"""Stop conditions end a call of several steps early. All rows take the same steps, and no result changes."""

from __future__ import annotations

import os
import threading
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from app.runtime import native
from app.runtime.beams import BeamOutcome, SharedBeam
from app.runtime.interface import StepInput, StepOutput
from app.runtime.native_runner import NativeRunner
from app.runtime.stop_condition import StopCondition, WakeFlag
from model.config import BOS_ID, EOS_ID
from tests.runtime.native.test_whole import (
    MAX_LENGTH,
    NUM_ROWS,
    NUM_STEPS,
    first_step,
    load_new,
    single_steps,
    sources,
)

# Few rows, whose products the threads share, and more rows than a thread takes at once without tile registers.
FEW_ROWS, MANY_ROWS = 7, 100
# The minimum number of calls in which a test sets the flag, at 50 different times in turn. A sanitizer's build and an
# emulated processor are slow, so they make fewer calls.
MIN_CALLS = 50 if {"NATIVE_LIBRARY", "EMULATED_PYTHON"} & set(os.environ) else 100
# Rows that one thread decodes as a single part, both with tile registers (12 to 96 rows) and without them (16 to 36).
ROWS_PER_THREAD = 32


def runner_with_sources(folder: Path, *, num_threads: int) -> NativeRunner:
    runner = load_new(folder, "int8", num_threads=num_threads, norm="pre")
    runner.encode(sources(), range(NUM_ROWS))
    return runner


def longest_call(num_rows: int, stop: StopCondition) -> StepInput:
    return replace(first_step(num_rows, NUM_STEPS), stop=stop)


def flag_that_is_set() -> WakeFlag:
    wake_flag = WakeFlag()
    wake_flag.set()
    return wake_flag


def assert_begins_as(output: StepOutput, runner: NativeRunner, num_rows: int) -> None:
    """Check that an output's steps equal the first steps of a search by single steps."""
    found = output.ids.copy(), output.log_probabilities.copy()
    tokens, scores = single_steps(runner, num_rows)
    np.testing.assert_array_equal(found[0], tokens[: output.num_steps])
    np.testing.assert_array_equal(found[1], scores[: output.num_steps])


@pytest.mark.parametrize("num_rows", [FEW_ROWS, MANY_ROWS])
@pytest.mark.parametrize("num_threads", [1, 2, 3])
def test_a_set_wake_flag_ends_a_call_after_min_steps(num_threads: int, num_rows: int, tmp_path: Path) -> None:
    runner = runner_with_sources(tmp_path, num_threads=num_threads)
    for min_steps, expected_steps in [(0, 1), (1, 1), (3, 3), (NUM_STEPS + 1, NUM_STEPS)]:
        output = runner.decode(
            longest_call(num_rows, StopCondition(wake_flag=flag_that_is_set(), min_steps=min_steps))
        )
        assert output.num_steps == expected_steps == len(output.ids)
        assert_begins_as(output, runner, num_rows)
    assert runner.decode(longest_call(num_rows, StopCondition(wake_flag=WakeFlag()))).num_steps == NUM_STEPS


@pytest.mark.parametrize("num_rows", [FEW_ROWS, MANY_ROWS])
def test_the_wake_flag_may_be_set_at_any_time(num_rows: int, tmp_path: Path) -> None:
    """Another thread sets the flag while two threads decode their rows."""
    runner = runner_with_sources(tmp_path, num_threads=2)
    wake_flag = WakeFlag()
    step = replace(first_step(num_rows, MAX_LENGTH - 1), stop=StopCondition(wake_flag=wake_flag))
    began_at = time.perf_counter()
    output = runner.decode(step)
    took_s = time.perf_counter() - began_at
    tokens, scores = output.ids.copy(), output.log_probabilities.copy()
    step_counts: set[int] = set()
    for number in range(5000):
        wake_flag.clear()
        runner._top_ids.fill(-1)  # remove the last call's results
        timer = threading.Timer(took_s * (number % 50) / 50, wake_flag.set)
        timer.start()
        output = runner.decode(step)
        np.testing.assert_array_equal(output.ids, tokens[: output.num_steps])
        np.testing.assert_array_equal(output.log_probabilities, scores[: output.num_steps])
        timer.join()
        step_counts.add(output.num_steps)
        if number > MIN_CALLS and len(step_counts) > 3:
            break
    assert len(step_counts) > 3


class EndingSentences:
    """Encodes sentences of which at most the last one ends.

    last_steps: the steps in which the last sentence can end, in ascending order.
    """

    def __init__(self, runner: NativeRunner) -> None:
        self._runner = runner
        tokens, _ = single_steps(runner, NUM_ROWS)
        has_ended = (tokens == EOS_ID).any(axis=0)
        self._endless = np.flatnonzero(~has_ended).tolist()
        last_steps = (tokens == EOS_ID).argmax(axis=0).tolist()
        ending: list[int] = np.flatnonzero(has_ended).tolist()
        self._by_last_step = {last_steps[row]: row for row in ending}
        self.last_steps = sorted(self._by_last_step)
        assert len(self.last_steps) > 2

    def encode(self, num_rows: int, last_step: int | None = None) -> None:
        """Encode `num_rows` sentences. last_step: the step in which the last row ends; None if no row ends."""
        rows: list[int] = [self._endless[row % len(self._endless)] for row in range(num_rows)]
        if last_step is not None:
            rows[-1] = self._by_last_step[last_step]
        self._runner.encode([sources()[row] for row in rows], range(num_rows))


@pytest.mark.parametrize("steps_after_end", [0, 1, 3])
@pytest.mark.parametrize("num_threads", [1, 2])
def test_a_call_takes_steps_after_end_more_steps_when_a_row_has_ended(
    num_threads: int, steps_after_end: int, tmp_path: Path
) -> None:
    runner = runner_with_sources(tmp_path, num_threads=num_threads)
    sentences = EndingSentences(runner)
    for last_step in sentences.last_steps:
        sentences.encode(FEW_ROWS, last_step)
        output = runner.decode(longest_call(FEW_ROWS, StopCondition(steps_after_end)))
        assert output.num_steps == min(NUM_STEPS, last_step + 1 + steps_after_end)
        assert_begins_as(output, runner, FEW_ROWS)


@pytest.mark.parametrize("num_threads", [2, 3])
def test_rows_of_different_threads_take_equally_many_steps(num_threads: int, tmp_path: Path) -> None:
    """A row that ends in one thread ends the other thread's steps too, except steps already begun."""
    runner = runner_with_sources(tmp_path, num_threads=num_threads)
    sentences = EndingSentences(runner)
    last_step = sentences.last_steps[1]
    num_rows = ROWS_PER_THREAD * num_threads
    sentences.encode(num_rows, last_step)
    tokens, scores = single_steps(runner, num_rows)
    for _ in range(100):
        runner._top_ids.fill(-1)  # remove the last call's results
        output = runner.decode(longest_call(num_rows, StopCondition(0)))
        assert last_step < output.num_steps <= NUM_STEPS
        np.testing.assert_array_equal(output.ids, tokens[: output.num_steps])
        np.testing.assert_array_equal(output.log_probabilities, scores[: output.num_steps])


def test_rows_that_one_thread_decodes_in_parts_take_1_plus_steps_after_end_steps(tmp_path: Path) -> None:
    """No row ends here, but the thread takes all steps of one part before it begins the next part.

    So it does not know yet when a row of a later part ends. It takes only the steps that may follow an end in step 0.
    """
    runner = runner_with_sources(tmp_path, num_threads=1)
    EndingSentences(runner).encode(MANY_ROWS)
    native.allow_matrix_tiles(False)
    try:
        stop = StopCondition(2, WakeFlag())
        assert runner.decode(longest_call(FEW_ROWS, stop)).num_steps == NUM_STEPS
        output = runner.decode(longest_call(MANY_ROWS, stop))
        assert output.num_steps == 3
        assert_begins_as(output, runner, MANY_ROWS)
    finally:
        native.allow_matrix_tiles(True)


def test_a_stop_condition_applies_to_one_call(tmp_path: Path) -> None:
    runner = runner_with_sources(tmp_path, num_threads=1)
    assert runner.decode(longest_call(FEW_ROWS, StopCondition(wake_flag=flag_that_is_set()))).num_steps == 1
    assert runner.decode(first_step(FEW_ROWS, NUM_STEPS)).num_steps == NUM_STEPS


def beams_of(num_beams: int, num_to_complete: list[int]) -> list[SharedBeam]:
    """Beams of 4 rows before their first step."""
    return [
        SharedBeam(
            start_and_end=(BOS_ID, EOS_ID),
            rows=[4 * number + row for row in range(4)],
            history=([], [], []),
            max_length=20,
            num_to_complete=num_to_complete[number],
        )
        for number in range(num_beams)
    ]


def decode_beams(runner: NativeRunner, beams: list[SharedBeam], stop: StopCondition) -> StepOutput:
    """Encode a source for each beam, and decode up to 16 steps."""
    num_rows = sum(beam.beam_size for beam in beams)
    first_rows = np.arange(num_rows, dtype=np.int32) // 4 * 4
    targets = np.arange(num_rows, dtype=np.int32)
    runner.encode(sources(num_rows)[::4], targets[::4].tolist())
    is_copy = targets != first_rows
    zeros = np.zeros(num_rows, np.int32)
    runner.copy_rows(first_rows[is_copy], targets[is_copy], zeros[is_copy])
    return runner.decode(StepInput(np.full(num_rows, -1, np.int32), zeros, 5, 16, beams=beams, stop=stop))


def test_a_set_wake_flag_ends_a_call_of_beams(tmp_path: Path) -> None:
    runner = runner_with_sources(tmp_path, num_threads=2)
    for min_steps, expected_steps in [(0, 1), (4, 4)]:
        beams = beams_of(3, [9] * 3)
        output = decode_beams(runner, beams, StopCondition(wake_flag=flag_that_is_set(), min_steps=min_steps))
        assert output.num_steps == expected_steps
        assert [beam.length for beam in beams] == [expected_steps] * 3


def test_a_call_takes_steps_after_end_more_steps_when_a_beam_is_done(tmp_path: Path) -> None:
    runner = runner_with_sources(tmp_path, num_threads=2)
    steps_alone = {
        count: decode_beams(runner, beams_of(1, [count]), StopCondition()).num_steps for count in range(1, 9)
    }
    for count in (min(steps_alone), max(steps_alone)):
        for steps_after_end in (0, 2):
            beams = beams_of(2, [count, 99])
            output = decode_beams(runner, beams, StopCondition(steps_after_end))
            assert output.outcomes == [BeamOutcome.DONE, BeamOutcome.CONTINUES]
            assert output.num_steps == beams[1].length == steps_alone[count] + steps_after_end
    assert len(set(steps_alone.values())) > 1
