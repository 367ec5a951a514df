"""Traces of requests, as a receiver of OTLP over HTTP gets them."""

from __future__ import annotations

import asyncio
import itertools
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from app.observability.tracing import Tracing
from tests.api.echo import GOLDEN
from tests.api.server_process import ServerProcess

BODY = {"text": GOLDEN, "source": "en", "target": "de"}
TRACE, PARENT = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
SECRET = "S3CRET"
PHASES = ["admission", "tokenise", "queue", "encode", "decode", "detokenise"]


@dataclass
class Receiver:
    """Receives spans, and stores them in order. names: the names of the services that sent them."""

    port: int = 0
    spans: list[Any] = field(default_factory=list)
    names: set[str] = field(default_factory=set)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/v1/traces"

    def receive(self, content: bytes) -> None:
        for resource in ExportTraceServiceRequest.FromString(content).resource_spans:
            self.names.add(attributes_of(resource.resource)["service.name"])
            for scope in resource.scope_spans:
                self.spans += scope.spans


def attributes_of(span: Any) -> dict[str, Any]:
    """The attributes of a span or a resource."""
    return {each.key: getattr(each.value, each.value.WhichOneof("value")) for each in span.attributes}


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    found = Receiver()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            found.receive(self.rfile.read(int(self.headers["content-length"])))
            self.send_response(200)
            self.end_headers()

        def log_message(self, *arguments: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        found.port = server.server_address[1]
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield found
        server.shutdown()
        thread.join()


@contextmanager
def traced_server(command: list[str], receiver: Receiver, share: float) -> Iterator[ServerProcess]:
    """A server that sends its traces to the receiver. At the end of the scope all traces have arrived.

    share: the share of the requests without a valid traceparent that are traced.
    """
    settings: dict[str, object] = {"traces_endpoint": receiver.url, "traces_share": share}
    with ServerProcess(command, settings) as server:
        yield server.ready()
        server.signal()
        assert server.ended() == 0, server.errors


def test_a_translation_is_a_span_with_its_phases(echo_command: list[str], receiver: Receiver) -> None:
    with traced_server(echo_command, receiver, 0.0) as server, server.client() as client:
        headers = {"traceparent": f"00-{TRACE}-{PARENT}-01"}
        assert client.post("/v1/translate?secret=1", json=BODY, headers=headers).status_code == 200
    assert receiver.names == {"transduce"}
    spans = {span.name: span for span in receiver.spans}
    assert {span.trace_id.hex() for span in receiver.spans} == {TRACE}
    request = spans.pop("POST /v1/translate")
    assert request.parent_span_id.hex() == PARENT
    assert sorted(spans, key=lambda name: spans[name].start_time_unix_nano) == PHASES
    assert {span.parent_span_id for span in spans.values()} == {request.span_id}
    for earlier, later in itertools.pairwise(PHASES):
        assert spans[earlier].end_time_unix_nano == spans[later].start_time_unix_nano
    assert spans["admission"].start_time_unix_nano == request.start_time_unix_nano
    assert spans["detokenise"].end_time_unix_nano <= request.end_time_unix_nano
    attributes = attributes_of(request)
    assert attributes["http.route"] == "/v1/translate"
    assert attributes["http.response.status_code"] == 200
    assert attributes["transduce.sentences"] == 1
    assert attributes["transduce.source_tokens"] > 0
    (line,) = [line for line in map(json.loads, server.log) if line.get("event") == "request"]
    assert line["trace_id"] == TRACE


def test_a_phase_that_is_longer_than_the_request_begins_with_the_request(receiver: Receiver) -> None:
    tracing = Tracing(receiver.url, share=1.0, untraced=())
    provider = tracing.telemetry["tracer_provider"]
    assert provider is not None
    with provider.get_tracer("test").start_as_current_span("request"):
        tracing.add_work({"encode": 60_000.0, "decode": 0.0}, {}, decoding={})
    asyncio.run(tracing.close())
    spans = {span.name: span for span in receiver.spans}
    begins = {spans[name].start_time_unix_nano for name in ("request", "admission", "encode")}
    assert begins == {spans["admission"].end_time_unix_nano}


def test_the_decode_span_has_rows_and_steps(echo_command: list[str], receiver: Receiver) -> None:
    texts = [GOLDEN, "Peter sees the house."]
    bodies = (BODY | {"text": texts, "beam_size": 3}, BODY | {"beam_size": 1}, BODY | {"beam_size": 1})
    with traced_server(echo_command, receiver, 1.0) as server, server.client() as client:
        answers = [client.post("/v1/translate", json=body).json() for body in bodies]
    decoded = [attributes_of(span) for span in receiver.spans if span.name == "decode"]
    assert [found["transduce.rows"] for found in decoded] == [2 * 3, 1, 0], "the last one is cached"
    beam, greedy, cached = (found["transduce.steps"] for found in decoded)
    assert greedy == answers[1]["usage"]["target_tokens"], "a greedy search takes a step for each subword"
    assert beam >= greedy
    assert cached == 0
    others = [attributes_of(span) for span in receiver.spans if span.name in PHASES and span.name != "decode"]
    assert not any(others)


def test_no_span_holds_a_text_a_path_or_a_query(echo_command: list[str], receiver: Receiver) -> None:
    with traced_server(echo_command, receiver, 1.0) as server, server.client() as client:
        assert client.post("/v1/translate/stream?hello", json=BODY | {"beam_size": 1}).status_code == 200
        assert client.get("/download_file/secret-name").status_code == 404
    names = {span.name for span in receiver.spans}
    assert names >= {"POST /v1/translate/stream", *PHASES}
    assert any(name.startswith("GET") for name in names)
    for span in receiver.spans:
        for value in (span.name, *attributes_of(span).values()):
            assert not any(secret in str(value) for secret in (GOLDEN, "hello", "secret-name"))


def test_unsampled_requests_and_probes_are_not_traced(echo_command: list[str], receiver: Receiver) -> None:
    with traced_server(echo_command, receiver, 0.0) as server, server.client() as client:
        assert client.post("/v1/translate", json=BODY).status_code == 200
        unsampled = {"traceparent": f"00-{TRACE}-{PARENT}-00"}
        assert client.post("/v1/translate", json=BODY, headers=unsampled).status_code == 200
        sampled = {"traceparent": f"00-{TRACE}-{PARENT}-01"}
        assert client.get("/livez", headers=sampled).status_code == 200
        zeros, version = f"00-{'0' * 32}-{PARENT}-01", f"ff-{TRACE}-{PARENT}-01"
        for invalid in ("", "garbage", zeros, version, f"00-{TRACE}-{PARENT}-01-more"):
            assert (
                client.post("/v1/translate", json=BODY, headers={"traceparent": invalid}).status_code == 200
            )
        twice = [("traceparent", f"00-{TRACE}-{PARENT}-01")] * 2
        assert client.post("/v1/translate", json=BODY, headers=twice).status_code == 200
    assert receiver.spans == []
    assert "trace_id" not in "".join(server.log)


@pytest.mark.parametrize("level", ["info", "debug"])
def test_the_log_has_no_secret_of_the_settings(
    echo_command: list[str], monkeypatch: pytest.MonkeyPatch, level: str
) -> None:
    """The log shows neither an invalid header nor the URL of a receiver that does not answer. Both have the secret."""
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_HEADERS", f"api key={SECRET}")
    settings: dict[str, object] = {
        "traces_endpoint": f"http://127.0.0.1:1/v1/traces?token={SECRET}",
        "traces_share": 1.0,
        "log_level": level,
    }
    with ServerProcess(echo_command, settings) as server:
        with server.ready().client() as client:
            assert client.post("/v1/translate", json=BODY).status_code == 200
        server.signal()
        assert server.ended() == 0, server.errors
    loggers = {line["logger"].partition(".")[0]: line["event"] for line in map(json.loads, server.log)}
    assert loggers.keys() >= ({"opentelemetry", "urllib3"} if level == "debug" else {"opentelemetry"})
    assert SECRET not in "".join([*server.log, *server.errors])


def test_an_unreachable_receiver_fails_no_request(echo_command: list[str]) -> None:
    unreachable = Receiver(port=1)
    with traced_server(echo_command, unreachable, 1.0) as server, server.client() as client:
        assert client.post("/v1/translate", json=BODY).status_code == 200


def test_the_batches_of_a_file_are_no_phases_of_its_request(
    echo_command: list[str], receiver: Receiver
) -> None:
    """The request waits for the file, whose batches run one after another."""
    content = f"{GOLDEN}\n".encode() * 300
    with traced_server(echo_command, receiver, 1.0) as server, server.client() as client:
        files, fields = {"file": ("a.txt", content)}, {"source": "en", "target": "de"}
        assert client.post("/translate_file", files=files, data=fields).status_code == 200
    (span,) = receiver.spans
    assert span.name == "POST /translate_file"
    assert "transduce.sentences" not in attributes_of(span)
