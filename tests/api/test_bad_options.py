"""Every decoding option rejects invalid types, values out of range, and contradictions.

The echo model gives no alignment, so options that need an alignment are rejected, too.
"""

from __future__ import annotations

import json
from typing import Any

import httpx
import pytest

from app.api.native.models import ScoreBody, TranslateBody
from tests.api.echo import GOLDEN
from tests.api.server_process import HEADERS
from tests.api.test_bad_input import check_error

TRANSLATE = {"text": GOLDEN, "source": "en", "target": "de"}
SCORE = {**TRANSLATE, "translation": GOLDEN}
LONGEST = 71  # the echo model's maximum target length without the end token
BAD_NUMBERS = ("-1", "1e308", "true", '"1"', "null", "[1]", "{}", str(2**64))
BAD_WHOLE_NUMBERS = (*BAD_NUMBERS, "1.0", "0.5", str(10**6))
BAD_SWITCHES = ("0", "1", '"true"', "null", "[]", "{}")
BAD_TEXTS = ("null", "5", "{}", "true", "[]", "[[1]]", '["a", 5]')
BAD_CHOICES = ('"never"', '"TEXT"', "1", "null", "true", "[]", "{}")
BAD_LISTS = ("1", "true", '"x"', "{}", "[1]", "[null]", '[["x"]]')
BAD_VALUES: dict[str, tuple[str, ...]] = {
    "model": ("1", "null", "[]", '"unknown"', '""', f'"{"a" * 201}"'),
    "beam_size": (*BAD_WHOLE_NUMBERS, "0", "17"),
    "num_hypotheses": (*BAD_WHOLE_NUMBERS, "0", "17"),
    "patience": (*BAD_NUMBERS, "0", "10.01"),
    "early_stop": ('"never"', '"FIRST"', "1", "null", "true", '["first"]', "{}"),
    "sampling": ("1", "true", "null", '"greedy"', "[]", '{"beam": 1}'),
    "length_penalty": (*(value for value in BAD_NUMBERS if value != "{}"), "10.01"),
    "coverage_penalty": (*BAD_NUMBERS, "10.01"),
    "min_target_length": (*BAD_WHOLE_NUMBERS, str(LONGEST + 1)),
    "max_target_length": (*BAD_WHOLE_NUMBERS, "0", str(LONGEST + 1)),
    "min_target_ratio": (*BAD_NUMBERS, "100.01"),
    "max_target_ratio": (*BAD_NUMBERS, "0", "100.01"),
    "no_repeat_ngram_size": (*BAD_WHOLE_NUMBERS, str(LONGEST + 1)),
    "repetition_penalty": (*BAD_NUMBERS, "0", "10.01"),
    "loop_guard": BAD_SWITCHES,
    "num_alternatives": (*BAD_WHOLE_NUMBERS, "17"),
    "alignment": BAD_SWITCHES,
    "attention": BAD_SWITCHES,
    "suppress": BAD_TEXTS,
    "target_prefix": BAD_TEXTS,
    "token_scores": BAD_SWITCHES,
    "timeout_ms": (*BAD_WHOLE_NUMBERS, "0"),
    "translation": BAD_TEXTS,
    "format": BAD_CHOICES,
    "splitting": BAD_CHOICES,
    "ignore_tags": BAD_LISTS,
    "splitting_tags": BAD_LISTS,
    "non_splitting_tags": BAD_LISTS,
    "glossary": ("1", "true", '"x"', "[]"),
    "pivot": BAD_SWITCHES,
}
BAD_SAMPLING: dict[str, tuple[str, ...]] = {
    "temperature": (*BAD_NUMBERS, "0", "100.01"),
    "top_k": (*BAD_WHOLE_NUMBERS, "401"),
    "top_p": (*BAD_NUMBERS, "0", "1.01"),
    "seed": (*(value for value in BAD_WHOLE_NUMBERS if value != str(10**6)), str(2**63)),
}
CONTRADICTIONS: list[tuple[dict[str, Any], str, tuple[str, ...]]] = [
    ({"beam_size": 2, "num_hypotheses": 3}, "num_hypotheses", ("num_hypotheses", "beam_size (2)")),
    ({"beam_size": 4, "num_hypotheses": 4, "patience": 0.5}, "num_hypotheses", ("patience", "beam_size")),
    ({"beam_size": 1, "patience": 2}, "patience", ("patience", "beam_size")),
    ({"beam_size": 1, "early_stop": "bound"}, "early_stop", ("early_stop", "beam_size")),
    ({"patience": 2, "early_stop": "bound"}, "patience", ("patience", "early_stop")),
    ({"beam_size": 2, "sampling": {}}, "sampling", ("sampling", "beam_size")),
    ({"num_hypotheses": 17, "sampling": {}}, "num_hypotheses", ("num_hypotheses", "16")),
    (
        {"min_target_length": 9, "max_target_length": 8},
        "min_target_length",
        ("min_target_length", "max_target_length"),
    ),
    (
        {"min_target_ratio": 2, "max_target_ratio": 1.5},
        "min_target_ratio",
        ("min_target_ratio", "max_target_ratio"),
    ),
    (
        {"min_target_length": 40, "max_target_ratio": 1},
        "min_target_length",
        ("min_target_length", "max_target_ratio"),
    ),
    ({"min_target_ratio": 60}, "min_target_ratio", ("min_target_ratio", "max_target_length")),
    (
        {"target_prefix": "Anna sees", "max_target_length": 1},
        "target_prefix",
        ("target_prefix", "max_target_length"),
    ),
    ({"target_prefix": ["Anna", ""]}, "target_prefix", ("target_prefix", "text has 1")),
    ({"target_prefix": "\ue000"}, "target_prefix", ("target_prefix",)),
    ({"suppress": ["Anna", " \n"]}, "suppress[1]", ("suppress[1]", "blank")),
    ({"suppress": ["a b c d e f g h"] * 130}, "suppress", ("suppress", "1024")),
    ({"alignment": True}, "alignment", ("alignment",)),
    ({"coverage_penalty": 0.2}, "coverage_penalty", ("coverage_penalty", "attention")),
]


def refused(client: httpx.Client, path: str, content: bytes, field: str, status: int = 422) -> str:
    """Post an invalid request. Checks the error's status, code and field, and returns its message."""
    answer = client.post(path, content=content, headers=HEADERS)
    assert answer.status_code == status, answer.text
    check_error(answer, "invalid_request" if status == 422 else "payload_too_large", field)
    message: str = answer.json()["error"]["message"]
    return message


def with_raw(fields: dict[str, Any], name: str, value: str) -> bytes:
    """The fields as JSON, with one field added or replaced. value: the verbatim JSON of this field."""
    rest = {key: value_of_key for key, value_of_key in fields.items() if key != name}
    return json.dumps(rest).encode()[:-1] + f', "{name}": {value}}}'.encode()


def test_every_field_has_values_to_refuse() -> None:
    assert {*BAD_VALUES, "text", "source", "target"} == {*TranslateBody.model_fields, *ScoreBody.model_fields}


@pytest.mark.parametrize(
    ("path", "name"),
    [
        *(("/v1/translate", name) for name in BAD_VALUES if name in TranslateBody.model_fields),
        *(("/v1/score", name) for name in BAD_VALUES if name in ScoreBody.model_fields),
    ],
)
def test_a_value_that_the_field_cannot_have(client: httpx.Client, path: str, name: str) -> None:
    base = TRANSLATE if path == "/v1/translate" else SCORE
    for value in BAD_VALUES[name]:
        answer = client.post(path, content=with_raw(base, name, value), headers=HEADERS)
        assert answer.status_code == 422, (value, answer.text)
        error = answer.json()["error"]
        assert error["field"].partition("[")[0] == name, value
        assert name in error["message"], value
    assert client.post(path, content=with_raw(base, name, "NaN"), headers=HEADERS).status_code == 400


@pytest.mark.parametrize("name", list(BAD_SAMPLING))
def test_a_value_that_sampling_cannot_have(client: httpx.Client, name: str) -> None:
    for value in BAD_SAMPLING[name]:
        content = with_raw(TRANSLATE, "sampling", f'{{"{name}": {value}}}')
        message = refused(client, "/v1/translate", content, f"sampling.{name}")
        assert f"sampling.{name}" in message


@pytest.mark.parametrize(("options", "field", "named"), CONTRADICTIONS, ids=lambda value: str(value)[:60])
def test_options_that_contradict_each_other(
    client: httpx.Client, options: dict[str, Any], field: str, named: tuple[str, ...]
) -> None:
    message = refused(client, "/v1/translate", json.dumps({**TRANSLATE, **options}).encode(), field)
    assert all(name in message for name in named), message


@pytest.mark.parametrize(
    ("path", "name"),
    [
        ("/v1/translate", "translation"),
        *(("/v1/score", name) for name in TranslateBody.model_fields if name not in ScoreBody.model_fields),
    ],
)
def test_a_field_of_the_other_route_is_unknown(client: httpx.Client, path: str, name: str) -> None:
    base = TRANSLATE if path == "/v1/translate" else SCORE
    answer = client.post(path, json={**base, name: 1})
    check_error(answer, "invalid_request", None)
    assert "not known" in answer.json()["error"]["message"]


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"translation": ["a", "b"]}, "translation"),
        ({"text": ["a", "b"]}, "translation"),
        ({"text": "  "}, "text[0]"),
        ({"text": ["a", "b"], "translation": ["c", "\u2028\n"]}, "translation[1]"),
        ({"text": ["a", "b"], "translation": ["c", "\ue000"]}, "translation[1]"),
        ({"translation": "Anna sees the river. " * 40}, "translation[0]"),
    ],
)
def test_a_pair_that_cannot_be_scored(client: httpx.Client, changes: dict[str, Any], field: str) -> None:
    refused(client, "/v1/score", json.dumps({**SCORE, **changes}).encode(), field)


def test_a_text_that_is_too_long_for_the_model_is_not_scored(client: httpx.Client) -> None:
    answer = client.post("/v1/score", json={**SCORE, "text": "Anna sees the river. " * 40})
    assert answer.status_code == 422
    check_error(answer, "source_too_long", "text[0]")


def test_the_character_limits_count_every_text_field(client: httpx.Client) -> None:
    """The server accepts 2,000 characters a text and 4,000 characters a request."""
    for path, name in (
        ("/v1/translate", "suppress"),
        ("/v1/translate", "target_prefix"),
        ("/v1/score", "translation"),
    ):
        for text, value, field in (("a", "b" * 2001, name), (["a" * 1999] * 2, ["b" * 1999, "b"], "text")):
            content = {**TRANSLATE, "text": text, name: value}
            message = refused(client, path, json.dumps(content).encode(), field, status=413)
            assert name in message
            assert "limit" in message


def test_an_answer_with_too_many_lists_of_tokens_is_refused(client: httpx.Client) -> None:
    texts = ["Anna sees the river."] * 40
    content = {**TRANSLATE, "text": texts, "num_alternatives": 12}
    message = refused(client, "/v1/translate", json.dumps(content).encode(), "num_alternatives", status=413)
    assert "520" in message
    assert "512" in message
