"""In fp16, one call encodes sentences of several lengths, and padding changes no subword."""

from __future__ import annotations

import numpy as np
import onnxruntime
import pytest

from app.bundle import Bundle
from app.runtime.cuda_runner import CudaRunner
from app.runtime.interface import Int32s, StepInput
from model.config import BOS_ID
from tests.export.tiny import VOCAB_SIZE, random_model, random_sources
from tests.runtime.host_cuda import RecordingSession, load_both, one_variant

NUM_ROWS, NUM_SENTENCES, NUM_STEPS = 100, 1000, 5
MAX_LENGTH = 24


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Bundle:
    return one_variant(random_model(max_length=MAX_LENGTH), "fp16", tmp_path_factory.mktemp("fp16"))


def greedy_ids(runner: CudaRunner, num_rows: int) -> Int32s:
    """The best subwords of each row's first steps: (steps, rows)."""
    found = [np.full(num_rows, BOS_ID, np.int32)]
    for step in range(NUM_STEPS):
        best = runner.decode(StepInput(found[-1], np.full(num_rows, step, np.int32), 1))
        found.append(best.ids[:, 0].astype(np.int32))
    return np.stack(found[1:])


@pytest.mark.seconds
def test_a_sentence_has_the_same_ids_alone_and_with_others(bundle: Bundle) -> None:
    """It is encoded alone, and with 99 others in at most two calls. It is decoded in the same row both times."""
    _, runner, _ = load_both(bundle, num_rows=NUM_ROWS)
    encoder = runner._encoder
    assert isinstance(encoder, RecordingSession)
    sources = random_sources(1, NUM_SENTENCES, least=0, most=MAX_LENGTH - 1)
    rows = list(range(NUM_ROWS))
    for start in range(0, NUM_SENTENCES, NUM_ROWS):
        chosen = sources[start : start + NUM_ROWS]
        for row, source in enumerate(chosen):
            runner.encode([source], [row])
        alone = greedy_ids(runner, NUM_ROWS)
        num_calls = len(encoder.runs)
        runner.encode(chosen, rows)
        assert len(encoder.runs) <= num_calls + 2
        np.testing.assert_array_equal(greedy_ids(runner, NUM_ROWS), alone)


def test_the_ids_of_padding_change_nothing(bundle: Bundle) -> None:
    """The keys and values of a sentence are equal, bit for bit."""
    session = onnxruntime.InferenceSession(bundle.path / bundle.manifest.variants["fp16"].encoder.file)
    random_numbers = np.random.default_rng(3)
    lengths = np.array([9, 1, 8, 4])
    positions = np.arange(9, dtype=np.int32)
    first, second = (random_numbers.integers(0, VOCAB_SIZE, (4, 9)).astype(np.int32) for _ in range(2))
    for sentence, length in enumerate(lengths):
        second[sentence, :length] = first[sentence, :length]
    assert (first != second).any()
    caches = [
        session.run(None, {"ids": ids, "positions": positions, "lengths": lengths})[0]
        for ids in (first, second)
    ]
    for sentence, length in enumerate(lengths):
        ours, theirs = (cache[:, sentence, :, :length] for cache in caches)
        assert np.isfinite(ours).all()
        np.testing.assert_array_equal(ours, theirs)
