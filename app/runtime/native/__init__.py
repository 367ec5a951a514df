"""The server's own CPU kernels: a library of ONNX Runtime custom operators, where it was built and where it can run.

The library is native code for x86-64 with AVX-512 VNNI (docs/native-kernels.md). Nothing here loads ONNX Runtime:
a session takes the path of the library.
"""

from __future__ import annotations

import ctypes
import sysconfig
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from app.runtime.stop_condition import StopCondition

# As Linux names them in /proc/cpuinfo, where a flag stands only if the kernel lets programs use it.
NEEDED_FLAGS = frozenset(
    {"avx512f", "avx512bw", "avx512vl", "avx512dq", "avx512_vnni", "f16c", "fma", "bmi2"}
)
CPU_INFO = Path("/proc/cpuinfo")
# What copies.cpp returns for moves that it refuses.
NO_SUCH_ROW, NO_SUCH_BYTES = 1, 2
# Rows that a step of the widest beam copies at most, and one.
MAX_COPIES = 16
# In the order of native/block_times.h.
STACKS = ("encoder", "decoder")
BLOCK_KINDS = (
    "embedding",
    "self-attention sub-layer",
    "cross-attention sub-layer",
    "feed-forward sub-layer",
    "cross keys and values",
    "projection and top-k",
)


def library_path() -> Path | None:
    """Where the library is; None where it was not built."""
    path = Path(__file__).with_name(f"_kernels{sysconfig.get_config_var('EXT_SUFFIX')}")
    return path if path.is_file() else None


def is_supported(cpu_info: Path = CPU_INFO) -> bool:
    """Whether this machine's CPU has every instruction that the library is made of.

    cpu_info: what Linux says of the CPU; a system without it is not supported.
    """
    try:
        lines = cpu_info.read_text().splitlines()
    except OSError:
        return False
    flags = next((line.partition(":")[2].split() for line in lines if line.startswith("flags")), [])
    return NEEDED_FLAGS.issubset(flags)


def set_num_threads(num_threads: int, *, spin_us: int | None = None) -> int:
    """Have this many threads work on an operator, the caller among them; 1 until this is called.

    spin_us: how long a thread looks for the next operator before it sleeps; None leaves it as it is (150 at first).
    Returns how many there are then: fewer where the system gives no more. One team serves all sessions of the
    process. Raises ValueError for less than 1, RuntimeError where the library cannot be used.
    """
    if num_threads < 1:
        raise ValueError(f"num_threads is {num_threads}; it must be at least 1")
    library = _library()
    if spin_us is not None:
        library.transduce_set_spin_us(spin_us)
    count: int = library.transduce_set_num_threads(num_threads)
    return count


def share_threads(num_sharing: int) -> None:
    """Have one part in `num_sharing` of the threads work from the next operator on, at least one; 1: all of them.

    The others sleep. Not while an operator runs. Raises RuntimeError where the library cannot be used.
    """
    _library().transduce_share_threads(num_sharing)


def allow_matrix_tiles(is_allowed: bool) -> bool:
    """Whether int8 products may use the processor's tile registers (AMX-INT8); at first they may. Same integers.

    Returns whether they are used now: False too where the processor or the system has none. Raises RuntimeError where
    the library cannot be used.
    """
    return bool(_library().transduce_allow_matrix_tiles(int(is_allowed)))


def block_times() -> dict[str, dict[str, float]]:
    """Seconds that `encoder` and `decoder` have spent in each kind of block in this process, all threads together.

    Raises RuntimeError where the library cannot be used.
    """
    nanoseconds = np.zeros((len(STACKS), len(BLOCK_KINDS)), np.int64)
    _library().transduce_block_times(ctypes.c_void_p(nanoseconds.ctypes.data))
    found = zip(STACKS, (nanoseconds / 1e9).tolist(), strict=True)
    return {stack: dict(zip(BLOCK_KINDS, seconds, strict=True)) for stack, seconds in found}


def copy_rows(values: NDArray[Any], moves: NDArray[np.int64]) -> None:
    """Copy parts of rows to rows as if all at once, in every plane; the team's threads share the planes.

    values: (planes, rows, ...), one block. moves: (4, n) source row, target row, first byte and end of what is
    copied; each target once. Raises IndexError for a row that there is not, ValueError for bytes that a row has not.
    """
    num_planes, num_rows = values.shape[:2]
    plane_bytes, row_bytes = values.strides[:2]
    moves = np.ascontiguousarray(moves)
    fault = _library().transduce_copy_rows(
        *(values.ctypes.data, num_planes, plane_bytes, row_bytes, moves.ctypes.data, moves.shape[1])
    )
    if fault == NO_SUCH_ROW:
        raise IndexError(f"a row is outside of 0..{num_rows - 1}")
    if fault == NO_SUCH_BYTES:
        raise ValueError(f"a row has {row_bytes} bytes, and others of it are to be copied")


class DecodeArgs:
    """What a call of the decoder is given beside what its graph says (native/step_budget.h). One thread's own.

    max_beams: that it may be given. Raises RuntimeError where the library cannot be used.
    """

    def __init__(self, max_beams: int) -> None:
        self._set = _library().transduce_give
        self._addresses = np.zeros(max_beams, np.int64)
        self._outcomes = np.zeros(max_beams + 1, np.int64)
        self._pointers = self._addresses.ctypes.data, self._outcomes.ctypes.data

    def set_args(self, addresses: list[int], num_steps: int, stop: StopCondition) -> None:
        """Give these beams to the next call on this thread, and how many steps it may take."""
        count = len(addresses)
        if count:
            self._addresses[:count] = addresses
        addresses_at, outcomes_at = self._pointers
        wake_flag = None if stop.wake_flag is None else stop.wake_flag.address
        self._set(
            *(addresses_at, count, num_steps, stop.steps_after_end, wake_flag, stop.min_steps, outcomes_at)
        )

    def clear_args(self) -> None:
        """Give nothing: a call that failed may not have begun."""
        self._set(None, 0, 1, 0, None, 0, None)

    def read_outcome(self, num_beams: int) -> tuple[int, list[int]]:
        """After the call: how many steps it took, and of each beam the outcome of the last."""
        num_steps, *outcomes = self._outcomes[: num_beams + 1].tolist()
        return num_steps, outcomes


def advance_beam(
    address: int,
    log_probabilities: NDArray[np.float32],
    ids: NDArray[np.int64],
    attention: NDArray[np.float32] | None = None,
) -> tuple[int, list[list[int]]]:
    """One step of one beam, given all rows' candidates (rows, k), and attention (rows, capacity) where it wants that.

    Returns its outcome and the copies that its rows need: source row, target row, first column, end. Raises
    RuntimeError where the library cannot be used.
    """
    copies = np.zeros((MAX_COPIES, 4), np.int64)
    count = ctypes.c_int64()
    scores, ids = np.ascontiguousarray(log_probabilities), np.ascontiguousarray(ids)
    paid = np.zeros((0, 0), np.float32) if attention is None else np.ascontiguousarray(attention)
    arguments = address, scores.ctypes.data, ids.ctypes.data, ids.shape[1], paid.ctypes.data, paid.shape[1]
    outcome: int = _library().transduce_advance_beam(*arguments, copies.ctypes.data, ctypes.byref(count))
    return outcome, copies[: count.value].tolist()


@cache
def _library() -> ctypes.CDLL:
    path = library_path()
    if path is None:
        raise RuntimeError("the native kernels were not built")
    if not is_supported():
        raise RuntimeError("this CPU lacks instructions that the native kernels need")
    library = ctypes.CDLL(str(path))
    pointer, size = ctypes.c_void_p, ctypes.c_int64
    library.transduce_copy_rows.argtypes = (pointer, size, size, size, pointer, size)
    library.transduce_copy_rows.restype = ctypes.c_int32
    library.transduce_give.argtypes = (pointer, size, size, size, pointer, size, pointer)
    library.transduce_give.restype = None
    library.transduce_advance_beam.argtypes = (
        *(pointer, pointer, pointer, size, pointer, size),
        *(pointer, pointer),
    )
    library.transduce_advance_beam.restype = size
    return library
