"""What the checks of a bundle's graphs accept, and what they report."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import onnx
import pytest

from app.bundle import load_bundle
from app.errors import BundleError
from app.graph_checks import MAX_WEIGHT, GraphSizes, content_problems
from app.graph_file import read_graph
from app.graphs import GraphSpec, Variant
from tests.bundles.damage import set_field, set_weight

GRAPH = GraphSpec("graph.onnx", (), ())
WIDTH = 8
VOCAB_SIZE = 30


@pytest.fixture
def bundle(tiny: Path, tmp_path: Path) -> Path:
    """A copy that a test may change."""
    return Path(shutil.copytree(tiny / "bundle", tmp_path / "damaged"))


def sizes(d_ff: int) -> GraphSizes:
    """The sizes of a model without layers."""
    return GraphSizes(
        vocab_size=VOCAB_SIZE,
        d_model=WIDTH,
        num_heads=2,
        d_ff=d_ff,
        num_encoder_layers=0,
        num_decoder_layers=0,
        is_pre_norm=False,
        activation="relu",
        decoder="attention",
        max_source_length=10,
        max_target_length=10,
        eos_id=2,
        aligned_layer=None,
        aligned_heads=None,
    )


def write_weights(file: Path, *shapes: tuple[int, int]) -> None:
    """Write a graph that has only weights, of these shapes."""
    weights = [
        onnx.numpy_helper.from_array(np.zeros(shape, np.float32), str(index))
        for index, shape in enumerate(shapes)
    ]
    onnx.save(onnx.helper.make_model(onnx.helper.make_graph([], "weights", [], [], weights)), file)


def problems_of(folder: Path, d_ff: int) -> list[str]:
    return content_problems(folder, [], Variant(encoder=GRAPH, decoder=GRAPH, opset=21), sizes(d_ff))


@pytest.mark.parametrize("d_ff", [WIDTH, VOCAB_SIZE, 5])
def test_a_feed_forward_network_may_be_as_wide_as_the_model_or_the_vocabulary(
    d_ff: int, tmp_path: Path
) -> None:
    write_weights(tmp_path / GRAPH.file, (WIDTH, d_ff), (d_ff, WIDTH))
    assert problems_of(tmp_path, d_ff) == []


def test_the_smallest_width_that_the_weights_allow_is_reported(tmp_path: Path) -> None:
    shapes = [(WIDTH, 16), (16, WIDTH), (WIDTH, 12), (12, WIDTH), (WIDTH, VOCAB_SIZE), (VOCAB_SIZE, WIDTH)]
    write_weights(tmp_path / GRAPH.file, *shapes)
    problem = "manifest.json: dimensions.d_ff is 99, and graph.onnx has 12"
    assert problems_of(tmp_path, 99) == [problem, problem], "the encoder's and the decoder's"


@pytest.mark.parametrize(
    "place",
    [
        {"location": "../weights.bin"},
        {"location": ""},
        {"location": "weights.bin", "offset": "-1"},
        {"location": "weights.bin", "length": "-1"},
        {"location": "weights.bin", "length": "x"},
    ],
)
def test_weights_have_a_place_in_a_file_beside_the_graph(place: dict[str, str], tmp_path: Path) -> None:
    weights = onnx.TensorProto(name="w", dims=[4], data_type=onnx.TensorProto.INT8)
    for key, value in place.items():
        weights.external_data.add(key=key, value=value)
    graph = onnx.helper.make_graph([], "weights", [], [], [weights])
    onnx.save(onnx.helper.make_model(graph), tmp_path / GRAPH.file)
    assert "graph.onnx: w has no valid place in a weight file" in problems_of(tmp_path, WIDTH)


def test_a_weight_may_have_the_largest_value(bundle: Path) -> None:
    set_weight(MAX_WEIGHT)(bundle)
    load_bundle(bundle, choose=lambda manifest: "int8")


def test_only_the_first_problem_of_a_file_of_weights_is_reported(bundle: Path) -> None:
    set_weight(float("nan"))(bundle)
    set_weight(3e38, index=1)(bundle)
    with pytest.raises(BundleError) as caught:
        load_bundle(bundle, choose=lambda manifest: "int8")
    (problem,) = caught.value.problems
    assert "values that are not numbers" in problem


def test_a_native_decoder_of_an_older_format_is_not_compared_with_the_manifest(bundle: Path) -> None:
    """The server does not use it."""
    native = json.loads((bundle / "manifest.json").read_text("utf-8"))["variants"]["int8"]["native"]
    inputs = [spec for spec in native["decoder"]["inputs"] if spec["name"] != "num_steps"]
    assert len(inputs) == len(native["decoder"]["inputs"]) - 1
    set_field("variants.int8.native.decoder.inputs", inputs)(bundle)
    load_bundle(bundle, choose=lambda manifest: "int8")


def test_a_graph_in_several_parts_is_read_whole(tmp_path: Path) -> None:
    """Protocol Buffers joins the parts of a message that is repeated."""
    file = tmp_path / GRAPH.file
    first, second = b"\x0a\x03\x22\x01a", b"\x0a\x03\x22\x01b"  # a node each, of the types a and b
    file.write_bytes(b"".join(b"\x3a" + bytes([len(part)]) + part for part in (first, second)))
    assert [node.op_type for node in read_graph(file).nodes] == ["a", "b"]
