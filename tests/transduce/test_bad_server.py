"""The faulty server of these tests: what it counts as the end of a connection, and how it stops."""

from __future__ import annotations

import socket
import threading
import time

from tests.transduce.bad_server import BadServer, bad_server

REQUEST = b"GET / HTTP/1.1\r\n\r\n"
TIMEOUT_S = 60.0  # reached only by a hang, even on a busy machine


def client_of(server: BadServer) -> socket.socket:
    """A connection to the server that has sent a request."""
    port = int(server.url.rpartition(":")[2])
    client = socket.create_connection(("127.0.0.1", port), TIMEOUT_S)
    client.sendall(REQUEST)
    return client


def test_a_timeout_is_not_the_end_of_a_connection() -> None:
    def waits(connection: socket.socket) -> None:
        connection.settimeout(0.01)
        connection.recv(1)

    with bad_server(waits) as server, client_of(server) as client:
        assert client.recv(1) == b""  # the server has closed the connection after its timeout
        assert not server.has_seen_end.is_set()


def test_the_end_of_a_connection_is_seen() -> None:
    servers: list[BadServer] = []

    def waits(connection: socket.socket) -> None:
        servers[0].wait_until_closed(connection)

    with bad_server(waits) as server:
        servers.append(server)
        with client_of(server):
            assert server.has_begun.wait(TIMEOUT_S)
            assert not server.has_seen_end.is_set()
        assert server.has_seen_end.wait(TIMEOUT_S)


def test_the_server_stops_while_it_waits_for_a_client() -> None:
    is_waiting = threading.Event()

    def waits(connection: socket.socket) -> None:
        connection.settimeout(TIMEOUT_S)
        is_waiting.set()
        connection.recv(1)

    with bad_server(waits) as server:
        client = client_of(server)
        assert is_waiting.wait(TIMEOUT_S)
        began = time.monotonic()
    assert time.monotonic() - began < TIMEOUT_S / 2
    client.close()
