"""A faulty server over sockets. It closes connections, responds late, rejects requests or sends nothing."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

TIMEOUT_S = 120.0  # reached only by a hang, even on a busy machine
# A function that handles one connection after its request is read.
Act = Callable[[socket.socket], None]


class BadServer:
    """Handles the k-th connection with the k-th act, and later connections with the last act.

    num_connections: connections so far. On each of them an act may read several requests. has_begun: set once a
    request is read. has_seen_end: set once the client has closed a connection. `close` may set it, too.
    """

    def __init__(self, acts: list[Act]) -> None:
        self._acts = acts
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._connections: list[socket.socket] = []
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        self.num_connections = 0
        self.has_begun = threading.Event()
        self.has_seen_end = threading.Event()

    def serve(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            self._connections.append(connection)
            act = self._acts[min(self.num_connections, len(self._acts) - 1)]
            self.num_connections += 1
            try:
                read_request(connection)
                self.has_begun.set()
                act(connection)
            except TimeoutError:
                continue  # the client has not closed the connection
            except OSError:
                self.has_seen_end.set()
            finally:
                connection.close()

    def close(self) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for connection in self._connections:
            # This ends a `recv` of the server's thread. Closing alone does not.
            with suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
            connection.close()

    def wait_until_closed(self, connection: socket.socket) -> None:
        """Wait until the client closes the connection."""
        connection.settimeout(TIMEOUT_S)
        if connection.recv(1) == b"":
            self.has_seen_end.set()


@contextmanager
def bad_server(*acts: Act) -> Iterator[BadServer]:
    server = BadServer(list(acts))
    thread = threading.Thread(target=server.serve)
    thread.start()
    try:
        yield server
    finally:
        server.close()
        thread.join(timeout=TIMEOUT_S + 10)
    assert not thread.is_alive()


def read_request(connection: socket.socket) -> None:
    """Read one request. Raises ConnectionResetError if the client closes the connection before the request ends."""
    connection.settimeout(TIMEOUT_S)
    data = b""
    while b"\r\n\r\n" not in data:
        data += received(connection)
    head, _, body = data.partition(b"\r\n\r\n")
    lengths = [line for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:")]
    while lengths and len(body) < int(lengths[0].partition(b":")[2]):
        body += received(connection)


def received(connection: socket.socket) -> bytes:
    data = connection.recv(65536)
    if not data:
        raise ConnectionResetError("the client has closed the connection")
    return data


def silent(connection: socket.socket) -> None:
    """Answer nothing until the client closes the connection."""
    connection.recv(1)


def answer(status: int, body: object, headers: str = "") -> Act:
    content = json.dumps(body).encode()
    head = f"HTTP/1.1 {status} X\r\nContent-Length: {len(content)}\r\nConnection: close\r\n{headers}\r\n"
    return lambda connection: connection.sendall(head.encode() + content)


def cut(sent: bytes = b"") -> Act:
    """Send these bytes, and close the connection."""
    return lambda connection: connection.sendall(sent)


def stream(*events: tuple[str, Any]) -> bytes:
    """The beginning of an event stream."""
    head = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\n: keep-alive\n\n"
    return head + b"".join(
        f"event: {name}\r\ndata: {json.dumps(data, ensure_ascii=False)}\r\n\r\n".encode()
        for name, data in events
    )


TRANSLATED = {"translations": [{"text": "ja", "source": "en", "segments": []}]}
START = {
    "model": {"name": "m", "version": "1"},
    "num_segments": 1,
    "texts": [{"segments": [{"start": 0, "end": 3}]}],
}
DELTA = {"text_index": 0, "segment": 0, "text": " a\u2028\x85b"}
SEGMENT = {
    "text_index": 0,
    "segment": 0,
    "text": "ja",
    "finish_reason": "stop",
    "num_done": 1,
    "num_segments": 1,
}
ERROR = {"error": {"code": "overloaded", "message": "the queue is full", "request_id": "r1"}}
