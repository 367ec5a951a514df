"""Reads model.bin of CTranslate2: named variables, of which some are quantised."""

from __future__ import annotations

import math
import os
import struct
from collections.abc import Mapping
from io import BufferedIOBase
from typing import Any

import numpy as np
from numpy.typing import NDArray

BINARY = "model.bin"
FORMAT_VERSION, SPECIFICATION = 6, "TransformerSpec"
# The NumPy type for each type number in the file. bfloat16, number 5, is the upper half of a float32.
TYPES: dict[int, np.dtype[Any]] = {
    number: np.dtype(name) for number, name in enumerate(("<f4", "<i1", "<i2", "<i4", "<f2", "<u2"))
}
BFLOAT16 = 5


class _Reader:
    """Reads numbers, texts and arrays one after another. Raises ValueError past the end."""

    def __init__(self, file: BufferedIOBase) -> None:
        self._file = file
        self._num_left = file.seek(0, os.SEEK_END)
        file.seek(0)

    def number(self, kind: str) -> int:
        """An unsigned number: B, H or I of `struct`."""
        found: int = struct.unpack("<" + kind, self.bytes(struct.calcsize("<" + kind)))[0]
        return found

    def text(self) -> str:
        """A text with its length before it and a zero byte after it."""
        return self.bytes(self.number("H"))[:-1].decode()

    def bytes(self, count: int) -> bytearray:
        """The next `count` bytes."""
        if count > self._num_left:
            raise ValueError(f"{BINARY} is cut off")
        self._num_left -= count
        found = bytearray(count)
        self._file.readinto(found)
        return found


def read_variables(file: BufferedIOBase) -> dict[str, NDArray[Any]]:
    """All variables of a model.bin by name, aliases included. bfloat16 becomes fp32.

    Raises ValueError for another format or kind of model, and for a file that is damaged.
    """
    reader = _Reader(file)
    version = reader.number("I")
    if version != FORMAT_VERSION:
        raise ValueError(
            f"{BINARY} has the format {version}; only {FORMAT_VERSION} can be imported: convert it again"
        )
    kind, _ = reader.text(), reader.number("I")
    if kind != SPECIFICATION:
        raise ValueError(f"{BINARY} holds a {kind}; only a {SPECIFICATION} can be imported")
    variables: dict[str, NDArray[Any]] = {}
    for _ in range(reader.number("I")):
        name = reader.text()
        shape = tuple(reader.number("I") for _ in range(reader.number("B")))
        type_number, num_bytes = reader.number("B"), reader.number("I")
        dtype = TYPES.get(type_number)
        if dtype is None:
            raise ValueError(f"{BINARY}: {name} has the unknown type {type_number}")
        if math.prod(shape) * dtype.itemsize != num_bytes:
            raise ValueError(f"{BINARY}: the size of {name} does not match its shape")
        values = np.frombuffer(reader.bytes(num_bytes), dtype).reshape(shape)
        if type_number == BFLOAT16:
            values = (values.astype("<u4") << 16).view("<f4")
        variables[name] = values
    for _ in range(reader.number("I")):
        alias, name = reader.text(), reader.text()
        if name not in variables:
            raise ValueError(f"{BINARY}: {alias} stands for {name}, which is missing")
        variables[alias] = variables[name]
        if f"{name}_scale" in variables:
            variables[f"{alias}_scale"] = variables[f"{name}_scale"]
    return variables


def floats(variables: Mapping[str, NDArray[Any]], name: str) -> NDArray[np.float32]:
    """A variable in fp32, without a copy if it is in fp32.

    A quantised variable is divided by its scale, which is one number for each row or for all rows. Raises KeyError for
    a missing variable, and ValueError for a scale of another size, or with a number that is not above 0 and finite.
    """
    values = variables[name].astype(np.float32, copy=False)
    scale = variables.get(f"{name}_scale")
    if scale is None:
        return values
    if scale.size not in (1, *values.shape[:1]):
        rows = f"{len(values)} rows" if values.shape else "one number"
        raise ValueError(f"{BINARY}: {name}_scale has {scale.size} numbers, and {name} has {rows}")
    divisor = scale.astype(np.float32)
    if not ((divisor > 0) & np.isfinite(divisor)).all():
        raise ValueError(f"{BINARY}: {name}_scale has numbers that are not above 0 and finite")
    return values / divisor.reshape(-1, *(1 for _ in values.shape[1:]))
