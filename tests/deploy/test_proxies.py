"""The server behind the proxies of deploy/proxy: TLS, links, streams, sizes, origins, addresses and timeouts."""

from __future__ import annotations

import json
import re
import socket
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import httpx
import pytest

from app.api.row_trace import MAX_S as MAX_TRACE_S
from app.settings import Settings
from tests.api.certificates import make_certificate, trusting
from tests.api.conftest import echo_command, tokenizer_path
from tests.api.echo import release_steps
from tests.api.server_process import HANG_TIMEOUT_S, ServerProcess
from tests.deploy.proxies import FOLDER, PROXIES, running
from transduce.local_server import free_port

__all__ = ["echo_command", "tokenizer_path"]  # fixtures
TEXT = {"text": "Anna sees the river.", "source": "en", "target": "de"}
FIELDS = {"source": "en", "target": "de"}
# Seconds: a short time limit, and a delay that is longer.
SHORT_S = 1
DELAY_S = 2.0
pytestmark = pytest.mark.server


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    return make_certificate(tmp_path_factory.mktemp("certificate"))


@pytest.fixture(scope="module")
def hang_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("hang") / "hang"


@pytest.fixture(scope="module")
def server(echo_command: list[str], hang_file: Path) -> Iterator[ServerProcess]:
    settings: dict[str, object] = {"trusted_proxies": "127.0.0.1", "sentence_cache_bytes": 0}
    with ServerProcess([*echo_command, f"hang_file={hang_file}"], settings) as process:
        yield process.ready()


def client_of(url: str, pair: tuple[Path, Path], source: str = "127.0.0.1") -> httpx.Client:
    transport = httpx.HTTPTransport(verify=trusting(pair[0]), local_address=source)
    return httpx.Client(base_url=url, transport=transport, timeout=HANG_TIMEOUT_S)


@pytest.fixture(scope="module", params=PROXIES)
def client(
    request: pytest.FixtureRequest,
    server: ServerProcess,
    pair: tuple[Path, Path],
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[httpx.Client]:
    folder = tmp_path_factory.mktemp(request.param)
    with running(request.param, folder, server.port, pair) as url, client_of(url, pair) as client:
        yield client


def test_a_request_over_tls(client: httpx.Client) -> None:
    assert client.post("/v1/translate", json=TEXT).json()["translations"][0]["text"] == TEXT["text"]


def test_the_link_of_a_file_has_the_scheme_and_the_host(client: httpx.Client) -> None:
    answer = client.post("/translate_file", data=FIELDS, files={"file": ("a.txt", b"Anna sees.")}).json()
    assert answer["translatedFileUrl"].startswith(f"{client.base_url}/download_file/")
    assert client.get(answer["translatedFileUrl"]).content == b"Anna sees."


def test_a_stream_is_not_buffered(client: httpx.Client, hang_file: Path) -> None:
    """The first two steps return at once. Each further step returns after the client has read another event."""
    # While the hang file does not exist, a step sets the model's count of returned steps to 0. The test of an earlier
    # proxy may have left a higher count.
    assert client.post("/v1/translate", json=TEXT).status_code == 200
    hang_file.touch()
    release_steps(hang_file, 2)
    num_deltas = 0
    try:
        with client.stream("POST", "/v1/translate/stream", json={**TEXT, "beam_size": 1}) as answer:
            for line in answer.iter_lines():
                if line == "event: delta":
                    num_deltas += 1
                    release_steps(hang_file, 1)
    finally:
        hang_file.unlink()
    assert num_deltas > 5


def test_a_body_slightly_above_the_limit_of_the_server_is_passed_on(client: httpx.Client) -> None:
    content = b" " * Settings().max_file_bytes
    answer = client.post("/translate_file", data=FIELDS, files={"file": ("a.txt", content)})
    assert answer.status_code == 413
    assert "error" in answer.json()  # the server's answer, not the proxy's


@pytest.mark.parametrize("name", PROXIES)
def test_a_much_larger_body_is_refused_by_the_proxy(
    name: str, echo_command: list[str], pair: tuple[Path, Path], tmp_path: Path
) -> None:
    """The server's limit is raised, so that the server accepts the body. Caddy 2.6 answers 502, newer ones 413."""
    largest = Settings().max_file_bytes
    files = {"file": ("a.txt", b" " * (largest * 6 // 5))}
    with ServerProcess(echo_command, {"max_file_bytes": largest * 2}) as server:
        port = server.ready().port
        with running(name, tmp_path, port, pair) as url, client_of(url, pair) as client:
            refused = client.post("/translate_file", data=FIELDS, files=files)
        with server.client() as client:
            accepted = client.post("/translate_file", data=FIELDS, files=files)
    assert refused.status_code in ({413, 502} if name == "caddy" else {413})
    assert accepted.status_code == 200


@pytest.mark.parametrize("name", PROXIES)
def test_a_slow_upload_arrives_at_the_server_in_time(
    name: str, echo_command: list[str], pair: tuple[Path, Path], tmp_path: Path
) -> None:
    """The upload takes longer than the server waits for a request, so the proxy must read the whole body first."""
    changes = {"# buffer_requests": "buffer_requests"} if name == "caddy" else {}
    answer = slow_upload(name, echo_command, pair, tmp_path, changes)
    assert answer.status_code == 200


def test_a_slow_upload_that_caddy_forwards_while_it_arrives_gets_the_servers_408(
    echo_command: list[str], pair: tuple[Path, Path], tmp_path: Path
) -> None:
    answer = slow_upload("caddy", echo_command, pair, tmp_path, {})
    assert (answer.status_code, answer.json()["error"]["code"]) == (408, "request_timeout")


def slow_upload(
    name: str, echo_command: list[str], pair: tuple[Path, Path], folder: Path, changes: dict[str, str]
) -> httpx.Response:
    """The answer to a request whose body takes longer than the server waits for it. changes: to the proxy's file."""

    def slowly(content: bytes) -> Iterator[bytes]:
        yield content[:10]
        time.sleep(DELAY_S)
        yield content[10:]

    content = json.dumps(TEXT).encode()
    headers = {"content-type": "application/json", "content-length": str(len(content))}
    with ServerProcess(echo_command, {"read_timeout_s": SHORT_S}) as server:
        port = server.ready().port
        with running(name, folder, port, pair, changes) as url, client_of(url, pair) as client:
            return client.post("/v1/translate", content=slowly(content), headers=headers)


@pytest.mark.parametrize(
    ("name", "line"),
    [
        ("nginx", "location = /metrics { return 403; }"),
        ("caddy", "respond /metrics 403"),
        ("envoy", "- match: {path: /metrics}\n                        #   direct_response: {status: 403}"),
    ],
)
def test_the_optional_line_for_metrics_refuses_them_to_callers(
    name: str, line: str, server: ServerProcess, pair: tuple[Path, Path], tmp_path: Path
) -> None:
    changes = {f"# {line}": line.replace("#   direct", "  direct")}
    with running(name, tmp_path, server.port, pair, changes) as url, client_of(url, pair) as client:
        assert client.get("/metrics").status_code == 403
        assert client.get("/%6Detrics").status_code == 403
        assert client.get("/livez").status_code == 200


def test_pages_of_other_sites_are_refused_and_the_servers_own_are_served(client: httpx.Client) -> None:
    for origin, status in ((str(client.base_url), 200), ("https://evil.example", 403)):
        assert client.post("/v1/translate", json=TEXT, headers={"origin": origin}).status_code == status


class Recorder(BaseHTTPRequestHandler):
    """Answers with the value of the request's header X-Forwarded-For. The answer to a POST comes after DELAY_S."""

    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        time.sleep(DELAY_S)
        self.do_GET()

    def do_GET(self) -> None:
        body = self.headers.get("X-Forwarded-For", "").encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Print nothing."""


@pytest.fixture
def upstream() -> Iterator[int]:
    """The port of a Recorder."""
    with ThreadingHTTPServer(("127.0.0.1", 0), Recorder) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield server.server_port
        server.shutdown()
        thread.join()


@pytest.mark.parametrize("name", PROXIES)
def test_the_callers_address_is_passed_on(
    name: str, upstream: int, pair: tuple[Path, Path], tmp_path: Path
) -> None:
    """The last address is the caller's, whatever the caller writes into the header."""
    with (
        running(name, tmp_path, upstream, pair) as url,
        client_of(url, pair, source="127.0.0.2") as client,
    ):
        seen = client.get("/", headers={"x-forwarded-for": "198.51.100.7"}).text
    assert seen.split(",")[-1].strip() == "127.0.0.2"


@pytest.mark.parametrize(
    ("name", "changes"),
    [
        ("nginx", {"proxy_read_timeout 65s": f"proxy_read_timeout {SHORT_S}s"}),
        ("envoy", {"timeout: 65s": f"timeout: {SHORT_S}s"}),
    ],
)
def test_administrators_may_wait_longer_than_translations(
    name: str, changes: dict[str, str], upstream: int, pair: tuple[Path, Path], tmp_path: Path
) -> None:
    """The proxy's limit for translations is below the server's delay. The limit for administrators is unchanged."""
    with running(name, tmp_path, upstream, pair, changes) as url, client_of(url, pair) as client:
        assert client.post("/v1/translate").status_code == 504
        assert client.post("/admin/trace?seconds=300").status_code == 200
        assert client.post("/admin/models/en-de/reload").status_code == 200


def test_the_proxies_wait_longer_than_the_server_and_close_idle_connections_earlier() -> None:
    defaults = Settings()
    nginx = (FOLDER / "nginx.conf").read_text("utf-8")
    caddy = (FOLDER / "Caddyfile").read_text("utf-8")
    (kept,) = re.findall(r"keepalive_timeout (\d+)s", nginx)
    requests, administrators, files = map(int, re.findall(r"proxy_read_timeout (\d+)s", nginx))
    assert int(kept) < defaults.keep_alive_s
    assert requests > defaults.max_timeout_s
    assert administrators > MAX_TRACE_S
    assert files > defaults.file_timeout_s
    (kept,) = re.findall(r"keepalive (\d+)s", caddy)
    (waited,) = re.findall(r"response_header_timeout (\d+)s", caddy)
    assert int(kept) < defaults.keep_alive_s
    assert int(waited) > max(defaults.file_timeout_s, MAX_TRACE_S)
    envoy = (FOLDER / "envoy.yaml").read_text("utf-8")
    (kept,) = re.findall(r"{idle_timeout: (\d+)s", envoy)
    *others, administrators, requests = map(int, re.findall(r", timeout: (\d+)s", envoy))
    (silent,) = re.findall(r"stream_idle_timeout: (\d+)s", envoy)
    assert int(kept) < defaults.keep_alive_s
    assert requests > defaults.max_timeout_s
    assert administrators > MAX_TRACE_S
    assert len(others) == 3, "/translate_file, /download_file and /v2/document"
    assert min(*others, int(silent)) > max(defaults.file_timeout_s, MAX_TRACE_S)


@pytest.mark.parametrize("name", sorted(PROXIES))
def test_a_proxy_whose_port_is_taken_gets_another(
    name: str, pair: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        ports = [taken.getsockname()[1], free_port()]
        monkeypatch.setattr("tests.deploy.proxies.free_port", lambda: ports.pop(0))
        with running(name, tmp_path, free_port(), pair) as url, client_of(url, pair) as client:
            # No server is behind the proxy.
            assert client.get("/").status_code == (503 if name == "envoy" else 502)
        assert not ports
