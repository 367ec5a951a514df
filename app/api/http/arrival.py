"""How long a request waited in the kernel before the event loop read it.

An event loop that has more to read than it can falls behind: each request waits longer than the one before, and no
answer is in time. Requests that waited too long are refused unparsed, which takes a tenth of the time of a refusal by
the application, so the loop catches up.
"""

from __future__ import annotations

import socket
import sys
from typing import Any

# Seconds that a request may wait unread. Larger: in a flood all answers are that late. Smaller: a short pause of the
# event loop refuses requests.
MAX_UNREAD_S = 1.0
# Of `struct tcp_info` in linux/tcp.h: the field tcpi_last_data_recv, milliseconds.
_LAST_DATA_RECEIVED = slice(52, 56)
_TCP_INFO: int | None = getattr(socket, "TCP_INFO", None)


def unread_s(connection: Any) -> float:
    """Seconds since the last bytes of a TCP socket arrived at this machine; 0 where the system does not tell.

    connection: the socket, or uvloop's stand-in for it. Takes 2 us.
    """
    if _TCP_INFO is None:
        return 0.0
    info = connection.getsockopt(socket.IPPROTO_TCP, _TCP_INFO, _LAST_DATA_RECEIVED.stop)
    return int.from_bytes(info[_LAST_DATA_RECEIVED], sys.byteorder) / 1000
