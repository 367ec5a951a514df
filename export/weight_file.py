"""The file of weights beside a variant's graphs. Arrays that several graphs use are stored once."""

from __future__ import annotations

from pathlib import Path

import onnx
from onnx import TensorProto

# The fewest bytes of an array in the file. Shorter arrays stay in their graph.
MIN_BYTES = 1024
# Bytes of a cache line. Arrays do not share a cache line.
ALIGNMENT = 64


class WeightFile:
    """Collects arrays by name. name: the file's name, in the folder of the graphs that refer to it.

    ONNX Runtime maps the file, so the graphs of one variant share its pages.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self._content = bytearray()
        self._ranges: dict[str, tuple[int, int]] = {}  # offset and length

    def move_out(self, tensor: TensorProto) -> None:
        """Move a tensor's values to the file and leave a reference. Tensors of equal names must have equal values."""
        if len(tensor.raw_data) < MIN_BYTES:
            return
        if tensor.name not in self._ranges:
            self._content += b"\0" * (-len(self._content) % ALIGNMENT)
            self._ranges[tensor.name] = len(self._content), len(tensor.raw_data)
            self._content += tensor.raw_data
        offset, length = self._ranges[tensor.name]
        tensor.ClearField("raw_data")
        tensor.data_location = TensorProto.EXTERNAL
        for key, value in (("location", self.name), ("offset", offset), ("length", length)):
            tensor.external_data.append(onnx.StringStringEntryProto(key=key, value=str(value)))

    def write(self, folder: Path) -> None:
        """Write the file to the graphs' folder."""
        (folder / self.name).write_bytes(self._content)
