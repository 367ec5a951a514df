"""Reads Marian's binary files: the weights of a model, such as those of Firefox, and a shortlist. Imports only numpy.

All numbers are little-endian. Marian's sources describe the formats: src/common/binary.cpp, src/common/types.h,
src/tensors/cpu/expression_graph_packable.h and src/data/shortlist.h of browsermt/marian-dev.
"""

from __future__ import annotations

import math
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import numpy as np
from numpy.typing import NDArray

FILE_VERSION = 1
SHORTLIST_MAGIC = 0xF11A48D5013417F5
# The numbers of the types that this module reads.
INT8, FLOAT16, FLOAT32, INTGEMM8, INTGEMM16 = 0x0101, 0x0402, 0x0404, 0x4101, 0x4102
PLAIN_TYPES = {INT8: "<i1", FLOAT16: "<f2", FLOAT32: "<f4"}
QUANTISED_TYPES = {INTGEMM8: "<i1", INTGEMM16: "<i2"}
# More than any real model has: one of 1,000 layers has fewer arrays, and Marian's have at most four dimensions.
MAX_ARRAYS, MAX_DIMENSIONS, MAX_NAME = 100_000, 8, 1_000
# Embeddings are quantised, but not transposed.
EMBEDDING = "Wemb"
# Arrays whose names end with this suffix are fixed scales of activations. They are left out, because the runtime
# computes a scale for each row of activations.
ACTIVATION_SCALE = "_QuantMultA"


class BinaryError(ValueError):
    """A file that is damaged, or of another format."""


class _Header(NamedTuple):
    """An array's entry. num_bytes may be more than the array needs."""

    name_length: int
    type: int
    num_dimensions: int
    num_bytes: int


def _num_left(file: BinaryIO) -> int:
    """Bytes that are not read yet."""
    return os.fstat(file.fileno()).st_size - file.tell()


def _take(file: BinaryIO, count: int, dtype: str) -> NDArray[Any]:
    """The next `count` numbers. Raises BinaryError if the file has fewer, before it allocates memory for them."""
    if count * np.dtype(dtype).itemsize > _num_left(file):
        raise BinaryError("it is truncated")
    return np.fromfile(file, dtype, count)


def _take_one(file: BinaryIO) -> int:
    """The next uint64."""
    return int(_take(file, 1, "<u8")[0])


def read_arrays(path: Path) -> dict[str, NDArray[Any]]:
    """The arrays of a model's .bin file, by name, as the .npz file has them: matrices are (inputs, outputs).

    Quantised weights become float32. The scales of activations are left out. Raises BinaryError and OSError.
    """
    with path.open("rb") as file:
        if not _num_left(file):
            raise BinaryError("it is empty")
        version, num_arrays = _take_one(file), _take_one(file)
        if version != FILE_VERSION:
            raise BinaryError(
                f"it is not a binary model of Marian: its version is {version} instead of {FILE_VERSION}"
            )
        if num_arrays > MAX_ARRAYS:
            raise BinaryError(f"it claims {num_arrays} arrays; at most {MAX_ARRAYS} are possible")
        headers = [_Header(*map(int, _take(file, 4, "<u8"))) for _ in range(num_arrays)]
        if any(each.name_length > MAX_NAME or each.num_dimensions > MAX_DIMENSIONS for each in headers):
            raise BinaryError("it has an array with an impossible name or shape")
        names = [_name(_take(file, each.name_length, "u1").tobytes()) for each in headers]
        shapes = [tuple(map(int, _take(file, each.num_dimensions, "<i4"))) for each in headers]
        _take(file, _take_one(file), "u1")  # padding up to the first array
        arrays = {}
        for header, name, shape in zip(headers, names, shapes, strict=True):
            data = _take(file, header.num_bytes, "u1")
            if not name.endswith(ACTIVATION_SCALE):
                arrays[name] = _array(name, header.type, shape, data)
    return arrays


def _name(content: bytes) -> str:
    try:
        return content.rstrip(b"\0").decode()
    except UnicodeDecodeError as error:
        raise BinaryError("an array's name is not UTF-8") from error


def _array(name: str, kind: int, shape: tuple[int, ...], data: NDArray[np.uint8]) -> NDArray[Any]:
    """An array by its type. Raises BinaryError for an impossible shape or scale, another type, and too few bytes."""
    if min(shape, default=1) < 0:
        raise BinaryError(f"{name} has the impossible shape {shape}")
    size = math.prod(shape)
    if kind in PLAIN_TYPES:
        return _part(name, data, 0, size, PLAIN_TYPES[kind]).reshape(shape)
    if kind not in QUANTISED_TYPES:
        raise BinaryError(
            f"{name} has the type 0x{kind:04x}; only float32, float16, int8, intgemm8 and intgemm16 can be read. "
            "A type for one instruction set, such as intgemm8avx2, is stored in tiles: make an intgemm8 file from the "
            "float model"
        )
    values = _part(name, data, 0, size, QUANTISED_TYPES[kind])
    scale = float(_part(name, data, values.nbytes, 1, "<f4")[0])
    if not math.isfinite(scale) or scale == 0:
        raise BinaryError(f"{name} has the impossible scale {scale}")
    if EMBEDDING not in name and len(shape) == 2:  # stored as (outputs, inputs)
        values = values.reshape(shape[::-1]).T
    divided: NDArray[np.float32] = np.divide(values.reshape(shape), np.float32(scale), dtype=np.float32)
    return divided


def _part(name: str, data: NDArray[np.uint8], start: int, count: int, dtype: str) -> NDArray[Any]:
    """The `count` numbers of an array from byte `start` on, without a copy. Raises BinaryError for too few bytes."""
    num_needed = start + count * np.dtype(dtype).itemsize
    if num_needed > len(data):
        raise BinaryError(f"{name} has {len(data)} bytes, and needs {num_needed}")
    return np.frombuffer(data, dtype, count, start)


def is_binary_model(path: Path) -> bool:
    """Whether a file begins as a binary model of Marian does. Raises OSError."""
    return _begins_with(path, FILE_VERSION)


def _begins_with(path: Path, number: int) -> bool:
    with path.open("rb") as file:
        return file.read(8) == number.to_bytes(8, "little")


# --- the shortlist


@dataclass(frozen=True)
class MarianShortlist:
    """A lexical shortlist: which target subwords a source subword may become.

    num_first: how many of the first target ids belong to the list of every sentence. ids: target ids; those of source
    subword s are ids[offsets[s]:offsets[s + 1]].
    """

    num_first: int
    offsets: NDArray[np.int64]
    ids: NDArray[np.int64]


def is_shortlist(path: Path) -> bool:
    """Whether a file begins as a shortlist of Marian does. Raises OSError."""
    return _begins_with(path, SHORTLIST_MAGIC)


def read_shortlist(path: Path, *, num_source: int, num_target: int) -> MarianShortlist:
    """A shortlist. num_source, num_target: subwords of the vocabularies. Raises BinaryError and OSError.

    The file's checksum is not compared. Only sizes, offsets and the range of the ids are checked, so a changed id
    within the range is not noticed.
    """
    with path.open("rb") as file:
        magic, _, num_first, _, num_offsets, num_ids = map(int, _take(file, 6, "<u8"))
        if magic != SHORTLIST_MAGIC:
            raise BinaryError("it is not a binary shortlist of Marian")
        if num_offsets != num_source + 1:
            raise BinaryError(
                f"it is for {num_offsets - 1} source subwords, and the vocabulary has {num_source}"
            )
        offsets = _take(file, num_offsets, "<u8").astype(np.int64)
        ids = _take(file, num_ids, "<u4").astype(np.int64)
        if num_left := _num_left(file):
            raise BinaryError(f"it has {num_left} bytes after its last id")
    if offsets[0] != 0 or offsets[-1] != num_ids or (np.diff(offsets) < 0).any():
        raise BinaryError(f"its offsets do not ascend from 0 to {num_ids}")
    if num_ids and int(ids.max()) >= num_target:
        raise BinaryError(f"it has the id {ids.max()}, and the vocabulary has {num_target} subwords")
    return MarianShortlist(min(num_first, num_target), offsets, ids)
