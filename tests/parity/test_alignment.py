"""The decoder graph's alignment equals PyTorch's attention in the layer and heads that the manifest names."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from app.bundle import Alignment, Bundle
from app.runtime.interface import Floats, StepInput
from app.runtime.kernels import Kernels
from app.runtime.ort_runner import LoadedRunner, load_runner
from export.bundle_writer import make_manifest, write_variant
from export.parity import ParityPair, random_pairs
from export.weights import default_alignment, weights_of
from model.attention_maps import attention_weights
from model.config import BOS_ID, preset
from model.transformer import Transformer
from tests.export.tiny import VOCAB_SIZE, bundle_request, random_model
from tests.native_kernels import NEEDS_NATIVE

MAX_LENGTH = 24


def aligned_runner(
    model: Transformer, alignment: Alignment | None, precision: Any, folder: Path, kernels: Kernels
) -> LoadedRunner:
    """A runner for graphs with this alignment; None: the default."""
    variant = write_variant(folder, weights_of(model, alignment), precision)
    request = replace(bundle_request(), alignment=alignment)
    manifest = make_manifest(model.config, request, {precision: variant}, folder)
    bundle = Bundle(folder, manifest, ())
    return load_runner(bundle, precision=precision, device="cpu", num_rows=8, num_threads=1, kernels=kernels)


def expected_weights(model: Transformer, pair: ParityPair, alignment: Alignment) -> Floats:
    """PyTorch's mean attention of the heads, in one forward pass: (len(target) + 1, source_length)."""
    _, _, cross = attention_weights(model, pair.source.tolist(), (BOS_ID, *pair.target.tolist()))
    mean: Floats = cross[alignment.layer, list(alignment.heads)].mean(axis=0)
    return mean


def stepwise_weights(runner: LoadedRunner, pairs: list[ParityPair]) -> list[Floats]:
    """The runner's attention, with one row per pair. After the end of its target, a row repeats its last position."""
    runner.encode([pair.source for pair in pairs], list(range(len(pairs))))
    inputs = [[BOS_ID, *pair.target.tolist()] for pair in pairs]
    steps = []
    for step in range(max(map(len, inputs))):
        positions = [min(step, len(ids) - 1) for ids in inputs]
        ids = [row[position] for row, position in zip(inputs, positions, strict=True)]
        step_input = StepInput(
            np.array(ids, np.int32), np.array(positions, np.int32), 1, wants_alignment=True
        )
        found = runner.decode(step_input).alignment
        assert found is not None
        steps.append(found.copy())
    return [np.stack(steps)[: len(ids), row] for row, ids in enumerate(inputs)]


@pytest.mark.parametrize(
    ("precision", "tolerance", "kernels"),
    [("fp32", 1e-5, "standard"), ("fp16", 1e-2, "standard"), ("int8", 0.1, "standard")]
    + [
        pytest.param(name, tolerance, "native", marks=NEEDS_NATIVE)
        for name, tolerance in (("fp32", 1e-5), ("int8", 0.1))
    ],
)
@pytest.mark.parametrize(
    "alignment",
    [Alignment(layer=1, heads=(0, 1)), Alignment(layer=2, heads=(1,)), Alignment(layer=0, heads=(0,))],
)
def test_attention_equals_the_models(
    alignment: Alignment, precision: Any, tolerance: float, kernels: Kernels, tmp_path: Path
) -> None:
    model = random_model(max_length=MAX_LENGTH, num_decoder_layers=3)
    runner = aligned_runner(model, alignment, precision, tmp_path, kernels)
    pairs = random_pairs(
        np.random.default_rng(8), num_pairs=6, vocab_size=VOCAB_SIZE, max_length=MAX_LENGTH, max_first_step=0
    )
    for pair, found in zip(pairs, stepwise_weights(runner, pairs), strict=True):
        expected = expected_weights(model, pair, alignment)
        np.testing.assert_allclose(found[:, : len(pair.source)], expected, rtol=0, atol=tolerance)
        assert not found[:, len(pair.source) :].any()
        np.testing.assert_allclose(found.sum(1), 1, rtol=0, atol=1e-5)


@pytest.mark.parametrize("precision", ["fp32", "fp16", "int8"])
def test_alignment_does_not_change_a_steps_candidates(precision: Any, tmp_path: Path) -> None:
    runner = aligned_runner(random_model(max_length=MAX_LENGTH), None, precision, tmp_path, "standard")
    runner.encode([np.array([9, 11, 2], np.int32), np.array([7, 2], np.int32)], [0, 1])
    step = StepInput(np.full(2, BOS_ID, np.int32), np.zeros(2, np.int32), 4)
    plain = runner.decode(step)
    log_probabilities, ids = plain.log_probabilities.copy(), plain.ids.copy()
    for following in (replace(step, wants_alignment=True), step):
        found = runner.decode(following)
        assert (found.alignment is not None) == following.wants_alignment
        np.testing.assert_array_equal(found.log_probabilities, log_probabilities)
        np.testing.assert_array_equal(found.ids, ids)


def test_the_default_alignment_is_of_the_second_to_last_or_the_only_layer() -> None:
    for num_layers, layer in ((1, 0), (2, 0), (3, 1), (6, 4)):
        config = preset("tiny", VOCAB_SIZE, num_decoder_layers=num_layers, num_heads=4)
        assert default_alignment(config) == Alignment(layer=layer, heads=(0, 1, 2, 3))
