"""Graphs of one native operator, for the tests of the native kernels."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
import onnxruntime
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

from app.runtime.native import library_path

DOMAIN = "transduce"
IR_VERSION = 10
TYPES = {
    "float32": TensorProto.FLOAT,
    "float16": TensorProto.FLOAT16,
    "int32": TensorProto.INT32,
    "int64": TensorProto.INT64,
}


@dataclass(frozen=True)
class Operator:
    """A session of one node. The graph holds the constants of the node; its other inputs are passed by name."""

    session: Any
    outputs: tuple[str, ...]

    def run(self, inputs: Mapping[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
        """The outputs by name. Inputs are bound without a copy, so an operator may write to them."""
        binding = self.session.io_binding()
        for name, values in inputs.items():
            assert values.flags.c_contiguous
            binding.bind_ortvalue_input(name, onnxruntime.OrtValue.ortvalue_from_numpy(values))
        for name in self.outputs:
            binding.bind_output(name)
        self.session.run_with_iobinding(binding)
        return dict(zip(self.outputs, binding.copy_outputs_to_cpu(), strict=True))


def operator(
    kind: str,
    inputs: Mapping[str, str | NDArray[Any]],
    outputs: Mapping[str, str],
    **attributes: Any,
) -> Operator:
    """A session of one node of `kind`.

    inputs: the node's inputs in order, by name. An array is a constant; a string is the type of an input of `run`.
    outputs: the types of the node's outputs in order, by name.
    """
    run_inputs = {name: value for name, value in inputs.items() if isinstance(value, str)}
    constants = [
        numpy_helper.from_array(value, name) for name, value in inputs.items() if not isinstance(value, str)
    ]
    node = helper.make_node(kind, list(inputs), list(outputs), domain=DOMAIN, **attributes)
    graph = helper.make_graph(
        [node],
        kind,
        [helper.make_tensor_value_info(name, TYPES[dtype], None) for name, dtype in run_inputs.items()],
        [helper.make_tensor_value_info(name, TYPES[dtype], None) for name, dtype in outputs.items()],
        constants,
    )
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid(DOMAIN, 1)]
    model = helper.make_model(graph, opset_imports=opsets, ir_version=IR_VERSION)
    return Operator(make_session(model), tuple(outputs))


def make_session(model: onnx.ModelProto) -> Any:
    """A session with the native operators, on one thread."""
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = 1
    options.register_custom_ops_library(str(library_path()))
    return onnxruntime.InferenceSession(
        model.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )


def random_floats(seed: int, *shape: int) -> NDArray[np.float32]:
    """Normally distributed random numbers."""
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)
