"""Checks a bundle's graphs against its manifest (sizes, end token, alignment), and its weights for invalid numbers.

The checks run before a graph is loaded. Each problem names a field of the manifest or a file.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

import numpy as np

from app.graph_file import GraphFile, GraphFileError, Initializer, Node, read_graph
from app.graphs import GraphPair, GraphSpec, TensorSpec, Variant

# The largest float16. A weight above it would be infinite in an fp16 variant.
MAX_WEIGHT = 65504.0
# The floating-point types of weights, by TensorProto.DataType.
_FLOATS: dict[int, np.dtype[np.floating]] = {1: np.dtype("<f4"), 10: np.dtype("<f2"), 11: np.dtype("<f8")}
_CHUNK_BYTES = 1 << 22
_NORMS = ("LayerNormalization", "SkipLayerNormalization")
# Axes of a graph's inputs or outputs by name; None for an axis whose size varies.
_Axes = dict[str, tuple[int | None, ...]]


@dataclass(frozen=True)
class GraphSizes:
    """The manifest's values that graphs must agree with.

    max_source_length, max_target_length: in subwords; they must fit into the columns of a row of the caches.
    decoder: "attention" or "ssru". aligned_layer, aligned_heads: None if the decoder has no alignment.
    """

    vocab_size: int
    d_model: int
    num_heads: int
    d_ff: int
    num_encoder_layers: int
    num_decoder_layers: int
    is_pre_norm: bool
    activation: str
    decoder: str
    max_source_length: int
    max_target_length: int
    eos_id: int
    aligned_layer: int | None
    aligned_heads: tuple[int, ...] | None


def signature_problems(variant: Variant, sizes: GraphSizes) -> list[str]:
    """Contradictions between the manifest's sizes and the inputs and outputs it lists for a variant."""
    capacity = _capacity(variant.decoder)
    if capacity is None:
        return [
            f"{variant.decoder.file}: input cross_key_0 has no axes (rows, heads, columns, size of a head)"
        ]
    for pair in (variant, variant.native):
        if pair is not None and _decoder_kind(pair.decoder) != sizes.decoder:
            claimed, kind = f"dimensions.decoder is {sizes.decoder}", _decoder_kind(pair.decoder)
            return [f"{claimed}, and {pair.decoder.file} has the inputs of {kind}"]
    num_layers = sum(spec.name.startswith("cross_key_") for spec in variant.decoder.inputs)
    if num_layers != sizes.num_decoder_layers:  # the checks below build names for every layer
        claimed = f"dimensions.num_decoder_layers is {sizes.num_decoder_layers}"
        return [f"{claimed}, and {variant.decoder.file} has the caches of {num_layers}"]
    problems = [
        f"{name} is {value}, and the caches of {variant.decoder.file} hold {capacity}"
        for name, value in (
            ("max_source_length", sizes.max_source_length),
            ("max_target_length", sizes.max_target_length),
        )
        if value > capacity
    ]
    encoder, decoder = _standard_axes(sizes, capacity)
    if variant.encoder.has_input("lengths"):  # it takes sentences of several lengths
        encoder[0]["lengths"] = (None,)
    expected = [*zip(_graphs(variant), (encoder, decoder), strict=True)]
    if variant.native is not None and _takes_steps(variant.native):
        expected += zip(_graphs(variant.native), _native_axes(sizes, capacity), strict=True)
    if variant.gpu_decoder is not None:
        expected.append((variant.gpu_decoder, decoder))
    for spec, (inputs, outputs) in expected:
        problems += _axes_problems(spec.file, "input", spec.inputs, inputs)
        problems += _axes_problems(spec.file, "output", spec.outputs, outputs)
    return problems


def content_problems(folder: Path, files: Collection[str], variant: Variant, sizes: GraphSizes) -> list[str]:
    """Differences between a variant's graph files and the manifest's sizes, and invalid weights.

    files: the files that the manifest lists; graphs may use weights from no other file.
    """
    problems: list[str] = []
    weights: dict[tuple[str, int, int], Initializer] = {}
    for spec, find_problems in (
        *((spec, _encoder_problems) for spec in variant.encoders),
        *((spec, _decoder_problems) for spec in variant.decoders),
    ):
        try:
            graph = read_graph(folder / spec.file)
        except (GraphFileError, OSError) as error:
            return [f"{spec.file} does not load: {error}"]
        problems += find_problems(spec.file, graph, sizes)
        for initializer in graph.initializers:
            try:
                weights[_location(spec.file, initializer)] = initializer
            except ValueError:
                problems.append(f"{spec.file}: {initializer.name} has no valid place in a weight file")
    return problems + _weight_problems(folder, files, weights)


def _graphs(pair: GraphPair) -> tuple[GraphSpec, GraphSpec]:
    return pair.encoder, pair.decoder


def _takes_steps(native: GraphPair) -> bool:
    """Whether the native decoder can take several steps. If not, it is of an older format and the server ignores it."""
    return native.decoder.has_input("num_steps")


# --- signatures


def _capacity(decoder: GraphSpec) -> int | None:
    """Columns in a row of a standard decoder's caches; None if its inputs do not say."""
    axes = next((spec.axes for spec in decoder.inputs if spec.name == "cross_key_0"), ())
    return axes[2] if len(axes) == 4 and isinstance(axes[2], int) else None


def _decoder_kind(decoder: GraphSpec) -> str:
    """The kind of a decoder graph by its inputs, as in the manifest's dimensions."""
    return "ssru" if decoder.has_input("self_state") else "attention"


def _standard_axes(sizes: GraphSizes, capacity: int) -> tuple[tuple[_Axes, _Axes], tuple[_Axes, _Axes]]:
    """Inputs and outputs of the standard graphs, as `export.encoder` and `export.decoder` build them."""
    heads, head_dim = sizes.num_heads, sizes.d_model // sizes.num_heads
    caches: _Axes = {
        f"{kind}_{layer}": (None, heads, capacity, head_dim)
        for layer in range(sizes.num_decoder_layers)
        for kind in ("self_key", "self_value", "cross_key", "cross_value")
        if sizes.decoder == "attention" or kind.startswith("cross")
    }
    if sizes.decoder == "ssru":
        caches["self_state"] = _state_axes(sizes)
    rows: _Axes = dict.fromkeys(("ids", "positions", "last_source_positions"), (None,))
    has_alignment = sizes.aligned_layer is not None
    optional: _Axes = {"num_aligned": (1,)} if has_alignment else {}
    aligned: _Axes = {"alignment": (None, capacity)} if has_alignment else {}
    encoder: tuple[_Axes, _Axes] = (
        {"ids": (None, None), "positions": (None,)},
        {"cross_cache": (2 * sizes.num_decoder_layers, None, heads, None, head_dim)},
    )
    best: _Axes = dict.fromkeys(("top_log_probabilities", "top_ids"), (None, None))
    outputs: _Axes = {**best, "log_probabilities": (None, sizes.vocab_size), **aligned}
    present: _Axes = {f"present_{name}": axes for name, axes in caches.items()}
    return encoder, ({**rows, "num_candidates": (1,), **caches, **optional}, {**outputs, **present})


def _state_axes(sizes: GraphSizes) -> tuple[int | None, ...]:
    return (None, sizes.num_decoder_layers, sizes.d_model)


def _native_axes(sizes: GraphSizes, capacity: int) -> tuple[tuple[_Axes, _Axes], tuple[_Axes, _Axes]]:
    """Inputs and outputs of the native graphs, as `export.native` builds them."""
    cache = (2 * sizes.num_decoder_layers, None, capacity, sizes.d_model)
    sentences: _Axes = dict.fromkeys(("ids", "positions", "lengths", "slots"), (None,))
    rows: _Axes = dict.fromkeys(("ids", "positions", "slots", "source_lengths"), (None,))
    numbers: _Axes = dict.fromkeys(("num_steps", "num_candidates", "wants_log_probabilities"), (1,))
    best: _Axes = dict.fromkeys(("top_log_probabilities", "top_ids"), (None, None, None))
    outputs: _Axes = {
        **best,
        "log_probabilities": (None, sizes.vocab_size),
        "alignment": (None, capacity),
    }
    encoder: tuple[_Axes, _Axes] = ({**sentences, "cross_cache": cache}, {"written": (None,)})
    own: _Axes = {"self_state": _state_axes(sizes)} if sizes.decoder == "ssru" else {"self_cache": cache}
    return encoder, ({**rows, **numbers, **own, "cross_cache": cache}, outputs)


def _axes_problems(file: str, kind: str, specs: tuple[TensorSpec, ...], expected: _Axes) -> list[str]:
    actual = {spec.name: spec.axes for spec in specs}
    problems = [f"{file} has the unexpected {kind} {name}" for name in sorted(set(actual) - set(expected))]
    for name, sizes in expected.items():
        axes = actual.get(name)
        if axes is None:
            problems.append(f"{file} has no {kind} {name}")
        elif len(axes) != len(sizes) or any(
            size is not None and axis != size for axis, size in zip(axes, sizes, strict=True)
        ):
            expected_axes = ["*" if size is None else size for size in sizes]
            problem = f"has axes {list(axes)}, and the manifest's dimensions give {expected_axes}"
            problems.append(f"{file}: {kind} {name} {problem}")
    return problems


# --- contents


def _encoder_problems(file: str, graph: GraphFile, sizes: GraphSizes) -> list[str]:
    native = _first_node(graph, "Encoder")
    actual: dict[str, object] = {"dimensions.d_ff": _d_ff(graph, sizes)}
    if native is not None:
        actual |= _operator_fields(native, "dimensions.num_encoder_layers")
    else:
        num_layers = graph.count("Attention", "MultiHeadAttention")
        actual["dimensions.num_encoder_layers"] = num_layers
        # A layer has two norms, and a pre-norm encoder has one more at its end.
        actual["dimensions.norm"] = "pre" if graph.count(*_NORMS) % 2 else "post"
    return _differences(file, actual, sizes)


def _decoder_problems(file: str, graph: GraphFile, sizes: GraphSizes) -> list[str]:
    operator, attentions = ("DecoderSteps", 2) if sizes.decoder == "attention" else ("SsruDecoderSteps", 1)
    native = _first_node(graph, operator)
    actual: dict[str, object] = {"dimensions.d_ff": _d_ff(graph, sizes)}
    if native is None:
        # A layer has two attentions, to itself and to the source. With an SSRU it has only the second.
        num_attentions = graph.count("GroupQueryAttention", "RowAttention")
        actual["dimensions.num_decoder_layers"] = num_attentions // attentions
    else:
        actual |= _operator_fields(native, "dimensions.num_decoder_layers")
        actual["special_ids.eos"] = native.attributes.get("end_id")
        if sizes.aligned_layer is not None:
            actual["alignment.layer"] = native.attributes.get("aligned_layer")
            actual["alignment.heads"] = native.attributes.get("heads")
    return _differences(file, actual, sizes)


def _first_node(graph: GraphFile, op_type: str) -> Node | None:
    return next((node for node in graph.nodes if node.op_type == op_type), None)


def _operator_fields(node: Node, layers: str) -> dict[str, object]:
    """The attributes that every native operator has, by the manifest's fields."""
    return {
        layers: node.attributes.get("num_layers"),
        "dimensions.num_heads": node.attributes.get("num_heads"),
        "dimensions.activation": node.attributes.get("activation"),
        "dimensions.norm": "pre" if node.attributes.get("is_pre_norm") else "post",
    }


def _d_ff(graph: GraphFile, sizes: GraphSizes) -> int | None:
    """The inner width of the feed-forward network: sizes.d_ff if the weights allow it, else the smallest width.

    The weights allow a width w if there are weights of shape (d_model, w) and (w, d_model).
    """
    shapes = {initializer.shape for initializer in graph.initializers}
    width = sizes.d_model
    possible = {
        shape[1] for shape in shapes if len(shape) == 2 and shape[0] == width and shape[::-1] in shapes
    }
    # Square weights are attention's, and those as wide as the vocabulary are embeddings'.
    candidates = possible - {width, sizes.vocab_size} or possible
    return sizes.d_ff if sizes.d_ff in candidates else min(candidates, default=None)


def _differences(file: str, actual: dict[str, object], sizes: GraphSizes) -> list[str]:
    claimed = {
        "dimensions.d_ff": sizes.d_ff,
        "dimensions.num_encoder_layers": sizes.num_encoder_layers,
        "dimensions.num_decoder_layers": sizes.num_decoder_layers,
        "dimensions.num_heads": sizes.num_heads,
        "dimensions.activation": sizes.activation,
        "dimensions.norm": "pre" if sizes.is_pre_norm else "post",
        "special_ids.eos": sizes.eos_id,
        "alignment.layer": sizes.aligned_layer,
        "alignment.heads": sizes.aligned_heads,
    }
    return [
        f"manifest.json: {field} is {_as_list(claimed[field])}, and {file} has {_as_list(value)}"
        for field, value in actual.items()
        if value != claimed[field]
    ]


def _as_list(value: object) -> object:
    """A tuple as a list, as JSON shows it; other values unchanged."""
    return list(value) if isinstance(value, tuple) else value


# --- weights


def _location(graph: str, initializer: Initializer) -> tuple[str, int, int]:
    """File, offset and length of an initializer's values.

    For values in the graph, "GRAPH NAME", 0 and 0.
    Raises ValueError for a file outside of the graph's folder, and for an invalid offset or length.
    """
    if not initializer.external_data:
        return f"{graph} {initializer.name}", 0, 0
    location = initializer.external_data.get("location", "")
    if not location or PurePosixPath(location).name != location:
        raise ValueError
    offset, length = (int(initializer.external_data.get(name, "0")) for name in ("offset", "length"))
    if offset < 0 or length < 0:
        raise ValueError
    return str(PurePosixPath(graph).with_name(location)), offset, length


def _weight_problems(
    folder: Path, files: Collection[str], weights: dict[tuple[str, int, int], Initializer]
) -> list[str]:
    """The first problem of each file of weights. A damaged file has many; one is enough to refuse it."""
    problems: dict[str, str] = {}
    for (file, offset, length), initializer in weights.items():
        if initializer.external_data and file not in files:
            problems.setdefault(file, f"{file}, which has weights of a graph, is not in the manifest's files")
        elif _is_weight(initializer) and file not in problems:
            try:
                values = _values(folder / file, offset, length, initializer)
                problem = _values_problem(values, math.prod(initializer.shape))
            except (OSError, ValueError) as error:
                problem = f"cannot be read ({type(error).__name__})"
            if problem:
                problems[file] = f"{file.partition(' ')[0]}: the weights {initializer.name} {problem}"
    return [*problems.values()]


def _is_weight(initializer: Initializer) -> bool:
    """Whether all values must be finite. A tensor of one value may be infinite: the mask of attention."""
    return initializer.data_type in _FLOATS and math.prod(initializer.shape) > 1


def _values(
    path: Path, offset: int, length: int, initializer: Initializer
) -> Iterator[np.ndarray[tuple[int], np.dtype[np.floating]]]:
    """The values of an initializer in chunks. Raises OSError, and ValueError if the file is too short."""
    kind = _FLOATS[initializer.data_type]
    if not initializer.external_data:
        yield np.frombuffer(initializer.raw_data, kind)
        return
    with path.open("rb") as file:
        file.seek(offset)
        while length > 0:
            data = file.read(min(length, _CHUNK_BYTES))
            if not data:
                raise ValueError
            yield np.frombuffer(data, kind)
            length -= len(data)


def _values_problem(chunks: Iterator[np.ndarray[tuple[int], np.dtype[np.floating]]], num_values: int) -> str:
    num_read = 0
    for values in chunks:
        num_read += len(values)
        largest = float(np.abs(values).max(initial=0.0))
        if not np.isfinite(largest):
            return "have values that are not numbers (NaN or infinite)"
        if largest > MAX_WEIGHT:
            return f"have values up to {largest:.1e}, and none may be above {MAX_WEIGHT:.0f}"
    if num_read != num_values:  # for instance, ONNX's float_data is not read
        return f"have {num_read} values in raw_data or in a file, and their shape has {num_values}"
    return ""
