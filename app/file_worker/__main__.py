"""A file worker, started by `workers`: `python -m app.file_worker LIMITS`. It reads messages from its standard input.

It limits itself before it reads anything, and ends when its input does, or at once where its server is gone.
"""

from __future__ import annotations

import ctypes
import gc
import os
import resource
import signal
import sys
import traceback
from pathlib import Path
from typing import BinaryIO

import msgspec

from app.file_worker.messages import (
    LENGTH_BYTES,
    FromWorker,
    InternalError,
    InvalidFile,
    OutOfMemory,
    ReadRequest,
    ReadResult,
    TextUnit,
    ToWorker,
    WorkerLimits,
    WriteRequest,
    WriteResult,
)
from app.files import FileError
from app.files.parts import join_parts, split_unit
from app.files.reading import read_file

# Below the event loop and the engine's processes: both are served first.
NICENESS = 5
MAX_OPEN_FILES = 16
# A worker that has taken as much ends after its answer, so that the memory is given back.
MAX_REUSED_KIB = 64 * 1024
# Of prctl: sent to this process when its parent ends.
_PARENT_DEATH_SIGNAL = 1


def main(arguments: list[str]) -> None:
    """Answer until the input ends."""
    limits = msgspec.json.decode(arguments[0], type=WorkerLimits)
    apply_limits(limits)
    decoder = msgspec.msgpack.Decoder(ToWorker)
    encoder = msgspec.msgpack.Encoder()
    source, target = sys.stdin.buffer, sys.stdout.buffer
    while (data := _read_frame(source)) is not None:
        extend_cpu_limit(limits.cpu_s)
        answer = handle(data, decoder, limits)
        del data
        answer.is_last = answer.is_last or peak_kib() > MAX_REUSED_KIB
        try:
            frame = encoder.encode(answer)
        except MemoryError:
            answer = OutOfMemory()
            frame = encoder.encode(answer)
        target.write(len(frame).to_bytes(LENGTH_BYTES, "little"))
        target.write(frame)
        target.flush()
        if answer.is_last:
            return
        del answer, frame
        gc.collect()


def apply_limits(limits: WorkerLimits) -> None:
    """Limit this process: memory, files that it has open, files that it writes (none), its priority."""
    ctypes.CDLL(None).prctl(_PARENT_DEATH_SIGNAL, signal.SIGKILL, 0, 0, 0)
    for one in (signal.SIGINT, signal.SIGTERM):
        signal.signal(one, signal.SIG_IGN)  # the server says when it ends
    os.nice(NICENESS)
    resource.setrlimit(resource.RLIMIT_AS, (limits.memory_bytes, limits.memory_bytes))
    resource.setrlimit(resource.RLIMIT_NOFILE, (MAX_OPEN_FILES, MAX_OPEN_FILES))
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    gc.disable()  # a file's tree is large and has no cycles; what has is collected between files
    gc.freeze()  # and what was loaded is not looked through again


def extend_cpu_limit(seconds: int) -> None:
    """So many more seconds of processor time; the kernel ends the process behind them."""
    usage = resource.getrusage(resource.RUSAGE_SELF)
    _, hard = resource.getrlimit(resource.RLIMIT_CPU)
    resource.setrlimit(resource.RLIMIT_CPU, (int(usage.ru_utime + usage.ru_stime) + seconds + 1, hard))


def peak_kib() -> int:
    """The most memory that this process has had."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def handle(data: bytes, decoder: msgspec.msgpack.Decoder[ToWorker], limits: WorkerLimits) -> FromWorker:
    """What a message is answered; every error is one."""
    try:
        message = decoder.decode(data)
        if isinstance(message, ReadRequest):
            return _read(message, limits)
        return _write(message, limits)
    except FileError as error:
        return InvalidFile(str(error))
    except RecursionError:
        return InvalidFile("it is nested too deep")
    except MemoryError:
        return OutOfMemory()
    except ValueError as error:
        return InvalidFile(str(error))
    except Exception as error:  # noqa: BLE001 - told as it is: the server's log has it
        last = traceback.extract_tb(error.__traceback__)[-1]
        return InternalError(type(error).__name__, f"{Path(last.filename).name}:{last.lineno}")


def _read(message: ReadRequest, limits: WorkerLimits) -> ReadResult:
    units = read_file(message.content, message.format).units
    parts = (part for unit in units for part in split_unit(unit, limits.part_characters))
    return ReadResult([TextUnit(part.text, part.format, part.is_wrapped) for part in parts])


def _write(message: WriteRequest, limits: WorkerLimits) -> WriteResult:
    file = read_file(message.content, message.format)
    return WriteResult(file.write(join_parts(file.units, limits.part_characters, message.translations)))


def _read_frame(source: BinaryIO) -> bytes | None:
    """The next message; None where the input has ended."""
    header = source.read(LENGTH_BYTES)
    length = int.from_bytes(header, "little")
    data = source.read(length) if len(header) == LENGTH_BYTES else b""
    return data if data and len(data) == length else None


if __name__ == "__main__":
    main(sys.argv[1:])
