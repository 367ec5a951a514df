"""The file of weights beside a variant's graphs. Arrays that several graphs use are stored once."""

from __future__ import annotations

from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import TensorProto, helper

# Arrays of fewer bytes stay in their graph.
MIN_BYTES = 1024
# Bytes of a cache line. Arrays do not share a cache line.
ALIGNMENT = 64


class WeightFile:
    """Writes arrays by name, each as soon as it is stored, so that its memory can be freed. A context manager.

    ONNX Runtime maps the file, so the graphs of one variant share its pages.
    """

    def __init__(self, path: Path) -> None:
        """path: in the folder of the graphs that refer to it."""
        self._path = path
        self._file = path.open("wb")
        self._ranges: dict[str, tuple[int, int]] = {}  # offset and length

    def __enter__(self) -> WeightFile:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._file.close()

    def store(self, name: str, values: NDArray[Any]) -> TensorProto:
        """Write an array and return a reference to it. Arrays of equal names must have equal values."""
        if name not in self._ranges:
            self._file.write(b"\0" * (-self._file.tell() % ALIGNMENT))
            self._ranges[name] = self._file.tell(), values.nbytes
            self._file.write(np.ascontiguousarray(values).data)
        offset, length = self._ranges[name]
        kind = helper.np_dtype_to_tensor_dtype(values.dtype)
        tensor = TensorProto(name=name, dims=values.shape, data_type=kind, data_location=TensorProto.EXTERNAL)
        for key, value in (("location", self._path.name), ("offset", offset), ("length", length)):
            tensor.external_data.append(onnx.StringStringEntryProto(key=key, value=str(value)))
        return tensor
