"""`transduce top` on real servers: its figures, its text and JSON, and the live view in a pseudo-terminal."""

from __future__ import annotations

import dataclasses
import fcntl
import io
import json
import math
import os
import re
import select
import signal
import struct
import subprocess
import sys
import termios
import threading
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import pytest
from rich.console import Console

from app.observability.metrics import REQUEST_SECONDS
from tests.api.echo import GOLDEN
from tests.api.server_process import HANG_TIMEOUT_S, ROOT, ServerProcess
from transduce.cli import main
from transduce.client.wire import Endpoint
from transduce.errors import ExitCode
from transduce.local_server import free_port
from transduce.top.frame import Frame, ModelState, WorkerState, compare, quantile
from transduce.top.scrape import Scrape, Scraper
from transduce.top.view import view

BODY = {"text": [GOLDEN, "Peter sees the house."], "source": "en", "target": "de"}
ESCAPES = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
STALL_LIMIT_S = 1.0
# The program `transduce`. It handles SIGINT even if the tests run in a background job, which ignores SIGINT.
COMMAND = """
import signal, sys
from transduce.cli import main
signal.signal(signal.SIGINT, signal.default_int_handler)
sys.exit(main())
"""
# The upper bounds of the buckets of the latency histogram.
BOUNDS_S = (*REQUEST_SECONDS, math.inf)


@pytest.fixture(scope="module")
def hang(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The path of a file. While the file exists, the model's steps do not return."""
    return tmp_path_factory.mktemp("hang") / "hang"


@pytest.fixture(scope="module")
def server(echo_command: list[str], hang: Path) -> Iterator[ServerProcess]:
    settings: dict[str, object] = {"stall_limit_s": STALL_LIMIT_S, "sentence_cache_bytes": 0}
    with ServerProcess([*echo_command, "pairs=en>de;de>en", f"hang_file={hang}"], settings) as process:
        yield process.ready()


def scraper_of(server: ServerProcess) -> Scraper:
    return Scraper(Endpoint.of(server.url, None, HANG_TIMEOUT_S))


def logged_durations_s(server: ServerProcess, request_ids: set[str]) -> list[float]:
    """The durations that the server logs. They end after the client has its answer, so a client cannot measure them."""
    found: dict[str, float] = {}
    while found.keys() != request_ids:
        line = server.wait_for("request")
        if line["request_id"] in request_ids:
            found[line["request_id"]] = line["duration_ms"] / 1000
    return [*found.values()]


def test_rates_are_of_the_requests_between_two_scrapes(server: ServerProcess) -> None:
    with scraper_of(server) as scraper, server.client() as client:
        client.post("/v1/translate", json=BODY)
        before = scraper.scrape()
        statuses, request_ids = Counter[str](), set[str]()
        while statuses["200"] < 7 or not statuses["422"]:
            answer = client.post("/v1/translate", json=BODY if statuses["200"] < 7 else {})
            # On a busy machine the server refuses a request that it read late, and does not count or log it.
            if answer.status_code != 503:
                statuses[str(answer.status_code)] += 1
                request_ids.add(answer.headers["x-request-id"])
        client.get("/readyz")
        frame = compare(before, scraper.scrape())
    seconds = frame.interval_s
    assert frame.ready
    assert statuses == {"200": 7, "422": 1}
    assert {code: round(rate * seconds) for code, rate in frame.statuses.items()} == statuses
    assert frame.requests_per_s * seconds == pytest.approx(8)
    assert frame.sentences_per_s * seconds == pytest.approx(14)
    assert round(frame.rejected["invalid"] * seconds) == 1
    assert [(model.name, round(model.requests_per_s * seconds)) for model in frame.models] == [
        ("echo", 7),
        ("echo-2", 0),
    ]
    assert 0 < frame.p50_ms <= frame.p99_ms
    longest = max(logged_durations_s(server, request_ids))
    assert frame.p99_ms / 1000 <= min(bound for bound in BOUNDS_S if bound >= longest)
    assert (frame.queue_sentences, frame.max_queue_sentences) == (0, 2 * 2048)
    assert 0 < frame.utilisation < 1
    assert [(worker.model, worker.state) for worker in frame.workers] == [
        ("echo", "idle"),
        ("echo-2", "idle"),
    ]


def test_a_stalled_worker_and_its_queue_are_seen(server: ServerProcess, hang: Path) -> None:
    with scraper_of(server) as scraper, server.client() as client, ThreadPoolExecutor(1) as pool:
        hang.touch()
        try:
            running = pool.submit(client.post, "/v1/translate", json=BODY)
            until = time.monotonic() + HANG_TIMEOUT_S
            while (frame := compare(None, scraper.scrape())).ready:
                assert time.monotonic() < until
        finally:
            hang.unlink()
        assert running.result(HANG_TIMEOUT_S).status_code == 200
    assert frame.why_not_ready == "the engine has stalled"
    assert frame.queue_sentences == 2
    assert frame.num_inflight == 1
    assert [worker.state for worker in frame.workers] == ["stalled", "idle"]
    assert frame.workers[0].step_age_s > STALL_LIMIT_S


def test_one_view_as_json(server: ServerProcess, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["top", server.url, "--json", "--interval", "0.2"]) == 0
    (line,) = capsys.readouterr().out.splitlines()
    found = json.loads(line, parse_constant=pytest.fail)
    assert found.keys() == {field.name for field in dataclasses.fields(Frame)}
    assert found["p50_ms"] is None, "there were no requests"
    assert found["requests_per_s"] == 0
    assert found["interval_s"] >= 0.2
    assert [worker["state"] for worker in found["workers"]] == ["idle", "idle"]


def test_one_view_as_text(server: ServerProcess, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["top", server.url, "--once", "--interval", "0.2"]) == 0
    text = capsys.readouterr().out
    assert "\x1b" not in text
    lines = [line.split() for line in text.splitlines()]
    assert lines[0][:2] == [server.url, "ready"]
    assert ["requests", "0.0/s", "0", "in", "progress"] in lines
    assert ["rows", "." * 20, "0", "of", "128"] in lines
    assert ["1", "echo-2", "idle", "0", "of", "64", "-"] in lines
    assert ["echo-2", "1", "fp32", "0.0", "0.0"] in lines


@pytest.mark.parametrize("columns", ["0", "wide"])
def test_columns_that_are_no_positive_number_are_ignored(
    columns: str, server: ServerProcess, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", columns)
    assert main(["top", server.url, "--once", "--interval", "0.2"]) == 0
    assert capsys.readouterr().out.startswith(server.url)


@pytest.mark.parametrize("option", ["--once", "--json"])
def test_a_server_that_is_away_is_an_error_of_a_single_view(
    option: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["top", f"http://127.0.0.1:{free_port()}", option]) == ExitCode.FAILURE
    printed = capsys.readouterr()
    assert printed.err.startswith("transduce top: no server answers at http://127.0.0.1:")
    assert printed.out == ""


def test_without_a_terminal_once_or_json_is_needed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["top"]) == ExitCode.USAGE
    assert "add --once or --json" in capsys.readouterr().err


@pytest.mark.parametrize("term", ["dumb", "unknown"])
def test_on_a_terminal_that_cannot_redraw_once_or_json_is_needed(
    term: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    monkeypatch.setattr("transduce.top.command._show", lambda *_arguments: None)
    monkeypatch.setenv("TERM", "xterm")
    assert main(["top"]) == 0
    monkeypatch.setenv("TERM", term)
    assert main(["top"]) == ExitCode.USAGE
    assert f"TERM is {term}: add --once or --json" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("interval", "reason"),
    [
        ("0.05", "0.05 is less than 0.1"),
        ("1e12", "1e12 is more than 86400"),
        ("nan", "'nan' is not a finite"),
    ],
)
def test_an_interval_out_of_range_is_refused(
    interval: str, reason: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        main(["top", "--interval", interval])
    assert reason in capsys.readouterr().err


def scrape_at(at: float, start: float | None, requests: float) -> Scrape:
    starts: list[tuple[dict[str, str], float]] = [] if start is None else [({}, start)]
    answered = [({"code": "200", "route": "/v1/translate"}, requests)]
    return Scrape(at, {"process_start_time_seconds": starts, "http_requests_total": answered})


def test_a_restart_gives_no_rates_rather_than_negative_ones() -> None:
    for start in (100.0, None):  # None: the server does not know its start
        same = compare(scrape_at(1.0, start, 50), scrape_at(3.0, start, 60))
        assert (same.interval_s, same.requests_per_s) == (2.0, 5.0)
    assert math.isnan(compare(scrape_at(1.0, 100.0, 50), scrape_at(3.0, 102.0, 60)).requests_per_s)
    assert math.isnan(compare(scrape_at(1.0, None, 50), scrape_at(3.0, None, 4)).requests_per_s)


def test_quantiles_are_interpolated_within_their_bucket() -> None:
    counts = {0.1: 10.0, 0.2: 30.0, 0.5: 40.0, math.inf: 40.0}
    assert quantile(0.5, counts) == pytest.approx(0.15)
    assert quantile(0.25, counts) == pytest.approx(0.1)
    assert quantile(1.0, counts) == pytest.approx(0.5)
    assert quantile(0.99, {0.1: 1.0, math.inf: 9.0}) == 0.1, "values above the last bound"
    assert math.isnan(quantile(0.5, {0.1: 0.0, math.inf: 0.0}))
    assert math.isnan(quantile(0.5, {}))


REFUSALS = {"cancelled": 1.2, "deadline": 5.0, "queue_full": 40.0, "would_be_late": 30.1}


def loaded_frame(rejected: dict[str, float]) -> Frame:
    return dataclasses.replace(
        compare(None, scrape_at(1.0, 100.0, 50)),
        num_inflight=12,
        p99_ms=300,
        utilisation=0.8,
        rows=60,
        max_rows=64,
        queue_sentences=1000,
        max_queue_sentences=2048,
        queue_tokens=30000,
        max_queue_tokens=100000,
        drain_s=3.2,
        connections={"active": 12.0, "idle": 30.0},
        max_connections=1000,
        memory_bytes=5e8,
        max_memory_bytes=2e9,
        statuses={"200": 90.0, "400": 1.0, "429": 8.0, "503": 1.0},
        rejected=rejected,
        workers=(WorkerState("0", "en-de-small", "stalled", 60, 64, 12.25),),
        models=(ModelState("en-de-small", "2026-01", "int8", 12.5, 234.5),),
    )


def lines_of(frame: Frame, columns: int) -> list[str]:
    text = io.StringIO()
    Console(file=text, width=columns).print(view(frame, "http://127.0.0.1:8000", columns))
    return [" ".join(line.split()) for line in text.getvalue().splitlines()]


@pytest.mark.parametrize("columns", [80, 100, 120])
@pytest.mark.parametrize(
    "rejected", [REFUSALS, {**REFUSALS, "invalid": 0.5, "quota": 1.2}], ids=["four reasons", "six reasons"]
)
def test_many_reasons_for_refusals_hide_no_other_figure(columns: int, rejected: dict[str, float]) -> None:
    frame = loaded_frame(rejected)
    lines = lines_of(frame, columns)
    for label, value in (
        ("requests", "12 in progress"),
        ("sentences", ""),
        ("latency", "p99 300 ms"),
        ("workers busy", "80 %"),
        ("rows", "60 of 64"),
        ("queue", "1,000 of 2,048 sentences, done in 3.2 s"),
        ("", "30,000 of 100,000 subwords"),
        ("connections", "42 of 1,000, 12 active"),
        ("memory", "500 of 2,000 MB"),
        ("event loop", ""),
        ("answers", ""),
        ("refused", ""),
    ):
        assert any(line.startswith(label) and line.endswith(value) for line in lines), (label, value)
    for name, rate in {**frame.statuses, **rejected}.items():
        assert f"{name}: {rate:.1f}/s" in " ".join(lines)


@pytest.mark.parametrize("columns", [40, 49])
def test_a_narrow_view_has_all_figures_and_no_bars(columns: int) -> None:
    lines = lines_of(loaded_frame(REFUSALS), columns)
    whole = " ".join(lines)
    for shown in (
        "12 in progress",
        "workers busy 80 %",
        "rows 60 of 64",
        "queue 1,000 of 2,048 sentences, done in 3.2 s",
        "30,000 of 100,000 subwords",
        "connections 42 of 1,000, 12 active",
        "memory 500 of 2,000 MB",
        "answers 200: 90.0/s, 400: 1.0/s, 429: 8.0/s, 503: 1.0/s",
        "refused cancelled: 1.2/s, deadline: 5.0/s, queue_full: 40.0/s, would_be_late: 30.1/s",
        "12.5 234.5",
    ):
        assert shown in whole
    assert "#" not in whole
    assert "\u2026" not in whole, "nothing is cut"
    assert "#" in " ".join(lines_of(loaded_frame(REFUSALS), 50))


class Terminal:
    """A process in a pseudo-terminal of 120 columns and 40 lines. The whole output is kept."""

    def __init__(self, *arguments: str) -> None:
        self._ours, theirs = os.openpty()
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 120, 0, 0))
        environment = {name: value for name, value in os.environ.items() if name not in {"COLUMNS", "LINES"}}
        self.process = subprocess.Popen(
            [sys.executable, "-c", COMMAND, *arguments],
            cwd=ROOT,
            env=environment | {"TERM": "xterm-256color"},
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            start_new_session=True,
        )
        os.close(theirs)
        self.raw = ""

    def wait_for(self, pattern: str) -> re.Match[str]:
        """Wait until the text that is written from now on matches."""
        start, until = len(self.raw), time.monotonic() + HANG_TIMEOUT_S
        while (found := re.search(pattern, ESCAPES.sub("", self.raw[start:]))) is None:
            assert time.monotonic() < until, self.raw[start:]
            if select.select([self._ours], [], [], 0.2)[0]:
                self.raw += os.read(self._ours, 65536).decode("utf-8", "replace")
        return found

    def interrupt(self) -> int:
        """Send the signal of Ctrl-C. Returns the exit code."""
        self.process.send_signal(signal.SIGINT)
        return self.process.wait(HANG_TIMEOUT_S)

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        os.close(self._ours)


@contextmanager
def under_load(server: ServerProcess) -> Iterator[None]:
    """A client that sends one request after another."""
    is_over = threading.Event()

    def send() -> None:
        with server.client() as client:
            while not is_over.is_set():
                client.post("/v1/translate", json=BODY)

    thread = threading.Thread(target=send)
    thread.start()
    try:
        yield
    finally:
        is_over.set()
        thread.join()


def test_the_live_view_goes_on_when_the_server_comes_and_leaves(echo_command: list[str]) -> None:
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    terminal = Terminal("top", url, "--interval", "0.3")
    try:
        terminal.wait_for(f"away: no server answers at {url}")
        with ServerProcess(echo_command, {"port": port, "sentence_cache_bytes": 0}) as server:
            terminal.wait_for(f"{url}  ready")
            server.listening()
            with under_load(server):
                rate = terminal.wait_for(r"requests +([\d.]*[1-9][\d.]*)/s")
                assert float(rate[1]) > 0
                terminal.wait_for(r"200: [\d.]+/s")
                terminal.wait_for(r"0 +echo +(?:idle|busy) +\d+ of 64")
        terminal.wait_for(f"away: no server answers at {url}")
        assert terminal.interrupt() == 0
    finally:
        terminal.close()
    assert "Traceback" not in terminal.raw


def test_a_server_that_needs_a_key_says_so(
    echo_command: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    with ServerProcess(echo_command, {"api_keys": "0" * 64}) as server:
        server.ready()
        assert main(["top", server.url, "--json"]) == ExitCode.FAILURE
        assert "/metrics answers 401 (set TRANSDUCE_API_KEY)" in capsys.readouterr().err
