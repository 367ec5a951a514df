"""The dialect at /v2, against the echo server."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.api.dialects.conftest import KEY
from tests.api.server_process import HEADERS, ServerProcess

FORM = {"content-type": "application/x-www-form-urlencoded"}
ENGLISH = "The weather was very good yesterday, and everybody enjoyed it."
GERMAN = "Der Fluss fließt langsam unter der alten Brücke hindurch."
BASE: dict[str, Any] = {"text": ["Anna sees the river."], "source_lang": "EN", "target_lang": "DE"}


def translated(http: httpx.Client, **changes: Any) -> list[dict[str, Any]]:
    answer = http.post("/v2/translate", json={**BASE, **changes})
    assert answer.status_code == 200, answer.text
    assert answer.json().keys() == {"translations"}
    rows: list[dict[str, Any]] = answer.json()["translations"]
    return rows


def refused(http: httpx.Client, **changes: Any) -> tuple[int, str]:
    body = {name: value for name, value in {**BASE, **changes}.items() if value is not None}
    answer = http.post("/v2/translate", json=body)
    assert answer.json().keys() == {"message"}
    return answer.status_code, answer.json()["message"]


def test_each_text_has_a_row_with_its_character_count(http: httpx.Client) -> None:
    texts = ["Anna sees 7 cats.", "", " \n", "No, 8 🎉."]
    assert translated(http, text=texts) == [
        {"detected_source_language": "EN", "text": text, "billed_characters": len(text)} for text in texts
    ]
    assert [row["text"] for row in translated(http, text="Anna.")] == ["Anna."]


def test_an_optional_field_that_is_an_empty_string_counts_as_not_sent(http: httpx.Client) -> None:
    optional = (
        "source_lang formality glossary_id glossary_ids split_sentences preserve_formatting tag_handling "
        "tag_handling_version outline_detection splitting_tags ignore_tags model_type style_id"
    )
    empty = dict.fromkeys(optional.split(), "")
    assert translated(http, text=[ENGLISH], **empty) == translated(http, text=[ENGLISH], source_lang=None)
    form = http.post("/v2/translate", data={"text": ENGLISH, "target_lang": "DE", **empty})
    assert form.json()["translations"] == translated(http, text=[ENGLISH])
    assert translated(http, text="", **empty)[0]["text"] == ""
    assert refused(http, target_lang="") == (400, "target_lang must have 1 or more characters")
    assert http.get("/v2/languages", params={"type": ""}).json() == http.get("/v2/languages").json()


def test_a_form_with_repeated_texts(http: httpx.Client) -> None:
    body = "text=Anna%20sees.&text=5%20%25%0D%0A%C3%84rger&target_lang=de&source_lang=en&split_sentences=0"
    answer = http.post("/v2/translate", content=body, headers=FORM)
    assert [row["text"] for row in answer.json()["translations"]] == ["Anna sees.", "5 %\nÄrger"]


def test_languages_are_detected_text_by_text(http: httpx.Client) -> None:
    rows = translated(http, text=[ENGLISH, GERMAN, "👍"], source_lang=None)
    assert [row["detected_source_language"] for row in rows] == ["EN", "DE", "EN"]
    assert rows[1]["text"] == GERMAN


@pytest.mark.parametrize(
    ("source", "target"), [("EN", "DE"), ("en", "de"), ("En", "De"), ("EN-GB", "DE-AT"), ("en_US", "DE")]
)
def test_codes_in_any_case_and_with_regions(http: httpx.Client, source: str, target: str) -> None:
    assert len(translated(http, source_lang=source, target_lang=target)) == 1


def test_a_text_in_the_target_language_is_returned_unchanged(http: httpx.Client) -> None:
    assert translated(http, text=[GERMAN], source_lang="DE") == [
        {"detected_source_language": "DE", "text": GERMAN, "billed_characters": len(GERMAN)}
    ]


ACCEPTED: list[dict[str, Any]] = [
    {"formality": "default"},
    {"formality": "prefer_more"},
    {"formality": "PREFER_LESS"},
    {"context": "On the bank of a river."},
    {"preserve_formatting": True},
    {"preserve_formatting": "0"},
    {"split_sentences": 0},
    {"split_sentences": "1"},
    {"split_sentences": "nonewlines"},
    {"outline_detection": "false"},
    {"tag_handling_version": "v2"},
    {"show_billed_characters": False},
    {"glossary_id": None, "formality": None, "tag_handling": None},
    {"glossary_id": "", "source_lang": ""},
    {"glossary_ids": []},
    {"glossary_ids": [" ", ""]},
    {"enable_beta_languages": "1", "debug": [1], "anything": {"a": "b"}},
]


@pytest.mark.parametrize("fields", ACCEPTED, ids=[str(index) for index in range(len(ACCEPTED))])
def test_what_is_accepted(http: httpx.Client, fields: dict[str, Any]) -> None:
    body = {**BASE, **fields}
    answer = http.post("/v2/translate", json=body)
    rows = [{"detected_source_language": "EN", "text": BASE["text"][0], "billed_characters": 20}]
    assert answer.json() == {"translations": rows}


def test_names_of_html_elements_are_matched_in_any_case(http: httpx.Client) -> None:
    """A date that is translated gets German separators."""
    text = "Anna <B>sees 12/31/2025</B> me."
    ((ignored,), (other,)) = (
        translated(http, text=[text], tag_handling="html", ignore_tags=[tag]) for tag in ("B", "I")
    )
    assert ignored["text"] == text
    assert "31.12.2025" in other["text"]


@pytest.mark.parametrize(
    ("model_type", "used"),
    [
        ("latency_optimized", "latency_optimized"),
        ("quality_optimized", "quality_optimized"),
        ("prefer_quality_optimized", "quality_optimized"),
    ],
)
def test_the_model_type_that_was_used(http: httpx.Client, model_type: str, used: str) -> None:
    assert translated(http, model_type=model_type)[0]["model_type_used"] == used
    assert "model_type_used" not in translated(http)[0]


REFUSED: list[tuple[dict[str, Any], int, str]] = [
    ({"text": None}, 400, "text is required"),
    ({"text": []}, 400, "text is empty: it must have at least 1 item$"),
    ({"text": ["a", 1]}, 400, r"text\[1\] must be a string"),
    ({"text": ["x"] * 21}, 413, "text has 21 items, the limit is 20"),
    ({"text": "x" * 201}, 413, "201 characters, the limit is 200"),
    ({"text": ["x" * 151] * 2}, 413, "302 characters in all, the limit is 300"),
    ({"target_lang": None}, 400, "target_lang is required"),
    ({"target_lang": "XX"}, 400, "target_lang.*not supported; supported: DE$"),
    ({"target_lang": "EN-US"}, 400, "target_lang.*not supported; supported: DE$"),
    ({"target_lang": "DE-Latn"}, 400, "target_lang.*not supported"),
    ({"target_lang": ["DE"]}, 400, "target_lang must be a string"),
    ({"source_lang": "XX"}, 400, "source_lang.*not supported; supported: DE, EN$"),
    ({"formality": "more"}, 400, "formality is not supported for target language DE"),
    ({"formality": "Less"}, 400, "formality is not supported for target language DE"),
    ({"formality": "invalid"}, 400, "formality must be one of"),
    ({"formality": 1}, 400, "formality must be one of"),
    ({"split_sentences": "invalid"}, 400, "split_sentences must be one of"),
    ({"split_sentences": True}, 400, "split_sentences must be one of"),
    ({"tag_handling": "pdf"}, 400, "tag_handling must be one of xml, html"),
    ({"tag_handling_version": "v3"}, 400, "tag_handling_version must be one of"),
    ({"preserve_formatting": "maybe"}, 400, "preserve_formatting must be true or false"),
    ({"outline_detection": 2}, 400, "outline_detection must be true or false"),
    ({"ignore_tags": [1]}, 400, r"ignore_tags\[0\] must be a string"),
    (
        {"splitting_tags": ",".join(map(str, range(101)))},
        400,
        "splitting_tags has .* items, the limit is 100",
    ),
    ({"model_type": "fast"}, 400, "model_type must be one of"),
    ({"custom_instructions": ["Be kind."]}, 400, "custom_instructions is not offered"),
    ({"style_id": "a"}, 400, "style_id is not offered"),
    ({"translation_memory_id": "a"}, 400, "translation_memory_id is not offered"),
    ({"glossary_id": 7}, 400, "glossary_id must be a string"),
    ({"glossary_id": "a", "glossary_ids": ["b"]}, 400, "at most one glossary"),
    ({"glossary_ids": ["a", "b"]}, 400, "at most one glossary"),
    ({"glossary_id": "a", "source_lang": None}, 400, "source_lang is required with a glossary"),
    ({"glossary_id": "none"}, 404, "glossary_id: there is no glossary with this id"),
]


@pytest.mark.parametrize(
    ("changes", "status", "message"), REFUSED, ids=[str(index) for index in range(len(REFUSED))]
)
def test_what_is_refused(http: httpx.Client, changes: dict[str, Any], status: int, message: str) -> None:
    found_status, found_message = refused(http, **changes)
    assert found_status == status
    assert re.search(message, found_message)


@pytest.mark.parametrize(
    ("content", "headers", "status"),
    [
        (b"", HEADERS, 400),
        (b"[]", HEADERS, 400),
        (b'{"text": NaN}', HEADERS, 400),
        (b'{"text": "\\ud800", "target_lang": "DE"}', HEADERS, 400),
        (b"text=%ff", FORM, 400),
        (b"x", {"content-type": "text/xml"}, 415),
        (b"{}", {**HEADERS, "content-encoding": "gzip"}, 415),
        (b"&".join([b"a=b"] * 1001), FORM, 413),
        (b'{"text": "' + b"x" * 2_000_000 + b'"}', HEADERS, 413),
    ],
)
def test_invalid_bodies(http: httpx.Client, content: bytes, headers: dict[str, str], status: int) -> None:
    answer = http.post("/v2/translate", content=content, headers=headers)
    assert answer.status_code == status
    assert isinstance(answer.json()["message"], str)
    assert len(answer.content) < 1000


def test_languages_by_query_and_by_the_body_of_a_get(http: httpx.Client) -> None:
    sources = [{"language": "EN", "name": "English"}]
    targets = [{"language": "DE", "name": "German", "supports_formality": False}]
    assert http.get("/v2/languages").json() == sources
    assert http.get("/v2/languages", headers={"content-type": "application/json"}).json() == sources
    assert http.get("/v2/languages", params={"type": "source"}).json() == sources
    assert http.get("/v2/languages", params={"type": "target"}).json() == targets
    assert http.request("GET", "/v2/languages", data={"type": "target"}).json() == targets
    answer = http.get("/v2/languages", params={"type": "other"})
    assert (answer.status_code, answer.json()) == (400, {"message": "type must be one of source, target"})


def test_every_answer_has_a_trace(http: httpx.Client) -> None:
    for answer in (
        http.post("/v2/translate", json=BASE, headers={"x-request-id": "mine"}),
        http.post("/v2/translate", json={}, headers={"x-request-id": "mine"}),
    ):
        assert answer.headers["x-trace-id"] == "mine"
    assert len(http.get("/v2/usage").headers["x-trace-id"]) == 32
    assert "x-trace-id" not in http.get("/v1/models").headers


@pytest.mark.parametrize(
    ("method", "path", "status", "message"),
    [
        ("GET", "/v2/translate", 405, "method not allowed"),
        ("POST", "/v2/usage", 405, "method not allowed"),
        ("POST", "/v2/write/rephrase", 404, "this server has no such route"),
        ("GET", "/v3/glossaries", 404, "this server has no such route"),
        ("GET", "/v3/style_rules", 404, "this server has no such route"),
    ],
)
def test_unsupported_routes(http: httpx.Client, method: str, path: str, status: int, message: str) -> None:
    answer = http.request(method, path)
    assert (answer.status_code, answer.json()) == (status, {"message": message})


@pytest.mark.parametrize("path", ["/v2/document", "/v2/document/1/result"])
def test_documents_are_refused_if_files_are_off(locked_http: httpx.Client, path: str) -> None:
    answer = locked_http.post(path, headers={"authorization": f"DeepL-Auth-Key {KEY}"})
    assert (answer.status_code, answer.json()) == (404, {"message": "this server has no such route"})


def test_every_route_needs_a_key_in_a_known_scheme(locked_http: httpx.Client) -> None:
    for headers in ({}, {"authorization": "DeepL-Auth-Key no"}, {"authorization": f"Basic {KEY}"}):
        for method, path in (("POST", "translate"), ("GET", "languages"), ("GET", "usage")):
            answer = locked_http.request(method, f"/v2/{path}", headers=headers)
            assert (answer.status_code, list(answer.json())) == (403, ["message"])
    for scheme in ("DeepL-Auth-Key", "deepl-auth-key", "Bearer"):
        headers = {"authorization": f"{scheme} {KEY}"}
        assert locked_http.post("/v2/translate", json=BASE, headers=headers).status_code == 200


def test_only_translated_characters_are_counted(echo_command: list[str], tmp_path: Path) -> None:
    file = tmp_path / "keys.toml"
    file.write_text('[team]\nkey = "0123456789abcdef"\ncharacters_per_month = 45\n', "utf-8")
    with ServerProcess(echo_command, {"api_keys_file": file}) as server, server.ready().client() as http:
        http.headers["authorization"] = "DeepL-Auth-Key 0123456789abcdef"

        def used() -> tuple[int, int]:
            found = http.get("/v2/usage").json()
            return found["character_count"], found["character_limit"]

        assert used() == (0, 45)
        translated(http)
        refused(http, target_lang="XX")
        http.post("/v2/translate", json={**BASE, "text": "Nobody greets 42 cats."})
        assert used() == (42, 45)
        status, message = refused(http)
        assert status == 456
        assert message.startswith(
            "the limit of this API key is 45 characters a month: 42 are used, and this request needs 20"
        )
        assert used() == (42, 45)
        translated(http, text="👍👍👍")
        assert used() == (45, 45)


def test_failed_requests_are_not_counted(echo_command: list[str]) -> None:
    """The echo model fails at the sentence POISON of tests/api/echo.py."""
    with ServerProcess(echo_command) as server, server.ready().client() as http:
        answer = http.post("/v2/translate", json={**BASE, "text": "Nobody greets 42 cats again."})
        assert (answer.status_code, list(answer.json())) == (500, ["message"])
        assert http.get("/v2/usage").json()["character_count"] == 0


def test_a_loading_server_refuses_at_once(echo_command: list[str], load_file: Path) -> None:
    command = [*echo_command, f"load_file={load_file}"]
    with ServerProcess(command) as server, server.listening().client() as http:
        answer = http.post("/v2/translate", json=BASE)
        assert (answer.status_code, list(answer.json())) == (503, ["message"])
        assert int(answer.headers["retry-after"]) >= 1
