"""The fork server: copies itself on request, gets a model's spec, loads what is shared, forks each worker, and ends."""

from __future__ import annotations

import contextlib
import os
import socket
from collections.abc import Callable
from functools import partial

from app.errors import BundleError, SettingsError
from app.runtime.interface import Runner
from app.workers import framing, messages
from app.workers.fork_server import COPY, HEADER, PROCESS_ID
from app.workers.shared_status import SharedWorkerStatus
from app.workers.worker_main import WorkerMain

# The maximum number of descriptors that Linux allows in a message. There are at most 64 workers (TRANSDUCE_NUM_LANES).
MAX_DESCRIPTORS = 253


def load_and_fork(control: socket.socket, prepare: Callable[[bytes], Callable[[int], Runner]]) -> None:
    """Load what the workers share, and fork the workers.

    Before that, fork a copy of this process whenever the server wants one. In each worker process, this function
    returns after the worker's end. In the fork server and in its copies it returns only if `prepare` fails or the
    server is gone.

    prepare: takes the spec, loads the data that the workers share, and returns a function that makes the runner of a
    worker by its number. It must start no thread that outlives it, since a forked process has only the thread that
    forked. Both functions may raise BundleError and SettingsError, which are sent to the server.
    """
    control, header, descriptors = receive_header(control)
    if len(header) < HEADER.size:
        return None
    length, num_workers, first = HEADER.unpack(header)
    spec = control.recv(length, socket.MSG_WAITALL) if length else b""
    if len(spec) < length:
        return None
    memory, connections = descriptors[0], [socket.socket(fileno=descriptor) for descriptor in descriptors[1:]]
    try:
        runner_of = prepare(spec)
    except (BundleError, SettingsError) as error:
        for connection in connections:
            with contextlib.suppress(OSError):
                connection.sendall(framing.encode_frame(messages.LoadFailed.of(error)))
        return None
    for number, connection in enumerate(connections, start=first):
        if os.fork() == 0:
            control.close()
            for other in connections:
                if other is not connection:
                    other.close()
            worker = WorkerMain(connection, SharedWorkerStatus(memory, num_workers), number)
            os.close(memory)
            with connection:
                return worker.run(partial(runner_of, number))
    os._exit(0)  # skips clean-up, because the workers still use the loaded data


def receive_header(control: socket.socket) -> tuple[socket.socket, bytes, list[int]]:
    """Wait for the header of a model, and fork the copies that the server wants before it.

    Returns, in this process and in each copy: the socket of the process, the header (shorter if the server is gone) and
    the header's descriptors.
    """
    while True:
        header, descriptors, _, _ = socket.recv_fds(control, HEADER.size, MAX_DESCRIPTORS, socket.MSG_WAITALL)
        if header != COPY:
            return control, header, descriptors
        with socket.socket(fileno=descriptors[0]) as control_of_copy:
            if process_id := fork_orphan():
                control.sendall(PROCESS_ID.pack(process_id))
            else:
                control.close()
                control = control_of_copy.dup()


def fork_orphan() -> int:
    """Fork a grandchild. Returns the grandchild's id in this process, and 0 in the grandchild.

    The child between the two ends at once, so the server adopts the grandchild.
    """
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        grandchild = os.fork()
        if grandchild > 0:
            os.write(writer, PROCESS_ID.pack(grandchild))
            os._exit(0)
        os.close(reader)
        os.close(writer)
        return 0
    os.close(writer)
    os.waitpid(child, 0)
    process_id: int = PROCESS_ID.unpack(os.read(reader, PROCESS_ID.size))[0]
    os.close(reader)
    return process_id
