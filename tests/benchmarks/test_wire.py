"""The client of the overhead measurement: what it times, and which answers it accepts."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from benchmarks.http.wire import exchange

PAUSE_S = 0.05


@contextmanager
def server(parts: list[bytes], *, num_requests: int = 1) -> Iterator[int]:
    """A server that sends each answer in parts, with a pause of PAUSE_S before each part. Yields its port."""
    listener = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        connection, _ = listener.accept()
        with connection:
            for _ in range(num_requests):
                assert connection.recv(1 << 16).endswith(b"{}")
                for part in parts:
                    time.sleep(PAUSE_S)
                    connection.sendall(part)

    thread = threading.Thread(target=serve)
    thread.start()
    yield listener.getsockname()[1]
    thread.join()
    listener.close()


def test_the_time_ends_at_the_last_byte() -> None:
    parts = [b"HTTP/1.1 200 OK\r\nServer-Timing: decode;dur=9\r\nContent-Le", b'ngth: 4\r\n\r\n{"', b'"}']
    with server(parts, num_requests=2) as port:
        first, second = exchange(port, "/x", [b"{}", b"{}"])
    assert (first.status, first.body, first.headers["server-timing"]) == (200, b'{""}', "decode;dur=9")
    assert 3 * PAUSE_S <= second.seconds < 4 * PAUSE_S + 1


@pytest.mark.parametrize(
    ("part", "error"),
    [(b"HTTP/1.1 200 OK\r\n\r\nx", ValueError), (b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nx", OSError)],
)
def test_an_incomplete_answer_is_an_error(part: bytes, error: type[Exception]) -> None:
    with server([part]) as port, pytest.raises(error):
        exchange(port, "/x", [b"{}"])
