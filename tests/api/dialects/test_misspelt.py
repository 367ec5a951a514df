"""Misspelt fields, missing texts and language codes, in the native API and in every dialect."""

from __future__ import annotations

from typing import Any

import httpx
import pytest

from app.api.http.validation import validate
from app.api.simple.models import SimpleTranslateBody
from app.errors import InvalidRequest
from app.settings import load_settings
from app.wiring import request_limits

TENSOR: dict[str, Any] = {"name": "text", "datatype": "BYTES", "shape": [1], "data": ["Anna sees."]}
NATIVE: dict[str, Any] = {"text": "Anna sees.", "source": "en", "target": "de"}
SIMPLE = {"q": "Anna sees.", "source": "en", "target": "de"}
V2: dict[str, Any] = {"text": ["Anna sees."], "target_lang": "DE", "source_lang": "EN"}
INFER: dict[str, Any] = {"inputs": [TENSOR]}
INFER_PATH = "/v2/models/echo/infer"
GLOSSARY = {"name": "a", "source_lang": "en", "target_lang": "de", "entries": "a,b", "entries_format": "csv"}


def renamed(body: dict[str, Any], old: str, new: str) -> dict[str, Any]:
    return {new if name == old else name: value for name, value in body.items()}


@pytest.mark.parametrize(
    ("path", "body", "field", "near"),
    [
        ("/v1/translate", renamed(NATIVE, "target", "taget"), "taget", "target"),
        ("/v1/translate", {**NATIVE, "beamsize": 4}, "beamsize", "beam_size"),
        ("/v1/translate", {**NATIVE, "Format": "html"}, "Format", "format"),
        (
            "/v1/translate",
            {**NATIVE, "sampling": {"temprature": 1}},
            "sampling.temprature",
            "sampling.temperature",
        ),
        ("/v1/translate/stream", {**NATIVE, "sources": "en"}, "sources", "source"),
        ("/v1/score", {**NATIVE, "translations": "Anna sieht."}, "translations", "translation"),
        ("/v1/detect", {"texts": "Anna"}, "texts", "text"),
        ("/translate", renamed(SIMPLE, "target", "taget"), "taget", "target"),
        ("/translate", {**SIMPLE, "alternative": 2}, "alternative", "alternatives"),
        ("/v2/translate", renamed(V2, "target_lang", "target_language"), "target_language", "target_lang"),
        ("/v2/translate", {**V2, "tag_handeling": "html"}, "tag_handeling", "tag_handling"),
        ("/v2/glossaries", renamed(GLOSSARY, "entries", "entrys"), "entrys", "entries"),
        (INFER_PATH, {"input": [TENSOR]}, "input", "inputs"),
        (INFER_PATH, {**INFER, "parameters": {"taget": "de"}}, "parameters.taget", "parameters.target"),
        (INFER_PATH, {"inputs": [renamed(TENSOR, "shape", "shapes")]}, "inputs[0].shapes", "inputs[0].shape"),
    ],
)
def test_a_misspelt_field_is_named(
    http: httpx.Client, path: str, body: dict[str, Any], field: str, near: str
) -> None:
    answer = http.post(path, json=body)
    content = answer.json()
    assert answer.status_code == (422 if path.startswith("/v1") else 400)
    error = content["error"] if path.startswith("/v1") else content
    message = error["message"] if "message" in error else error["error"]
    assert error["field"] == field
    assert f"{field} is not known; did you mean {near}?" in message


@pytest.mark.parametrize("name", ["secret", "priority", "x" * 1000, "Anna sees the river.", ""])
def test_the_dialects_ignore_an_unknown_field_that_is_not_misspelt(http: httpx.Client, name: str) -> None:
    """The dialects ignore extra fields, because clients send them. /v1 refuses them without repeating their names."""
    assert http.post("/translate", json={**SIMPLE, name: 1}).status_code == 200
    assert http.post("/v2/translate", json={**V2, name: 1}).status_code == 200
    refused = http.post("/v1/translate", json={**NATIVE, name: 1})
    assert refused.status_code == 422
    assert not name or name not in refused.text


def test_only_the_first_unknown_fields_are_checked_for_misspelling() -> None:
    """A body may hold a hundred thousand unknown fields. To compare each with the known names would take seconds."""
    many: dict[str, object] = {f"{index} of many": 1 for index in range(100_000)}
    body = {"q": "Anna.", "source": "en"}
    limits = request_limits(load_settings())
    with pytest.raises(InvalidRequest, match="missing target parameter"):
        validate(SimpleTranslateBody, {**body, **many, "taget": "de"}, limits)
    with pytest.raises(InvalidRequest, match="taget is not known"):
        validate(SimpleTranslateBody, {**body, "taget": "de", **many}, limits)


def test_a_misspelt_field_beside_the_right_one_is_ignored(http: httpx.Client) -> None:
    """If the known field is present, a similar field is an extra field."""
    assert http.post("/translate", json={**SIMPLE, "targets": ["de"]}).status_code == 200


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/v1/translate", {**NATIVE, "text": []}),
        ("/v1/detect", {"text": []}),
        ("/v2/translate", {**V2, "text": []}),
    ],
)
def test_an_empty_list_of_texts_is_refused(http: httpx.Client, path: str, body: dict[str, Any]) -> None:
    assert "text is empty" in http.post(path, json=body).text


@pytest.mark.parametrize(
    ("source", "target"), [("EN", "DE"), ("en-US", "de-AT"), ("en_GB", "De"), ("auto", "de-CH")]
)
def test_codes_in_any_case_and_with_regions(http: httpx.Client, source: str, target: str) -> None:
    text = "The weather was very good yesterday."
    native = {"text": text, "source": source, "target": target}
    answer = http.post("/v1/translate", json=native)
    assert answer.status_code == 200, answer.text
    assert answer.json()["translations"][0]["source"] == "en"
    assert http.post("/v1/translate/stream", json=native).status_code == 200
    if source != "auto":
        assert http.post("/v1/score", json={**native, "translation": "Gut."}).status_code == 200
    assert http.post("/translate", json={"q": text, "source": source, "target": target}).status_code == 200
    parameters = {"source": source, "target": target}
    body = {"inputs": [{**TENSOR, "data": [text]}], "parameters": parameters}
    assert http.post(INFER_PATH, json=body).status_code == 200


@pytest.mark.parametrize(
    ("source", "target"), [("en-Latn", "de"), ("eng", "de"), ("en", "deu"), ("de", "en")]
)
def test_codes_that_match_no_pair_are_an_error(http: httpx.Client, source: str, target: str) -> None:
    answer = http.post("/v1/translate", json={"text": "Anna.", "source": source, "target": target})
    assert (answer.status_code, answer.json()["error"]["code"]) == (422, "unsupported_languages")
