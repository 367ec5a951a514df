"""The OpenAPI document describes every route. Responses have the types that are listed here.

tests/fuzz/test_http.py compares responses with the document.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from pydantic import TypeAdapter

from app.api import openapi
from app.api.dialects import DIALECTS
from app.api.docs_page import kind_of
from app.api.inference.models import (
    InferAnswer,
    InferError,
    InferLive,
    InferModel,
    InferModelReady,
    InferReady,
    InferServer,
)
from app.api.native.answers import DetectAnswer, ErrorAnswer, ModelsAnswer, ScoreAnswer, TranslateAnswer
from app.api.probes import ProbeAnswer, api_routes
from app.api.simple import routes as simple
from app.api.simple.models import (
    SimpleDetection,
    SimpleError,
    SimpleHealth,
    SimpleLanguage,
    SimpleSettings,
    SimpleTranslateAnswer,
)
from app.api.v2.models import (
    V2Error,
    V2Glossaries,
    V2Glossary,
    V2GlossaryPairs,
    V2Language,
    V2TranslateAnswer,
    V2Usage,
)
from app.main import Application
from app.settings import load_settings
from app.wiring import request_limits

TEXT = {"text": "Anna sees the river.", "source": "en", "target": "de"}
SIMPLE = {"q": "Anna sees the river.", "source": "en", "target": "de"}
V2: dict[str, Any] = {"text": ["Anna."], "source_lang": "en", "target_lang": "de"}
TENSOR = {"name": "text", "datatype": "BYTES", "shape": [1], "data": ["Anna."]}


@pytest.fixture(scope="module")
def document(client: httpx.Client) -> dict[str, Any]:
    found: dict[str, Any] = client.get("/openapi.json").json()
    return found


def operations(document: dict[str, Any]) -> Iterator[tuple[str, str, dict[str, Any]]]:
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            yield method.upper(), path, operation


def references(node: Any) -> Iterator[str]:
    if isinstance(node, dict):
        if "$ref" in node:
            yield node["$ref"].rpartition("/")[2]
        for value in node.values():
            yield from references(value)
    elif isinstance(node, list):
        for value in node:
            yield from references(value)


def test_every_route_is_described(document: dict[str, Any]) -> None:
    application = Application(load_settings({"files_enabled": True}))
    described = {(method, path) for method, path, _ in operations(document)}
    assert described == set(api_routes(application.app.router))
    for _, path, operation in operations(document):
        assert operation["summary"]
        assert operation["tags"]
        named = {each["name"] for each in operation["parameters"] if each["in"] == "path"}
        assert named == set(re.findall(r"{(\w+)}", path))


def test_every_route_names_an_error(document: dict[str, Any]) -> None:
    for _, path, operation in operations(document):
        assert any(int(status) >= 400 for status in operation["responses"]), path


def test_a_route_names_the_key_that_it_takes(document: dict[str, Any]) -> None:
    """The empty object makes the key optional. A route that takes no key in a header has no `security`."""
    schemes = document["components"]["securitySchemes"]
    assert {name: scheme["type"] for name, scheme in schemes.items()} == {
        "key": "http",
        "deepl_key": "apiKey",
        "admin_token": "http",
    }
    named = {path: operation.get("security") for _, path, operation in operations(document)}
    assert (
        named["/v1/translate"] == named["/metrics"] == named["/v2/models/{name}/infer"] == [{"key": []}, {}]
    )
    assert named["/v2/translate"] == [{"deepl_key": []}, {"key": []}, {}]
    open_paths = {
        "/livez",
        "/readyz",
        "/v2/health/live",
        "/v2/health/ready",
        "/translate_file",
        *simple.PATHS,
    }
    assert {path for path, security in named.items() if security is None} == open_paths
    application = Application(load_settings({"admin_token": "t" * 40}))
    limits = request_limits(application.settings)
    paths = openapi.describe(application.app, limits, DIALECTS)["paths"]
    assert paths["/admin/keys"]["get"]["security"] == [{"admin_token": []}]


def test_a_tensor_may_be_sent_and_returned_as_bytes(document: dict[str, Any]) -> None:
    infer = document["paths"]["/v2/models/{name}/infer"]["post"]
    header = "Inference-Header-Content-Length"
    assert [each["name"] for each in infer["parameters"] if each["in"] == "header"] == [header]
    assert list(infer["responses"]["200"]["headers"]) == [header]
    for part in (infer["requestBody"], infer["responses"]["200"]):
        assert list(part["content"]) == ["application/json", "application/octet-stream"]


def test_a_glossary_has_a_name_of_bounded_length(document: dict[str, Any]) -> None:
    name = document["components"]["schemas"]["V2GlossaryBody"]["properties"]["name"]
    assert (name["minLength"], name["maxLength"]) == (1, 256)


def test_every_schema_exists_and_is_used(document: dict[str, Any]) -> None:
    schemas = document["components"]["schemas"]
    assert set(references(document)) == set(schemas)
    assert all(schema.get("description") for schema in schemas.values())


def test_only_a_deletion_has_no_response_body_and_no_json_response_is_a_string(
    document: dict[str, Any],
) -> None:
    for _, path, operation in operations(document):
        for status, response in operation["responses"].items():
            assert ("content" in response) == (status != "204"), path
            schema = response.get("content", {}).get("application/json", {}).get("schema", {})
            assert schema.get("type") != "string", path
    described = document["paths"]["/metrics"]["get"]["responses"]["200"]["content"]
    assert described == {"text/plain": {"schema": {"type": "string"}}}


@pytest.mark.parametrize(("example", "kind"), [("target", "string"), (3, "integer"), (60.0, "number")])
def test_a_query_parameter_has_the_type_of_its_example(example: object, kind: str) -> None:
    options = openapi.operation("tag", "summary", None, query={"name": (example, "meaning")})
    (parameter,) = options["openapi_extra"]["parameters"]
    assert (parameter["schema"], parameter["example"]) == ({"type": kind}, example)


def test_bodies_and_their_examples_agree(document: dict[str, Any]) -> None:
    """Every example has only known fields and all required ones except the file."""
    num_bodies = 0
    for _, _, operation in operations(document):
        for media, content in operation.get("requestBody", {}).get("content", {}).items():
            if media == openapi.OCTETS:
                continue
            schema = document["components"]["schemas"][next(references(content["schema"]))]
            assert set(content["example"]) <= set(schema["properties"])
            assert set(schema.get("required", [])) <= {*content["example"], "file"}
            num_bodies += 1
    assert num_bodies >= 14


def test_the_page_shows_both_bounds_of_a_number() -> None:
    bounds: list[dict[str, int]] = [{"minimum": 1, "maximum": 9}, {"minimum": 1}, {"maximum": 9}, {}]
    shown = [kind_of({"type": "integer", **each}, {}) for each in bounds]
    assert shown == ["integer, 1 to 9", "integer, 1 or more", "integer, at most 9", "integer"]


@pytest.mark.parametrize(
    ("array", "kind"),
    [
        ({"items": {"type": "string"}}, "array of string"),
        ({"items": {"type": "string"}, "maxItems": 9}, "array of at most 9 of string"),
        ({"items": {"type": "string", "maxLength": 5}}, "array of (string, at most 5 characters)"),
        ({"items": {"enum": ["a", "b"]}, "minItems": 1, "maxItems": 1}, 'array of 1 of ("a" or "b")'),
    ],
)
def test_the_page_shows_the_length_of_an_array_and_the_kind_of_its_items(
    array: dict[str, Any], kind: str
) -> None:
    assert kind_of({"type": "array", **array}, {}) == kind


def test_the_page_shows_how_many_texts_a_request_may_have(document: dict[str, Any]) -> None:
    schemas = document["components"]["schemas"]
    text = kind_of(schemas["TranslateBody"]["properties"]["text"], schemas)
    assert text == (
        "string, at most 2000 characters or array of 1 to 128 of (string, at most 2000 characters)"
    )


@pytest.mark.parametrize(
    ("method", "path", "body", "kind"),
    [
        ("POST", "/v1/translate", TEXT, TranslateAnswer),
        ("POST", "/v1/translate", {**TEXT, "source": "auto", "num_hypotheses": 2}, TranslateAnswer),
        ("POST", "/v1/translate", {**TEXT, "num_alternatives": 2, "loop_guard": True}, TranslateAnswer),
        ("POST", "/v1/translate", {**TEXT, "sampling": {}, "glossary": {"terms": {"river": "river"}}}, TranslateAnswer),
        ("POST", "/v1/translate", {**TEXT, "taget": "de"}, ErrorAnswer),
        ("POST", "/v1/score", {**TEXT, "translation": "Anna.", "token_scores": True}, ScoreAnswer),
        ("POST", "/v1/detect", {"text": ["Where is it?", "42"]}, DetectAnswer),
        ("GET", "/v1/models", None, ModelsAnswer),
        ("GET", "/livez", None, ProbeAnswer),
        ("POST", "/translate", {**SIMPLE, "source": "auto", "alternatives": 2}, SimpleTranslateAnswer),
        ("POST", "/translate", {**SIMPLE, "q": ["Anna.", "No."], "source": "auto"}, SimpleTranslateAnswer),
        ("POST", "/translate", {"q": "a", "source": "en", "taget": "de"}, SimpleError),
        ("POST", "/detect", SIMPLE, list[SimpleDetection]),
        ("GET", "/languages", None, list[SimpleLanguage]),
        ("GET", "/health", None, SimpleHealth),
        ("GET", "/frontend/settings", None, SimpleSettings),
        ("POST", "/v2/translate", {**V2, "model_type": "prefer_quality_optimized"}, V2TranslateAnswer),
        ("POST", "/v2/translate", {}, V2Error),
        ("GET", "/v2/languages?type=target", None, list[V2Language]),
        ("GET", "/v2/usage", None, V2Usage),
        ("GET", "/v2/glossary-language-pairs", None, V2GlossaryPairs),
        (
            "POST",
            "/v2/glossaries",
            {"name": "a", "source_lang": "en", "target_lang": "de", "entries": "a,b", "entries_format": "csv"},
            V2Glossary,
        ),
        ("GET", "/v2/glossaries", None, V2Glossaries),
        ("GET", "/v2", None, InferServer),
        ("GET", "/v2/health/live", None, InferLive),
        ("GET", "/v2/health/ready", None, InferReady),
        ("GET", "/v2/models/echo", None, InferModel),
        ("GET", "/v2/models/echo/ready", None, InferModelReady),
        ("POST", "/v2/models/echo/infer", {"id": "1", "inputs": [TENSOR]}, InferAnswer),
        ("POST", "/v2/models/echo/infer", {}, InferError),
    ],
)  # fmt: skip
def test_an_answer_matches_its_type(
    client: httpx.Client, method: str, path: str, body: dict[str, Any] | None, kind: Any
) -> None:
    answer = client.request(method, path, json=body)
    TypeAdapter(kind).validate_json(answer.content, strict=True, extra="forbid")
