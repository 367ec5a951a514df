"""A growing set of 64-bit hashes in numpy arrays. An entry takes 8 bytes; in a Python set it takes about 60."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

UInt64s = NDArray[np.uint64]
Bools = NDArray[np.bool_]


class SeenHashes:
    """Hashes in sorted runs, merged as in a log-structured merge tree (O'Neil et al. 1996).

    Each run is at least twice as long as the next one, so that a lookup searches a logarithmic number of runs.
    The probability that two of m different texts have the same hash is about m^2 / 2^65. For two million texts this is
    one in ten million.
    """

    def __init__(self) -> None:
        self._runs: list[UInt64s] = []

    def __len__(self) -> int:
        return sum(len(run) for run in self._runs)

    @property
    def num_bytes(self) -> int:
        """Bytes of the arrays. A merge temporarily needs up to twice this number in addition."""
        return sum(run.nbytes for run in self._runs)

    def contains(self, hashes: UInt64s) -> Bools:
        """Return whether each of `hashes` (n,) is in the set: (n,)."""
        found = np.zeros(len(hashes), np.bool_)
        for run in self._runs:
            positions = np.searchsorted(run, hashes)
            positions[positions == len(run)] = 0
            found |= run[positions] == hashes
        return found

    def add(self, hashes: UInt64s) -> Bools:
        """Add `hashes` (n,), and return which were new: (n,).

        If `hashes` contains duplicates, only the first counts as new.
        """
        if not len(hashes):
            return np.zeros(0, np.bool_)
        unique, first = np.unique(hashes, return_index=True)
        is_new_unique = ~self.contains(unique)
        is_new = np.zeros(len(hashes), np.bool_)
        is_new[first[is_new_unique]] = True
        if is_new_unique.any():
            self._runs.append(unique[is_new_unique])
        while len(self._runs) > 1 and len(self._runs[-2]) < 2 * len(self._runs[-1]):
            last = self._runs.pop()
            self._runs[-1] = np.sort(np.concatenate([self._runs[-1], last]), kind="stable")
        return is_new
