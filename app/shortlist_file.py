"""The file of shortlists in a bundle: which target subwords a source subword may become. Imports only numpy.

A table belongs to one direction of a model. The file has the 8 bytes of MAGIC, then little-endian numbers:

- the vocabulary size and the number of tables, uint32;
- for each table: num_always and num_ids, uint32; `always` (num_always,) and `ids` (num_ids,), uint16, or uint32 if the
  vocabulary has more than 65,536 subwords; `offsets` (vocab_size + 1,), uint32.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import DTypeLike, NDArray

Int32s = NDArray[np.int32]
Uint32s = NDArray[np.uint32]

SHORTLIST = "shortlist.bin"
MAGIC = b"TRSHORT1"
# The minimum number of ids in `always`: a step returns up to 63 candidates, and one more is ranked. If a vocabulary is
# smaller, `always` has all of its ids.
MIN_ALWAYS = 64


class ShortlistError(ValueError):
    """The file holds no shortlists, or its numbers contradict each other."""


@dataclass(frozen=True)
class ShortlistTable:
    """The table of one direction.

    always: target ids that every shortlist has, ascending. ids: target ids; those that source subword s may become are
    ids[offsets[s]:offsets[s + 1]].
    """

    always: NDArray[np.unsignedinteger]
    ids: NDArray[np.unsignedinteger]
    offsets: Uint32s

    @property
    def vocab_size(self) -> int:
        """Number of ids in the vocabulary, the same for source and target."""
        return len(self.offsets) - 1

    def shortlist(self, source_ids: Sequence[int] | Int32s) -> Int32s:
        """The ids that a translation of this source may have, ascending. Source ids must be in range."""
        is_listed = np.zeros(self.vocab_size, bool)
        first, end = (self.offsets[np.add(source_ids, shift)].tolist() for shift in (0, 1))
        lists = [self.ids[slice(*bounds)] for bounds in zip(first, end, strict=True)]
        is_listed[np.concatenate([self.always, *lists])] = True
        return is_listed.nonzero()[0].astype(np.int32)


def write_shortlists(path: Path, tables: Sequence[ShortlistTable]) -> None:
    """Write a file of shortlists. tables: at least one, all of one vocabulary."""
    vocab_size = tables[0].vocab_size
    parts = [MAGIC, np.array([vocab_size, len(tables)], "<u4").tobytes()]
    for table in tables:
        parts.append(np.array([len(table.always), len(table.ids)], "<u4").tobytes())
        parts += [values.astype(_id_type(vocab_size)).tobytes() for values in (table.always, table.ids)]
        parts.append(table.offsets.astype("<u4").tobytes())
    path.write_bytes(b"".join(parts))


def read_shortlists(path: Path) -> tuple[ShortlistTable, ...]:
    """The tables of a file, which is mapped into memory. Raises ShortlistError with the fault, and OSError."""
    try:
        data = np.memmap(path, np.uint8, "r")
    except ValueError as error:  # an empty file
        raise ShortlistError("it is empty") from error
    reader = _Reader(data)
    if reader.take(len(MAGIC), "u1").tobytes() != MAGIC:
        raise ShortlistError(f"it does not begin with {MAGIC.decode()}")
    vocab_size, num_tables = reader.take(2, "<u4").tolist()
    tables = []
    for _ in range(num_tables):
        num_always, num_ids = reader.take(2, "<u4").tolist()
        always, ids = (reader.take(count, _id_type(vocab_size)) for count in (num_always, num_ids))
        tables.append(ShortlistTable(always, ids, reader.take(vocab_size + 1, "<u4")))
    if reader.num_left:
        raise ShortlistError(f"it has {reader.num_left} bytes after its last table")
    for number, table in enumerate(tables):
        _check(table, number)
    return tuple(tables)


def _check(table: ShortlistTable, number: int) -> None:
    """Raise ShortlistError if a table's numbers contradict each other."""
    vocab_size, offsets = table.vocab_size, table.offsets
    for name, ids in (("always", table.always), ("ids", table.ids)):
        if len(ids) and int(ids.max()) >= vocab_size:
            raise ShortlistError(
                f"table {number}: {name} has the id {ids.max()}, and the vocabulary has {vocab_size} subwords"
            )
    if len(table.always) < min(MIN_ALWAYS, vocab_size) or (np.diff(table.always.astype(np.int64)) <= 0).any():
        raise ShortlistError(f"table {number}: always is not ascending, or has fewer than {MIN_ALWAYS} ids")
    if offsets[0] != 0 or offsets[-1] != len(table.ids) or (np.diff(offsets.astype(np.int64)) < 0).any():
        raise ShortlistError(f"table {number}: the offsets do not ascend from 0 to {len(table.ids)}")


class _Reader:
    """Takes arrays from a file's bytes, one after another."""

    def __init__(self, data: NDArray[np.uint8]) -> None:
        self._data, self._at = data, 0

    @property
    def num_left(self) -> int:
        return len(self._data) - self._at

    def take(self, count: int, dtype: DTypeLike) -> NDArray[np.unsignedinteger]:
        """The next `count` numbers, without a copy. Raises ShortlistError if the file ends before."""
        num_bytes = count * np.dtype(dtype).itemsize
        if num_bytes > self.num_left:
            raise ShortlistError("it is truncated")
        part = self._data[self._at : self._at + num_bytes]
        self._at += num_bytes
        return np.frombuffer(part, dtype)


def _id_type(vocab_size: int) -> str:
    return "<u2" if vocab_size <= 1 << 16 else "<u4"
