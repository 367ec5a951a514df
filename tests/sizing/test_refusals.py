"""A server that refuses the requests of `transduce size`, or whose answers cannot be measured."""

from __future__ import annotations

import ssl
from pathlib import Path
from unittest.mock import Mock

import httpx
import pytest

from tests.api.certificates import make_certificate
from tests.sizing.test_simulation import LIMITS, serve_figures
from tests.transduce.echo_server import echo_server
from transduce.cli import main
from transduce.errors import CommandError
from transduce.loadtest.plan import Target
from transduce.loadtest.server_side import STEPS
from transduce.loadtest.workload import built_in
from transduce.sizing import measure
from transduce.sizing.measure import ENGINE_PHASES

URL = "http://127.0.0.1:9"
MODELS = {"models": [{"name": "m", "language_pairs": [{"source": "en", "target": "de"}]}]}


@pytest.mark.parametrize(("status", "hint"), [(401, " (set TRANSDUCE_API_KEY)"), (503, "")])
def test_a_refusal_is_reported_in_one_line(
    status: int, hint: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def get(url: str, **_options: object) -> httpx.Response:
        return httpx.Response(status, request=httpx.Request("GET", url))

    monkeypatch.setattr(httpx, "get", get)
    assert main(["size", URL, "--rate", "5"]) == 1
    error = capsys.readouterr().err
    assert error == f"transduce size: {URL}/metrics answers {status}{hint}\n"


def test_a_server_without_a_model_for_the_languages_is_not_measured(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def get(url: str, **_options: object) -> httpx.Response:
        if url.endswith("/metrics"):
            return httpx.Response(200, text=f"{STEPS} 0.0\n")
        return httpx.Response(200, json=MODELS)

    run = Mock()
    monkeypatch.setattr(httpx, "get", get)
    monkeypatch.setattr(measure, "run", run)
    assert main(["size", URL, "--rate", "5", "--target", "fr"]) == 1
    assert capsys.readouterr().err == "transduce size: the server has no model for en-fr\n"
    run.assert_not_called()


def test_failed_requests_are_named_with_their_message(monkeypatch: pytest.MonkeyPatch) -> None:
    serve_figures(ENGINE_PHASES, LIMITS, monkeypatch)
    outcomes = {"ok": 90, "http_422": 8, "timeout": 3}
    result = Mock(outcomes=outcomes, error_examples={"http_422": "text is empty"})
    monkeypatch.setattr(measure, "run", lambda _plan, _keep: result)
    message = "measured; the most frequent error: 8 http_422 [(]text is empty[)]$"
    with pytest.raises(CommandError, match=message):
        measure.measure(Target(URL), built_in("short"), seconds=0.1)


@pytest.mark.parametrize("share", [0.001, 1.0])
def test_answers_from_the_cache_are_refused(share: float, monkeypatch: pytest.MonkeyPatch) -> None:
    serve_figures(ENGINE_PHASES, LIMITS, monkeypatch, cached_share=share)
    message = "answered from its cache: start it with TRANSDUCE_SENTENCE_CACHE_BYTES=0"
    with pytest.raises(CommandError, match=message):
        measure.measure(Target(URL), built_in("short"), seconds=0.1)


def test_a_server_with_a_private_certificate_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    certificate, key = make_certificate(tmp_path)
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(certificate, key)
    with echo_server(tls) as server:
        with pytest.raises(CommandError, match=r"/metrics cannot be read: .*CERTIFICATE_VERIFY_FAILED"):
            measure.Samples.scrape(Target(server.url))
        monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
        with pytest.raises(CommandError, match="is it a Transduce server"):
            measure.Samples.scrape(Target(server.url))
