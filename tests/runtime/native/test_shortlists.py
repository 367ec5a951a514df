"""The candidates of rows with a shortlist equal those that NumPy computes, whatever the other rows are."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from app.errors import EngineFailure
from app.graphs import Precision
from app.runtime.bundle_limits import limits_of
from app.runtime.interface import Int32s, StepInput
from app.runtime.native_runner import NativeRunner
from app.runtime.ort_runner import RunnerConfig, load_variant
from app.shortlist_file import SHORTLIST, ShortlistTable, write_shortlists
from export.bundle_writer import make_manifest, write_variant
from export.quantize import quantize_rows
from export.weights import weights_of
from model.config import BOS_ID, EOS_ID
from model.transformer import Transformer
from tests.export.tiny import VOCAB_SIZE, bundle_request, random_model, random_sources
from tests.runtime.native.reference import quantized_rows

NUM_ROWS = 60
MAX_LENGTH = 24
NUM_ALWAYS = 70
# For each row in turn, the table of its shortlist; None: no shortlist.
TABLES = (0, None, 1, 0, None)


def table(seed: int) -> ShortlistTable:
    """A table of random lists. The first ids, and so the end token, are always listed."""
    rng = np.random.default_rng(seed)
    lists = [np.sort(rng.choice(VOCAB_SIZE, 9, replace=False)) for _ in range(VOCAB_SIZE)]
    offsets = np.arange(VOCAB_SIZE + 1, dtype=np.uint32) * 9
    always = np.arange(NUM_ALWAYS, dtype=np.uint32)
    return ShortlistTable(always, np.concatenate(lists).astype(np.uint32), offsets)


def load(folder: Path, precision: Precision, num_threads: int = 1, d_model: int = 64) -> NativeRunner:
    model = random_model(seed=3, max_length=MAX_LENGTH, d_model=d_model)
    return load_model(folder, model, precision, [table(1), table(2)], num_threads)


def load_model(
    folder: Path,
    model: Transformer,
    precision: Precision,
    tables: Sequence[ShortlistTable],
    num_threads: int,
) -> NativeRunner:
    variant = write_variant(folder, weights_of(model), precision)
    write_shortlists(folder / SHORTLIST, tables)
    limits = limits_of(make_manifest(model.config, bundle_request(), {precision: variant}, folder), NUM_ROWS)
    config = RunnerConfig(precision, variant, limits, has_shortlist=True)
    runner = load_variant(folder, config, device="cpu", kernels="native", num_threads=num_threads)
    assert isinstance(runner, NativeRunner)
    return runner


def sources(count: int = NUM_ROWS) -> list[Int32s]:
    return random_sources(5, count, most=MAX_LENGTH - 1)


def encode(runner: NativeRunner, texts: Sequence[Int32s], tables: Sequence[int | None]) -> None:
    """Encode the texts and set their shortlists."""
    runner.encode(texts, range(len(texts)))
    runner.restrict(range(len(texts)), texts, tables)


def tables_of(count: int) -> list[int | None]:
    return [TABLES[index % len(TABLES)] for index in range(count)]


def first_step(count: int, num_candidates: int = 6, **options: Any) -> StepInput:
    ids, positions = np.full(count, BOS_ID, np.int32), np.zeros(count, np.int32)
    return StepInput(ids, positions, num_candidates, **options)


@pytest.fixture(params=["int8", "fp32"])
def precision(request: pytest.FixtureRequest) -> Precision:
    found: Precision = request.param
    return found


def test_candidates_are_the_best_of_the_list_and_normalised_over_it(
    precision: Precision, tmp_path: Path
) -> None:
    runner, texts = load(tmp_path, precision), sources()
    # At position 1 the end token is a candidate. Rows differ by their sources.
    step = StepInput(np.full(NUM_ROWS, 9, np.int32), np.ones(NUM_ROWS, np.int32), 6, wants_distributions=True)
    encode(runner, texts, [None] * NUM_ROWS)
    runner.decode(first_step(NUM_ROWS))
    whole = runner.decode(step)
    assert whole.distributions is not None
    distributions = whole.distributions.astype(np.float64)
    encode(runner, texts, tables_of(NUM_ROWS))
    runner.decode(first_step(NUM_ROWS))
    output = runner.decode(step)
    assert output.distributions is not None
    tables = {number: table(number + 1) for number in (0, 1)}
    for row, number in enumerate(tables_of(NUM_ROWS)):
        listed = np.arange(VOCAB_SIZE) if number is None else tables[number].shortlist(texts[row])
        expected = distributions[row, listed] - np.log(np.exp(distributions[row, listed]).sum())
        order = np.lexsort((listed, -expected))[:6]
        np.testing.assert_allclose(output.log_probabilities[row], expected[order], atol=2e-5)
        assert set(output.ids[row].tolist()) <= set(listed.tolist())
        assert output.ids[row, 0] == listed[order[0]]
        if number is None:
            assert np.array_equal(output.distributions[row], whole.distributions[row])


# 96 inputs are one vector of 64, and 32 more.
@pytest.mark.parametrize("d_model", [64, 96])
@pytest.mark.parametrize("quantize", [quantize_rows, quantized_rows])
def test_in_int8_a_list_of_all_subwords_gives_the_bits_of_the_whole_vocabulary(
    quantize: object, d_model: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("export.native.quantize_rows", quantize)
    runner, texts = load(tmp_path, "int8", d_model=d_model), sources(3)
    runner.encode(texts, range(3))
    # Rows 3 to 8 belong to the sentence of row 0, so that one list has several rows.
    rows = np.arange(3, 9, dtype=np.int32)
    runner.copy_rows(np.zeros(6, np.int32), rows, np.zeros(6, np.int32))
    output = runner.decode(first_step(9))
    expected = output.ids.copy(), output.log_probabilities.copy()
    runner.restrict(range(3), texts, [0] * 3)
    assert runner._shortlists is not None
    runner._shortlists._lists.set(runner._slots[:3], [np.arange(VOCAB_SIZE, dtype=np.int32)] * 3)
    found = runner.decode(first_step(9))
    assert np.array_equal(found.ids, expected[0])
    assert np.array_equal(found.log_probabilities, expected[1])


@pytest.mark.seconds
@pytest.mark.threads
def test_two_lists_of_several_spans_give_the_same_candidates_in_every_call(
    precision: Precision, tmp_path: Path
) -> None:
    """A thread scans the logits of a list span by span, in a buffer that no other thread may write."""
    model = random_model(vocab_size=1200, max_length=MAX_LENGTH, d_model=256)
    list_of_1000 = ShortlistTable(
        np.arange(1000, dtype=np.uint32), np.zeros(0, np.uint32), np.zeros(1201, np.uint32)
    )
    runner = load_model(tmp_path, model, precision, [list_of_1000], num_threads=2)
    texts = sources(2)
    encode(runner, texts, [0, 0])
    outputs = set()
    for _ in range(1000):
        output = runner.decode(first_step(2))
        outputs.add((output.ids.tobytes(), output.log_probabilities.tobytes()))
    assert len(outputs) == 1


@pytest.mark.parametrize("num_threads", [1, 2])
def test_a_row_has_the_same_candidates_alone_and_with_others(
    num_threads: int, precision: Precision, tmp_path: Path
) -> None:
    runner, texts, tables = load(tmp_path, precision, num_threads), sources(), tables_of(NUM_ROWS)
    alone = []
    for text, number in zip(texts, tables, strict=True):
        encode(runner, [text], [number])
        output = runner.decode(first_step(1))
        alone.append((output.ids[0].tolist(), output.log_probabilities[0].tolist()))
    for count in (2, 7, NUM_ROWS):
        encode(runner, texts[:count], tables[:count])
        output = runner.decode(first_step(count))
        found = list(zip(output.ids.tolist(), output.log_probabilities.tolist(), strict=True))
        assert found == alone[:count]


def test_several_steps_equal_single_steps(precision: Precision, tmp_path: Path) -> None:
    runner, texts = load(tmp_path, precision), sources()
    encode(runner, texts, tables_of(NUM_ROWS))
    ids, positions = np.full(NUM_ROWS, BOS_ID, np.int32), np.zeros(NUM_ROWS, np.int32)
    tokens = []
    for _ in range(5):
        ids = runner.decode(StepInput(ids, positions, 1)).ids[:, 0].astype(np.int32)
        tokens.append(ids)
        positions = positions + 1
    output = runner.decode(first_step(NUM_ROWS, 1, num_steps=5))
    has_ended = np.cumsum(np.stack(tokens) == EOS_ID, axis=0) > 0
    assert np.array_equal(output.ids, np.where(has_ended, EOS_ID, np.stack(tokens))[: output.num_steps])


def test_a_slot_has_the_whole_vocabulary_again_for_the_next_source(
    precision: Precision, tmp_path: Path
) -> None:
    runner, texts = load(tmp_path, precision), sources(3)
    runner.encode(texts, range(3))
    expected = runner.decode(first_step(3)).log_probabilities.copy()
    encode(runner, texts, [0, 1, 0])
    assert not np.array_equal(runner.decode(first_step(3)).log_probabilities, expected)
    runner.restrict([1], texts[1:2], [None])
    assert np.array_equal(runner.decode(first_step(3)).log_probabilities[1], expected[1])
    runner.encode(texts, range(3))
    assert np.array_equal(runner.decode(first_step(3)).log_probabilities, expected)


def test_all_rows_of_a_beam_have_their_sources_list(precision: Precision, tmp_path: Path) -> None:
    runner, texts = load(tmp_path, precision), sources(2)
    encode(runner, texts, [0, None])
    expected = runner.decode(first_step(2)).ids.copy()
    runner.copy_rows(np.array([0, 1], np.int32), np.array([2, 3], np.int32), np.zeros(2, np.int32))
    assert np.array_equal(runner.decode(first_step(4)).ids, expected[[0, 1, 0, 1]])


def test_a_list_without_memory_fails_its_call_and_leaves_no_list(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    runner, texts = load(tmp_path, "int8"), sources(3)
    runner.encode(texts, range(3))
    expected = runner.decode(first_step(3)).log_probabilities.copy()
    lists = runner._shortlists
    assert lists is not None
    set_lists = lists._lists._set

    def set_and_fail(*arguments: object) -> int:
        set_lists(*arguments)  # a failure leaves undefined lists; here they are those of the call
        return 0

    with monkeypatch.context() as patched:
        patched.setattr(lists._lists, "_set", set_and_fail)
        with pytest.raises(EngineFailure, match="no memory for shortlists"):
            runner.restrict(range(3), texts, [0, 1, 0])
        with pytest.raises(EngineFailure, match="no memory for shortlists"):
            runner.encode(texts, range(3))
    runner.encode(texts, range(3))
    assert np.array_equal(runner.decode(first_step(3)).log_probabilities, expected)


def test_a_copy_without_memory_fails_its_call(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    runner = load(tmp_path, "int8")
    runner.encode(sources(1), [0])

    def fail(*_arguments: object) -> None:
        raise MemoryError("no memory for a copy of rows")

    monkeypatch.setattr("app.runtime.native.copy_rows", fail)
    source, target, length, zero = (np.array([value], np.int32) for value in (0, 1, 2, 0))
    with pytest.raises(EngineFailure, match="no memory for a copy"):
        runner.copy_rows(source, target, length)
    with pytest.raises(EngineFailure, match="no memory for a copy"):
        runner.reorder(source, target, length, zero)


@pytest.mark.parametrize(
    ("ids", "problem"), [(range(VOCAB_SIZE - 69, VOCAB_SIZE + 1), "shortlist"), (range(5), "fewer")]
)
def test_a_wrong_list_fails_the_call_and_the_next_one_works(ids: range, problem: str, tmp_path: Path) -> None:
    runner, texts = load(tmp_path, "int8"), sources(2)
    encode(runner, texts, [0, 0])
    lists = runner._shortlists
    assert lists is not None
    lists._lists.set(np.array([1]), [np.array(ids, np.int32)])
    with pytest.raises(EngineFailure, match=problem):
        runner.decode(first_step(2))
    encode(runner, texts, [0, 0])
    assert runner.decode(first_step(2)).ids.shape == (2, 6)
