"""The GPU runner on a CPU: buckets, padding, fixed addresses. Its results equal the CPU runner's bit for bit."""

from __future__ import annotations

import ctypes
import logging
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from app.errors import BundleError
from app.runtime import cuda_choice, cuda_memory, cuda_runner
from app.runtime.cuda_choice import SWITCHES
from app.runtime.cuda_runner import CudaRunner, bucket_of, buckets, load_cuda_runner
from app.runtime.interface import Int32s, StepInput
from app.runtime.session import Session, SessionOptions, _session_options
from model.config import BOS_ID, EOS_ID
from tests.export.tiny import VOCAB_SIZE, random_model, random_sources
from tests.runtime.host_cuda import STREAM, Both, host_cuda, load_both, one_variant

NUM_ROWS = 12


@pytest.fixture(scope="module", params=["int8", "fp32", "fp32 prefilled"])
def both(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Both:
    """Both runners. The GPU runner's decoder graph runs three times for each step, as during capture."""
    precision, *prefilled = request.param.split()
    folder = tmp_path_factory.mktemp(precision)
    bundle = one_variant(random_model(max_length=24), precision, folder, has_target_start=bool(prefilled))
    return load_both(bundle, num_rows=NUM_ROWS, num_repeats=3)


def same_step(both: Both, step: StepInput) -> Int32s:
    """Run a step on both runners, compare all results, and return the best candidates: (rows,)."""
    expected, found = (runner.decode(step) for runner in both[:2])
    np.testing.assert_array_equal(found.ids, expected.ids)
    np.testing.assert_array_equal(found.log_probabilities, expected.log_probabilities)
    for name in ("distributions", "alignment"):
        mine, theirs = getattr(found, name), getattr(expected, name)
        assert (mine is None) == (theirs is None)
        if mine is not None:
            np.testing.assert_array_equal(mine, theirs)
    return expected.ids[:, 0].astype(np.int32)


def test_buckets_are_powers_of_two_up_to_all_rows() -> None:
    assert buckets(12) == [1, 2, 4, 8, 12]
    assert buckets(8) == [1, 2, 4, 8]
    assert buckets(1) == [1]
    assert [bucket_of(n, 12) for n in range(1, 13)] == [1, 2, 4, 4, 8, 8, 8, 8, 12, 12, 12, 12]


def test_added_removed_and_moved_rows_give_the_cpu_results(both: Both) -> None:
    """Rows are added, removed, compacted and reordered, at every number of rows."""
    random_numbers = np.random.default_rng(3)
    sources = random_sources(4, 40, least=0)
    last, positions = np.zeros(0, np.int32), np.zeros(0, np.int32)
    row_counts = [int(number) for _ in range(4) for number in random_numbers.permutation(NUM_ROWS) + 1]
    for turn, (number, following) in enumerate(zip(row_counts, [*row_counts[1:], 1], strict=True)):
        rows = list(range(len(last), number))
        for runner in both[:2]:
            runner.encode([sources[(turn + row) % 40] for row in rows], rows)
        last = np.append(last, np.full(len(rows), BOS_ID)).astype(np.int32)
        positions = np.append(positions, np.zeros(len(rows))).astype(np.int32)
        last = same_step(both, StepInput(last, positions, int(random_numbers.integers(1, 6))))
        positions += 1
        stays = (positions < 20) & (random_numbers.permutation(number) < following)
        last, positions = compact(both, stays, last, positions)
        if len(last) > 1:
            reorder(both, last, positions, random_numbers)


def compact(
    both: Both, stays: np.ndarray[Any, Any], last: Int32s, positions: Int32s
) -> tuple[Int32s, Int32s]:
    """Move the last kept rows to the places of the first removed rows."""
    end = int(stays.sum())
    targets = np.flatnonzero(~stays[:end]).astype(np.int32)
    sources = (np.flatnonzero(stays[end:]) + end).astype(np.int32)
    if len(targets):
        for runner in both[:2]:
            runner.copy_rows(sources, targets, positions[sources])
    last[targets], positions[targets] = last[sources], positions[sources]
    return last[:end], positions[:end]


def reorder(both: Both, last: Int32s, positions: Int32s, random_numbers: np.random.Generator) -> None:
    """Copy the first columns of one row to another row, up to the length of the shorter row."""
    source, target = random_numbers.permutation(len(last))[:2].astype(np.int32)
    length = min(positions[source], positions[target])
    for runner in both[:2]:
        runner.reorder(*(np.array([number], np.int32) for number in (source, target, length, 0)))


def test_optional_outputs_equal_the_cpu_results(both: Both) -> None:
    sources = random_sources(5, 5, least=0)
    for runner in both[:2]:
        runner.encode(sources, list(range(5)))
    ids, positions = np.full(5, BOS_ID, np.int32), np.zeros(5, np.int32)
    for wants_alignment in {False, both[0].limits.has_alignment}:
        same_step(
            both,
            StepInput(ids, positions, 3, wants_distributions=True, wants_alignment=wants_alignment),
        )
    same_step(both, StepInput(ids, positions, 3))


def test_a_graph_has_one_shape_and_one_set_of_addresses(both: Both) -> None:
    """Every run of a graph id uses the addresses of the capture."""
    _, runner, decoder = both
    random_numbers = np.random.default_rng(7)
    runner.encode(random_sources(6, NUM_ROWS, least=0), list(range(NUM_ROWS)))
    first = len(decoder.runs)
    for turn in range(80):
        num_rows = int(random_numbers.integers(1, NUM_ROWS + 1))
        ids = random_numbers.integers(EOS_ID + 1, VOCAB_SIZE, num_rows).astype(np.int32)
        wants = turn % 10 == 9
        runner.decode(
            StepInput(
                ids,
                np.full(num_rows, 3, np.int32),
                int(random_numbers.integers(1, 9)),
                wants_distributions=wants,
            )
        )
    graphs: dict[str, dict[str, int]] = {}
    for graph, addresses in decoder.runs[first:]:
        if graph == "-1":  # EAGER: the step wants an optional output, so no graph is captured
            assert "log_probabilities" in addresses
        else:
            assert graphs.setdefault(graph, addresses) == addresses
            assert "log_probabilities" not in addresses
    assert 4 < len(graphs) <= len(buckets(NUM_ROWS)) * 4
    inputs = {name for addresses in graphs.values() for name in addresses if not name.startswith("top_")}
    for name in inputs:
        assert len({addresses[name] for addresses in graphs.values()}) == 1, name
    results = [
        addresses[name] for addresses in graphs.values() for name in ("top_ids", "top_log_probabilities")
    ]
    assert len(set(results)) == len(results)


def test_caches_are_updated_in_place(both: Both) -> None:
    _, runner, decoder = both
    runner.encode(random_sources(6, 1, least=0), [0])
    runner.decode(StepInput(np.array([BOS_ID], np.int32), np.zeros(1, np.int32), 1))
    addresses = decoder.runs[-1][1]
    caches = [name for name in addresses if name.startswith("present_")]
    assert caches
    for name in caches:
        assert addresses[name] == addresses[name.removeprefix("present_")]


def test_padding_does_not_change_the_rows_of_the_step(both: Both) -> None:
    """Rows 0..4 give the same results, whatever the padding rows contain."""
    _, runner, decoder = both
    sources = random_sources(8, 5, least=0)
    runner.encode(sources, list(range(5)))
    expected = follow(runner, 5)
    runner.encode(random_sources(9, NUM_ROWS, least=0), list(range(NUM_ROWS)))
    follow(runner, NUM_ROWS)
    runner.encode(sources, list(range(5)))
    np.testing.assert_array_equal(follow(runner, 5), expected)
    for name in ("ids", "positions", "last_source_positions"):
        values = (ctypes.c_int32 * 8).from_address(decoder.runs[-1][1][name])
        assert any(values[:5]) or name == "last_source_positions"
        assert not any(values[5:])


def follow(runner: CudaRunner, num_rows: int) -> np.ndarray[Any, Any]:
    """Scores of three steps with fixed subwords: (3, rows, 2)."""
    ids = np.arange(EOS_ID + 1, EOS_ID + 1 + num_rows, dtype=np.int32)
    return np.stack([
        runner.decode(StepInput(ids, np.full(num_rows, position, np.int32), 2)).log_probabilities.copy()
        for position in range(3)
    ])  # fmt: skip


def test_cpu_fallback_is_disabled() -> None:
    """With this option ONNX Runtime rejects a session with a node on the CPU."""
    found = _session_options(SessionOptions("cuda", num_threads=1))
    assert found.get_session_config_entry("session.disable_cpu_ep_fallback") == "1"


def test_both_graphs_run_on_the_runners_stream_and_the_decoder_is_captured(
    both: Both, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    provider_options: dict[str, dict[str, str]] = {}

    def load_on_cpu(folder: Path, spec: Any, options: SessionOptions) -> Session:
        assert options.device == "cuda"
        provider_options[spec.file] = dict(options.provider)
        return Session(folder, spec, SessionOptions("cpu", num_threads=1))

    monkeypatch.setattr(cuda_runner, "Cuda", host_cuda)
    monkeypatch.setattr(cuda_runner, "GpuSession", load_on_cpu)
    monkeypatch.setattr(cuda_choice, "BUDGET_S", 0.0)
    bundle = one_variant(random_model(max_length=24), "fp16", tmp_path)
    for has_graphs in (True, False):
        with caplog.at_level(logging.INFO):
            load_cuda_runner(
                bundle.path,
                bundle.manifest.variants["fp16"],
                limits=both[0].limits,
                has_graphs=has_graphs,
                switches=SWITCHES if has_graphs else (),
            )
        common = {"user_compute_stream": str(STREAM), "sdpa_kernel": "531"}
        assert provider_options["fp16/encoder.onnx"] == common
        assert provider_options["fp16/decoder.onnx"] == common | (
            {"enable_cuda_graph": "1"} if has_graphs else {}
        )
        assert (
            f"CUDA graphs {'on' if has_graphs else 'off'}, rows in buckets of 1, 2, 4, 8, 12;" in caplog.text
        )
        assert ("milliseconds of decoder steps" in caplog.text) == has_graphs
        caplog.clear()


def test_loading_without_cuda_is_a_bundle_error(
    both: Both, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cuda_memory, "LIBRARY", "libcudart.so.none")
    bundle = one_variant(random_model(max_length=8), "fp16", tmp_path)
    with pytest.raises(BundleError, match=r"it does not load on the GPU: libcudart\.so\.none"):
        load_cuda_runner(bundle.path, bundle.manifest.variants["fp16"], limits=both[0].limits)
