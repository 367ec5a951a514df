"""Reads the time inside ONNX Runtime from its profiler, by run, graph and category of operator."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import onnxruntime

# ReduceMax to one value for each row: the row's magnitude in dynamic quantisation. Every other ReduceMax compares
# chunks of logits.
ROW_MAXIMA = "ReduceMax of rows"
# Category -> its operators. Each native graph of a bundle is one operator for a whole stack of layers. This operator
# counts the time of its blocks (`app.runtime.native.block_times`). The other graphs of a bundle consist of ONNX
# Runtime's own operators, and RowAttention in `gpu_decoder`. Native operators of single sub-layers occur only in graphs
# of benchmarks, such as the graph of `benchmarks.native`. An operator without an entry counts as OTHER: sums, copies,
# shapes, casts.
CATEGORIES = {
    "native blocks": ("Encoder", "DecoderSteps", "SsruDecoderSteps"),
    "self-attention sub-layer": ("SelfAttentionStep", "SelfAttention"),
    "cross-attention sub-layer": ("CrossAttentionStep", "AlignedCrossAttentionStep"),
    "feed-forward sub-layer": ("FeedForward",),
    "projection and top-k": ("Candidates",),
    "cross keys and values": ("WriteCrossCache",),
    "embedding": ("Embed", "Gather"),
    "matrix products": (
        "MatMul", "Gemm", "FusedMatMul", "FusedGemm", "MatMulInteger", "MatMulIntegerToFloat",
        "DynamicQuantizeMatMul", "MatMulNBits",
    ),
    "attention": ("GroupQueryAttention", "MultiHeadAttention", "Attention", "RowAttention"),
    "normalisation": ("LayerNormalization", "SkipLayerNormalization", "SimplifiedLayerNormalization"),
    "top-k": ("TopK", "LogSoftmax", "ReduceMax", "GatherND", "GatherElements", "ArgMax"),
    "quantisation": ("QuantizeLinear", "DequantizeLinear", "DynamicQuantizeLinear", "Abs", "Div", ROW_MAXIMA),
}  # fmt: skip
OTHER = "other operators"
_CATEGORY_OF = {name: category for category, names in CATEGORIES.items() for name in names}


def category_of(operator: str) -> str:
    """The category of an operator."""
    return _CATEGORY_OF.get(operator, OTHER)


@dataclass(frozen=True)
class Run:
    """One run of a graph. total_s: seconds inside ONNX Runtime. kernels_s: seconds in kernels by category."""

    total_s: float
    kernels_s: dict[str, float]


@dataclass(frozen=True)
class ProfileResult:
    """The runs of each graph in order, and the category of each operator that ran."""

    encoder: list[Run]
    decoder: list[Run]
    operators: dict[str, str]


class Profiler:
    """Profiles every session that is created after this object."""

    def __init__(self) -> None:
        self._folder = tempfile.TemporaryDirectory()
        self._sessions: list[Any] = []
        create: Callable[..., Any] = onnxruntime.InferenceSession.__init__

        def create_profiled(
            session: Any, model: Any, options: Any = None, *arguments: Any, **named: Any
        ) -> None:
            options = options or onnxruntime.SessionOptions()
            options.enable_profiling = True
            options.profile_file_prefix = str(Path(self._folder.name) / f"session{len(self._sessions)}")
            create(session, model, options, *arguments, **named)
            self._sessions.append(session)

        onnxruntime.InferenceSession.__init__ = create_profiled

    def end(self) -> ProfileResult:
        """Stop profiling and read the profiles. Joins the runs of a graph that was loaded twice."""
        runs: dict[str, list[Run]] = {"encoder": [], "decoder": []}
        operators: dict[str, str] = {}
        for session in self._sessions:
            is_decoder = any(value.name == "num_candidates" for value in session.get_inputs())
            events = json.loads(Path(session.end_profiling()).read_text("utf-8"))
            runs["decoder" if is_decoder else "encoder"] += runs_of(events)
            operators |= {name: category_of(name) for name in operators_of(events)}
        self._folder.cleanup()
        return ProfileResult(runs["encoder"], runs["decoder"], operators)


def operators_of(events: list[dict[str, Any]]) -> set[str]:
    """The names of the operators that ran."""
    return {_operator_of(event) for event in events if _is_kernel(event)}


def runs_of(events: list[dict[str, Any]]) -> list[Run]:
    """The runs of a profile in order.

    A kernel counts to the run in which it began. A kernel that began between two runs counts to the later run.
    """
    whole = sorted((event for event in events if event.get("name") == "model_run"), key=_start)
    kernels = sorted((event for event in events if _is_kernel(event)), key=_start)
    found = []
    position = 0
    for run in whole:
        end = run["ts"] + run["dur"]
        seconds: dict[str, float] = {}
        while position < len(kernels) and kernels[position]["ts"] <= end:
            event = kernels[position]
            category = category_of(_operator_of(event))
            seconds[category] = seconds.get(category, 0.0) + event["dur"] / 1e6
            position += 1
        found.append(Run(run["dur"] / 1e6, seconds))
    return found


def _operator_of(event: dict[str, Any]) -> str:
    """The name in CATEGORIES of a kernel's operator."""
    name = str(event["args"]["op_name"])
    shapes = (shape for output in event["args"].get("output_type_shape", []) for shape in output.values())
    return ROW_MAXIMA if name == "ReduceMax" and all(shape[-1:] == [1] for shape in shapes) else name


def _start(event: dict[str, Any]) -> float:
    return float(event["ts"])


def _is_kernel(event: dict[str, Any]) -> bool:
    return event.get("cat") == "Node" and str(event.get("name", "")).endswith("_kernel_time")
