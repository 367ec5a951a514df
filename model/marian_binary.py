"""Reads Marian's binary files: the weights of a model, such as those of Firefox, and a shortlist. Imports only numpy.

All numbers are little-endian. Marian's sources describe the formats: src/common/binary.cpp, src/common/types.h,
src/tensors/cpu/expression_graph_packable.h and src/data/shortlist.h of browsermt/marian-dev.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

FILE_VERSION = 1
SHORTLIST_MAGIC = 0xF11A48D5013417F5
# The numbers of the types that this module reads.
INT8, FLOAT16, FLOAT32, INTGEMM8, INTGEMM16 = 0x0101, 0x0402, 0x0404, 0x4101, 0x4102
PLAIN_TYPES = {INT8: "<i1", FLOAT16: "<f2", FLOAT32: "<f4"}
QUANTISED_TYPES = {INTGEMM8: "<i1", INTGEMM16: "<i2"}
# A model of 1,000 layers has fewer arrays, and Marian's arrays have at most four dimensions.
MAX_ARRAYS, MAX_DIMENSIONS, MAX_NAME = 100_000, 8, 1_000
# Embeddings are quantised, but not transposed.
EMBEDDING = "Wemb"
# The fixed scales of activations. Here each row of activations has its own scale.
ACTIVATION_SCALE = "_QuantMultA"


class BinaryError(ValueError):
    """A file that is damaged, or of another format."""


class _Header(NamedTuple):
    """An array's entry. num_bytes may be more than the array needs."""

    name_length: int
    type: int
    num_dimensions: int
    num_bytes: int


class _Reader:
    """Takes numbers from a file's bytes, one after another."""

    def __init__(self, data: NDArray[np.uint8]) -> None:
        self._data, self._at = data, 0

    @property
    def num_left(self) -> int:
        """Bytes that are not taken yet."""
        return len(self._data) - self._at

    def take(self, count: int, dtype: str) -> NDArray[Any]:
        """The next `count` numbers, without a copy. Raises BinaryError if the file ends before."""
        num_bytes = count * np.dtype(dtype).itemsize
        if num_bytes > self.num_left:
            raise BinaryError("it is truncated")
        part = self._data[self._at : self._at + num_bytes]
        self._at += num_bytes
        return np.frombuffer(part, dtype)

    def take_one(self) -> int:
        """The next uint64."""
        return int(self.take(1, "<u8")[0])


def read_arrays(path: Path) -> dict[str, NDArray[Any]]:
    """The arrays of a model's .bin file, by name, as the .npz file has them: matrices are (inputs, outputs).

    Quantised weights become float32. The scales of activations are left out. Raises BinaryError and OSError.
    """
    reader = _Reader(_mapped(path))
    version, num_arrays = reader.take_one(), reader.take_one()
    if version != FILE_VERSION:
        raise BinaryError(
            f"it is not a binary model of Marian: its version is {version} instead of {FILE_VERSION}"
        )
    if num_arrays > MAX_ARRAYS:
        raise BinaryError(f"it claims {num_arrays} arrays; at most {MAX_ARRAYS} are possible")
    headers = [_Header(*map(int, reader.take(4, "<u8"))) for _ in range(num_arrays)]
    if any(each.name_length > MAX_NAME or each.num_dimensions > MAX_DIMENSIONS for each in headers):
        raise BinaryError("it has an array with an impossible name or shape")
    names = [_name(reader.take(each.name_length, "u1").tobytes()) for each in headers]
    shapes = [tuple(map(int, reader.take(each.num_dimensions, "<i4"))) for each in headers]
    reader.take(reader.take_one(), "u1")  # padding up to the first array
    arrays = {}
    for header, name, shape in zip(headers, names, shapes, strict=True):
        data = reader.take(header.num_bytes, "u1")
        if not name.endswith(ACTIVATION_SCALE):
            arrays[name] = _array(name, header.type, shape, data)
    return arrays


def _mapped(path: Path) -> NDArray[np.uint8]:
    """The bytes of a file, whose pages are mapped. A written page is a copy. Raises BinaryError and OSError."""
    try:
        return np.memmap(path, np.uint8, "c")  # PyTorch warns of arrays that it cannot write
    except ValueError as error:  # an empty file
        raise BinaryError("it is empty") from error


def _name(content: bytes) -> str:
    try:
        return content.rstrip(b"\0").decode()
    except UnicodeDecodeError as error:
        raise BinaryError("an array's name is not UTF-8") from error


def _array(name: str, kind: int, shape: tuple[int, ...], data: NDArray[np.uint8]) -> NDArray[Any]:
    """An array by its type. Raises BinaryError for another type, and if the bytes are too few."""
    if min(shape, default=1) < 0:
        raise BinaryError(f"{name} has the impossible shape {shape}")
    size, reader = math.prod(shape), _Reader(data)
    if kind in PLAIN_TYPES:
        return reader.take(size, PLAIN_TYPES[kind]).reshape(shape)
    if kind not in QUANTISED_TYPES:
        raise BinaryError(
            f"{name} has the type 0x{kind:04x}; only float32, float16, intgemm8 and intgemm16 can be read. "
            "Types for a single instruction set are stored in tiles"
        )
    values = reader.take(size, QUANTISED_TYPES[kind])
    scale = float(reader.take(1, "<f4")[0])
    if not math.isfinite(scale) or scale == 0:
        raise BinaryError(f"{name} has the impossible scale {scale}")
    if EMBEDDING not in name and len(shape) == 2:  # stored as (outputs, inputs)
        values = values.reshape(shape[::-1]).T
    divided: NDArray[np.float32] = np.divide(values.reshape(shape), np.float32(scale), dtype=np.float32)
    return divided


# --- the shortlist


@dataclass(frozen=True)
class MarianShortlist:
    """A lexical shortlist: which target subwords a source subword may become.

    num_first: the first ids of the vocabulary, which every shortlist has. ids: those of source subword s are
    ids[offsets[s]:offsets[s + 1]].
    """

    num_first: int
    offsets: NDArray[np.int64]
    ids: NDArray[np.int64]


def is_shortlist(path: Path) -> bool:
    """Whether a file begins as a shortlist. Raises OSError."""
    with path.open("rb") as file:
        return file.read(8) == SHORTLIST_MAGIC.to_bytes(8, "little")


def read_shortlist(path: Path, *, num_source: int, num_target: int) -> MarianShortlist:
    """A shortlist. num_source, num_target: subwords of the vocabularies. Raises BinaryError and OSError.

    The file's checksum, which covers only what is checked here, is not compared.
    """
    reader = _Reader(_mapped(path))
    magic, _, num_first, _, num_offsets, num_ids = map(int, reader.take(6, "<u8"))
    if magic != SHORTLIST_MAGIC:
        raise BinaryError("it is not a binary shortlist of Marian")
    if num_offsets != num_source + 1:
        raise BinaryError(f"it is for {num_offsets - 1} source subwords, and the vocabulary has {num_source}")
    offsets = reader.take(num_offsets, "<u8").astype(np.int64)
    ids = reader.take(num_ids, "<u4").astype(np.int64)
    if reader.num_left:
        raise BinaryError(f"it has {reader.num_left} bytes after its last id")
    if offsets[0] != 0 or offsets[-1] != num_ids or (np.diff(offsets) < 0).any():
        raise BinaryError(f"its offsets do not ascend from 0 to {num_ids}")
    if num_ids and int(ids.max()) >= num_target:
        raise BinaryError(f"it has the id {ids.max()}, and the vocabulary has {num_target} subwords")
    return MarianShortlist(min(num_first, num_target), offsets, ids)
