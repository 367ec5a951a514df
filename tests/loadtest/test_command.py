"""`transduce loadtest` as a user runs it: exit codes, the result file, the HTML report, the comparison."""

from __future__ import annotations

import argparse
import functools
import json
import os
import re
import socket
import statistics
import subprocess
from collections.abc import Iterator, Sequence
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import httpx
import pytest

from tests.forked import run_transduce
from tests.loadtest.simulated_clock import simulated_run
from tests.loadtest.steady_server import SteadyServer
from transduce.cli import main
from transduce.loadtest.command import add_loadtest_arguments, run_loadtest
from transduce.loadtest.document import read_json
from transduce.loadtest.html_report import html_report
from transduce.loadtest.text_report import text_report

# Tests share their cores with other work, so with these options a test allows any lag.
PATIENT = ("--max-lag", "600000", "--timeout", "120")
# An objective that only a hang can miss.
LONG = "p99=100s"
FILE = ("--file", __file__)
# 60 requests.
RATE = ("--warm-up", "0", "--duration", "0.2", "--rate", "300")
# 60 requests over 1 s. The first response takes tenths of a second on a busy machine, and RATE lasts only 0.2 s.
LONGER = ("--duration", "1", "--rate", "60")
SHORT = ("--workload", "short", *RATE)


def loadtest(*arguments: object, **environment: str) -> subprocess.CompletedProcess[str]:
    return run_transduce("loadtest", *arguments, env={**os.environ, **environment})


@pytest.fixture(scope="module")
def server() -> Iterator[SteadyServer]:
    with SteadyServer(service_ms=2.0) as running:
        yield running


@pytest.mark.parametrize(
    ("more", "code"),
    [
        (("--slo", LONG, "--min-rate", "1", *LONGER), 0),
        (("--slo", "p99=1ms"), 1),
        (("--slo", LONG, "--min-rate", "450"), 1),
        (("--slo", LONG, "--slo", "p50=1ms"), 1),
        ((), 0),
        (("--max-lag", "0.0001"), 3),
        (("--max-lag", "0.0001", "--slo", "p99=1ms"), 3),
    ],
)
def test_the_exit_code_says_whether_the_objectives_were_met(
    server: SteadyServer, more: Sequence[str], code: int
) -> None:
    done = loadtest(server.url, *SHORT, *PATIENT, *more)
    assert done.returncode == code, done.stdout + done.stderr
    assert {0: "PASSED", 1: "MISSED", 3: "INVALID"}[code] in done.stdout
    assert ("MISSED: " in done.stdout) == (code == 1 or "p99=1ms" in more)


def test_no_server_is_a_failure() -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))  # bound but not listening, so that no other process takes the port
        done = loadtest(f"http://127.0.0.1:{unused.getsockname()[1]}", *SHORT, *PATIENT)
    assert done.returncode == 1, done.stdout + done.stderr
    first = done.stdout.splitlines()[0]
    assert "FAILED" in first
    assert "0 of 60 requests were answered" in first
    assert "60 connect_failed (Connection refused)" in first


@pytest.mark.parametrize(
    ("answers", "more", "code", "error"),
    [
        ("422", (), 1, "60 http_422 (text is empty)"),
        ("422", ("--min-ok", "0"), 1, "60 http_422"),
        ("200,200,200,503", (), 1, "15 http_503"),
        ("200,200,200,503", ("--min-ok", "0.7"), 0, ""),
        ("200,200,200,503", ("--max-lag", "0.0001"), 1, "15 http_503"),  # the run is also not valid
        ("200,200,garbage", ("--clients", "2"), 1, "bad_answer (the response holds no usage)"),
    ],
)
def test_too_few_answered_requests_are_a_failure(
    answers: str, more: Sequence[str], code: int, error: str
) -> None:
    arguments = [*SHORT, *PATIENT, *more]
    if "--clients" in more:
        arguments = arguments[: arguments.index("--rate")] + arguments[arguments.index("--rate") + 2 :]
    with SteadyServer(answers=answers) as refusing:
        done = loadtest(refusing.url, *arguments)
    assert done.returncode == code, done.stdout + done.stderr
    first = done.stdout.splitlines()[0]
    assert ("FAILED" in first) == (code == 1)
    assert error in first
    assert ("not valid" in done.stdout) == ("--max-lag" in more)


def test_a_sweep_without_a_response_is_a_failure() -> None:
    with SteadyServer(answers="422") as refusing:
        done = loadtest(
            refusing.url, *PATIENT, "--sweep", "--rate", "100", "--slo", "p90=100ms", "--duration", "0.02",
            "--warm-up", "0", "--workload", "short", "--precision", "0.9",
        )  # fmt: skip
    assert done.returncode == 1, done.stdout + done.stderr
    assert "FAILED: 0 of" in done.stdout.splitlines()[0]


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (("--distinct",), "--distinct needs --file"),
        (("--sweep", "--slo", LONG, "--runs", "2"), "--runs and --sweep exclude each other"),
        (("--sweep", "--slo", LONG, "--runs", "1"), "--runs and --sweep exclude each other"),
        (
            (*FILE, "--references", __file__, "--rest", "1"),
            "--rest and --references exclude each other",
        ),
        (
            (*FILE, "--references", __file__, "--distinct"),
            "distinct texts cannot be compared with references, because no reference translates them",
        ),
        ((*FILE, "--repeated"), "--file and --repeated exclude each other"),
        ((*FILE, "--workload", "news"), "--file and --workload exclude each other"),
        (("--burstiness", "1"), "--burstiness needs --arrivals bursty"),
        (("--slo", LONG, "--slo", "first.p95=1s"), "an --slo for the first text needs --dialect stream"),
        (("--workload", "beams", "--dialect", "root"), "--workload beams needs --dialect native or stream"),
        (("--json", "x", "--html", "./x"), "--json and --html name the same file"),
    ],
)
def test_an_option_without_effect_is_refused(
    more: Sequence[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["loadtest", "http://127.0.0.1:1", *RATE, *more]) == 2
    assert capsys.readouterr().err == f"transduce loadtest: {message}\n"


def test_a_report_of_a_server_that_lists_only_names_of_models(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    listed = {"models": ["one", {"name": "two", "version": "3"}]}
    answer = httpx.Response(200, json=listed, request=httpx.Request("GET", "http://127.0.0.1:1"))
    monkeypatch.setattr(httpx, "get", lambda *_args, **_options: answer)
    parser = argparse.ArgumentParser()
    add_loadtest_arguments(parser)
    page = tmp_path / "report.html"
    arguments = ["http://127.0.0.1:1", *SHORT, *PATIENT, "--html", str(page)]
    assert run_loadtest(parser.parse_args(arguments), execute=simulated_run) == 0
    assert "one, two 3" in page.read_text("utf-8")


def test_a_report_of_several_runs_has_medians_or_the_figures_of_each_run(tmp_path: Path) -> None:
    parser = argparse.ArgumentParser()
    add_loadtest_arguments(parser)
    file = tmp_path / "result.json"
    arguments = ["http://127.0.0.1:1", *SHORT, *PATIENT, "--runs", "3", "--json", str(file)]
    assert run_loadtest(parser.parse_args(arguments), execute=simulated_run) == 0
    document = read_json(file)
    for run, chrf in zip(document["runs"], (None, 40.0, 60.0), strict=True):
        quality = {"chrf": chrf, "num_known": 9, "exact_share": 1.0, "against": "rest", "num_texts": 9}
        run |= {"quality": quality, "phases_ms": {"decode": {"mean": 2.0}}}
    document["summary"] |= {"latency_p50_ms": {"median": 12.3456}, "latency_p99_ms": {"median": 12345.6}}
    assert re.search("latency +p50 12.35 ms, .*p99 12346 ms", text_report(document))
    found = re.findall("quality under load +(nothing|chrF [0-9.]+)", text_report(document))
    assert found == ["nothing", "chrF 40.0", "chrF 60.0"]
    page = html_report(document)
    assert "<b>50 <small></small></b><span>chrF under load</span>" in page
    assert "<h2>Time on the server by phase (mean)</h2><p class=soft>Run 1 of 3.</p>" in page


def test_only_the_url_is_required() -> None:
    done = loadtest()
    assert done.returncode == 2
    assert "required: URL\n" in done.stderr


def test_every_command_draws_and_reports_another_seed(server: SteadyServer, tmp_path: Path) -> None:
    for number in range(2):
        done = loadtest(server.url, *SHORT, *PATIENT, "--json", tmp_path / f"{number}.json")
        assert done.returncode == 0, done.stderr
        seed = read_json(tmp_path / f"{number}.json")["plan"]["seed"]
        assert re.search(rf"^  seed +{seed}$", done.stdout, re.MULTILINE)
        assert re.search(r"^  from the cache +not reported by the server$", done.stdout, re.MULTILINE)
    seeds = {read_json(tmp_path / f"{number}.json")["plan"]["seed"] for number in range(2)}
    assert len(seeds) == 2
    done = loadtest(server.url, *SHORT, *PATIENT, "--seed", "7", "--json", tmp_path / "0.json")
    assert read_json(tmp_path / "0.json")["runs"][0]["seed"] == 7


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("http://127.0.0.1:1", "--min-ok", "1.5"), "0 to 1"),
        (("127.0.0.1:8000",), "http://"),
        (("http://127.0.0.1:1", "--slo", "quick"), "p99=500ms"),
        (("http://127.0.0.1:1", "--rate", "0"), "above 0"),
        (("http://127.0.0.1:1", "--burstiness", "1e-4"), "1e-4 is not 0.001 to 1000"),
        (("http://127.0.0.1:1", "--clients", "x"), "'x' is not a whole number of at least 1"),
        (("http://127.0.0.1:1", "--rate", "1", "--clients", "1"), "exclude each other"),
        (("http://127.0.0.1:1", "--sweep"), "--slo"),
        (("http://127.0.0.1:1", "--pin"), "--server-pid"),
        (("http://127.0.0.1:1", "--phases", "10"), "10:60"),
        (("http://127.0.0.1:1", "a.json"), "compare"),
        (("http://127.0.0.1:1", "--disconnects", "2"), "share"),
        (("compare", "a.json"), "2 to 8"),
        (("compare", "a.json", "b.json", "--json", "c.json"), "compare writes no --json"),
        (("http://127.0.0.1:1", "--seed", str(2**53 + 1)), "is not a whole number from -9007"),
        (("http://127.0.0.1:1", "--seed", "x"), "'x' is not a whole number"),
    ],
)
def test_a_wrong_command_line_is_an_error(arguments: Sequence[str], message: str) -> None:
    done = loadtest(*arguments)
    assert done.returncode == 2
    assert message in done.stderr


def test_a_file_that_is_not_a_result_is_an_error(tmp_path: Path) -> None:
    paths = [tmp_path / name for name in ("a.json", "b.json")]
    for path in paths:
        path.write_text('{"runs": []}')
    done = loadtest("compare", *paths)
    assert done.returncode == 1
    assert "not a result file" in done.stderr


class Links(HTMLParser):
    """Collects a page's external references, and checks that all elements are closed."""

    VOID = frozenset({"meta", "line", "circle", "rect", "polyline"})

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []
        self.names: list[str] = []
        self.open: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.names.append(tag)
        self.found += [value or "" for name, value in attrs if name in {"src", "href", "srcset", "action"}]
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        if tag not in self.VOID:
            assert self.open.pop() == tag


def check_page(path: Path) -> Links:
    text = path.read_text("utf-8")
    page = Links()
    page.feed(text)
    assert page.found == []
    assert not {"script", "link", "img", "iframe"} & set(page.names)
    assert page.open == []
    assert re.search(r"@import|url\(", text) is None
    assert "nan" not in re.findall(r'[xy][12]?="([^"]*)"', text)
    return page


def test_two_results_have_reports_and_a_comparison(server: SteadyServer, tmp_path: Path) -> None:
    key = tmp_path / "key"
    key.write_text("secret-key\n")
    found: list[dict[str, Any]] = []
    for name, workload in (("a", "short"), ("b", "arrays")):
        done = loadtest(
            server.url, *SHORT, *LONGER, *PATIENT, "--workload", workload, "--runs", "2", "--slo", LONG,
            "--label", f"<{name}>", "--json", tmp_path / f"{name}.json", "--html", tmp_path / f"{name}.html",
            "--api-key-file", key, "--server-pid", server.pid, "--option", "beam_size=2",
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        document = read_json(tmp_path / f"{name}.json")
        found.append(document)
        page = check_page(tmp_path / f"{name}.html")
        assert page.names.count("svg") == 4
        text = (tmp_path / f"{name}.html").read_text("utf-8")
        assert f"&lt;{name}&gt;" in text
        assert "secret-key" not in text + json.dumps(document)
    runs = found[0]["runs"]
    assert [run["outcomes"] for run in runs] == [{"ok": 60}, {"ok": 60}]
    rates = [[run["achieved_rate"] for run in document["runs"]] for document in found]
    medians = [statistics.median(each) for each in rates]
    assert found[0]["summary"]["achieved_rate"]["median"] == pytest.approx(medians[0])
    assert 0 < medians[0] <= 60.0
    assert runs[0]["server"]["cpu_share"] >= 0
    assert found[1]["runs"][0]["per_s"]["sentences"] == pytest.approx(32 * rates[1][0], rel=0.1)
    done = loadtest("compare", tmp_path / "a.json", tmp_path / "b.json", "--html", tmp_path / "both.html")
    assert done.returncode == 0
    check_page(tmp_path / "both.html")
    (line,) = [line for line in done.stdout.splitlines() if line.startswith("sentences/s")]
    first, second = (
        statistics.median(run["per_s"]["sentences"] for run in document["runs"]) for document in found
    )
    assert f"×{second / first:.2f}" in line


def test_a_sweep_tries_11_rates_if_none_meets_the_objective(server: SteadyServer, tmp_path: Path) -> None:
    """Every response takes at least 2 ms, so no rate meets an objective of 1 ms on any machine."""
    done = loadtest(
        server.url, *PATIENT, "--sweep", "--rate", "40", "--slo", "p90=1ms", "--duration", "0.03",
        "--warm-up", "0", "--workload", "short", "--precision", "0.4", "--min-rate", "5",
        "--arrivals", "constant", "--json", tmp_path / "s.json", "--html", tmp_path / "s.html",
    )  # fmt: skip
    assert done.returncode == 1, done.stdout + done.stderr
    document = read_json(tmp_path / "s.json")
    assert document["verdict"] == "missed"
    assert document["sweep"]["max_rate"] is None
    points = document["sweep"]["points"]
    assert [point["rate"] for point in points] == pytest.approx([40 * 0.7**number for number in range(11)])
    assert done.stderr.count("does not hold") == 11
    check_page(tmp_path / "s.html")


def test_a_sweep_finds_the_capacity(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """On simulated time: one request takes 10 ms, so the capacity is 100 requests/s."""
    parser = argparse.ArgumentParser()
    add_loadtest_arguments(parser)
    arguments = (
        "http://127.0.0.1:1", "--sweep", "--rate", "60", "--slo", "p90=150ms", "--duration", "2",
        "--warm-up", "0.2", "--workload", "short", "--precision", "0.1", "--min-rate", "90",
        "--arrivals", "bursty", "--burstiness", "999", "--json", tmp_path / "s.json", "--html", tmp_path / "s.html",
    )  # fmt: skip
    execute = Mock(side_effect=functools.partial(simulated_run, service_ms=10.0))
    code = run_loadtest(parser.parse_args([*map(str, arguments)]), execute=execute)
    printed = capsys.readouterr().out
    assert code == 0, printed
    document = read_json(tmp_path / "s.json")
    assert document["verdict"] == "passed"
    assert 95 < document["sweep"]["max_rate"] < 110
    assert f"{document['sweep']['max_rate']:.2f} requests/s" in printed
    assert {call.args[0].load.burstiness for call in execute.call_args_list} == {999.0}
    check_page(tmp_path / "s.html")


@pytest.mark.parametrize(("name", "is_sweep"), [("--json", False), ("--html", False), ("--json", True)])
def test_a_file_that_cannot_be_written_leaves_the_report(
    name: str, is_sweep: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    parser = argparse.ArgumentParser()
    add_loadtest_arguments(parser)
    arguments = ["http://127.0.0.1:1", *SHORT, *PATIENT, "--seed", "75"]
    # Every rate meets the objective, so the sweep takes its maximum of runs, each faster than the one before it.
    arguments += ["--sweep", "--slo", LONG, "--duration", "0.02", "--rate", "10"] if is_sweep else []
    execute = Mock(side_effect=simulated_run)
    (tmp_path / "file").touch()
    for place in (tmp_path, tmp_path / "file" / "x"):
        with pytest.raises(OSError, match=re.escape(f"'{tmp_path}")):
            run_loadtest(parser.parse_args([*arguments, name, str(place)]), execute=execute)
    execute.assert_not_called()
    with pytest.raises(OSError, match="No space left on device: '/dev/full'"):
        run_loadtest(parser.parse_args([*arguments, name, "/dev/full"]), execute=execute)
    assert re.search(r"^  seed +75$", capsys.readouterr().out, re.MULTILINE)


def test_a_closed_stdout_leaves_the_result_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    parser = argparse.ArgumentParser()
    add_loadtest_arguments(parser)
    file = tmp_path / "new" / "result.json"
    arguments = parser.parse_args(["http://127.0.0.1:1", *SHORT, *PATIENT, "--json", str(file)])
    monkeypatch.setattr("sys.stdout", Mock(write=Mock(side_effect=BrokenPipeError)))
    with pytest.raises(BrokenPipeError):
        run_loadtest(arguments, execute=simulated_run)
    assert read_json(file)["verdict"] == "passed"


def test_quality_is_measured_against_references(server: SteadyServer, tmp_path: Path) -> None:
    """The server responds in capitals, and one of two references is in capitals."""
    (tmp_path / "texts").write_text("One.\nTwo.\n")
    (tmp_path / "references").write_text("ONE.\nDrei.\n")
    done = loadtest(
        server.url, *RATE, *PATIENT, "--file", tmp_path / "texts", "--references", tmp_path / "references",
        "--json", tmp_path / "q.json",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    quality = read_json(tmp_path / "q.json")["runs"][0]["quality"]
    assert quality["exact_share"] == pytest.approx(0.5, abs=0.01)
    assert quality["num_texts"] == 60
    assert 0 < quality["chrf"] < 100


def test_quality_is_measured_against_the_idle_servers_responses(server: SteadyServer, tmp_path: Path) -> None:
    done = loadtest(server.url, *SHORT, *PATIENT, "--rest", "20", "--json", tmp_path / "q.json")
    assert done.returncode == 0, done.stderr
    quality = read_json(tmp_path / "q.json")["runs"][0]["quality"]
    assert quality["exact_share"] == 1.0
    assert quality["chrf"] == 100.0
    assert quality["num_texts"] >= 20
