"""The file worker process, started by `workers` as `python -m app.file_worker LIMITS`; it reads messages from stdin.

It limits its own resources before it reads anything. It ends when stdin is closed, when the server process dies, or
after a response that says that it is the last one.
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

from app.file_worker import messages
from app.files import FileError
from app.files.parts import join_parts, split_unit
from app.files.reading import read_file

# Added to the process's niceness, so that the event loop and the engine's processes have priority.
NICENESS = 5
# The maximum number of open files. A worker needs fewer. A reader that opens more fails.
MAX_OPEN_FILES = 16
# A worker whose peak memory exceeds this ends after its response, so that the memory returns to the system.
MAX_REUSED_KIB = 64 * 1024
# prctl option: the signal that this process receives when its parent dies.
_PARENT_DEATH_SIGNAL = 1


def main(arguments: list[str]) -> None:
    """Respond to messages until stdin is closed."""
    limits = msgspec.json.decode(arguments[0], type=messages.WorkerLimits)
    apply_limits(limits)
    decoder = msgspec.msgpack.Decoder(messages.ToWorker)
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
            answer = messages.OutOfMemory()
            frame = encoder.encode(answer)
        target.write(len(frame).to_bytes(messages.LENGTH_BYTES, "little"))
        target.write(frame)
        target.flush()
        if answer.is_last:
            return
        del answer, frame
        gc.collect()


def apply_limits(limits: messages.WorkerLimits) -> None:
    """Limit memory, open files, written files (none) and priority. Let only the server end this process."""
    ctypes.CDLL(None).prctl(_PARENT_DEATH_SIGNAL, signal.SIGKILL, 0, 0, 0)
    for one in (signal.SIGINT, signal.SIGTERM):
        signal.signal(one, signal.SIG_IGN)  # the server ends this process
    os.nice(NICENESS)
    resource.setrlimit(resource.RLIMIT_AS, (limits.memory_bytes, limits.memory_bytes))
    resource.setrlimit(resource.RLIMIT_NOFILE, (MAX_OPEN_FILES, MAX_OPEN_FILES))
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    gc.disable()  # a file's tree is large and has no cycles; other garbage is collected between files
    gc.freeze()  # exclude the loaded modules from collections


def extend_cpu_limit(seconds: int) -> None:
    """Allow `seconds` of further CPU time; beyond that the kernel ends the process."""
    usage = resource.getrusage(resource.RUSAGE_SELF)
    _, hard = resource.getrlimit(resource.RLIMIT_CPU)
    resource.setrlimit(resource.RLIMIT_CPU, (int(usage.ru_utime + usage.ru_stime) + seconds + 1, hard))


def peak_kib() -> int:
    """The peak memory of this process in KiB. `ru_maxrss` would include the peak of the server, which started it."""
    for line in Path("/proc/self/status").read_text("ascii").splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1])
    raise RuntimeError("/proc/self/status has no VmHWM")


def handle(
    data: bytes, decoder: msgspec.msgpack.Decoder[messages.ToWorker], limits: messages.WorkerLimits
) -> messages.FromWorker:
    """The response to a message; errors are responses too."""
    try:
        message = decoder.decode(data)
        if isinstance(message, messages.ReadRequest):
            return _read(message, limits)
        return _write(message, limits)
    except FileError as error:
        return messages.InvalidFile(str(error))
    except RecursionError:
        return messages.InvalidFile("it is nested too deeply")
    except MemoryError:
        return messages.OutOfMemory()
    except ValueError as error:
        return messages.InvalidFile(str(error))
    except Exception as error:  # noqa: BLE001 - the server logs the response
        last = traceback.extract_tb(error.__traceback__)[-1]
        return messages.InternalError(type(error).__name__, f"{Path(last.filename).name}:{last.lineno}")


def _read(message: messages.ReadRequest, limits: messages.WorkerLimits) -> messages.ReadResult:
    units = read_file(message.content, message.format, target=message.target).units
    parts = (part for unit in units for part in split_unit(unit, limits.part_characters))
    return messages.ReadResult([messages.TextUnit(part.text, part.format, part.is_wrapped) for part in parts])


def _write(message: messages.WriteRequest, limits: messages.WorkerLimits) -> messages.WriteResult:
    file = read_file(message.content, message.format, target=message.target)
    return messages.WriteResult(
        file.write(join_parts(file.units, limits.part_characters, message.translations, message.gap))
    )


def _read_frame(source: BinaryIO) -> bytes | None:
    """The next message from the server; None at the end of the input."""
    header = source.read(messages.LENGTH_BYTES)
    length = int.from_bytes(header, "little")
    data = source.read(length) if len(header) == messages.LENGTH_BYTES else b""
    return data if data and len(data) == length else None


if __name__ == "__main__":
    main(sys.argv[1:])
