"""With a certificate the server speaks HTTPS. It checks the files at its start and reads them again on SIGHUP."""

from __future__ import annotations

import json
import os
import pty
import re
import shutil
import signal
import socket
import ssl
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from app.api.http.tls import Tls
from app.errors import SettingsError
from app.secret_settings import read_tls
from app.settings import load_settings
from tests.api.certificates import make_certificate, trusting
from tests.api.server_process import HANG_TIMEOUT_S, ROOT, ServerProcess

TEXT = {"text": "Anna sees the river.", "source": "en", "target": "de"}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("tls")


@pytest.fixture(scope="module")
def pair(folder: Path) -> tuple[Path, Path]:
    """The paths of a certificate and of its key."""
    return make_certificate(folder)


@pytest.fixture(scope="module")
def server(echo_command: list[str], pair: tuple[Path, Path]) -> Iterator[ServerProcess]:
    settings: dict[str, object] = {
        "tls_certificate": pair[0],
        "tls_key": pair[1],
        "probe_port": 0,
        "read_timeout_s": 1,
    }
    with ServerProcess(echo_command, settings) as process:
        process.probe_port = int(process.wait_for("listening_for_probes")["port"])  # type: ignore[attr-defined]
        yield process.ready()


def client_of(server: ServerProcess, certificate: Path) -> httpx.Client:
    url = f"https://127.0.0.1:{server.port}"
    return httpx.Client(base_url=url, verify=trusting(certificate), trust_env=False, timeout=HANG_TIMEOUT_S)


def test_requests_streams_and_files_over_tls(server: ServerProcess, pair: tuple[Path, Path]) -> None:
    with client_of(server, pair[0]) as client:
        answer = client.post("/v1/translate", json=TEXT)
        assert answer.json()["translations"][0]["text"] == TEXT["text"]
        with client.stream("POST", "/v1/translate/stream", json=TEXT) as stream:
            assert stream.read().count(b"event: ") > 1
        fields = {"source": "en", "target": "de"}
        answer = client.post("/translate_file", data=fields, files={"file": ("a.txt", b"Anna sees.")})
        assert answer.status_code == 200, answer.text
        link = answer.json()["translatedFileUrl"]
        assert link.startswith("https://127.0.0.1:")
        assert client.get(link).content == b"Anna sees."


def test_a_large_body_and_a_refusal_over_tls(server: ServerProcess, pair: tuple[Path, Path]) -> None:
    with client_of(server, pair[0]) as client:
        texts = ["Anna sees the river. " * 50] * 10
        answer = client.post("/v1/translate", json={**TEXT, "text": texts, "timeout_ms": 60_000})
        assert answer.status_code == 200, answer.text
        assert [each["text"] for each in answer.json()["translations"]] == texts
        assert client.post("/v1/translate", content=b"[" * 2_000_000).status_code == 413


def test_only_tls_1_2_and_later_is_spoken(server: ServerProcess, pair: tuple[Path, Path]) -> None:
    context = trusting(pair[0])
    with (
        server.connect() as connection,
        context.wrap_socket(connection, server_hostname="127.0.0.1") as secured,
    ):
        assert secured.version() in {"TLSv1.2", "TLSv1.3"}
        assert secured.selected_alpn_protocol() is None
    with server.connect() as plain:
        plain.sendall(b"GET /livez HTTP/1.1\r\nhost: x\r\n\r\n")
        assert not plain.recv(1000).startswith(b"HTTP/")
    old = trusting(pair[0])
    old.set_ciphers("ALL:@SECLEVEL=0")
    with pytest.warns(DeprecationWarning, match="TLSv1_1"):
        old.minimum_version = old.maximum_version = ssl.TLSVersion.TLSv1_1
    with server.connect() as connection, pytest.raises(ssl.SSLError):
        old.wrap_socket(connection, server_hostname="127.0.0.1")


def test_a_client_that_offers_several_protocols_gets_http_1_1(
    server: ServerProcess, pair: tuple[Path, Path]
) -> None:
    context = trusting(pair[0])
    context.set_alpn_protocols(["h2", "http/1.1"])
    with (
        server.connect() as connection,
        context.wrap_socket(connection, server_hostname="127.0.0.1") as secured,
    ):
        assert secured.selected_alpn_protocol() == "http/1.1"


def test_a_client_that_does_not_shake_hands_is_disconnected(server: ServerProcess) -> None:
    with server.connect() as connection:
        started = time.monotonic()
        assert connection.recv(1) == b""
        assert 0.9 <= time.monotonic() - started < 45  # read_timeout_s is 1; the event loop's default is 60 s


def test_the_probe_port_speaks_http(server: ServerProcess) -> None:
    port = server.probe_port  # type: ignore[attr-defined]
    assert httpx.get(f"http://127.0.0.1:{port}/readyz", trust_env=False).status_code == 200


@pytest.mark.parametrize(("first_kind", "renewed_kind"), [("ec", "ec"), ("ec", "rsa"), ("rsa", "ec")])
def test_sighup_reads_the_certificate_again(
    echo_command: list[str], tmp_path: Path, first_kind: str, renewed_kind: str
) -> None:
    """Broken files change nothing. The new key may be of another kind."""
    pair = make_certificate(tmp_path, "first", first_kind)
    certificate, key = tmp_path / "served.pem", tmp_path / "served.key"
    for source, target in zip(pair, (certificate, key), strict=True):
        shutil.copy(source, target)
    renewed = make_certificate(tmp_path, "renewed", renewed_kind)

    def subject(server: ServerProcess) -> str:
        context = ssl.create_default_context()
        context.load_verify_locations(cafile=pair[0])
        context.load_verify_locations(cafile=renewed[0])
        with (
            socket.create_connection(("127.0.0.1", server.port)) as connection,
            context.wrap_socket(connection, server_hostname="127.0.0.1") as secured,
        ):
            found = secured.getpeercert()
            assert found is not None
            return json.dumps(found["subject"])

    def num_reloads(server: ServerProcess, outcome: str) -> int:
        url = f"http://127.0.0.1:{server.probe_port}/metrics"  # type: ignore[attr-defined]
        metrics = httpx.get(url, trust_env=False).text
        name = f'transduce_certificate_reloads_total{{outcome="{outcome}"}}'
        (count,) = re.findall(f"^{re.escape(name)} (.+)$", metrics, re.MULTILINE)
        return round(float(count))

    settings = {"tls_certificate": certificate, "tls_key": key, "probe_port": 0}
    with ServerProcess(echo_command, settings) as server:
        server.probe_port = server.wait_for("listening_for_probes")["port"]  # type: ignore[attr-defined]
        before = subject(server.ready())
        shutil.copy(renewed[0], certificate)
        key.write_text("broken")
        server.signal(signal.SIGHUP)
        failure = server.wait_for("certificate_reload_failed")
        assert re.search("files cannot be used: .*(NO_START_LINE|PEM lib)", failure["problem"]), failure
        assert str(tmp_path) not in "".join(server.log)
        assert num_reloads(server, "failed") == 1
        assert num_reloads(server, "done") == 0
        assert subject(server) == before
        for source, target in zip(renewed, (certificate, key), strict=True):
            source.replace(target)
        renewed = (certificate, key)  # `subject` reads the renewed certificate, which has moved
        server.signal(signal.SIGHUP)
        server.wait_for("reloading")
        until = time.monotonic() + HANG_TIMEOUT_S
        while "renewed" not in subject(server):
            assert time.monotonic() < until
            time.sleep(0.05)
        assert num_reloads(server, "done") == 1


def test_a_certificate_needs_its_key(pair: tuple[Path, Path], folder: Path) -> None:
    for settings in ({"tls_certificate": pair[0]}, {"tls_key": pair[1]}):
        with pytest.raises(
            SettingsError, match="TRANSDUCE_TLS_CERTIFICATE and TRANSDUCE_TLS_KEY need each other"
        ):
            read_tls(load_settings(settings))
    other = make_certificate(folder, "other")
    for certificate, key, reason in (
        (pair[0], other[1], "cannot be used: KEY_VALUES_MISMATCH$"),
        (pair[1], pair[1], "NO_START_LINE|PEM lib"),
        (folder / "missing", pair[1], "No such file"),
        (folder, pair[1], "directory|SSLError|PEM lib|PEM_LIB|SYSTEM_LIB|system lib"),
    ):
        with pytest.raises(
            SettingsError, match=f"TRANSDUCE_TLS_CERTIFICATE and TRANSDUCE_TLS_KEY: .*({reason})"
        ):
            read_tls(load_settings({"tls_certificate": certificate, "tls_key": key}))
    assert isinstance(read_tls(load_settings({"tls_certificate": pair[0], "tls_key": pair[1]})), Tls)


def with_password(key: Path, folder: Path) -> Path:
    """A copy of a key, encrypted with the password `secret`."""
    locked = folder / "locked.key"
    subprocess.run(
        ["openssl", "ec", "-aes256", "-passout", "pass:secret", "-in", str(key), "-out", str(locked)],
        check=True,
        capture_output=True,
    )
    return locked


def test_a_key_with_a_password_is_refused(pair: tuple[Path, Path], tmp_path: Path) -> None:
    """The start does not wait for the password on the terminal."""
    locked = with_password(pair[1], tmp_path)
    with pytest.raises(SettingsError, match="the files cannot be used"):
        read_tls(load_settings({"tls_certificate": pair[0], "tls_key": locked}))


def test_the_password_of_a_key_is_not_asked_for_on_the_terminal(
    pair: tuple[Path, Path], tmp_path: Path
) -> None:
    locked = with_password(pair[1], tmp_path)
    code = """
import fcntl, sys, termios
from app.api.http.tls import Tls
fcntl.ioctl(0, termios.TIOCSCTTY, 0)  # OpenSSL asks on the terminal that controls the process
Tls(*sys.argv[1:])
"""
    keyboard, terminal = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-c", code, str(pair[0]), str(locked)],
        cwd=ROOT,
        start_new_session=True,
        stdin=terminal,
        stdout=terminal,
        stderr=subprocess.PIPE,
    )
    os.close(terminal)
    with process, os.fdopen(keyboard, "wb", buffering=0) as keys:
        keys.write(b"secret\n")  # a process that asks for the password gets it
        _, errors = process.communicate(timeout=HANG_TIMEOUT_S)
    assert process.returncode == 1
    assert b"ssl.SSLError" in errors
