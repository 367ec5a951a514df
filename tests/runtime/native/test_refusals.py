"""An input out of range is an error. The message names the input and the limit, and nothing is written."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import onnx
import pytest
from numpy.typing import NDArray
from onnx import TensorProto, numpy_helper

from export.graph import Graph
from export.native import build_native_decoder, build_native_encoder
from export.weights import weights_of
from tests.export.tiny import random_model
from tests.runtime.native.graphs import Operator, make_session, random_floats
from tests.runtime.native.reference import Weights, random_table, random_weights
from tests.runtime.native.test_encoder import CrossCache
from tests.runtime.native.test_encoder import SelfAttention as EncoderAttention
from tests.runtime.native.test_feed_forward import Block
from tests.runtime.native.test_step_attention import CrossAttention, SelfAttention
from tests.runtime.native.test_vocabulary import Vocabulary, embed

Array = NDArray[Any]


def check_refused(operator: Operator, rows: dict[str, Array], match: str, **changed: Array) -> None:
    """Run with changed inputs. Check the error, and that the run writes to no input."""
    inputs = rows | changed
    before = {name: values.copy() for name, values in inputs.items()}
    with pytest.raises(RuntimeError, match=match):
        operator.run(inputs)
    assert all(np.array_equal(values, inputs[name]) for name, values in before.items())


@pytest.mark.parametrize("position", [-1, 20, 2**31 - 1, -(2**31)])
def test_positions_outside_the_cache(position: int) -> None:
    block = SelfAttention(64, 4)
    inputs = block.rows(3, 20)
    positions = np.array([0, position, 3], np.int32)
    check_refused(block.operator(), inputs, f"positions holds {position}, .* 0..19", positions=positions)


def test_more_rows_than_the_cache_has() -> None:
    block = SelfAttention(64, 4)
    inputs = block.rows(3, 20)
    few = {"keys": inputs["keys"][:2].copy(), "values": inputs["values"][:2].copy()}
    check_refused(block.operator(), inputs, "keys has 2 rows, fewer than the 3", **few)


def test_caches_of_other_shapes() -> None:
    block = SelfAttention(64, 4)
    inputs = block.rows(3, 20)
    short = inputs["values"][:, :19].copy()
    check_refused(block.operator(), inputs, "values has 19 along axis 1", values=short)
    check_refused(block.operator(), inputs, "keys has 2 axes, not 3", keys=inputs["keys"][0].copy())
    check_refused(block.operator(), inputs, "keys has 32 along axis 2", keys=inputs["keys"][:, :, :32].copy())


@pytest.mark.parametrize(
    ("name", "values", "match"),
    [
        ("slots", [0, 3, 1], r"slots holds 3, .* 0\.\.2"),
        ("slots", [0, -1, 1], r"slots holds -1, .* 0\.\.2"),
        ("lengths", [1, 0, 1], r"lengths holds 0, .* 1\.\.20"),
        ("lengths", [1, 21, 1], r"lengths holds 21, .* 1\.\.20"),
        ("lengths", [1, 1], "lengths has 2 along axis 0, not 3"),
    ],
)
def test_slots_and_lengths_outside_the_cache(name: str, values: list[int], match: str) -> None:
    block = CrossAttention(64, 4)
    check_refused(block.operator(), block.rows(3, 20), match, **{name: np.array(values, np.int32)})


@pytest.mark.parametrize(
    ("changed", "match"),
    [
        ({"slots": [0, 5]}, r"slots holds 5, .* 0\.\.4"),
        ({"slots": [-1, 0]}, r"slots holds -1, .* 0\.\.4"),
        ({"slots": [0]}, "slots has 1 along axis 0, not 2"),
        ({"lengths": [1, 1]}, "lengths sum up to 2, not to the 24"),
        ({"lengths": [24, 0]}, r"lengths holds 0, .* 1\.\.24"),
        ({"lengths": [21, 3]}, r"lengths holds 21, .* 1\.\.20"),
    ],
)
def test_columns_that_do_not_fit(changed: dict[str, list[int]], match: str) -> None:
    block = CrossCache(64, 2)
    arrays = {name: np.array(values, np.int32) for name, values in changed.items()}
    inputs = block.run_inputs([4, 20], [0, 1], cache="float16")
    check_refused(block.operator("float16"), inputs, match, **arrays)


def test_a_cache_of_other_planes() -> None:
    block = CrossCache(64, 2)
    inputs = block.run_inputs([4], [0], cache="float16")
    cache = np.zeros((3, 5, 20, 64), np.float16)
    check_refused(block.operator("float16"), inputs, "cache has 3 along axis 0, not 2", cache=cache)


def test_lengths_that_do_not_add_up_to_the_rows() -> None:
    block = EncoderAttention(64, 4)
    inputs = block.rows(3, 4)
    check_refused(block.operator(), inputs, "sum up to 8, not to the 7", lengths=np.array([4, 4], np.int32))
    check_refused(block.operator(), inputs, r"lengths holds -1", lengths=np.array([7, -1], np.int32))


@pytest.mark.parametrize(
    ("name", "values", "match"),
    [
        ("ids", [0, 100], r"ids holds 100, .* 0\.\.99"),
        ("ids", [-1, 0], r"ids holds -1, .* 0\.\.99"),
        ("positions", [0, 30], r"positions holds 30, .* 0\.\.29"),
    ],
)
def test_entries_that_are_not_in_the_tables(name: str, values: list[int], match: str) -> None:
    operator = embed(random_table(1, 100, 64), random_floats(2, 30, 64))
    inputs = {"ids": np.zeros(2, np.int32), "positions": np.zeros(2, np.int32)}
    check_refused(operator, inputs, match, **{name: np.array(values, np.int32)})


@pytest.mark.parametrize("k", [0, -1, 62, 2**40])
def test_a_number_of_candidates_that_the_vocabulary_does_not_have(k: int) -> None:
    with pytest.raises(RuntimeError, match=rf"num_candidates is {k}, .* 1\.\.61"):
        Vocabulary(random_table(1, 61, 64)).run(random_floats(2, 1, 64), k)


def test_more_candidates_than_are_ranked() -> None:
    with pytest.raises(RuntimeError, match=r"num_candidates is 65, .* 1\.\.64"):
        Vocabulary(random_table(1, 100, 64)).run(random_floats(2, 1, 64), 65)


def test_rows_of_other_shapes() -> None:
    block = Block(64, 80)
    check_refused(block.operator(), block.rows(3), "x has 2 along axis 0", x=random_floats(1, 2, 64))
    residual = random_floats(1, 3, 63)
    check_refused(block.operator(), block.rows(3), "residual has 63 along axis 1", residual=residual)


def wrong_bias() -> Operator:
    block = Block(64, 80)
    block.inner = Weights(block.inner.stored, block.inner.scales, block.inner.bias[:-1])
    return block.operator()


def wrong_scales() -> Operator:
    block = Block(64, 80)
    block.inner = Weights(block.inner.stored, block.inner.scales[:-1], block.inner.bias)
    return block.operator()


def wrong_weights() -> Operator:
    block = Block(64, 80)
    block.outer = random_weights(1, 96, 64)
    return block.operator()


def wrong_projection(block: EncoderAttention | SelfAttention) -> Operator:
    block.qkv = random_weights(1, 64, 128)
    return block.operator()


@pytest.mark.parametrize(
    ("make", "match"),
    [
        (lambda: Block(64, 80).operator(activation="tanh"), "activation is none of relu, gelu, silu"),
        (lambda: Block(64, 72).operator(), "w_2 has 72 inputs, which is no positive multiple of 16"),
        (lambda: SelfAttention(96, 8).operator(), "num_heads is 8, .* 96 columns"),
        (lambda: SelfAttention(96, 5).operator(), "num_heads is 5, .* 96 columns"),
        (lambda: SelfAttention(96, 3).operator(num_heads=0), "num_heads is 0"),
        (lambda: CrossAttention(96, 3, aligned=(3,)).operator(), r"heads holds 3, .* 0\.\.2"),
        (wrong_bias, "b_1 has 79 along axis 0, not 80"),
        (wrong_scales, "s_1 has 79 along axis 0, not 80"),
        (wrong_weights, "w_2 has 96 along axis 0, not 80"),
        (lambda: wrong_projection(EncoderAttention(64, 4)), ": w_qkv has 128 outputs, not 192"),
        (lambda: wrong_projection(SelfAttention(64, 4)), ": w_qkv has 128 outputs, not 192"),
    ],
)
def test_graphs_that_do_not_fit_together(make: Callable[[], Operator], match: str) -> None:
    with pytest.raises(Exception, match=match):
        make()


@pytest.mark.parametrize(
    ("build", "first"),
    [
        pytest.param(build_native_encoder, 8, id="encoder"),
        pytest.param(build_native_decoder, 14, id="decoder"),
    ],
)
def test_constants_of_a_whole_operator_that_are_not_float(build: Callable[..., Graph], first: int) -> None:
    """ONNX Runtime does not check the types of the constants from input `first` on: weights, scales, biases and norms.

    The test stores one float constant after the other as float16.
    """
    model = onnx.load_from_string(build(weights_of(random_model(norm="pre")), "int8").content)
    make_session(model)
    constants = {each.name: each for each in model.graph.initializer}
    weights = [constants[name] for name in model.graph.node[0].input[first:]]
    floats = [each for each in weights if each.data_type == TensorProto.FLOAT]
    assert len(floats) > len(weights) / 2
    for constant in floats:
        values = numpy_helper.to_array(constant)
        constant.CopyFrom(numpy_helper.from_array(values.astype(np.float16), constant.name))
        with pytest.raises(Exception, match="weights is not float"):
            make_session(model)
        constant.CopyFrom(numpy_helper.from_array(values, constant.name))


@pytest.mark.parametrize(
    ("shape", "match"),
    [
        ((64, 80), "weights has outputs that are not a multiple of its inputs"),
        ((128, 128), "weights has 128 inputs, not 64"),
        ((0, 16), "weights has 0 inputs, which is no positive multiple of 16"),
    ],
)
def test_cross_weights_that_do_not_fit_the_encoder(shape: tuple[int, int], match: str) -> None:
    model = onnx.load_from_string(build_native_encoder(weights_of(random_model()), "int8").content)
    w = numpy_helper.from_array(np.ones(shape, np.int8), "w")
    s = numpy_helper.from_array(np.ones(shape[1], np.float32), "s")
    model.graph.initializer.extend([w, s])
    model.graph.node[0].input[-2:] = [w.name, s.name]
    with pytest.raises(Exception, match=match):
        make_session(model)


@pytest.mark.parametrize(
    ("build", "first", "decoder", "name"),
    [
        (build_native_encoder, 8, "attention", "self-attention"),
        (build_native_encoder, 16, "attention", "feed-forward block"),
        (build_native_decoder, 14, "attention", "self-attention"),
        (build_native_decoder, 22, "attention", "cross-attention"),
        (build_native_decoder, 30, "attention", "feed-forward block"),
        (build_native_decoder, 14, "ssru", "SSRU"),
    ],
)
def test_layers_of_another_width(build: Callable[..., Graph], first: int, decoder: str, name: str) -> None:
    """The constants from index `first` on come from a wider model. Constant `first` belongs to layer 0."""
    model, wider = (
        onnx.load_from_string(
            build(weights_of(random_model(norm="post", decoder=decoder, d_model=d)), "int8").content
        )
        for d in (64, 128)
    )
    constants = {each.name: each for each in wider.graph.initializer}
    replaced = model.graph.node[0].input[first:]
    for index, other in enumerate(wider.graph.node[0].input[first:]):
        constant = onnx.TensorProto()
        constant.CopyFrom(constants[other])
        constant.name = replaced[index] = f"wider_{index}"
        model.graph.initializer.append(constant)
    model.graph.node[0].input[first:] = replaced
    with pytest.raises(Exception, match=f"the {name} of layer 0 is 128 wide, not 64"):
        make_session(model)


@pytest.mark.parametrize("shape", [(400, 128), (416, 64)])
def test_an_output_table_of_another_shape(shape: tuple[int, int]) -> None:
    model = onnx.load_from_string(build_native_decoder(weights_of(random_model()), "int8").content)
    table = numpy_helper.from_array(np.ones(shape, np.int8), "other_table")
    scales = numpy_helper.from_array(np.ones(shape[0], np.float32), "other_scales")
    model.graph.initializer.extend([table, scales])
    model.graph.node[0].input[12:14] = [table.name, scales.name]
    with pytest.raises(Exception, match=rf"output_table is \({shape[0]}, {shape[1]}\), not \(400, 64\)"):
        make_session(model)
