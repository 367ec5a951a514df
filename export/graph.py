"""Builds an ONNX graph operator by operator. `export.blocks` uses it for the blocks of the network.

The precision decides how a matrix product is computed and stored:

- fp32, fp16: MatMul, with activations in that type.
- int8: every row of the activations has its own scale (largest magnitude / 127, or largest value / 255 after a ReLU).
  So has every output column of the weights (`export.quantize`). Products are summed exactly, as integers. A row's
  result is therefore bit for bit independent of other rows. Activations are fp32 between products.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

from app.graphs import GraphSpec, Precision, TensorSpec
from export.quantize import CHUNK_ROWS, LARGEST, quantize_columns, quantize_rows
from export.weight_file import MIN_BYTES, WeightFile
from export.weights import Floats, Linear, Norm

# The version of the standard operators. Version 24 is the first whose Attention takes lengths, which fp16 needs.
OPSETS: dict[Precision, int] = {"int8": 21, "fp16": 24, "fp32": 21}
CONTRIB = "com.microsoft"
NATIVE = "transduce"
NORM_EPSILON = 1e-5
# The uint8 number that stands for the activation 0. Activations are shifted to uint8, because the fast integer kernels
# multiply uint8 by int8.
ZERO_POINT = 128
LARGEST_UNSIGNED = 255

ELEMENT_TYPES = {
    "float32": TensorProto.FLOAT,
    "float16": TensorProto.FLOAT16,
    "int32": TensorProto.INT32,
    "int64": TensorProto.INT64,
}


class GraphBuilder:
    """Collects nodes and constants. A tensor is represented by its name.

    float_type: type of the activations. file: receives constants of at least MIN_BYTES; None keeps all in
    the graph.
    """

    def __init__(self, precision: Precision, file: WeightFile | None = None) -> None:
        self.precision = precision
        self._file = file
        self.float_type = "float16" if precision == "fp16" else "float32"
        self._nodes: list[onnx.NodeProto] = []
        self._num_named = 0
        self._constants: dict[str, onnx.TensorProto] = {}
        self._quantized: dict[tuple[str, bool], tuple[str, str]] = {}

    def constant(self, values: NDArray[Any]) -> str:
        """A tensor of fixed values. Equal values are stored once."""
        values = np.ascontiguousarray(values)
        digest = hashlib.sha256(values.data).hexdigest()[:16]
        name = f"c_{values.dtype.name}_{'x'.join(map(str, values.shape))}_{digest}"
        if name not in self._constants:
            if self._file is None or values.nbytes < MIN_BYTES:
                self._constants[name] = numpy_helper.from_array(values, name)
            else:
                self._constants[name] = self._file.store(name, values)
        return name

    def floats(self, values: Floats) -> str:
        """`constant` in the type of the activations."""
        return self.constant(values.astype(self.float_type, copy=False))

    def scaled(self, table: Floats, factor: float) -> str:
        """`floats` of a table (entries, columns) times `factor`."""
        product = np.empty(table.shape, self.float_type)
        for start in range(0, len(table), CHUNK_ROWS):
            rows = slice(start, start + CHUNK_ROWS)
            product[rows] = table[rows] * np.float32(factor)
        return self.constant(product)

    def integers(self, *values: int) -> str:
        """An int64 constant (n,), for axes and shapes."""
        return self.constant(np.array(values, np.int64))

    def scalar(self, value: int) -> str:
        """An int64 constant without axes."""
        return self.constant(np.array(value, np.int64))

    def op(
        self, kind: str, *inputs: str, domain: str = "", outputs: Sequence[str] = (), **attributes: Any
    ) -> str:
        """Add a node and return its first output. outputs: names of all outputs; empty for one generated name."""
        name = f"{kind}_{self._num_named}"
        self._num_named += 1
        names = list(outputs) or [f"{name}_out"]
        self._nodes.append(
            helper.make_node(kind, list(inputs), names, name=name, domain=domain, **attributes)
        )
        return names[0]

    def fresh(self, name: str) -> str:
        """A tensor name for one of several outputs of the next node. Each output needs a different `name`."""
        return f"{name}_{self._num_named}"

    def only_if(
        self, condition: str, compute: Callable[[], str], *, otherwise: NDArray[np.float32], output: str
    ) -> None:
        """Set `output` to the result of `compute` (float32) if condition (1,) holds, else to a constant.

        compute: adds nodes and returns a tensor. The nodes run only if the condition holds, and may use all tensors
        added before.
        """

        def constant() -> str:
            return self.op("Constant", value=numpy_helper.from_array(otherwise))

        outside = self._nodes
        branches = {}
        for name, add in (("then_branch", compute), ("else_branch", constant)):
            self._nodes = []
            result = helper.make_tensor_value_info(add(), TensorProto.FLOAT, None)
            branches[name] = helper.make_graph(self._nodes, name, [], [result])
        self._nodes = outside
        self.op("If", condition, outputs=(output,), **branches)

    # --- products ---

    def linear(self, x: str, linear: Linear) -> str:
        """x W + b: (..., inputs) to (..., outputs)."""
        return self.op("Add", self.product(x, linear.weight), self.floats(linear.bias))

    def product(self, x: str, weight: Floats, *, is_rectified: bool = False) -> str:
        """x W, or max(0, x) W if `is_rectified`: (..., inputs) to (..., outputs)."""
        if self.precision != "int8":
            return self.op("MatMul", self.op("Relu", x) if is_rectified else x, self.floats(weight))
        quantized, magnitude = self._quantize_rows(x, is_rectified)
        columns, column_scales = quantize_columns(weight)
        largest, zero_point = (LARGEST_UNSIGNED, 0) if is_rectified else (LARGEST, ZERO_POINT)
        return self.op(
            "MatMulIntegerToFloat",
            *(
                quantized,
                self.constant(columns),
                magnitude,
                self.constant(column_scales / np.float32(largest)),
            ),
            self.constant(np.array(zero_point, np.uint8)),
            domain=CONTRIB,
        )

    def _quantize_rows(self, x: str, is_rectified: bool) -> tuple[str, str]:
        """Returns x (..., columns) in uint8, and the magnitude of each row (..., 1).

        The magnitude is the largest |x|, or max(0, the largest x) if `is_rectified`. Further calls with the same x
        return the same tensors.

        A row is divided by its magnitude, then by a step size that all rows share. A rectified row uses all of 0..255
        and needs no ReLU, because negative values saturate at 0. A row with the magnitude 0 is divided by 0. Its
        integers have no effect, because they are multiplied by the magnitude 0.
        """
        if (x, is_rectified) not in self._quantized:
            values = x if is_rectified else self.op("Abs", x)
            magnitude = self.op("ReduceMax", values, self.integers(-1), keepdims=1)
            magnitude = self.op("Relu", magnitude) if is_rectified else magnitude
            largest, zero_point = (LARGEST_UNSIGNED, 0) if is_rectified else (LARGEST, ZERO_POINT)
            step_size = self.constant(np.array(1 / largest, np.float32))
            relative = self.op("Div", x, magnitude)
            quantized = self.op(
                "QuantizeLinear", relative, step_size, self.constant(np.array(zero_point, np.uint8))
            )
            self._quantized[x, is_rectified] = quantized, magnitude
        return self._quantized[x, is_rectified]

    # --- norms, tables and shapes ---

    def layer_norm(self, x: str, norm: Norm) -> str:
        """LayerNorm over the last axis, of the same shape."""
        gamma, beta = self.floats(norm.gamma), self.floats(norm.beta)
        return self.op("LayerNormalization", x, gamma, beta, axis=-1, epsilon=NORM_EPSILON)

    def add_and_norm(self, x: str, product: str, bias: Floats | None, norm: Norm) -> tuple[str, str]:
        """LayerNorm of x + product + bias, and the sum itself: both (..., d_model). bias: None for none.

        On a GPU one kernel computes both. On a CPU that kernel takes five times as long as three separate ones.
        """
        if self.precision != "fp16":
            biased = product if bias is None else self.op("Add", product, self.floats(bias))
            total = self.op("Add", biased, x)
            return self.layer_norm(total, norm), total
        normalised, total = self.fresh("normalised"), self.fresh("sum")
        self.op(
            "SkipLayerNormalization",
            *(product, x, self.floats(norm.gamma), self.floats(norm.beta)),
            "" if bias is None else self.floats(bias),
            domain=CONTRIB,
            outputs=(normalised, "", "", total),
            epsilon=NORM_EPSILON,
        )
        return normalised, total

    def table(self, values: Floats, ids: str, *, factor: float) -> str:
        """The rows of a table (entries, columns) that ids select, times `factor`.

        ids: of any shape. The result has one more axis, the columns. In int8 each entry of the table has a scale.
        """
        if self.precision != "int8":
            return self.op("Gather", self.scaled(values, factor), ids)
        quantized, scales = quantize_rows(values, factor=factor)
        chosen = self.op("Cast", self.op("Gather", self.constant(quantized), ids), to=TensorProto.FLOAT)
        return self.op("Mul", chosen, self.op("Gather", self.constant(scales[:, None]), ids))

    def reshape(self, x: str, *shape: int) -> str:
        """x in another shape. 0 keeps an axis, and -1 follows from the other axes."""
        return self.op("Reshape", x, self.integers(*shape))

    # --- the finished graph ---

    def build(self, name: str, *, inputs: Sequence[TensorSpec], outputs: Sequence[TensorSpec]) -> bytes:
        """The graph as the bytes of an ONNX file.

        Without a weight file, checks the graph, and raises onnx.checker.ValidationError if it is not valid.
        """
        graph = helper.make_graph(
            self._nodes,
            name,
            [_value(spec) for spec in inputs],
            [_value(spec) for spec in outputs],
            [*self._constants.values()],
        )
        domains = {node.domain for node in self._nodes} - {""}
        standard = helper.make_opsetid("", OPSETS[self.precision])
        opsets = [standard, *(helper.make_opsetid(name, 1) for name in sorted(domains))]
        # The oldest version of the file format that has these operators, because older readers reject newer versions.
        ir_version = helper.find_min_ir_version_for([standard])
        model = helper.make_model(
            graph, opset_imports=opsets, ir_version=ir_version, producer_name="transduce"
        )
        if self._file is None:
            onnx.checker.check_model(model)
        content: bytes = model.SerializeToString()
        return content


def _value(spec: TensorSpec) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(spec.name, ELEMENT_TYPES[spec.dtype], list(spec.axes))


@dataclass(frozen=True)
class Graph:
    """A finished graph: the bytes of its ONNX file, its inputs and its outputs."""

    content: bytes
    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]

    def spec(self, file: str) -> GraphSpec:
        """The manifest's entry. file: the graph's path in the bundle."""
        return GraphSpec(file=file, inputs=self.inputs, outputs=self.outputs)
