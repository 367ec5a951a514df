"""One file of weights beside the graphs of a variant, each array once however many graphs hold it."""

from __future__ import annotations

from pathlib import Path

import onnx
from onnx import TensorProto

# Shorter arrays stay in their graph.
MIN_BYTES = 1024
# A cache line, so that no array shares one with another.
ALIGNMENT = 64


class WeightFile:
    """Collects arrays by name; `name` is the file's, beside the graphs that refer to it.

    ONNX Runtime maps the file, so that graphs of one variant share its pages too.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self._content = bytearray()
        self._places: dict[str, tuple[int, int]] = {}

    def move_out(self, tensor: TensorProto) -> None:
        """Take a tensor's values into the file and leave a reference. Equal names are equal values."""
        if len(tensor.raw_data) < MIN_BYTES:
            return
        if tensor.name not in self._places:
            self._content += b"\0" * (-len(self._content) % ALIGNMENT)
            self._places[tensor.name] = len(self._content), len(tensor.raw_data)
            self._content += tensor.raw_data
        offset, length = self._places[tensor.name]
        tensor.ClearField("raw_data")
        tensor.data_location = TensorProto.EXTERNAL
        for key, value in (("location", self.name), ("offset", offset), ("length", length)):
            tensor.external_data.append(onnx.StringStringEntryProto(key=key, value=str(value)))

    def write(self, folder: Path) -> None:
        """Write the file to the folder of the graphs."""
        (folder / self.name).write_bytes(self._content)
