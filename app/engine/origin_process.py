"""The process that an engine's lanes come of, as it sees itself: told what to load, it becomes the lanes."""

from __future__ import annotations

import contextlib
import os
import socket
from collections.abc import Callable
from functools import partial

from app.engine import wire
from app.engine.busy import BusyPage
from app.engine.lane_process import LaneProcess
from app.engine.origin import LENGTH_BYTES
from app.errors import BundleError, SettingsError
from app.runtime.interface import Runner

# Of lanes and what they share, more than there are; the most that Linux passes at once.
MAX_DESCRIPTORS = 253


def become_lanes(control: socket.socket, prepare: Callable[[bytes], Callable[[int], Runner]]) -> None:
    """Load and divide; returns in each lane at its end, and at once where the engine has gone.

    prepare: takes what was given and returns what gives a lane, by its number, its runner. What it loads is shared. It
    starts no thread, for a copy has none but its own. Both may raise BundleError and SettingsError, which the engine
    is told.
    """
    header, descriptors, _, _ = socket.recv_fds(control, LENGTH_BYTES, MAX_DESCRIPTORS, socket.MSG_WAITALL)
    length = int.from_bytes(header, "little")
    given = control.recv(length, socket.MSG_WAITALL) if length else b""
    if len(header) < LENGTH_BYTES or len(given) < length:
        return None
    page, connections = descriptors[0], [socket.socket(fileno=found) for found in descriptors[1:]]
    try:
        runner_of = prepare(given)
    except (BundleError, SettingsError) as error:
        for connection in connections:
            with contextlib.suppress(OSError):
                connection.sendall(wire.frame(wire.NotLoaded.of(error)))
        return None
    for number, connection in enumerate(connections):
        if os.fork() == 0:
            control.close()
            for other in connections:
                if other is not connection:
                    other.close()
            lane = LaneProcess(connection, BusyPage(page, len(connections)), number)
            os.close(page)
            with connection:
                return lane.run(partial(runner_of, number))
    os._exit(0)  # nothing is taken down that the lanes have
