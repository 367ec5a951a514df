"""The attention kernel for GPUs on a CPU: against numpy, and in the whole runner against ONNX Runtime's operators."""

from __future__ import annotations

import ctypes
import logging
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
from numpy.typing import NDArray

from app.runtime import native
from app.runtime.cuda_attention import attention_library
from app.runtime.cuda_runner import CudaRunner
from app.runtime.interface import Int32s, StepInput
from app.runtime.session import SessionOptions
from model.config import BOS_ID
from tests.export.tiny import random_model, random_sources
from tests.runtime.host_attention import operator_library
from tests.runtime.host_cuda import HostCuda, RecordingSession, host_cuda, load_both, one_variant
from tests.runtime.host_kernels import host_kernels

Halves = NDArray[np.float16]
CAPACITY = 21
NUM_ROWS = 3
# Positions of the cache that the runners fill. The time grows with the square.
MAX_LENGTH = 14


class Inputs(NamedTuple):
    """The kernel's inputs. Columns of the caches that must not be read hold NaN."""

    projected: Halves
    bias: Halves
    keys: Halves
    values: Halves
    last_columns: Int32s

    @property
    def appends(self) -> bool:
        """Whether the call also writes a column of keys and values."""
        _, num_heads, _, head_dim = self.keys.shape
        return bool(self.projected.shape[1] == 3 * num_heads * head_dim)


def random_inputs(seed: int, *, num_rows: int, num_heads: int, head_dim: int, appends: bool) -> Inputs:
    random_numbers = np.random.default_rng(seed)

    def halves(*shape: int) -> Halves:
        return random_numbers.normal(size=shape).astype(np.float16)

    width = num_heads * head_dim * (3 if appends else 1)
    keys, values = (halves(num_rows, num_heads, CAPACITY, head_dim) for _ in range(2))
    last_columns = random_numbers.integers(0, CAPACITY, num_rows, np.int32)
    last_columns[:2] = 0, CAPACITY - 1
    for row, last in enumerate(last_columns):
        keys[row, :, last + (not appends) :] = values[row, :, last + (not appends) :] = np.nan
    return Inputs(halves(num_rows, width), halves(width), keys, values, last_columns)


def expected(inputs: Inputs) -> tuple[NDArray[np.float64], Halves, Halves]:
    """Heads (rows, width), and both caches after the call."""
    num_rows, num_heads, _, head_dim = inputs.keys.shape
    keys, values = inputs.keys.copy(), inputs.values.copy()
    biased = inputs.projected.astype(np.float32) + inputs.bias.astype(np.float32)
    queries, *added = np.split(biased.reshape(num_rows, -1, head_dim), 3 if inputs.appends else 1, axis=1)
    heads = np.zeros((num_rows, num_heads, head_dim))
    for row, last in enumerate(inputs.last_columns):
        if added:
            keys[row, :, last], values[row, :, last] = (part[row].astype(np.float16) for part in added)
        for head in range(num_heads):
            k, v = (cache[row, head, : last + 1].astype(np.float64) for cache in (keys, values))
            scores = k @ queries[row, head].astype(np.float64)
            weights = np.exp(scores - scores.max())
            heads[row, head] = weights / weights.sum() @ v
    return heads.reshape(num_rows, -1), keys, values


def run(
    library: Any, patch: pytest.MonkeyPatch, inputs: Inputs, *, num_threads: int
) -> tuple[Halves, Halves, Halves]:
    """The kernel's results, in the order of `expected`."""
    num_rows, num_heads, capacity, head_dim = inputs.keys.shape
    kernels = host_kernels(host_cuda(HostCuda()), library, patch, num_threads=num_threads)
    caches = inputs.keys.copy(), inputs.values.copy()
    heads = np.zeros((num_rows, num_heads * head_dim), np.float16)
    arrays = (inputs.projected, inputs.bias, *caches, inputs.last_columns, heads)
    pointers = [ctypes.c_void_p(array.ctypes.data) for array in arrays]
    numbers = [ctypes.c_int(number) for number in (head_dim, capacity, inputs.appends)]
    kernels.launch("attend_rows", (num_heads, num_rows, 1), 128, *pointers, *numbers).enqueue()
    return heads, *caches


@pytest.mark.seconds
@pytest.mark.parametrize("appends", [False, True])
@pytest.mark.parametrize(
    ("head_dim", "num_threads"), [(8, 3), (16, 2), (16, 8), (40, 16), (64, 8), (128, 32)]
)
def test_the_kernel_computes_attention_and_appends_to_the_cache(
    library: Any, monkeypatch: pytest.MonkeyPatch, head_dim: int, num_threads: int, appends: bool
) -> None:
    """Rows attend to 1 to 21 columns. Groups of threads divide a row's columns, and some groups get no column."""
    inputs = random_inputs(head_dim, num_rows=5, num_heads=2, head_dim=head_dim, appends=appends)
    heads, keys, values = run(library, monkeypatch, inputs, num_threads=num_threads)
    wanted_heads, wanted_keys, wanted_values = expected(inputs)
    np.testing.assert_allclose(heads, wanted_heads, atol=1e-3, rtol=1e-3)
    np.testing.assert_array_equal(keys, wanted_keys)
    np.testing.assert_array_equal(values, wanted_values)


def test_large_scores_do_not_overflow(library: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    inputs = random_inputs(1, num_rows=3, num_heads=1, head_dim=16, appends=False)
    inputs.projected[:] *= 60
    heads, *_ = run(library, monkeypatch, inputs, num_threads=4)
    np.testing.assert_allclose(heads, expected(inputs)[0], atol=1e-3, rtol=1e-3)


def test_a_row_has_the_same_bits_alone_as_among_others(library: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    inputs = random_inputs(2, num_rows=4, num_heads=2, head_dim=16, appends=True)
    together, *_ = run(library, monkeypatch, inputs, num_threads=8)
    for row in range(4):
        one = slice(row, row + 1)
        alone, *_ = run(
            library,
            monkeypatch,
            Inputs(
                inputs.projected[one],
                inputs.bias,
                inputs.keys[one],
                inputs.values[one],
                inputs.last_columns[one],
            ),
            num_threads=8,
        )
        np.testing.assert_array_equal(alone[0], together[row])


Runners = tuple[CudaRunner, CudaRunner]


@pytest.fixture(scope="module")
def operators(library: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A library with the operator. It is compiled once."""
    return operator_library(tmp_path_factory.mktemp("operator"), library, num_threads=4)


@pytest.fixture(scope="module")
def runners(operators: Path, tmp_path_factory: pytest.TempPathFactory) -> Runners:
    """Two GPU runners of one fp16 model over host memory: with ONNX Runtime's attention, and with the project's."""
    bundle = one_variant(random_model(max_length=MAX_LENGTH), "fp16", tmp_path_factory.mktemp("bundle"))
    variant = bundle.manifest.variants["fp16"]
    assert variant.gpu_decoder is not None
    _, usual, _ = load_both(bundle, num_rows=NUM_ROWS)
    _, own, decoder = load_both(bundle, num_rows=NUM_ROWS)
    options = SessionOptions("cpu", num_threads=1, operators=operators)
    session = RecordingSession(bundle.path, variant.gpu_decoder, options, cuda=decoder.cuda, num_repeats=2)
    own.use_decoder(session)
    return usual, own


@pytest.mark.seconds
@pytest.mark.parametrize("num_rows", [1, NUM_ROWS])
def test_the_runner_gives_the_results_of_onnx_runtimes_attention(runners: Runners, num_rows: int) -> None:
    """The steps cover every position of the cache. Each step runs twice. A reorder comes after position 8."""
    sources = random_sources(num_rows, num_rows, most=MAX_LENGTH - 1)
    for runner in runners:
        runner.encode(sources, list(range(num_rows)))
    ids = np.full(num_rows, BOS_ID, np.int32)
    for position in range(runners[0].limits.max_target_length):
        positions = np.full(num_rows, position, np.int32)
        step = StepInput(ids, positions, 4, wants_distributions=position == 5, wants_alignment=position == 5)
        usual, own = (runner.decode(step) for runner in runners)
        np.testing.assert_allclose(own.log_probabilities, usual.log_probabilities, atol=0.02)
        if position == 5:
            assert own.alignment is not None
            assert usual.alignment is not None
            assert own.distributions is not None
            assert usual.distributions is not None
            np.testing.assert_allclose(own.alignment, usual.alignment, atol=0.005)
            np.testing.assert_allclose(own.distributions, usual.distributions, atol=0.03)
        ids = usual.ids[:, 0].astype(np.int32)
        if position == 8 and num_rows > 1:
            lengths = np.full(1, position + 1, np.int32)
            for runner in runners:
                runner.reorder(np.zeros(1, np.int32), np.ones(1, np.int32), lengths, 0 * lengths)
            ids[1] = ids[0]


def test_without_a_graph_or_a_library_the_log_says_why(
    library: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    variant = one_variant(random_model(max_length=24), "fp16", tmp_path).manifest.variants["fp16"]
    kernels = host_kernels(host_cuda(HostCuda()), library, monkeypatch)
    with caplog.at_level(logging.INFO):
        assert attention_library(replace(variant, gpu_decoder=None), kernels) is None
        assert (
            "is not used: the bundle has no graph for it, because the model's heads are wider than 128"
            in caplog.text
        )
        monkeypatch.setattr(native, "library_path", lambda: None)
        assert attention_library(variant, kernels) is None
        assert "is not used: the native operators are not built" in caplog.text
    assert attention_library(variant, None) is None


@pytest.mark.seconds
def test_caches_that_are_not_written_in_place_are_an_error(operators: Path, tmp_path: Path) -> None:
    """The outputs of the caches are not bound, so ONNX Runtime gives them memory of their own."""
    bundle = one_variant(random_model(max_length=24), "fp16", tmp_path)
    variant = bundle.manifest.variants["fp16"]
    assert variant.gpu_decoder is not None
    cuda = host_cuda(HostCuda())
    session = RecordingSession(
        bundle.path, variant.gpu_decoder, SessionOptions("cpu", num_threads=1, operators=operators), cuda=cuda
    )
    feeds = {
        spec.name: np.zeros([axis if isinstance(axis, int) else 2 for axis in spec.axes], spec.dtype)
        for spec in variant.gpu_decoder.inputs
    }
    feeds["num_candidates"] += 1
    with pytest.raises(Exception, match="output present_keys is not bound to the memory of input keys"):
        session._session.run(None, feeds)
