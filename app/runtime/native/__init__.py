"""The native CPU kernels, a C++ library of ONNX Runtime custom operators, and the calls of its C functions.

There is a library for each target, a set of instructions (cpu.py, docs/native-kernels.md). A process uses one of
them. This module does not load ONNX Runtime. A session receives the library's path.
"""

from __future__ import annotations

import ctypes
import math
import sysconfig
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from app.runtime.native.cpu import TARGETS, supported_targets
from app.runtime.native.cpu import is_supported as is_supported
from app.runtime.native.slot_shortlists import SlotShortlists, declare_shortlists
from app.runtime.stop_condition import StopCondition

# Return values of transduce_copy_rows for copies that fail.
NO_SUCH_ROW, NO_SUCH_BYTES, NO_MEMORY = 1, 2, 3
# Copies that the array of `advance_beam` has room for. A step of the widest beam has at most 15. If smaller, the
# library writes past the array.
MAX_COPIES = 16
# The C functions that this package calls. A library that lacks one was built from other sources.
FUNCTIONS = (
    "transduce_advance_beam",
    "transduce_allow_matrix_tiles",
    "transduce_block_times",
    "transduce_copy_rows",
    "transduce_delete_shortlists",
    "transduce_new_shortlists",
    "transduce_set_decoder_args",
    "transduce_set_gpu_attention",
    "transduce_set_num_threads",
    "transduce_set_shortlists",
    "transduce_set_spin_us",
    "transduce_share_threads",
)
# The order must be that of native/block_times.h.
STACKS = ("encoder", "decoder")
BLOCK_KINDS = (
    "embedding",
    "self-attention sub-layer",
    "cross-attention sub-layer",
    "feed-forward sub-layer",
    "cross keys and values",
    "projection and top-k",
)


class _Selection:
    """The target that `select_target` has chosen for this process; None: the fastest usable one."""

    target: str | None = None


def built_targets() -> tuple[str, ...]:
    """The targets whose libraries are built, the fastest first."""
    return tuple(target for target in TARGETS if _path_of(target).is_file())


def usable_targets() -> tuple[str, ...]:
    """The targets that are built and that this processor can run, the fastest first."""
    supported = supported_targets()
    return tuple(target for target in built_targets() if target in supported)


def select_target(target: str | None) -> None:
    """Use the library of this target from now on in this process. None: the library of the fastest usable target.

    Sessions that exist keep their library. Raises RuntimeError if the target is not usable.
    """
    if target is not None and target not in usable_targets():
        raise RuntimeError(f"the native kernels for {target} cannot be used here")
    _Selection.target = target
    _library.cache_clear()


def used_target() -> str | None:
    """The target whose library is used; None if none is usable."""
    return _Selection.target or next(iter(usable_targets()), None)


def library_path() -> Path | None:
    """The path of the library that is used; None if none is usable."""
    target = used_target()
    return None if target is None else _path_of(target)


def _path_of(target: str) -> Path:
    return Path(__file__).with_name(f"_kernels_{target}{sysconfig.get_config_var('EXT_SUFFIX')}")


def set_num_threads(num_threads: int, *, spin_us: int | None = None) -> int:
    """Set how many threads share an operator, the caller included (initially 1). Returns how many there are.

    spin_us: microseconds for which an idle thread polls for the next operator before it sleeps (initially 150); None
    keeps the value. There are fewer threads than requested if the pool or the system refuses more. One thread pool
    serves all sessions of the process. Raises ValueError for less than 1, RuntimeError if the library cannot be used.
    """
    if num_threads < 1:
        raise ValueError(f"num_threads is {num_threads}; it must be at least 1")
    library = _library()
    if spin_us is not None:
        library.transduce_set_spin_us(spin_us)
    count: int = library.transduce_set_num_threads(num_threads)
    return count


def share_threads(num_sharing: int) -> None:
    """Use 1/num_sharing of the threads, at least one, from the next operator on. The others sleep.

    Must not be called while an operator runs. Raises RuntimeError if the library cannot be used.
    """
    _library().transduce_share_threads(num_sharing)


def allow_matrix_tiles(is_allowed: bool) -> bool:
    """Allow or forbid AMX-INT8 tile registers for int8 products (initially allowed). The results are equal.

    Returns whether the registers are used now, which is False also if the processor or the system has none. Raises
    RuntimeError if the library cannot be used.
    """
    return bool(_library().transduce_allow_matrix_tiles(int(is_allowed)))


def block_times() -> dict[str, dict[str, float]]:
    """Seconds spent by `encoder` and `decoder` in each kind of block in this process (native/block_times.h).

    Raises RuntimeError if the library cannot be used.
    """
    nanoseconds = np.zeros((len(STACKS), len(BLOCK_KINDS)), np.int64)
    _library().transduce_block_times(ctypes.c_void_p(nanoseconds.ctypes.data))
    by_stack = zip(STACKS, (nanoseconds / 1e9).tolist(), strict=True)
    return {stack: dict(zip(BLOCK_KINDS, seconds, strict=True)) for stack, seconds in by_stack}


def copy_rows(values: NDArray[Any], moves: NDArray[np.int64]) -> None:
    """Copy parts of rows to rows in every plane, as if all at once. The thread pool shares the planes.

    values: (planes, rows, ...), contiguous, with at least one byte in a row. moves: (4, n) source row, target row,
    first byte and end byte of the copied part, each target once. Raises IndexError for a row out of range, ValueError
    for bytes out of range, and RuntimeError if the library cannot be used. After a MemoryError the target rows are
    undefined.
    """
    # Sizes come from the shape, not from the strides: the stride of an axis of length 1 has no meaning.
    num_planes, num_rows = values.shape[:2]
    row_bytes = values.itemsize * math.prod(values.shape[2:])
    plane_bytes = num_rows * row_bytes
    moves = np.ascontiguousarray(moves)
    fault = _library().transduce_copy_rows(
        *(values.ctypes.data, num_planes, plane_bytes, row_bytes, moves.ctypes.data, moves.shape[1])
    )
    if fault == NO_SUCH_ROW:
        raise IndexError(f"a row is outside of 0..{num_rows - 1}")
    if fault == NO_SUCH_BYTES:
        raise ValueError(f"the bytes to copy are outside of a row, which has {row_bytes}")
    if fault == NO_MEMORY:
        raise MemoryError("no memory for a copy of rows")


def new_shortlists(num_slots: int) -> SlotShortlists:
    """Shortlists for this many slots. Raises RuntimeError if the library cannot be used, and MemoryError."""
    return SlotShortlists(_library(), num_slots)


def set_gpu_attention(launch: int, function: int) -> None:
    """Set the kernel that the operator RowAttention launches on a GPU, in all sessions of the process.

    launch: the address of the driver's cuLaunchKernel. function: the kernel's CUfunction. Raises RuntimeError if the
    library cannot be used.
    """
    _library().transduce_set_gpu_attention(ctypes.c_void_p(launch), ctypes.c_void_p(function))


class DecodeArgs:
    """Arguments and outcomes of decoder calls that are not graph inputs or outputs. Used by one thread only.

    native/step_budget.h describes them.
    """

    def __init__(self, max_beams: int) -> None:
        """Allocate arrays for at most `max_beams` beams. Raises RuntimeError if the library cannot be used."""
        self._set = _library().transduce_set_decoder_args
        self._addresses = np.zeros(max_beams, np.int64)
        self._outcomes = np.zeros(max_beams + 1, np.int64)
        self._pointers = self._addresses.ctypes.data, self._outcomes.ctypes.data

    def set_args(
        self,
        addresses: list[int],
        num_steps: int,
        stop: StopCondition,
        *,
        first_position: int = 0,
        shortlists: int | None = None,
    ) -> None:
        """Set the beams, the maximum number of steps and the stop condition of this thread's next call.

        addresses: the addresses of `SharedBeam` memory. first_position: the position of a row in its first step.
        shortlists: `SlotShortlists.address`; None: all rows choose among the whole vocabulary. The arguments apply to
        one call only.
        """
        count = len(addresses)
        if count:
            self._addresses[:count] = addresses
        addresses_at, outcomes_at = self._pointers
        wake_flag = None if stop.wake_flag is None else stop.wake_flag.address
        self._set(
            *(addresses_at, count, num_steps, stop.steps_after_end, wake_flag, stop.min_steps),
            *(first_position, outcomes_at, shortlists),
        )

    def clear_args(self) -> None:
        """Clear the arguments after a failed call. The call may have ended before it read them."""
        self._set(None, 0, 1, 0, None, 0, 0, None, None)

    def read_outcome(self, num_beams: int) -> tuple[int, list[int]]:
        """The steps taken by the last call, and the `BeamOutcome` of each of its beams."""
        num_steps, *outcomes = self._outcomes[: num_beams + 1].tolist()
        return num_steps, outcomes


def advance_beam(
    address: int,
    log_probabilities: NDArray[np.float32],
    ids: NDArray[np.int64],
    attention: NDArray[np.float32] | None = None,
) -> tuple[int, list[list[int]]]:
    """Advance one beam by one step, for tests. Returns its `BeamOutcome` and the copies that its rows need.

    The outcome is -1 if memory runs out. log_probabilities, ids: (rows, k), the candidates of all rows. attention:
    (rows, capacity), if the beam records it. A copy is source row, target row, first column, end column. Raises
    RuntimeError if the library cannot be used.
    """
    copies = np.zeros((MAX_COPIES, 4), np.int64)
    count = ctypes.c_int64()
    scores, ids = np.ascontiguousarray(log_probabilities), np.ascontiguousarray(ids)
    weights = np.zeros((0, 0), np.float32) if attention is None else np.ascontiguousarray(attention)
    arguments = (
        address,
        scores.ctypes.data,
        ids.ctypes.data,
        ids.shape[1],
        weights.ctypes.data,
        weights.shape[1],
    )
    outcome: int = _library().transduce_advance_beam(*arguments, copies.ctypes.data, ctypes.byref(count))
    return outcome, copies[: count.value].tolist()


@cache
def _library() -> ctypes.CDLL:
    if not is_supported():
        raise RuntimeError("this CPU lacks instructions that the native kernels need")
    path = library_path()
    if path is None:
        raise RuntimeError("the native kernels are not built")
    try:
        library = ctypes.CDLL(str(path))
    except OSError as error:
        raise RuntimeError(f"{path.name} cannot be loaded: {error}") from error
    if missing := [name for name in FUNCTIONS if not hasattr(library, name)]:
        raise RuntimeError(
            f"{path.name} was built from other sources: it lacks {', '.join(missing)}. Rebuild it: "
            "pip install --no-deps --no-build-isolation --editable ."
        )
    pointer, size = ctypes.c_void_p, ctypes.c_int64
    library.transduce_copy_rows.argtypes = (pointer, size, size, size, pointer, size)
    library.transduce_copy_rows.restype = ctypes.c_int32
    library.transduce_set_decoder_args.argtypes = (
        *(pointer, size, size, size, pointer, size),
        *(size, pointer, pointer),
    )
    library.transduce_set_decoder_args.restype = None
    declare_shortlists(library)
    library.transduce_advance_beam.argtypes = (
        *(pointer, pointer, pointer, size, pointer, size),
        *(pointer, pointer),
    )
    library.transduce_advance_beam.restype = size
    return library
