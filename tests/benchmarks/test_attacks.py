"""The other caller of the benchmark of attacks closes its connection to a server that does not answer with HTTP."""

from __future__ import annotations

import http.client
import socket
import threading

import pytest

from benchmarks.attacks import _probe
from benchmarks.server_process import HOST


def test_a_probe_that_fails_closes_its_connection() -> None:
    received: list[bytes] = []

    def serve() -> None:
        with listener.accept()[0] as connection:
            connection.recv(4096)
            connection.sendall(b"no status\r\n")
            connection.settimeout(5)
            received.append(connection.recv(1))

    with socket.create_server((HOST, 0)) as listener:
        thread = threading.Thread(target=serve)
        thread.start()
        with pytest.raises(http.client.BadStatusLine) as raised:
            _probe(listener.getsockname()[1])
        thread.join()
    assert raised.tb is not None  # keeps the connection, so that the garbage collector does not close it
    assert received == [b""]
