"""Runs against a server with known responses: every request is counted, and latencies are not understated."""

from __future__ import annotations

import asyncio
import dataclasses
import itertools
import socket
import threading
import time
from collections import Counter
from types import SimpleNamespace
from typing import Any, cast

import httpx
import orjson
import pytest
import uvloop

from tests.loadtest.steady_server import SteadyServer
from tests.transduce.bad_server import bad_server
from transduce.loadtest.arrivals import ArrivalKind, Arrivals, ClosedLoop, Phase
from transduce.loadtest.dialects import ParsedResponse
from transduce.loadtest.percentiles import distribution, merged, percentile_of, rank_of
from transduce.loadtest.plan import RunPlan, Target
from transduce.loadtest.quality import Expectation, compare
from transduce.loadtest.repeats import latency_of_all, repeat, summary
from transduce.loadtest.result import RunRecord, _server_phases, make_result
from transduce.loadtest.runner import Progress, observe, run
from transduce.loadtest.sample import OK, ConservationError, Sample, count_outcomes, read_server_timing
from transduce.loadtest.server_side import ServerSide
from transduce.loadtest.slo import Slo
from transduce.loadtest.workload import built_in

HALF_A_SECOND = Slo.parse("p99=500ms")


def plan(url: str, rate: float, duration_s: float, *, kind: ArrivalKind = "poisson", **more: Any) -> RunPlan:
    made = RunPlan(
        Target(url),
        built_in("short"),
        Arrivals.at(rate, duration_s, kind),
        warm_up_s=0.5,
        slos=(HALF_A_SECOND,),
    )
    return dataclasses.replace(made, **more)


def test_every_request_has_one_outcome() -> None:
    with SteadyServer(answers="200,429,500,cut,garbage,503,fewer") as server:
        result = run(plan(server.url, 280.0, 0.5, warm_up_s=0.125))
    assert result.num_sent == 140 == sum(result.outcomes.values())
    # On a busy machine, requests of the run and of the warm-up may arrive in another order.
    assert Counter(result.outcomes) + Counter(result.warm_up_outcomes) == {
        "ok": 25,
        "bad_answer": 50,
        "connection_lost": 25,
        "http_429": 25,
        "http_500": 25,
        "http_503": 25,
    }
    assert sum(result.warm_up_outcomes.values()) == 35
    assert result.latency is not None
    assert result.latency.num == result.outcomes["ok"]
    assert not result.meets_slos


def test_requests_without_a_response_time_out() -> None:
    with SteadyServer(answers="never") as server:
        result = run(plan(server.url, 160.0, 0.25, warm_up_s=0.125, timeout_s=0.1))
    assert result.outcomes == {"ok": 0, "timeout": 40}
    assert result.latency is None


def test_the_bins_of_the_timeline_have_one_length_and_no_gaps() -> None:
    """Bins in which no request is due are kept, and the last bin is as long as the others."""
    whole = RunPlan(Target("http://127.0.0.1:1"), built_in("short"), Arrivals.at(1.0, 7.5), warm_up_s=0.0)
    due = (0.1, 2.4, 5.1, 7.4)
    samples = [Sample(index, 0, at, 3, ended_s=at + 0.05, outcome=OK) for index, at in enumerate(due)]
    timeline = make_result(whole, RunRecord("now", samples, num_sent=len(due))).timeline
    assert [moment.num_sent for moment in timeline] == [1, 0, 1, 0, 1, 0, 1]
    assert [moment.from_s for moment in timeline] == pytest.approx([number * 7.5 / 7 for number in range(7)])
    assert timeline[1].p50_ms is None


@pytest.mark.parametrize("num", [1, 3, 90, 99, 100, 101, 150, 200, 997])
def test_a_percentile_within_the_limit_means_the_objective_is_met(num: int) -> None:
    """If one of 90 responses is late, 98.9 % are in time, and the p99 is the latency of the late response."""
    for num_late in range(min(num, 4)):
        latencies = [0.1] * (num - num_late) + [0.9] * num_late
        found = distribution(latencies)
        assert found is not None
        percentiles = {name: value for name, value in found.percentiles.items() if name != "p75"}
        for name, value in percentiles.items():
            share = float(name[1:].replace("_", ".")) / 100
            assert (value < 500) == (num - num_late >= share * num - 1e-9), (name, num_late)
            assert percentile_of(latencies, share * 100) == pytest.approx(value, rel=0.01)
        assert merged([found.hdr])["p99"] == pytest.approx(percentiles["p99"], rel=0.01)


def test_no_percentile_exceeds_the_maximum() -> None:
    found = distribution([0.0123456 * (number + 1) for number in range(40)])
    assert found is not None
    assert max(found.percentiles.values()) <= found.max_ms


def test_a_latency_above_an_hour_counts_as_an_hour() -> None:
    found = distribution([1.0, 7200.0])
    assert found is not None
    assert found.percentiles["p99"] == pytest.approx(3_600_000, rel=0.001)
    assert found.max_ms == 7_200_000


def test_rounding_never_raises_the_rank_of_a_percentile() -> None:
    """In floating point, 99.9 % of 41,000 is above 40,959."""
    assert rank_of(41_000, 99.9) == 40_959


def test_an_answer_exactly_at_the_limit_is_in_time() -> None:
    sample = Sample(0, 0, scheduled_s=1.0, num_words=1, ended_s=1.5, outcome="ok")
    assert sample.is_within(0.5)
    assert not sample.is_within(0.499)


def test_without_a_server_every_connection_fails() -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))  # bound but not listening
        result = run(plan(f"http://127.0.0.1:{unused.getsockname()[1]}", 250.0, 0.1, warm_up_s=0.1))
    assert result.outcomes == {"ok": 0, "connect_failed": 25}
    assert result.latency is None


def test_outcomes_that_do_not_add_up_raise_an_error() -> None:
    samples = [Sample(0, 0, 0.0, 1, outcome=OK), Sample(1, 0, 0.0, 1, outcome="http_429")]
    assert count_outcomes(samples, 2) == {"ok": 1, "http_429": 1}
    with pytest.raises(ConservationError):
        count_outcomes(samples, 3)
    with pytest.raises(ConservationError):
        count_outcomes(samples, 1)


def test_requests_do_not_wait_for_the_responses_of_others() -> None:
    """200 requests/s. The server answers the requests after the first 50 only when 100 have arrived.

    A tester that waits for each response would wait for ever. The first 100 requests are sent within 0.5 s. The last 50
    of them are answered at the end of this time, so at least 25 wait for an eighth of a second or more.
    """
    with SteadyServer(hold=(50, 100)) as server:
        record = uvloop.run(
            observe(plan(server.url, 200.0, 0.75, kind="constant", warm_up_s=0.0, timeout_s=120.0))
        )
    samples = sorted(record.samples, key=lambda sample: sample.index)
    assert [sample.outcome for sample in samples] == [OK] * 150
    assert record.max_open >= 50
    due_s = Arrivals.at(200.0, 0.75, "constant").times_s(1)
    assert [sample.scheduled_s for sample in samples] == due_s
    assert all(sample.begun_s >= sample.scheduled_s for sample in samples)
    assert sum(sample.ended_s >= due_s[99] for sample in samples[:100]) >= 50
    assert sum(sample.latency_s >= 0.12 for sample in samples) >= 25


def test_a_wait_for_a_connection_counts_as_latency() -> None:
    """400 requests/s over one connection to a server that takes 5 ms for each."""
    made = plan(
        "http://127.0.0.1:1", 400.0, 0.125, kind="constant", warm_up_s=0.0, max_connections=1, timeout_s=120.0
    )
    with SteadyServer(service_ms=5.0) as server:
        record = uvloop.run(observe(dataclasses.replace(made, target=Target(server.url))))
    samples = record.samples
    assert [sample.index for sample in samples] == list(range(50))
    assert record.num_connections == 1
    for sample, later in itertools.pairwise(samples):
        assert later.sent_s is not None
        assert later.sent_s >= sample.ended_s
        assert later.latency_s - later.uncorrected_latency_s >= sample.ended_s - later.scheduled_s
        assert later.latency_s >= 0.005 * (later.index + 1) - later.scheduled_s


def test_a_late_tester_invalidates_the_run() -> None:
    def block(progress: Progress) -> None:
        """Block the event loop. The first call comes half a second after the run has begun."""
        time.sleep(0.1)

    with SteadyServer(service_ms=1.0) as server:
        made = plan(server.url, 100.0, 0.8, warm_up_s=0.0)
        late = run(made, block)
        allowed = run(dataclasses.replace(made, max_lag_s=600.0), block)
    assert not late.is_valid
    assert "late" in late.problems[0]
    assert allowed.is_valid


def test_responses_are_counted() -> None:
    with SteadyServer() as server:
        record = uvloop.run(observe(made := plan(server.url, 240.0, 0.5, warm_up_s=0.125, timeout_s=120.0)))
    result = make_result(made, record)
    assert result.outcomes == {"ok": 120}
    assert result.offered_rate == 240.0
    assert result.phases_ms["queue"]["mean"] == 1.5
    assert result.phases_ms["decode"]["p99"] == 2.5
    assert result.first_text is None
    responses = [sample.response for sample in record.samples if sample.response is not None]
    assert len(responses) == 150
    assert {(one.num_sentences, one.num_source_tokens, one.num_target_tokens) for one in responses} == {
        (1, 2, 2)
    }


def test_a_closed_loop_has_as_many_open_requests_as_clients() -> None:
    """The server answers at most once in 10 ms. Up to eight responses of the warm-up may arrive during the run."""
    with SteadyServer(service_ms=10.0) as server:
        result = run(plan(server.url, 1.0, 1.0, load=ClosedLoop(8, 1.0), warm_up_s=0.1, timeout_s=120.0))
    assert result.mode == "closed"
    assert result.lag is None
    assert result.max_open == 8
    assert result.outcomes == {"ok": result.num_sent}
    assert 0 < result.achieved_rate <= 100 + 1 + 8
    assert result.latency is not None
    assert result.latency.min_ms >= 10


def test_a_closed_loop_ends_after_its_requests() -> None:
    with SteadyServer() as server:
        made = dataclasses.replace(plan(server.url, 1.0, 1.0), load=ClosedLoop(3, 120.0, 25), warm_up_s=0.0)
        started_at = time.monotonic()
        assert run(made).num_sent == 25
    assert time.monotonic() - started_at < 120


def test_cancelled_requests_do_not_count_as_failures() -> None:
    with SteadyServer(service_ms=0.0, answers="never") as server:
        workload = dataclasses.replace(built_in("short"), disconnect_share=1.0, disconnect_within_s=0.2)
        result = run(plan(server.url, 160.0, 0.25, warm_up_s=0.125, workload=workload))
    assert result.outcomes == {"ok": 0, "disconnected": 40}
    assert sum(moment.num_failed for moment in result.timeline) == 0


def test_a_client_of_a_closed_loop_does_not_pause_after_a_disconnect(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("transduce.loadtest.runner.AFTER_FAILURE_S", 120.0)
    with SteadyServer(service_ms=0.0, answers="never") as server:
        workload = dataclasses.replace(built_in("short"), disconnect_share=1.0, disconnect_within_s=0.01)
        made = plan(server.url, 1.0, 1.0, load=ClosedLoop(1, 120.0, 3), warm_up_s=0.0, workload=workload)
        result = run(made)
    assert result.outcomes == {"ok": 0, "disconnected": 3}


def test_a_phase_of_the_server_that_a_response_lacks_took_no_time() -> None:
    samples = [
        SimpleNamespace(server_timing=header) for header in ("decode;dur=2", "decode;dur=4, load;dur=8", "")
    ]
    found = _server_phases(cast(list[Sample], samples))
    assert found["decode"]["mean"] == 3.0
    assert found["load"] == {"mean": 4.0, "p50": 0.0, "p99": 8.0}


def test_every_phase_sends_its_requests() -> None:
    """In the second phase, 100 requests are due within 0.1 s, and the server needs 0.2 s for them.

    A response within 40 ms of its due time comes in the first 0.14 s of the phase. At most 71 responses can come then.
    """
    phases = (Phase(100.0, 0.2), Phase(1000.0, 0.1), Phase(100.0, 0.2))
    made = plan("http://127.0.0.1:1", 1.0, 1.0, load=Arrivals(phases, "constant"), warm_up_s=0.1)
    made = dataclasses.replace(made, slos=(Slo.parse("p99=40ms"),), timeout_s=120.0)
    with SteadyServer(service_ms=2.0) as server:
        result = run(dataclasses.replace(made, target=Target(server.url)))
    assert result.outcomes == {"ok": 140}
    assert [phase.num_sent for phase in result.phases] == [20, 100, 20]
    assert [phase.from_s for phase in result.phases] == pytest.approx([0.0, 0.2, 0.3])
    during = result.phases[1].attained_share
    assert during is not None
    assert during <= 0.71


def test_repeated_runs_have_different_seeds_and_one_summary() -> None:
    with SteadyServer(service_ms=1.0) as server:
        runs = repeat(plan(server.url, 200.0, 0.2, warm_up_s=0.1), 3)
    assert [one.seed for one in runs] == [1, 1001, 2001]
    found = summary(runs)["latency_p50_ms"]
    assert found["min"] <= found["median"] <= found["max"]
    medians = [one.latency.p50_ms for one in runs if one.latency]
    assert min(medians) <= latency_of_all(runs)["p50"] <= max(medians)


def test_responses_of_a_server_without_keep_alive_are_read() -> None:
    """HTTP/1.0: a response has no length, and ends with its connection. A proxy adds a second Server-Timing line."""

    def serve(listener: socket.socket) -> None:
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            with connection:
                connection.recv(100_000)
                usage = b'{"source_tokens":1,"target_tokens":1,"sentences":1}'
                body = b'{"translations":[{"text":"Ja."}],"usage":' + usage + b"}"
                timing = b"Server-Timing: decode;dur=2\r\nserver-timing: proxy;dur=3\r\n"
                connection.sendall(b"HTTP/1.0 200 OK\r\n" + timing + b"\r\n" + body)

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=serve, args=(listener,), daemon=True)
        thread.start()
        result = run(plan(f"http://127.0.0.1:{listener.getsockname()[1]}", 120.0, 0.25, warm_up_s=0.125))
        listener.shutdown(socket.SHUT_RDWR)
    thread.join(5)
    assert result.outcomes == {"ok": 30}
    assert result.num_connections == 45
    assert {name: phase["p50"] for name, phase in result.phases_ms.items()} == {"decode": 2.0, "proxy": 3.0}


@pytest.mark.parametrize(
    ("header", "phases"),
    [
        ("tokenise;dur=0.5, decode;dur=12", {"tokenise": 0.5, "decode": 12.0}),
        ('cache;desc="hit, or not";dur=1.5', {"cache": 1.5}),
        (r'cache;desc="3\", or; dur=9";dur="1.5", total;dur=2', {"cache": 1.5, "total": 2.0}),
        ('cache;desc="not closed;dur=3, total;dur=2', {}),
        (";, ;dur", {}),
        ("", {}),
        ("miss, total;dur=x", {}),
        ("a;dur=nan, b;dur=inf, c;dur=-inf, d;dur=2", {"d": 2.0}),
    ],
)
def test_server_timing_is_parsed(header: str, phases: dict[str, float]) -> None:
    assert read_server_timing(header) == phases


@pytest.mark.parametrize(
    ("body", "models"), [('{"models": [{"name": "a"}]}', [{"name": "a"}]), ('["a"]', None), ("a", None)]
)
def test_models_are_read_from_an_object_only(
    body: str, models: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(httpx, "get", lambda *_args, **_options: httpx.Response(200, text=body))
    assert ServerSide(Target("http://127.0.0.1:1")).models() == models


def test_a_result_is_json() -> None:
    with SteadyServer() as server:
        result = run(plan(server.url, 100.0, 0.1, warm_up_s=0.1, max_lag_s=600.0))
    found = orjson.loads(orjson.dumps(result.as_json()))
    assert found["is_valid"] is True
    assert found["latency"]["num"] == 10


def test_cached_responses_are_counted_and_left_out_of_quality() -> None:
    response = ParsedResponse(("Ja.",), 2, 2, 1)
    samples = [
        Sample(number, number, 0.1, 1, outcome=OK, ended_s=0.2, num_cached=number, response=response)
        for number in (0, 1)
    ]
    expected = Expectation("answers at rest", {0: ("Nein.",), 1: ("Ja.",)})
    quality = compare(samples, expected)
    assert quality is not None
    assert (quality["num_texts"], quality["num_known"], quality["exact_share"]) == (1, 1, 0.0)
    nothing = compare(samples[1:], expected)
    assert nothing is not None
    assert nothing["chrf"] is None
    warm_up = [dataclasses.replace(each, scheduled_s=-0.1) for each in samples]
    assert compare(warm_up, expected) is None
    made = plan("http://127.0.0.1:1", 1.0, 1.0)
    assert make_result(made, RunRecord("now", samples, num_sent=2)).cached_share == 0.5


def test_a_run_closes_its_connections_when_it_ends() -> None:
    """The event loop still runs when the server sees the end of the connection."""

    def answer_one(connection: socket.socket) -> None:
        connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
        server.wait_until_closed(connection)

    async def observed(url: str) -> RunRecord:
        record = await observe(plan(url, 1.0, 1.0, load=ClosedLoop(1, 120.0, 1), warm_up_s=0.0))
        assert await asyncio.to_thread(server.has_seen_end.wait, 10.0)
        return record

    with bad_server(answer_one) as server:
        assert asyncio.run(observed(server.url)).num_connections == 1
