"""The real server with two workers: the load of one caller does not block another. A caller is a key or an address."""

from __future__ import annotations

import contextlib
import hashlib
import socket
import threading
import time
from collections.abc import Iterator
from typing import Any, Self

import httpx
import pytest

from tests.api.processes import wait_until
from tests.api.server_process import HANG_TIMEOUT_S, NO_CERTIFICATES, ServerProcess
from tests.api.test_workers_of_the_model import SETTINGS

LOUD, QUIET = "loud-caller", "quiet-caller"
SENTENCES = [
    f"Anna {does} the {thing} every {day}."
    for does in ("draws", "finds")
    for thing in ("river", "house")
    for day in ("Monday", "Friday")
]
FINISHED = 'transduce_engine_sentences_total{outcome="finished"}'
SMALL: dict[str, object] = {
    "max_pending_sentences": 64,
    "max_request_sentences": 32,
    "max_items": 32,
    "num_rows": 32,
    "sentence_cache_bytes": 0,
    "coalesce": "false",
}


class Caller:
    """Sends requests with a key, from an address, or as a proxy.

    statuses: the status codes of the background requests.
    """

    def __init__(
        self, server: ServerProcess, *, key: str = "", address: str = "127.0.0.1", forwarded: str = ""
    ) -> None:
        """forwarded: the value of X-Forwarded-For from a proxy at `address`."""
        self._sockets: list[socket.socket] = []
        self._client = httpx.Client(
            base_url=server.url,
            headers={"authorization": f"Bearer {key}"} if key else {"x-forwarded-for": forwarded},
            transport=httpx.HTTPTransport(
                verify=NO_CERTIFICATES, local_address=address, limits=httpx.Limits(max_connections=64)
            ),
            timeout=HANG_TIMEOUT_S,
        )
        self.statuses: list[int] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._client.close()

    def translate(self, text: str | list[str], **options: Any) -> httpx.Response:
        body = {"text": text, "source": "en", "target": "de", "timeout_ms": 60_000, **options}
        return self._client.post("/v1/translate", json=body, extensions={"trace": self._keep_socket})

    def finished(self) -> float:
        """The number of sentences that the engine has finished."""
        lines = self._client.get("/metrics").text.splitlines()
        return next(float(line.rsplit(" ", 1)[1]) for line in lines if line.startswith(FINISHED))

    def pending(self) -> float:
        """The number of sentences that the server has accepted and not answered, of all callers."""
        lines = self._client.get("/metrics").text.splitlines()
        return next(float(line.split()[1]) for line in lines if line.startswith("transduce_queue_depth "))

    @contextlib.contextmanager
    def flooding(self, num_clients: int, text: list[str], **options: Any) -> Iterator[None]:
        """Send requests from `num_clients` threads until the scope ends. Then close all connections."""
        is_over = threading.Event()

        def send_requests() -> None:
            while not is_over.is_set():
                with contextlib.suppress(httpx.HTTPError):
                    self.statuses.append(self.translate(text, **options).status_code)
                is_over.wait(0.05)

        threads = [threading.Thread(target=send_requests, daemon=True) for _ in range(num_clients)]
        for thread in threads:
            thread.start()
        try:
            yield
        finally:
            is_over.set()
            self._disconnect()  # frees the rows
            for thread in threads:
                thread.join(HANG_TIMEOUT_S)
            self._client.close()

    def _keep_socket(self, event: str, info: dict[str, Any]) -> None:
        if event == "connection.connect_tcp.complete":
            self._sockets.append(info["return_value"].get_extra_info("socket"))

    def _disconnect(self) -> None:
        """Shut all connections down. The client's `close` would not end a request that waits in another thread."""
        for each in self._sockets:
            with contextlib.suppress(OSError):  # closed already
                each.shutdown(socket.SHUT_RDWR)


def wait_until_pending(caller: Caller, num_sentences: int) -> None:
    wait_until(lambda: caller.pending() >= num_sentences)


@pytest.fixture(scope="module")
def server() -> Iterator[ServerProcess]:
    keys = ",".join(hashlib.sha256(name.encode()).hexdigest() for name in (LOUD, QUIET))
    with ServerProcess(["transduce", "serve"], {**SETTINGS, **SMALL, "api_keys": keys}) as process:
        yield process.ready()


def test_a_full_queue_of_one_key_refuses_no_sentence_of_another(server: ServerProcess) -> None:
    loud = Caller(server, key=LOUD)
    texts = [f"{line} {number}" for number in range(4) for line in SENTENCES]
    with Caller(server, key=QUIET) as quiet, loud.flooding(4, texts, beam_size=16):
        wait_until_pending(quiet, 64)
        assert [quiet.translate(line).status_code for line in SENTENCES] == [200] * len(SENTENCES)
    assert 429 in loud.statuses, "the loud caller's own queue must be full"


def test_no_request_waits_for_the_rows_of_another(server: ServerProcess) -> None:
    """One key holds all rows that one caller may have, for 200 steps. Meanwhile another key's requests are answered."""
    loud = Caller(server, key=LOUD)
    with Caller(server, key=QUIET) as quiet:
        alone = [quiet.translate(line).json()["translations"] for line in SENTENCES]
    with (
        Caller(server, key=QUIET) as quiet,
        loud.flooding(1, SENTENCES * 4, beam_size=16, min_target_length=200),
    ):
        wait_until_pending(quiet, 32)
        time.sleep(0.5)  # until the loud caller has its rows
        before = quiet.finished()
        under_load = [quiet.translate(line).json()["translations"] for line in SENTENCES]
        num_loud_finished = quiet.finished() - before - len(SENTENCES)
    assert under_load == alone
    assert num_loud_finished <= len(SENTENCES)


def test_without_keys_each_address_has_its_share() -> None:
    with ServerProcess(["transduce", "serve"], {**SETTINGS, **SMALL}) as server:
        server.ready()
        loud = Caller(server)
        texts = [f"{line} {number}" for number in range(4) for line in SENTENCES]
        with Caller(server, address="127.0.0.2") as quiet, loud.flooding(4, texts, beam_size=16):
            wait_until_pending(quiet, 64)
            assert [quiet.translate(line).status_code for line in SENTENCES] == [200] * len(SENTENCES)
    assert 429 in loud.statuses, "the loud caller's own queue must be full"


def test_behind_a_trusted_proxy_each_caller_has_its_share() -> None:
    settings: dict[str, object] = {**SETTINGS, **SMALL, "trusted_proxies": "127.0.0.0/8"}
    with ServerProcess(["transduce", "serve"], settings) as server:
        server.ready()
        loud = Caller(server, forwarded="198.51.100.7")
        texts = [f"{line} {number}" for number in range(4) for line in SENTENCES]
        with (
            Caller(server, forwarded="10.9.9.9, 198.51.100.8") as quiet,
            loud.flooding(4, texts, beam_size=16),
        ):
            wait_until_pending(quiet, 64)
            assert [quiet.translate(line).status_code for line in SENTENCES] == [200] * len(SENTENCES)
    assert 429 in loud.statuses, "the loud caller's own queue must be full"
