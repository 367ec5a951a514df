"""What goes wrong during a run: in the tester, in the server, and when the result is written."""

from __future__ import annotations

import argparse
import dataclasses
import errno
import functools
import os
import re
import resource
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from unittest.mock import Mock

import pytest

from tests.forked import ForkedProcess
from tests.loadtest.simulated_clock import simulated_run
from tests.loadtest.steady_server import ROOT, SteadyServer
from tests.loadtest.test_run import plan
from transduce.errors import CommandError
from transduce.loadtest import command
from transduce.loadtest.baseline import BaselineError, baseline_answers
from transduce.loadtest.command import add_loadtest_arguments, run_loadtest
from transduce.loadtest.compare import MAX_FILES, compare_files, compare_page, text_table
from transduce.loadtest.connection import _is_own
from transduce.loadtest.dialects import DIALECTS
from transduce.loadtest.document import find_failure, read_json
from transduce.loadtest.html_report import html_report
from transduce.loadtest.plan import RunPlan, Target
from transduce.loadtest.quality import Expectation
from transduce.loadtest.result import RunRecord, RunResult, make_result
from transduce.loadtest.runner import OnProgress, Progress
from transduce.loadtest.sample import DISCONNECTED, OK, Sample
from transduce.loadtest.slo import Slo
from transduce.loadtest.workload import built_in

URL = "http://127.0.0.1:1"
SHORT = ("--workload", "short", "--warm-up", "0", "--duration", "1", "--rate", "60")
PATIENT = ("--max-lag", "600000", "--timeout", "120")
# Sets a limit and runs a command. The words that follow: the option of `ulimit`, the limit, the command.
LIMITED = ("sh", "-c", 'ulimit "$0" "$1"; shift; exec "$@"')


def parsed(*arguments: object) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    add_loadtest_arguments(parser)
    return parser.parse_args([URL, *SHORT, *map(str, arguments)])


def test_sigterm_releases_a_pinned_server() -> None:
    allowed = os.sched_getaffinity(0)
    if len(allowed) < 2:
        pytest.skip("one core")
    with SteadyServer() as server:
        words = [
            "transduce",
            "loadtest",
            server.url,
            "--server-pid",
            str(server.pid),
            "--pin",
            "--duration",
            "60",
        ]
        tester = ForkedProcess(words, warnings_action="default")
        deadline = time.monotonic() + 60.0
        while os.sched_getaffinity(server.pid) == allowed and time.monotonic() < deadline:
            time.sleep(0.01)
        assert len(os.sched_getaffinity(server.pid)) == 1
        tester.send_signal(signal.SIGTERM)
        tester.communicate()
        assert tester.returncode == 130
        assert os.sched_getaffinity(server.pid) == allowed


def test_a_server_that_ends_under_load_leaves_the_result(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with SteadyServer() as server, SteadyServer() as other:

        def execute(
            one: RunPlan, on_progress: OnProgress | None, *, expected: Expectation | None
        ) -> RunResult:
            os.kill(server.pid, signal.SIGKILL)
            while Path(f"/proc/{server.pid}/stat").read_text().split()[2] != "Z":
                time.sleep(0.01)
            return simulated_run(one, on_progress)

        file = tmp_path / "result.json"
        arguments = ("--server-pid", server.pid, "--json", file, "--runs", "2")
        assert run_loadtest(parsed(*arguments), execute=Mock(side_effect=execute)) == 3
        ended = other.pid
    assert [run["server"] for run in read_json(file)["runs"]] == [None, None]
    assert "not valid: run 2: the process of --server-pid has ended" in capsys.readouterr().out
    with pytest.raises(OSError, match=f"/proc/{ended}/stat"):
        run_loadtest(parsed("--server-pid", ended), execute=Mock())


def result_of(*ends: tuple[float, str], slo: str, first_text_s: float | None = None) -> RunResult:
    """The result of a run. ends: for each request, the seconds from its due time to its end, and its outcome.

    first_text_s: seconds from the due time of a request that is given up to its first text. An answered request has its
    first text at its end.
    """
    samples = [
        Sample(0, 0, at / 100, 3, ended_s=at / 100 + after_s, outcome=outcome)
        for at, (after_s, outcome) in enumerate(ends)
    ]
    for sample in samples:
        after_s = sample.latency_s if sample.is_ok else first_text_s
        sample.first_text_s = None if after_s is None else sample.scheduled_s + after_s
    made = plan(URL, float(len(ends)), 1.0, slos=(Slo.parse(slo),))
    return make_result(made, RunRecord("now", samples, num_sent=len(ends)))


def test_a_request_that_is_given_up_after_the_time_of_the_objective_misses_it() -> None:
    early, late = (0.1, DISCONNECTED), (0.4, DISCONNECTED)
    result = result_of((0.05, OK), late, (0.05, OK), early, slo="p50=200ms")
    assert result.attained[0].share == pytest.approx(2 / 3)
    assert result.phases[0].attained_share == pytest.approx(2 / 3)
    assert result.phases[0].recovery_s == pytest.approx(0.01)
    assert result.is_valid
    assert result.num_judged == 2
    assert find_failure([result], 0.99) is None


def test_a_stream_that_is_given_up_after_its_first_text_meets_an_objective_of_that_text() -> None:
    """The first text of one of the two answered streams is too late."""
    streams = ((0.05, OK), (0.3, OK), (0.4, DISCONNECTED), (0.1, DISCONNECTED))
    for first_text_s, num_met, num_judged in ((None, 1, 3), (0.3, 1, 3), (0.04, 3, 4)):
        result = result_of(*streams, slo="first.p50=200ms", first_text_s=first_text_s)
        assert result.attained[0].share == num_met / num_judged


@pytest.mark.parametrize(
    ("error", "is_own"),
    [
        (OSError(errno.EMFILE, "too many"), True),
        (OSError(errno.ECONNREFUSED, "refused"), False),
        (OSError("Multiple exceptions: [Errno 24] too many, [Errno 24] too many"), True),
        (OSError("Multiple exceptions: [Errno 111] refused, [Errno 99] no address"), False),
        (socket.gaierror(-2, "unknown"), False),
    ],
)
def test_the_tester_is_the_cause_if_every_error_is_one_of_its_machine(error: OSError, is_own: bool) -> None:
    assert _is_own(error) == is_own


def test_without_a_file_descriptor_the_tester_is_the_cause(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.open", Mock(side_effect=OSError(errno.EMFILE, "too many")))
    assert _is_own(socket.gaierror(-2, "unknown"))


def test_a_run_whose_requests_are_all_given_up_before_the_time_limit_is_not_valid() -> None:
    early = ((0.1, DISCONNECTED),) * 3
    result = result_of(*early, slo="p99=200ms")
    assert result.problems == ["the tester gave up every request before the time limit of p99=200ms"]
    assert result.phases[0].attained_share is None
    assert find_failure([result], 0.99) is None
    missed = result_of(*early, slo="p99=50ms")
    assert missed.is_valid
    assert not missed.meets_slos


def test_the_first_text_of_a_stream_that_is_given_up_is_noted() -> None:
    """The server sends the beginning of a stream and nothing else."""
    begun = b"HTTP/1.1 200 X\r\nContent-Length: 999\r\n\r\nevent: delta\ndata: {}\n\n"
    made = plan(URL, 20.0, 1.0, kind="constant", slos=(Slo.parse("first.p99=200ms"),))
    workload = dataclasses.replace(made.workload, disconnect_share=1.0)
    made = dataclasses.replace(made, target=Target(URL, DIALECTS["stream"]), workload=workload)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("tests.loadtest.replies.content_of", lambda _kind, _request: begun)
        result = simulated_run(made)
    assert result.outcomes == {"ok": 0, DISCONNECTED: 20}
    assert result.attained[0].share == 1.0


def limited(option: str, num_files: int, *arguments: object) -> subprocess.CompletedProcess[str]:
    words = [option, str(num_files), sys.executable, "-m", "transduce", "loadtest", *map(str, arguments)]
    return subprocess.run(
        [*LIMITED, *words], check=False, capture_output=True, text=True, cwd=ROOT, timeout=300
    )


def test_the_soft_limit_of_open_files_is_raised_to_the_hard_limit() -> None:
    if resource.getrlimit(resource.RLIMIT_NOFILE)[1] < 256:
        pytest.skip("too few open files")
    with SteadyServer(hold=(0, 60)) as server:
        done = limited("-Sn", 48, server.url, *SHORT, *PATIENT)
    assert done.returncode == 0, done.stdout + done.stderr
    assert re.search(r"sent +60 ok\n", done.stdout)


def test_too_few_open_files_are_a_problem_of_the_tester() -> None:
    with SteadyServer(answers="never") as server:
        done = limited("-n", 48, server.url, *SHORT, "--timeout", "2", "--disconnects", "1", "--rate", "600")
    assert done.returncode == 3, done.stdout + done.stderr
    assert re.search(
        "INVALID\n  not valid: run 1: the tester could not open a connection for .*: Too many", done.stdout
    )


def test_a_result_with_bytes_that_are_not_utf8_is_written(tmp_path: Path) -> None:
    texts = tmp_path / "caf\udce9.txt"
    texts.write_text("One.\n")
    json_file, html_file = tmp_path / "r.json", tmp_path / "r.html"
    arguments = ("--file", texts, "--label", "l\udcff", "--json", json_file, "--html", html_file)
    args = parsed(*arguments)
    args.workload = None
    assert run_loadtest(args, execute=simulated_run) == 0
    document = read_json(json_file)
    assert document["plan"]["workload"]["name"] == "caf?.txt"
    assert document["label"] == "l?"
    assert "<h1>l?" in html_file.read_text("utf-8")


def test_a_result_file_that_cannot_be_written_leaves_the_html_report(tmp_path: Path) -> None:
    page = tmp_path / "r.html"
    with pytest.raises(OSError, match="No space left on device: '/dev/full'"):
        run_loadtest(parsed("--json", "/dev/full", "--html", page), execute=simulated_run)
    assert page.read_text("utf-8").endswith("</html>\n")


def test_a_failure_of_the_baseline_has_the_servers_message() -> None:
    with SteadyServer(answers="422") as server:
        made = plan(server.url, 10.0, 1.0)
        made = dataclasses.replace(made, workload=built_in("short", is_distinct=False))
        with pytest.raises(BaselineError, match=r"baseline ended as http_422 \(text is empty\)$"):
            baseline_answers(made, 2)


def test_a_closed_stdout_does_not_abort_the_command(tmp_path: Path) -> None:
    file = tmp_path / "r.json"
    words = [sys.executable, "-m", "transduce", "loadtest"]
    with SteadyServer() as server:
        words += [server.url, *SHORT, *PATIENT, "--json", str(file)]
        done = subprocess.run(
            ["sh", "-c", 'exec "$@" >&-', "sh", *words], check=False, capture_output=True, text=True, cwd=ROOT
        )
    assert (done.returncode, done.stderr) == (0, "")
    assert read_json(file)["verdict"] == "passed"


def test_a_progress_bar_reads_the_samples_only_on_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    samples = Mock()
    for is_terminal in (False, True):
        monkeypatch.setattr(
            "sys.stderr", Mock(isatty=lambda is_terminal=is_terminal: is_terminal, encoding="utf-8")
        )
        with command._Bar(plan(URL, 1.0, 1.0), "run") as bar:
            if is_terminal:
                with pytest.raises(TypeError):  # the samples are needed
                    bar.show(Progress(1.0, 1.0, 1, 0, 0, samples))
            else:
                bar.show(Progress(1.0, 1.0, 1, 0, 0, samples))


def test_a_comparison_shows_verdicts_and_leaves_out_requests_that_were_given_up(tmp_path: Path) -> None:
    documents = []
    for number, kinds in enumerate(("200", "503")):
        file = tmp_path / f"{number}.json"
        execute = functools.partial(simulated_run, kinds=kinds)
        assert run_loadtest(parsed("--json", file), execute=execute) == number
        documents.append(read_json(file))
    documents[0]["runs"][0]["outcomes"] = {"ok": 57, "disconnected": 3}
    documents[0]["runs"][0]["per_s"]["sentences"] = 1.0
    documents[1]["runs"][0]["per_s"]["sentences"] = 12345.67
    lines = text_table(documents).splitlines()
    assert any(line.startswith("   B has failed: 0 of 60 requests were answered") for line in lines)
    rows = {line[:28].strip(): line[28:].split() for line in lines if line[:1] not in {" ", "A", "B"}}
    assert rows["verdict"] == ["PASSED", "FAILED"]
    assert rows["not answered"][:2] == ["0", "60"]
    assert rows["sentences/s"] == ["1", "12,346", "×12345.67"]


@pytest.mark.parametrize("num_files", [1, 2, MAX_FILES, MAX_FILES + 1])
def test_a_comparison_takes_two_to_eight_files(tmp_path: Path, num_files: int) -> None:
    file = tmp_path / "r.json"
    assert run_loadtest(parsed("--json", file), execute=simulated_run) == 0
    if 2 <= num_files <= 8:
        assert compare_files([file] * num_files, None) == 0
    else:
        with pytest.raises(CommandError, match="compare takes 2 to 8 result files"):
            compare_files([file] * num_files, None)


def test_the_pages_say_why_a_test_has_failed_and_why_it_is_not_valid(tmp_path: Path) -> None:
    file = tmp_path / "r.json"
    execute = functools.partial(simulated_run, kinds="503")
    assert run_loadtest(parsed("--label", "<x>", "--json", file), execute=execute) == 1
    document = read_json(file)
    document["problems"] = ["run 1: <late>"]
    for page, prefix in (
        (html_report(document), ""),
        (compare_page([document, document]), "&lt;x&gt; (2): "),
    ):
        assert f"<h2>{prefix}Failed</h2><p>0 of 60 requests were answered" in page
        assert f"<h2>{prefix}Not valid</h2><p>run 1: &lt;late&gt;</p>" in page


def test_a_comparison_that_cannot_be_written_fails_with_the_name_of_the_file(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "r.json"
    run_loadtest(parsed("--json", file), execute=simulated_run)
    capsys.readouterr()
    with pytest.raises(IsADirectoryError):
        compare_files([file, file], tmp_path)
    assert capsys.readouterr().out == ""
    with pytest.raises(OSError, match="No space left on device: '/dev/full'"):
        compare_files([file, file], Path("/dev/full"))


def test_the_report_of_a_sweep_has_the_servers_figures(tmp_path: Path) -> None:
    file = tmp_path / "s.json"
    args = parsed("--sweep", "--slo", "p90=50ms", "--precision", "0.5", "--json", file)
    assert run_loadtest(args, execute=functools.partial(simulated_run, service_ms=10.0)) == 0
    document = read_json(file)
    assert "cpu share" not in html_report(document)
    for point in document["sweep"]["points"]:
        point["result"]["server"] = {"cpu_share": 0.5}
    assert "cpu share 0.5" in html_report(document)
