"""No request is lost while a server is replaced, as deploy/kubernetes replaces pods."""

from __future__ import annotations

from contextlib import ExitStack

import httpx

from tests.api.server_process import ServerProcess
from tests.api.test_lifecycle import BODY

NUM_CLIENTS = 8
# Longer than the test: the server accepts requests from the signal to the end of the test.
SETTINGS: dict[str, object] = {"drain_delay_s": 1000}


class Client:
    """A client with an open connection, to the server that the Kubernetes Service chose when it connected."""

    def __init__(self, server: ServerProcess) -> None:
        self.connection: httpx.Client = server.client()
        self.has_moved = False

    def post(self, new: ServerProcess) -> int:
        """The status of a request. If its answer ends the connection, the next request goes to the new server."""
        answer = self.connection.post("/v1/translate", json=BODY)
        if answer.headers.get("connection") == "close":
            self.close()
            self.connection, self.has_moved = new.client(), True
        return answer.status_code

    def close(self) -> None:
        self.connection.close()


def test_clients_with_open_connections_move_to_the_new_server(echo_command: list[str]) -> None:
    with (
        ServerProcess(echo_command, SETTINGS) as old,
        ServerProcess(echo_command, SETTINGS) as new,
        ExitStack() as ends,
    ):
        old.ready()
        clients = [Client(old) for _ in range(NUM_CLIENTS)]
        for client in clients:
            ends.callback(client.close)
        new.ready()  # before the old one ends
        codes = [client.post(new) for client in clients]
        assert [client.has_moved for client in clients] == [False] * NUM_CLIENTS
        old.signal()
        old.wait_for("draining")
        codes += [client.post(new) for client in clients]
        assert [client.has_moved for client in clients] == [True] * NUM_CLIENTS
        codes += [client.post(new) for client in clients]
    assert set(codes) == {200}
