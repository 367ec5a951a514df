"""Each invalid request gets a 4xx in the server's error format and leaves the server unchanged."""

from __future__ import annotations

import asyncio
import codecs
import contextlib
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import httpx
import pytest
from starlette.types import Receive, Scope, Send

from app.api.http.auth import ApiKeys
from app.api.http.middleware import Gate
from app.errors import PayloadTooLarge
from tests.api.echo import GOLDEN
from tests.api.server_process import HEADERS, ServerProcess

BASE: dict[str, Any] = {"text": GOLDEN, "source": "en", "target": "de"}


def body(**changes: Any) -> bytes:
    return json.dumps({**BASE, **changes}).encode()


def raw(name: str, value: str) -> bytes:
    """The body of BASE with one more field, which replaces a field of this name. value: verbatim, perhaps not JSON."""
    return body()[:-1] + f', "{name}": {value}}}'.encode()


def without(name: str) -> bytes:
    return json.dumps({key: value for key, value in BASE.items() if key != name}).encode()


@dataclass(frozen=True)
class Case:
    """A request body and the expected response. headers: None for the headers of a JSON body."""

    name: str
    content: bytes
    status: int
    code: str
    field: str | None = None
    headers: dict[str, str] | None = None


def malformed(name: str, content: bytes) -> Case:
    return Case(name, content, 400, "malformed_request")


def invalid(name: str, content: bytes, field: str | None = None) -> Case:
    return Case(name, content, 422, "invalid_request", field)


def too_large(name: str, content: bytes, field: str | None = None) -> Case:
    return Case(name, content, 413, "payload_too_large", field)


def media(name: str, content_type: str | None, **more: str) -> Case:
    headers = {**({"content-type": content_type} if content_type else {}), **more}
    return Case(name, body(), 415, "unsupported_media", headers=headers)


CASES = [
    malformed("empty body", b""),
    malformed("not JSON", b"{bad"),
    malformed("truncated", body()[:-1]),
    malformed("trailing garbage", body() + b"x"),
    malformed("invalid UTF-8", b'{"text": "\xff\xfe"}'),
    malformed("two byte order marks", b"\xef\xbb\xbf" * 2 + body()),
    malformed("UTF-16", json.dumps(BASE).encode("utf-16")),
    malformed("lone surrogate in text", raw("text", '"\\ud800"')),
    malformed("lone surrogate in an array", raw("text", '["a", "\\udfff"]')),
    malformed("lone surrogate in a language", raw("source", '"\\ud800"')),
    malformed("lone surrogate in a key", raw("\\ud800", "1")),
    malformed("raw control character", b'{"text": "a\nb", "source": "en", "target": "de"}'),
    *(malformed(value, raw("length_penalty", value)) for value in ("NaN", "Infinity", "-Infinity", "1e400")),
    malformed("an integer of 5,000 digits", raw("beam_size", "9" * 5000)),
    malformed("100,000 deep", b"[" * 100_000),
    malformed("2,000 deep", raw("text", "[" * 2000 + "]" * 2000)),
    too_large("a million items", raw("text", "[" + "0," * 999_999 + "0]")),
    too_large("10,001 items", body(text=["a"] * 10_001), "text"),
    too_large("10,000 empty strings", body(text=[""] * 10_000), "text"),
    too_large("129 items", body(text=["a"] * 129), "text"),
    too_large("one character too many", body(text="a" * 2001), "text"),
    too_large("the second item too long", body(text=["a", "a" * 2001]), "text[1]"),
    too_large("too many characters in all", body(text=["a" * 1999] * 3), "text"),
    too_large("30 MB", b'"' + b"x" * 30_000_000 + b'"'),
    too_large("too many sentences", body(text=["a\n" * 600] * 2), "text"),
    media("gzip", "application/json", **{"content-encoding": "gzip"}),
    media("br", "application/json", **{"content-encoding": "br"}),
    media("no content type", None),
    media("form", "application/x-www-form-urlencoded"),
    media("multipart", "multipart/form-data; boundary=x"),
    media("text", "text/plain"),
    media("latin-1", "application/json; charset=iso-8859-1"),
    media("latin-1 after another parameter", "application/json; a=b; Charset = latin-1"),
    invalid("unknown field", body(voice="low")),
    invalid("misspelt field", body(beams=4), "beams"),
    invalid("no texts", body(text=[]), "text"),
    *(invalid(f"text {value}", raw("text", value), "text") for value in ("null", "5", "{}", "true", "[]")),
    invalid("text [[a]]", raw("text", '[["a"]]'), "text[0]"),
    invalid("text [a, 5]", raw("text", '["a", 5]'), "text[1]"),
    *(invalid(f"top level {value!r}", value) for value in (b"[]", b'"a"', b"5", b"null", b"true")),
    *(invalid(f"without {name}", without(name), name) for name in BASE),
    *(
        invalid(f"{name} {value}", raw(name, value), name)
        for name in ("beam_size", "num_hypotheses", "max_target_length", "timeout_ms")
        for value in ("0", "-1", "1000000000", str(2**63), "9" * 30, "true", '"4"', "4.0", "1.5", "null", "[4]", "{}")
    ),
    invalid("beam_size 17", raw("beam_size", "17"), "beam_size"),
    invalid("more hypotheses than beams", body(beam_size=2, num_hypotheses=3), "num_hypotheses"),
    *(
        invalid(f"length_penalty {value}", raw("length_penalty", value), "length_penalty")
        for value in ("1e308", "-1", "10.01", '"nan"', "true", "null", "[1]")
    ),
    *(
        invalid(f"length_penalty {value}", raw("length_penalty", value), f"length_penalty.{name}")
        for value, name in (("{}", "formula"), ('{"formula": "wu"}', "alpha"), ('{"alpha": 1}', "formula"))
    ),
    invalid("an unknown formula", body(length_penalty={"formula": "best", "alpha": 1}), "length_penalty.formula"),
    invalid("formula as a list", body(length_penalty={"formula": ["wu"], "alpha": 1}), "length_penalty.formula"),
    invalid("alpha as a string", body(length_penalty={"formula": "wu", "alpha": "1"}), "length_penalty.alpha"),
    invalid("a field beside alpha", body(length_penalty={"formula": "wu", "alpha": 1, "x": 1}), "length_penalty"),
    invalid("auto with a stored glossary", body(source="auto", glossary={"id": "a"}), "source"),
    *(
        invalid(f"{name} {value}", raw(name, value), name)
        for name in ("format", "splitting")
        for value in ("null", "5", '"HTML"', '["text"]', '""')
    ),
    *(
        invalid(f"{name} {value}", body(format="xml", **{name: value}), field)
        for name in ("ignore_tags", "splitting_tags", "non_splitting_tags")
        for value, field in (("x", name), (None, name), ([5], f"{name}[0]"), (["x", "a b"], f"{name}[1]"),
                             (["<x>"], f"{name}[0]"), ([""], f"{name}[0]"))
    ),
    too_large("a long tag", body(format="xml", ignore_tags=["x" * 65]), "ignore_tags[0]"),
    too_large("many tags", body(format="xml", ignore_tags=["x"] * 101), "ignore_tags"),
    invalid("ignored tags in plain text", body(ignore_tags=["x"]), "ignore_tags"),
    invalid("splitting tags in html", body(format="html", splitting_tags=["x"]), "splitting_tags"),
    invalid("both kinds of tags", body(format="xml", splitting_tags=["x"], non_splitting_tags=["x"]), "splitting_tags"),
    *(
        invalid(f"glossary {value}", body(glossary=value), field)
        for value, field in (
            ("a", "glossary"), (None, "glossary"), ({}, "glossary"), ({"id": "a", "terms": {"a": "b"}}, "glossary"),
            ({"name": "a"}, "glossary"), ({"id": 5}, "glossary.id"), ({"id": ""}, "glossary.id"),
            ({"id": "a" * 65}, "glossary.id"), ({"id": "no such one"}, "glossary.id"),
            ({"terms": []}, "glossary.terms"), ({"terms": {}}, "glossary.terms"),
            ({"terms": {"a": 5}}, "glossary.terms"), ({"terms": {" ": "b"}}, "glossary.terms"),
            ({"terms": {"a": "\n"}}, "glossary.terms"), ({"terms": {"a": "b" * 513}}, "glossary.terms"),
            ({"terms": {"a\x00b": "c"}}, "glossary.terms"),
        )
    ),
    too_large("1,001 terms", body(glossary={"terms": {f"a{i}": "b" for i in range(1001)}}), "glossary.terms"),
    invalid("malformed XML", body(format="xml", text=["<a/>", "<a>"]), "text[1]"),
    invalid("an entity of XML", body(format="xml", text='<!DOCTYPE a [<!ENTITY b "c">]><a>&b;</a>'), "text[0]"),
    invalid("a language of 900 kB", body(source="e" * 900_000), "source"),
    invalid("an empty language", body(target=""), "target"),
    *(
        Case(f"pair {source!r} {target!r}", body(source=source, target=target), 422, "unsupported_languages", field)
        for source, target, field in (
            ("en", "en", "target"), ("de", "en", "source"), ("../../etc/passwd", "de", "source"),
            ("en\n", "de", "source"), ("EN-us", "nl", "target"), ("\uff45\uff4e", "de", "source"),
            ("en", "xx", "target"), ("en ", "de", "source"),
        )
    ),
]  # fmt: skip


@pytest.fixture(autouse=True)
def server_still_works(client: httpx.Client) -> Iterator[None]:
    yield
    answer = client.post("/v1/translate", content=body(), headers=HEADERS)
    assert answer.status_code == 200
    assert answer.json()["translations"][0]["text"] == GOLDEN
    lines = client.get("/metrics").text.splitlines()
    assert {"transduce_inflight_requests 0.0", "transduce_queue_depth 0.0"} <= set(lines)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_refused(client: httpx.Client, case: Case) -> None:
    answer = client.post(
        "/v1/translate", content=case.content, headers=HEADERS if case.headers is None else case.headers
    )
    assert answer.status_code == case.status, answer.text
    check_error(answer, case.code, case.field)


def check_error(answer: httpx.Response, code: str, field: str | None = None) -> None:
    assert len(answer.content) <= 1024
    assert answer.headers["content-type"] == "application/json"
    error = answer.json()["error"]
    assert error["code"] == code
    assert error["request_id"] == answer.headers["x-request-id"]
    assert error.get("field") == field
    assert error["message"]
    assert set(error) <= {"code", "message", "request_id", "field"}


@pytest.mark.parametrize("path", ["/v1/translate", "/translate"])
def test_a_byte_order_mark_before_the_json_is_ignored(client: httpx.Client, path: str) -> None:
    fields = BASE if path == "/v1/translate" else {"q": GOLDEN, "source": "en", "target": "de"}
    content = codecs.BOM_UTF8 + json.dumps(fields).encode()
    assert client.post(path, content=content, headers=HEADERS).status_code == 200


def test_no_answer_repeats_what_was_sent(client: httpx.Client) -> None:
    canary = "Canary7391"
    for content in (
        body(text=canary, source=canary),
        body(**{canary: 1}),
        body(text=[canary, 5]),
        body(beam_size=canary),
        body(length_penalty={"formula": canary, "alpha": canary}),
        b'{"' + canary.encode(),
        body(timeout_ms=canary, target=canary),
    ):
        answer = client.post("/v1/translate", content=content, headers=HEADERS)
        assert 400 <= answer.status_code < 500
        assert canary not in answer.text


def test_a_chunked_body_above_the_limit_is_refused(client: httpx.Client) -> None:
    answer = client.post("/v1/translate", content=(b"x" * 65_536 for _ in range(100)), headers=HEADERS)
    assert answer.status_code == 413
    check_error(answer, "payload_too_large")


def test_a_body_of_a_hundred_thousand_tiny_chunks_is_read(server: ServerProcess) -> None:
    head = b"POST /v1/translate HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\n"
    with server.connect() as connection:
        connection.sendall(
            head + b"transfer-encoding: chunked\r\n\r\n" + b"1\r\n \r\n" * 100_000 + b"0\r\n\r\n"
        )
        assert connection.recv(65_536).startswith(b"HTTP/1.1 400 ")  # a body of spaces is not JSON


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/v1/translate", 405),
        ("PUT", "/v1/translate", 405),
        ("HEAD", "/v1/translate", 405),
        ("OPTIONS", "/v1/translate", 405),
        ("POST", "/livez", 405),
        ("BREW", "/v1/translate", 400),
        ("POST", "/v1/translate/", 404),
        ("POST", "/v1//translate", 404),
        ("GET", "/%2e%2e/%2e%2e/etc/passwd", 404),
        ("GET", "/a%00b", 404),
        ("GET", "/a%0ab", 404),
        ("GET", "/nothing", 404),
        ("POST", "/assets/server.json", 405),
    ],
)
def test_unknown_paths_and_wrong_methods_are_refused(
    client: httpx.Client, method: str, path: str, status: int
) -> None:
    answer = client.request(method, path)
    assert answer.status_code == status
    if method != "HEAD":
        assert answer.json()["error"]["code"] in {"not_found", "method_not_allowed", "malformed_http"}


@pytest.mark.parametrize(
    ("path", "methods"),
    [
        ("/v1/translate", "POST"),
        ("/livez", "GET, HEAD"),
        ("/v2/glossaries", "GET, HEAD, POST"),
        ("/v2/glossaries/a", "DELETE, GET, HEAD"),
        ("/v2/document/a", "GET, HEAD, POST"),
    ],
)
def test_the_allow_header_has_all_methods_of_the_path(client: httpx.Client, path: str, methods: str) -> None:
    answer = client.put(path)
    assert (answer.status_code, answer.headers["allow"]) == (405, methods)


@pytest.mark.parametrize(
    "path",
    [
        "/",
        "/livez",
        "/health",
        "/languages",
        "/v2/health/ready",
        "/v2/languages",
        "/openapi.json",
        "/v1/models",
    ],
)
def test_head_has_the_headers_of_get_and_no_body(client: httpx.Client, path: str) -> None:
    head, got = client.head(path), client.get(path)
    assert (head.status_code, head.content) == (200, b"")
    changing = {"date", "x-request-id", "x-trace-id"}
    assert dict(head.headers.items() - [(name, head.headers.get(name)) for name in changing]) == dict(
        got.headers.items() - [(name, got.headers.get(name)) for name in changing]
    )
    assert int(head.headers["content-length"]) == len(got.content)


def test_a_head_request_is_recorded_as_head(server: ServerProcess, client: httpx.Client) -> None:
    name = 'transduce_http_requests_total{code="200",method="HEAD",route="/languages"}'
    before = server.metric(name)
    client.head("/languages")
    assert server.metric(name) == before + 1


@pytest.mark.parametrize("path", ["/v1/translate", "/translate", "/v2/translate", "/v2/models/echo/infer"])
def test_each_content_encoding_header_is_checked(client: httpx.Client, path: str) -> None:
    names = [
        ("content-type", "application/json"),
        ("content-encoding", "identity"),
        ("content-encoding", "gzip"),
    ]
    assert client.post(path, content=b"{}", headers=names).status_code == 415


@pytest.mark.parametrize(
    "media_type",
    ["application/json;", 'Application/JSON ; charset="UTF-8" ;', "application/json; foo=bar; q=1"],
)
def test_a_media_type_may_have_empty_and_other_parameters(client: httpx.Client, media_type: str) -> None:
    assert (
        client.post("/v1/translate", content=b"{}", headers={"content-type": media_type}).status_code == 422
    )


@pytest.mark.parametrize("request_id", ["x" * 65, "a b", 'a"b', "{}", "a\x1b[31m", "\u00e9", ""])
def test_a_request_id_that_is_no_plain_word_is_replaced(client: httpx.Client, request_id: str) -> None:
    answer = client.get("/nope", headers=[(b"x-request-id", request_id.encode())])
    assert answer.status_code in {400, 404}  # the HTTP parser rejects control characters
    assert re.fullmatch(r"[0-9a-f]{32}", answer.headers["x-request-id"])


def test_a_plain_request_id_is_kept(client: httpx.Client) -> None:
    answer = client.get("/nope", headers={"x-request-id": "Ab-1_2.3"})
    assert answer.headers["x-request-id"] == answer.json()["error"]["request_id"] == "Ab-1_2.3"


def test_every_response_has_security_headers_and_names_no_server(client: httpx.Client) -> None:
    for answer in (client.get("/livez"), client.get("/nope"), client.post("/v1/translate", content=b"{")):
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert answer.headers["cache-control"] == "no-store"
        assert "server" not in answer.headers


@pytest.mark.parametrize("path", ["/v1/translate", "/translate", "/v2/translate", "/v2/models/echo/infer"])
def test_a_body_of_brackets_is_refused_before_it_is_parsed(client: httpx.Client, path: str) -> None:
    """Parsing so many arrays would block the event loop."""
    body = b'{"text": [' + b",".join([b"[]"] * 130_000)
    answer = client.post(path, content=body, headers={"content-type": "application/json"})
    assert answer.status_code == 413
    assert "the body has more than 125000 brackets [ and {, those in texts included" in answer.text


def test_a_request_without_a_key_is_logged_without_a_caller(
    server: ServerProcess, client: httpx.Client
) -> None:
    client.get("/v1/models", headers={"x-request-id": "without-key"})
    assert "caller" not in server.wait_for_request("without-key")


def test_the_request_for_a_probe_is_no_line_of_the_log(server: ServerProcess, client: httpx.Client) -> None:
    client.get("/livez", headers={"x-request-id": "of-a-probe"})
    client.get("/v1/models", headers={"x-request-id": "after-a-probe"})
    server.wait_for_request("after-a-probe")
    assert not [line for line in server.log if '"of-a-probe"' in line]


@pytest.mark.parametrize(
    ("length", "is_refused"),
    [(b"10", False), (b"", False), (b"11", True), (b"-1", True), (b"x", True), (b"9" * 5000, True)],
)
def test_a_length_is_checked_behind_any_server(length: bytes, is_refused: bool) -> None:
    """The parser of `transduce serve` refuses a length that is no number. Other servers may pass it on."""
    served: list[Scope] = []

    async def app(scope: Scope, _receive: Receive, _send: Send) -> None:
        served.append(scope)

    async def unused(*_: Any) -> Any:
        raise AssertionError

    scope: Scope = {"type": "http", "method": "POST", "path": "/", "state": {"dialect": None}}
    scope["headers"] = [(b"content-length", length)]
    gate = Gate(app, keys=ApiKeys(()), max_body_bytes=10)
    with pytest.raises(PayloadTooLarge) if is_refused else contextlib.nullcontext():
        asyncio.run(gate(scope, unused, unused))
    assert bool(served) != is_refused
