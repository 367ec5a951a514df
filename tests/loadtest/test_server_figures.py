"""What the tester asks the server itself: its counters, even if it has restarted, and its models, even over HTTPS."""

from __future__ import annotations

import argparse
import dataclasses
import ssl
from pathlib import Path

import httpx
import pytest

from tests.api.certificates import make_certificate
from tests.loadtest.simulated_clock import simulated_run
from tests.transduce.echo_server import echo_server
from transduce.loadtest.command import add_loadtest_arguments, run_loadtest
from transduce.loadtest.document import read_json
from transduce.loadtest.plan import Target
from transduce.loadtest.server_side import ServerSide, ServerSnapshot, difference

URL = "http://127.0.0.1:1"
METRICS = """\
# HELP process_start_time_seconds Start time of the process since unix epoch in seconds.
process_start_time_seconds {start}
transduce_decode_steps_total {steps}
transduce_batch_size_sum {calls}
transduce_batch_size_count {calls}
transduce_rows_total{{use="decoded"}} {decoded}
transduce_rows_total{{use="idle"}} {idle}
transduce_rows_total{{use="wasted"}} 99.0
transduce_http_requests_total{{route="/a b/{{id}}"}} 1.0
"""
FIRST = METRICS.format(start="1.7e+09", steps=100, calls=10, decoded=300, idle=20)
LATER = METRICS.format(start="1.7e+09", steps=110, calls=12, decoded=330, idle=24)
RESTARTED = METRICS.format(start="1.8e+09", steps=10, calls=2, decoded=30, idle=4)


def serve(monkeypatch: pytest.MonkeyPatch, *pages: str) -> None:
    """Answer each scrape with the next page. There are no models."""
    left = [*pages]

    def get(url: str, **_options: object) -> httpx.Response:
        page = left.pop(0) if url.endswith("/metrics") else ""
        return httpx.Response(200 if page else 503, text=page)

    monkeypatch.setattr(httpx, "get", get)


def snapshots(monkeypatch: pytest.MonkeyPatch, *pages: str) -> list[ServerSnapshot]:
    serve(monkeypatch, *pages)
    side = ServerSide(Target(URL))
    return [side.snapshot() for _ in pages]


def test_the_rows_of_a_step_count_each_step_of_a_call(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ten steps in two calls decode 30 rows, and 4 rows wait for their beams."""
    before, after = snapshots(monkeypatch, FIRST, LATER)
    assert difference(before, after, 1.0) == {"decode_steps_total": 10.0, "rows_per_step": 3.4}
    assert difference(after, after, 1.0) == {"decode_steps_total": 0.0}


def test_counters_without_an_earlier_scrape_are_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    before, after = snapshots(monkeypatch, "", LATER)
    assert difference(before, after, 1.0) is None


def test_after_a_restart_only_the_memory_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    before, after = (
        dataclasses.replace(one, cpu_s=cpu_s, pss_mb=100.0)
        for one, cpu_s in zip(snapshots(monkeypatch, FIRST, RESTARTED), (9.0, 1.0), strict=True)
    )
    found = difference(before, after, 1.0)
    assert found == {"has_restarted": True, "pss_before_mb": 100.0, "pss_after_mb": 100.0}


def test_a_server_that_does_not_know_its_start_has_restarted_if_it_has_fewer_requests(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    first, later, restarted = (
        page.replace("process_start_time_seconds", "another_metric") for page in (FIRST, LATER, RESTARTED)
    )
    more = 'transduce_http_requests_total{route="/livez"} 1.0\n'
    before, after, anew = snapshots(monkeypatch, first + more, later + more, restarted)
    assert difference(before, after, 1.0) == {"decode_steps_total": 10.0, "rows_per_step": 3.4}
    assert difference(before, anew, 1.0) == {"has_restarted": True}


def test_the_reports_say_that_the_server_has_restarted(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    parser = argparse.ArgumentParser()
    add_loadtest_arguments(parser)
    file, page = tmp_path / "r.json", tmp_path / "r.html"
    arguments = [URL, "--workload", "short", "--duration", "1", "--json", str(file), "--html", str(page)]
    serve(monkeypatch, FIRST, RESTARTED)
    run_loadtest(parser.parse_args(arguments), execute=simulated_run)
    assert read_json(file)["runs"][0]["server"] == {"has_restarted": True}
    note = "it restarted, or another instance of it answered, so its counters are left out"
    assert note in page.read_text("utf-8")
    serve(monkeypatch, FIRST, LATER)
    run_loadtest(parser.parse_args(arguments), execute=simulated_run)
    assert "decode steps total 10, rows per step 3.4" in page.read_text("utf-8")


def test_a_private_certificate_is_accepted_if_ssl_cert_file_names_it(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A proxy that the environment names is ignored."""
    certificate, key = make_certificate(tmp_path)
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(certificate, key)
    monkeypatch.setenv("HTTPS_PROXY", URL)
    with echo_server(tls) as server:
        side = ServerSide(Target(server.url))
        assert side.models() is None
        monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
        assert side.models() == []
