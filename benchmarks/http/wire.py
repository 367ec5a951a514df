"""Sends requests one after another over one connection, with very little time spent in the client.

A load tester's Python code can take longer for an answer than the server does. This client encodes a request before the
clock starts. While the clock runs, it parses only the answer's length.
"""

from __future__ import annotations

import socket
import time
from collections.abc import Iterable
from dataclasses import dataclass

from benchmarks.server_process import HOST

TIMEOUT_S = 60.0
MAX_RECV_BYTES = 1 << 16


@dataclass(frozen=True)
class Exchanged:
    """An answer. seconds: from before the write until the last byte is read. headers: values by lower-case name."""

    seconds: float
    status: int
    headers: dict[str, str]
    body: bytes


def exchange(port: int, path: str, bodies: Iterable[bytes]) -> list[Exchanged]:
    """POST each body as JSON. Raises OSError. Raises ValueError for an answer without Content-Length."""
    found = []
    with socket.create_connection((HOST, port), TIMEOUT_S) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for body in bodies:
            head = f"POST {path} HTTP/1.1\r\nhost: {HOST}\r\ncontent-type: application/json\r\n"
            request = f"{head}content-length: {len(body)}\r\n\r\n".encode() + body
            started_at = time.perf_counter()
            connection.sendall(request)
            answer, end, missing = b"", 0, 1
            while missing > 0:
                part = connection.recv(MAX_RECV_BYTES)
                if not part:
                    raise ConnectionResetError("the server closed the connection before the end of an answer")
                answer += part
                if not end and b"\r\n\r\n" in answer:
                    end = answer.index(b"\r\n\r\n") + 4
                if end:
                    missing = end + _length(answer[:end]) - len(answer)
            seconds = time.perf_counter() - started_at
            found.append(_read(seconds, answer[:end], answer[end:]))
    return found


def _length(head: bytes) -> int:
    """The value of Content-Length. Raises ValueError if `head` does not have this header."""
    _, found, rest = head.lower().partition(b"\r\ncontent-length:")
    if not found:
        raise ValueError("an answer without Content-Length")
    return int(rest.split(b"\r\n", 1)[0])


def _read(seconds: float, head: bytes, body: bytes) -> Exchanged:
    first, *lines = head.decode("latin-1").rstrip().split("\r\n")
    headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
    return Exchanged(seconds, int(first.split()[1]), headers, body)
