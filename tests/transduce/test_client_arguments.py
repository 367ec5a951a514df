"""The arguments of the client's constructor, and the variables of the environment that it reads."""

from __future__ import annotations

import math
import ssl
from pathlib import Path
from typing import Any

import pytest

import transduce
from tests.api.certificates import make_certificate
from tests.transduce.echo_server import echo_server
from transduce.cli import main

KINDS = [transduce.Client, transduce.AsyncClient]
HERE = "http://127.0.0.1:1"
ELSEWHERE = "http://192.0.2.1:8000"


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    "url",
    [
        "localhost:8000",
        "http://localhost:port",
        "http://localhost:99999",
        "http://[::1",
        "http://1.2.3.999",
        "http://a\x00b",
        "http://xn--a",
        "http://.",
        f"http://{'a' * 64}",
        "http://user:password@127.0.0.1:8000",
        "http://127.0.0.1:8000?key=1",
        "http://127.0.0.1:8000/#models",
        "http://127.0.0.1:8000/?",
        " http://127.0.0.1:8000",
        "http://127.0.0.1:8000 ",
        "http://127.0.0.1:8000/\n",
        None,
        b"http://127.0.0.1:8000",
    ],
)
def test_a_url_of_another_form_is_refused(kind: type[transduce.Client], url: Any) -> None:
    with pytest.raises(ValueError, match="is not of the form http://host:port"):
        kind(url)


@pytest.mark.parametrize("url", ["http://h", "https://[::1]:8000/", "http://bücher.example/translate/"])
def test_a_url_with_a_path_or_without_a_port_is_accepted(url: str) -> None:
    transduce.Client(url).close()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("key", ["schl\u00fcssel", "a\nb", "secret ", " secret", " ", b"secret"])
def test_a_key_that_a_header_cannot_carry_is_refused(kind: type[transduce.Client], key: Any) -> None:
    with pytest.raises(ValueError, match="the API key has characters other than printable ASCII") as refused:
        kind(HERE, api_key=key)
    assert "secret" not in str(refused.value)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("timeout_s", 0.0),
        ("timeout_s", -1.0),
        ("timeout_s", math.nan),
        ("max_retries", -1),
        ("max_wait_s", -0.1),
        ("max_wait_s", math.nan),
        ("timeout_s", None),
        ("max_retries", None),
        ("max_wait_s", "5"),
    ],
)
def test_a_number_out_of_range_is_refused(kind: type[transduce.Client], name: str, value: Any) -> None:
    with pytest.raises(ValueError, match=f"{name} is .*, not a number"):
        kind(HERE, **{name: value})


@pytest.mark.parametrize("timeout_s", [math.inf, 1e7, 1e300])
def test_a_very_long_timeout_counts_as_no_timeout(timeout_s: float) -> None:
    with (
        echo_server() as server,
        transduce.Client(server.url, timeout_s=timeout_s, max_wait_s=math.inf) as client,
    ):
        assert client.translate("yes", source="en", target="de").text == "yes"


VARIABLES = [
    ("NO_PROXY", "fd00::/8"),
    ("NO_PROXY", "[::1]"),
    ("ALL_PROXY", "socks4://127.0.0.1:1"),
    ("HTTP_PROXY", "http://a:b"),
    ("SSL_CERT_FILE", "/nonexistent"),
]


@pytest.fixture
def proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    """Set one proxy variable and no other. httpx reads NO_PROXY only if a proxy variable is set."""
    for name in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.lower(), raising=False)
    monkeypatch.setenv("HTTPS_PROXY", "http://127.0.0.1:1")


@pytest.mark.usefixtures("proxy")
def test_a_proxy_with_an_impossible_name_is_a_failed_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTP_PROXY", "http://.:3")
    with transduce.Client(ELSEWHERE, max_retries=0) as client, pytest.raises(transduce.ConnectionFailed):
        client.models()


@pytest.mark.usefixtures("proxy")
@pytest.mark.parametrize(("name", "value"), VARIABLES)
def test_a_variable_that_cannot_be_used_is_a_value_error(
    name: str, value: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv(name, value)
    expected = "the proxy or certificate variables of the environment cannot be used: "
    for kind in KINDS:
        with pytest.raises(ValueError, match=expected):
            kind(ELSEWHERE)
        kind(HERE)  # reads no proxy variable, and no certificates because the URL is http://
    assert main(["top", ELSEWHERE, "--json"]) == 1
    assert capsys.readouterr().err.startswith(f"transduce top: {expected}")


@pytest.mark.usefixtures("proxy")
def test_a_server_of_this_machine_may_have_a_private_certificate_despite_a_proxy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    certificate, key = make_certificate(tmp_path)
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(certificate, key)
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
    with echo_server(tls) as server, transduce.Client(server.url) as client:
        assert client.models() == ()
