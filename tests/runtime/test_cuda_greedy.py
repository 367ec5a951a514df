"""Greedy steps on a GPU, tested on a CPU: the kernel against its rules, and calls of many steps against single ones."""

from __future__ import annotations

import ctypes
import math
import random
from typing import Any, NamedTuple

import numpy as np
import pytest

from app.decoding.options import DecodingOptions
from app.runtime.cuda_pacing import MAX_AHEAD
from app.runtime.interface import Int32s, StepInput, StepOutput
from app.runtime.ort_runner import OrtRunner
from app.runtime.stop_condition import NO_EARLY_STOP, StopCondition, WakeFlag
from model.config import BOS_ID, EOS_ID
from tests.engine.core_driver import CoreDriver, hypotheses_of
from tests.export.tiny import random_sources
from tests.runtime.host_cuda import Both, HostCuda, host_cuda
from tests.runtime.host_kernels import KINDS, host_kernels, load_ending

NUM_ROWS = 12
# The `start_id` for which any subword at the first position is a start token.
ANY_ID = -1


class Rows(NamedTuple):
    """The arrays that `advance_greedy` reads and changes, each (rows,)."""

    ids: Int32s
    positions: Int32s
    has_ended: Int32s
    ended_at: Int32s


class Rules(NamedTuple):
    """The numbers of a call of `advance_greedy`, in their order."""

    first_position: int
    start_id: int
    end_id: int
    step: int


def expected_choice(
    rows: Rows, row: int, candidates: list[tuple[int, float]], rules: Rules
) -> tuple[int, float]:
    """The choice in one row, which is updated. candidates: id and score."""
    if rows.has_ended[row]:
        return rules.end_id, 0.0
    is_start = rules.start_id in {ANY_ID, rows.ids[row]}
    if is_start and rows.positions[row] == rules.first_position:
        candidates = [one for one in candidates if one[0] != rules.end_id]
    chosen, score = min(candidates, key=lambda one: (-one[1], one[0]), default=(rules.end_id, -math.inf))
    if chosen == rules.end_id or not math.isfinite(score):
        rows.has_ended[row], rows.ended_at[row] = 1, rules.step
    else:
        rows.ids[row], rows.positions[row] = chosen, rows.positions[row] + 1
    return chosen, score


@pytest.mark.parametrize("seed", range(20))
def test_the_kernel_follows_the_rules(library: Any, monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    """Random rows with ends, first steps, equal scores and scores that are no numbers."""
    random_numbers = np.random.default_rng(seed)
    num_rows, num_candidates = int(random_numbers.integers(1, 300)), int(random_numbers.choice([1, 2, 4]))
    kernels = host_kernels(host_cuda(HostCuda()), library, monkeypatch, num_threads=1 + seed % 3)
    rules = Rules(
        first_position=int(random_numbers.integers(2)),
        start_id=int(random_numbers.choice([ANY_ID, 3])),
        end_id=1,
        step=2,
    )
    rows = Rows(
        ids=random_numbers.integers(0, 6, num_rows, np.int32),
        positions=random_numbers.integers(rules.first_position, rules.first_position + 3, num_rows, np.int32),
        has_ended=random_numbers.integers(0, 2, num_rows, np.int32),
        ended_at=np.full(num_rows, -1, np.int32),
    )
    # The decoder's candidates are distinct. Their few scores are often equal.
    ids = random_numbers.permuted(np.tile(np.arange(6), (num_rows, 1)), axis=1)[:, :num_candidates].copy()
    scores = -np.sort(random_numbers.integers(0, 3, ids.shape).astype(np.float32), axis=1)
    scores[random_numbers.random(num_rows) < 0.1] = random_numbers.choice([-np.inf, np.nan])
    wanted = Rows(*(values.copy() for values in rows))
    candidates = [list(zip(*pair, strict=True)) for pair in zip(ids.tolist(), scores.tolist(), strict=True)]
    choices = [expected_choice(wanted, row, candidates[row], rules) for row in range(num_rows)]
    chosen = np.zeros((4, num_rows), [("id", np.int32), ("score", np.float32)])
    pointers = [ctypes.c_void_p(values.ctypes.data) for values in (ids, scores, *rows, chosen)]
    numbers = [ctypes.c_int(number) for number in (num_rows, num_candidates, *rules)]
    kernels.launch("advance_greedy", (3, 1, 1), 128, *pointers, *numbers).enqueue()
    assert chosen[2]["id"].tolist() == [chosen_id for chosen_id, _ in choices]
    np.testing.assert_array_equal(chosen[2]["score"], np.array([score for _, score in choices], np.float32))
    assert not chosen[[0, 1, 3]]["id"].any()
    for found, values in zip(rows, wanted, strict=True):
        np.testing.assert_array_equal(found, values)


@pytest.fixture(scope="module", params=KINDS)
def both(request: pytest.FixtureRequest, library: Any, tmp_path_factory: pytest.TempPathFactory) -> Both:
    """A CPU runner, a GPU runner, and the decoder session of the GPU runner."""
    return load_ending(request.param, library, tmp_path_factory.mktemp("bundle"), num_rows=NUM_ROWS)


def single_steps(runner: OrtRunner, step: StepInput) -> tuple[Any, Any]:
    """Scores and ids (num_steps, rows) of a call of several steps, by calls of one step each."""
    ids, positions = step.ids.copy(), step.positions.copy()
    has_ended = np.zeros(len(ids), bool)
    scores, chosen = [], []
    for _ in range(step.num_steps):
        output = runner.decode(StepInput(ids, positions, 1))
        chosen.append(np.where(has_ended, EOS_ID, output.ids[:, 0]))
        scores.append(np.where(has_ended, np.float32(0), output.log_probabilities[:, 0]))
        has_ended |= chosen[-1] == EOS_ID
        ids = np.where(has_ended, ids, chosen[-1]).astype(np.int32)
        positions = np.where(has_ended, positions, positions + 1).astype(np.int32)
    return np.array(scores), np.array(chosen)


def endless_source(both: Both) -> Int32s:
    """A source whose translation does not end in 20 steps."""
    for seed in range(20):
        step = begin(both, seed=seed, num_rows=NUM_ROWS, num_steps=20)
        _, ids = single_steps(both[0], step)
        endless = np.flatnonzero(~(ids == EOS_ID).any(axis=0))
        if len(endless):
            return random_sources(seed, NUM_ROWS)[int(endless[0])]
    raise AssertionError("every sentence ends")


def begin_endless(both: Both, *, num_steps: int, stop: StopCondition) -> StepInput:
    """As `begin`, with two rows that do not end."""
    source = endless_source(both)
    for runner in both[:2]:
        runner.encode([source, source], [0, 1])
    return StepInput(np.full(2, start_id(both), np.int32), np.zeros(2, np.int32), 1, num_steps, stop=stop)


def start_id(both: Both) -> int:
    return BOS_ID if both[0].limits.prefill_id is None else EOS_ID + 1


def begin(
    both: Both, *, seed: int, num_rows: int, num_steps: int, stop: StopCondition = NO_EARLY_STOP
) -> StepInput:
    """Encode random sources on both runners. Returns the first call for these sources."""
    for runner in both[:2]:
        runner.encode(random_sources(seed, num_rows), list(range(num_rows)))
    return StepInput(
        np.full(num_rows, start_id(both), np.int32), np.zeros(num_rows, np.int32), 1, num_steps, stop=stop
    )


def take(both: Both, step: StepInput) -> StepOutput:
    """The output of a call of the GPU runner, compared with single steps of the CPU runner."""
    found = both[1].decode(step)
    scores, ids = single_steps(both[0], step)
    np.testing.assert_array_equal(found.ids, ids[: found.num_steps])
    np.testing.assert_array_equal(found.log_probabilities, scores[: found.num_steps])
    return found


@pytest.mark.parametrize("num_rows", [1, 5, NUM_ROWS])
def test_a_call_of_many_steps_gives_the_results_of_single_steps(both: Both, num_rows: int) -> None:
    """Two calls in a row, from the first step to the last column."""
    step = begin(both, seed=num_rows, num_rows=num_rows, num_steps=11)
    found = take(both, step)
    assert found.num_steps == 11
    has_ended = (found.ids == EOS_ID).any(axis=0)
    ids = np.where(has_ended, step.ids, found.ids[-1]).astype(np.int32)
    take(both, StepInput(ids, np.full(num_rows, 11, np.int32), 1, 12))


def test_a_call_without_a_stop_condition_waits_once_and_copies_once(both: Both) -> None:
    step = begin(both, seed=1, num_rows=5, num_steps=9)
    cuda: HostCuda = both[1]._cuda.library
    both[1]._cuda.wait()
    first = len(both[2].runs)
    before = cuda.num_waits, cuda.num_event_waits, cuda.num_copies_out
    both[1].decode(step)
    after = cuda.num_waits, cuda.num_event_waits, cuda.num_copies_out
    assert [later - earlier for later, earlier in zip(after, before, strict=True)] == [1, 0, 1]
    assert len(both[2].runs) - first == 9


def ends_of(both: Both, step: StepInput) -> list[int]:
    """The step in which each row ends; rows that do not end are left out."""
    _, ids = single_steps(both[0], step)
    return sorted(int((column == EOS_ID).argmax()) for column in ids.T if (column == EOS_ID).any())


@pytest.mark.parametrize("steps_after_end", [0, 1, 3, 19])
@pytest.mark.parametrize("num_rows", [1, 2, 7])
def test_a_call_ends_some_steps_after_the_first_end_or_soon_after_the_last_end(
    both: Both, num_rows: int, steps_after_end: int
) -> None:
    """The host learns of an end MAX_AHEAD - 1 steps later, or at once if no steps may follow."""
    lengths = set()
    stop = StopCondition(steps_after_end, wake_flag=WakeFlag())
    for seed in range(4):
        step = begin(both, seed=seed, num_rows=num_rows, num_steps=20, stop=stop)
        ends = ends_of(both, step)
        limits = [20, *(end + 1 + steps_after_end for end in ends)]
        if len(ends) == num_rows:
            limits.append(ends[-1] + min(MAX_AHEAD, steps_after_end + 1))
        assert take(both, step).num_steps == min(limits)
        lengths.add(min(limits))
    assert min(lengths) < 20 or steps_after_end == 19


def test_a_set_wake_flag_ends_a_call_after_min_steps(both: Both) -> None:
    wake_flag = WakeFlag()
    wake_flag.set()
    for min_steps in (0, 1, 4):
        stop = StopCondition(wake_flag=wake_flag, min_steps=min_steps)
        step = begin_endless(both, num_steps=9, stop=stop)
        assert take(both, step).num_steps == max(1, min_steps)


def test_the_host_waits_for_a_step_only_after_it_has_enqueued_the_next(both: Both) -> None:
    step = begin_endless(both, num_steps=9, stop=StopCondition(wake_flag=WakeFlag()))
    cuda: HostCuda = both[1]._cuda.library
    both[1]._cuda.wait()
    before = cuda.num_waits, cuda.num_event_waits
    num_steps = both[1].decode(step).num_steps
    assert (cuda.num_waits - before[0], cuda.num_event_waits - before[1]) == (1, num_steps - MAX_AHEAD)


def test_without_kernels_a_call_takes_one_step(both: Both) -> None:
    assert both[0].limits.max_steps == 1
    assert both[1].limits.max_steps > 1


def test_the_engine_gives_the_answers_of_single_steps(both: Both) -> None:
    """Sentences of many lengths arrive and end, and rows are compacted, while calls of several steps run."""
    longest = min(runner.limits.max_target_length for runner in both[:2]) - 1
    answers, num_steps = [], []
    for runner in both[:2]:
        random_numbers = random.Random(1)
        driver = CoreDriver(runner)
        sequences = []
        for source in random_sources(11, 30):
            options = DecodingOptions(beam_size=1, max_target_length=random_numbers.randint(1, longest))
            sequences.append(driver.submit(source.tolist(), options))
            if random_numbers.random() < 0.5:
                driver.step()
        driver.run()
        answers.append([hypotheses_of(sequence) for sequence in sequences])
        num_steps.append(max(step.num_steps for report in driver.reports for step in report.steps))
    assert answers[0] == answers[1]
    assert num_steps[0] == 1
    assert num_steps[1] > 4
