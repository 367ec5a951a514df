"""What the kernel knows of a connection: how long a request has waited unread, and whether the client has hung up.

An event loop that gets requests faster than it can read them falls behind. Each request then waits longer than the
one before, and no response is in time. The protocol refuses requests that waited too long. The application does not see
them. Such a refusal takes a tenth of the time of a refusal by the application, so the loop catches up.
"""

from __future__ import annotations

import socket
import sys
from typing import Any

# Seconds that a request may wait unread. If larger, every response is later under overload. If smaller, requests are
# refused after a short pause of the event loop.
MAX_UNREAD_S = 1.0
# The field tcpi_last_data_recv of `struct tcp_info` in linux/tcp.h, in milliseconds.
_LAST_DATA_RECEIVED = slice(52, 56)
# Values of tcpi_state, the first field of `struct tcp_info`, after the client has reset (TCP_CLOSE) or closed
# (TCP_CLOSE_WAIT) the connection.
_HUNG_UP_STATES = frozenset({7, 8})
_TCP_INFO: int | None = getattr(socket, "TCP_INFO", None)


def unread_s(connection: Any) -> float:
    """Seconds since the last bytes of a TCP socket arrived at this machine; 0 where the system does not report it.

    connection: the socket, or uvloop's wrapper of it. A call takes 2 microseconds.
    """
    if _TCP_INFO is None:
        return 0.0
    info = connection.getsockopt(socket.IPPROTO_TCP, _TCP_INFO, _LAST_DATA_RECEIVED.stop)
    return int.from_bytes(info[_LAST_DATA_RECEIVED], sys.byteorder) / 1000


def has_hung_up(connection: Any) -> bool:
    """Whether the client has closed a TCP connection; False where the system does not report it.

    connection: the socket, or uvloop's wrapper of it.
    """
    if sys.platform != "linux" or _TCP_INFO is None:
        return False
    return connection.getsockopt(socket.IPPROTO_TCP, _TCP_INFO, 1)[0] in _HUNG_UP_STATES
