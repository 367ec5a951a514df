"""What a command needs to start a server on this machine. Needs only the standard library."""

from __future__ import annotations

import os
import socket

LOOPBACK = "127.0.0.1"
PREFIX = "TRANSDUCE_"


def free_port() -> int:
    """Return a TCP port of the loopback that no process listens on."""
    with socket.socket() as listener:
        listener.bind((LOOPBACK, 0))
        port: int = listener.getsockname()[1]
    return port


def environment_without_settings() -> dict[str, str]:
    """Return the environment without the settings: the names that begin with PREFIX in upper or lower case."""
    return {name: value for name, value in os.environ.items() if not name.upper().startswith(PREFIX)}
