"""The server reads the forwarding headers of trusted proxies, and ignores those of other clients."""

from __future__ import annotations

import contextlib
import socket
from pathlib import Path

import httpx
import pytest

from app.api.http.connections import Admission, ConnectionTable
from app.errors import SettingsError
from app.settings import Settings, load_settings
from tests.api.server_process import ServerProcess

FORWARDED = {"x-forwarded-proto": "https", "x-forwarded-for": "198.51.100.7", "host": "translate.example"}


def file_url(client: httpx.Client) -> str:
    """Upload a file through a proxy with TLS. Returns the URL of the translated file."""
    fields = {"source": "en", "target": "de"}
    answer = client.post(
        "/translate_file", data=fields, files={"file": ("a.txt", b"Anna sees.")}, headers=FORWARDED
    )
    url: str = answer.json()["translatedFileUrl"]
    return url


@pytest.mark.parametrize(
    ("proxies", "scheme"),
    [
        ("127.0.0.1", "https"),
        ("10.0.0.0/8 127.0.0.0/8", "https"),
        ("::1, 10.0.0.0/8", "http"),
        ("", "http"),
    ],
)
def test_the_url_of_a_file_has_the_scheme_that_a_trusted_proxy_names(
    echo_command: list[str], proxies: str, scheme: str
) -> None:
    with (
        ServerProcess(echo_command, {"trusted_proxies": proxies}) as server,
        server.ready().client() as client,
    ):
        assert file_url(client).startswith(f"{scheme}://translate.example/download_file/")


def test_on_all_interfaces_of_both_families_a_proxy_is_known_by_its_ipv4_address(
    echo_command: list[str],
) -> None:
    """An IPv6 socket reports the address of the proxy as ::ffff:127.0.0.1."""
    if not Path("/proc/net/if_inet6").exists():
        pytest.skip("this machine has no IPv6")
    settings: dict[str, object] = {"host": "::", "trusted_proxies": "127.0.0.1"}
    with ServerProcess(echo_command, settings) as server, server.ready().client() as client:
        assert file_url(client).startswith("https://translate.example/download_file/")


def test_the_limit_per_address_does_not_apply_to_a_trusted_proxy(echo_command: list[str]) -> None:
    settings: dict[str, object] = {"max_connections": 8, "max_connections_per_address": 2}
    head = b"POST /v1/translate HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\ncontent-length: 9\r\n\r\n"
    for proxies, status in (("", b"503"), ("127.0.0.1", b"200")):
        with ServerProcess(echo_command, {**settings, "trusted_proxies": proxies}) as server:
            port = server.ready().port
            with contextlib.ExitStack() as held:
                for _ in range(4):
                    connection = held.enter_context(socket.create_connection(("127.0.0.1", port)))
                    connection.sendall(head)  # a request is in progress, so the connection is not idle
                one = held.enter_context(socket.create_connection(("127.0.0.1", port)))
                one.sendall(b"GET /languages HTTP/1.1\r\nhost: x\r\n\r\n")
                assert one.recv(1024).split(b" ")[1] == status


class Idle:
    """A connection without a request."""

    def is_quiet(self) -> bool:
        return True

    def is_answering(self) -> bool:
        return False

    def make_room(self) -> None:
        raise AssertionError("a connection of a proxy was closed for another one")


@pytest.mark.parametrize(("proxy", "host"), [("2001:db8::7", "2001:db8::7"), ("10.0.0.0/8", "10.3.2.1")])
def test_addresses_and_networks_of_both_families_are_proxies(proxy: str, host: str) -> None:
    table = ConnectionTable(8, 1, proxies=[proxy])
    assert [table.admit(Idle(), host)[0] for _ in range(3)] == [Admission.SERVED] * 3


def test_a_connection_without_an_address_is_admitted() -> None:
    """A caller that resets its connection at once has no address any more."""
    assert ConnectionTable(8, 1, proxies=["10.0.0.0/8"]).admit(Idle(), "")[0] is Admission.SERVED


@pytest.mark.parametrize("proxy", ["localhost", "10.0.0.1/8", "*", "127.0.0.1:80"])
def test_an_invalid_proxy_address_is_refused(proxy: str) -> None:
    with pytest.raises(
        SettingsError, match=r"TRANSDUCE_TRUSTED_PROXIES: .* is neither an address nor a network"
    ):
        load_settings({"trusted_proxies": f"10.0.0.7,{proxy}"})


def test_by_default_no_proxy_is_trusted() -> None:
    assert Settings().trusted_proxies == frozenset()
