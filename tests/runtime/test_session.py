"""Loads and runs a bundle's graphs: the choice of device and variant, the runner's limits, and the errors."""

from __future__ import annotations

import os
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

from app.bundle import Bundle, Manifest
from app.errors import BundleError, EngineFailure, SettingsError
from app.runtime.device import choose_precision
from app.runtime.interface import StepInput
from app.runtime.kv_cache import HostPool
from app.runtime.ort_runner import MAX_BINDINGS, LoadedRunner, OrtRunner, load_runner
from app.runtime.session import (
    Session,
    SessionOptions,
    _missing_libraries,
    _session_options,
    choose_device,
)
from export.bundle_writer import make_manifest, write_variant
from export.weights import weights_of
from tests.export.tiny import VOCAB_SIZE, bundle_request, load_tiny_runner, random_model


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Bundle:
    folder = tmp_path_factory.mktemp("bundle")
    model = random_model(max_length=16)
    variants = {name: write_variant(folder, weights_of(model), name) for name in bundle_request().precisions}
    return Bundle(folder, make_manifest(model.config, bundle_request(), variants, folder), ())


def only(bundle: Bundle, *precisions: str) -> Bundle:
    variants = {name: variant for name, variant in bundle.manifest.variants.items() if name in precisions}
    return Bundle(bundle.path, bundle.manifest.model_copy(update={"variants": variants}), ())


def with_decoder(bundle: Bundle, **changes: Any) -> Bundle:
    """The bundle with a changed manifest entry for the decoder of its int8 variant."""
    fields = bundle.manifest.model_dump()
    fields["variants"]["int8"]["decoder"] |= changes
    return Bundle(bundle.path, Manifest.model_validate(fields), ())


def load(bundle: Bundle, precision: Any = "auto", device: Any = "cpu") -> LoadedRunner:
    return load_runner(
        bundle, precision=precision, device=device, num_rows=4, num_threads=1, kernels="standard"
    )


def test_sums_of_int8_products_are_exact_on_every_processor() -> None:
    """AVX2 without VNNI adds pairs of products in 16 bits, and 2 * 255 * 127 does not fit."""
    shapes = {"x": (TensorProto.UINT8, [3, 64]), "y": (TensorProto.INT32, [3, 32])}
    x, y = (helper.make_tensor_value_info(name, *shape) for name, shape in shapes.items())
    weights = numpy_helper.from_array(np.full((64, 32), 127, np.int8), "w")
    graph = helper.make_graph(
        [helper.make_node("MatMulInteger", ["x", "w"], ["y"])], "product", [x], [y], [weights]
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10)
    session = onnxruntime.InferenceSession(
        model.SerializeToString(),
        _session_options(SessionOptions("cpu", 1)),
        providers=["CPUExecutionProvider"],
    )
    (sums,) = session.run(None, {"x": np.full((3, 64), 255, np.uint8)})
    assert (sums == 64 * 255 * 127).all()


def test_auto_chooses_the_variant_for_the_device(bundle: Bundle) -> None:
    assert choose_precision(bundle, "cpu", "auto") == "int8"
    assert choose_precision(only(bundle, "fp32", "fp16"), "cpu", "auto") == "fp32"
    assert choose_precision(only(bundle, "fp16"), "cpu", "auto") == "fp16"
    assert choose_precision(bundle, "cuda", "auto") == "fp16"
    assert choose_precision(bundle, "cpu", "fp32") == "fp32"


def test_a_missing_variant_is_named_with_the_existing_ones(bundle: Bundle) -> None:
    with pytest.raises(BundleError, match=r"no fp16 variant for device cuda: the bundle has fp32, int8"):
        choose_precision(only(bundle, "int8", "fp32"), "cuda", "auto")


@pytest.mark.skipif(
    "CUDAExecutionProvider" in onnxruntime.get_available_providers(),
    reason="this onnxruntime has a CUDA provider",
)
def test_a_required_gpu_that_is_missing_is_an_error(bundle: Bundle) -> None:
    assert choose_device("auto") == "cpu"
    with pytest.raises(
        SettingsError, match="device cuda is required, and the installed onnxruntime has no CUDA"
    ):
        load(bundle, device="cuda")


def test_each_session_has_its_own_environment_if_two_are_made_at_once(
    bundle: Bundle, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Models with a memory budget are loaded on several threads at once."""
    name = "TESTED_VARIABLE"
    is_first_in, is_second_in = threading.Event(), threading.Event()
    found: list[str | None] = []

    def make(*_: object, **__: object) -> None:
        found.append(os.environ.get(name))
        if is_first_in.is_set():
            is_second_in.set()
        else:
            is_first_in.set()
            is_second_in.wait(0.3)
        raise ValueError("no session is made here")

    def load_with(options: SessionOptions) -> None:
        with pytest.raises(BundleError):
            Session(bundle.path, bundle.manifest.variants["int8"].encoder, options)

    monkeypatch.setattr(onnxruntime, "InferenceSession", make)
    with ThreadPoolExecutor() as pool:
        first = pool.submit(load_with, SessionOptions("cpu", 1, environment=((name, "1"),)))
        assert is_first_in.wait(10)
        pool.submit(load_with, SessionOptions("cpu", 1)).result()
        first.result()
    assert found == ["1", None]


def test_stdout_is_restored_if_two_threads_look_for_libraries(monkeypatch: pytest.MonkeyPatch) -> None:
    before = sys.stdout
    is_first_in, is_second_in, is_first_out = threading.Event(), threading.Event(), threading.Event()

    def preload() -> None:
        if is_first_in.is_set():
            is_second_in.set()
            is_first_out.wait(0.3)
        else:
            is_first_in.set()
            is_second_in.wait(0.3)

    monkeypatch.setattr(onnxruntime, "preload_dlls", preload)
    with ThreadPoolExecutor() as pool:
        first = pool.submit(_missing_libraries)
        assert is_first_in.wait(10)
        second = pool.submit(_missing_libraries)
        first.result()
        is_first_out.set()
        second.result()
    assert sys.stdout is before


def test_a_file_that_is_not_a_graph_is_an_error(bundle: Bundle, tmp_path: Path) -> None:
    (tmp_path / "int8").mkdir()
    (tmp_path / "int8" / "encoder.onnx").write_bytes(b"this is no graph")
    broken = Bundle(tmp_path, bundle.manifest, ())
    with pytest.raises(BundleError, match=r"int8/encoder\.onnx does not load"):
        load(broken)


def test_every_difference_from_the_manifest_is_listed(bundle: Bundle) -> None:
    inputs = [asdict(spec) for spec in bundle.manifest.variants["int8"].decoder.inputs]
    inputs[0]["name"] = "subwords"
    inputs[1]["dtype"] = "int64"
    inputs[4]["axes"] = ("rows", 2, 99, 32)
    with pytest.raises(BundleError) as caught:
        load(with_decoder(bundle, inputs=inputs))
    text = "\n".join(caught.value.problems)
    assert "unexpected input ids" in text
    assert "has no input subwords" in text
    assert "positions is tensor(int32), the manifest says int64" in text
    assert "self_key_0 has axes" in text
    assert len(caught.value.problems) == 4


def test_a_failed_forward_is_an_engine_failure_and_the_next_one_runs(bundle: Bundle) -> None:
    runner = load(bundle)
    runner.encode([np.array([5, 2], np.int32)], [0])
    step = StepInput(np.array([1], np.int32), np.array([0], np.int32), 2)
    expected = runner.decode(step).ids.copy()
    with pytest.raises(EngineFailure, match=r"the forward pass failed: .* idx=405 must be within"):
        runner.decode(replace(step, ids=np.array([VOCAB_SIZE + 5], np.int32)))
    with pytest.raises(EngineFailure, match="the forward pass failed"):
        runner.encode([np.array([VOCAB_SIZE + 5, 2], np.int32)], [0])
    np.testing.assert_array_equal(runner.decode(step).ids, expected)


def test_a_lack_of_memory_is_an_engine_failure_and_the_next_call_runs(
    bundle: Bundle, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise MemoryError

    runner = load(bundle)
    sources = [np.array([5, 2], np.int32)]
    with monkeypatch.context() as patch:
        patch.setattr(HostPool, "write", fail)
        with pytest.raises(EngineFailure, match="there is no memory"):
            runner.encode(sources, [0])
    runner.encode(sources, [0])
    step = StepInput(np.array([1], np.int32), np.array([0], np.int32), 2)
    with monkeypatch.context() as patch:
        patch.setattr(np, "zeros", fail)
        with pytest.raises(EngineFailure, match="there is no memory"):
            runner.decode(step)
    assert runner.decode(step).ids.shape == (1, 2)


def test_scores_that_are_not_numbers_are_returned(tmp_path: Path) -> None:
    """The engine fails the sentences of such rows (`app.engine.core`)."""
    model = random_model(max_length=16)
    # The embedding table is also the output table, so one logit of each row is NaN. The softmax sums over all logits,
    # so all probabilities of the row are NaN.
    model.embedding.weight.data[7] = float("nan")
    runner = load_tiny_runner(model, "fp32", tmp_path)
    runner.encode([np.array([5, 2], np.int32)] * 2, [0, 1])
    output = runner.decode(StepInput(np.array([1, 1], np.int32), np.zeros(2, np.int32), 2))
    assert not np.isfinite(output.log_probabilities).any()


def test_the_number_of_bindings_is_limited(bundle: Bundle) -> None:
    runner = load(bundle)
    assert isinstance(runner, OrtRunner)
    runner.encode([np.array([5, 2], np.int32)], [0])
    for num_candidates in range(1, MAX_BINDINGS + 5):
        runner.decode(StepInput(np.array([1], np.int32), np.array([0], np.int32), num_candidates))
    assert runner.num_bindings == MAX_BINDINGS


def test_limits_come_from_the_manifest_and_the_number_of_rows(bundle: Bundle) -> None:
    limits = load(bundle).limits
    assert (limits.num_rows, limits.vocab_size, limits.max_source_length) == (4, VOCAB_SIZE, 16)
    assert (limits.max_target_length, limits.bos_id, limits.eos_id) == (16, 1, 2)
