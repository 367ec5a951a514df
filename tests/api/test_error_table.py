"""Every error has one response, whose size is limited."""

from __future__ import annotations

from collections.abc import Iterator

import orjson
import pytest

from app.api.http.error_table import ANSWERS, MAX_BODY_BYTES, answer_to, error_body, error_response
from app.api.simple import routes as simple
from app.errors import (
    CrossSite,
    InvalidRequest,
    Overloaded,
    QuotaExceeded,
    RequestError,
    RetryLater,
    ServiceError,
    Unauthorized,
)
from app.observability.logging import frames_of

ABSTRACT: set[type[ServiceError]] = {ServiceError, RequestError, RetryLater}


def subclasses(kind: type[ServiceError]) -> Iterator[type[ServiceError]]:
    yield kind
    for child in kind.__subclasses__():
        yield from subclasses(child)


def make(kind: type[ServiceError]) -> ServiceError:
    if kind is Unauthorized:
        return Unauthorized("no", is_wrong_key=False)
    if issubclass(kind, RetryLater):
        return kind("full", retry_after_s=0.2)
    return kind("no")


def test_the_table_has_exactly_the_concrete_errors() -> None:
    assert set(subclasses(ServiceError)) - ABSTRACT == set(ANSWERS)


def test_codes_are_unique() -> None:
    codes = [answer.code for answer in ANSWERS.values()]
    assert len(codes) == len(set(codes))


@pytest.mark.parametrize("kind", ANSWERS, ids=lambda kind: kind.__name__)
def test_status_and_class_agree(kind: type[ServiceError]) -> None:
    response = error_response(make(kind), "id")
    is_callers_fault = issubclass(kind, RequestError | Unauthorized | CrossSite | Overloaded | QuotaExceeded)
    assert response.status_code == ANSWERS[kind].status
    if ANSWERS[kind].status != 499:  # the caller has disconnected; its request has no fault
        assert is_callers_fault == (400 <= response.status_code < 500)
    assert ("retry-after" in response.headers) == issubclass(kind, RetryLater)
    assert orjson.loads(bytes(response.body))["error"]["code"] == ANSWERS[kind].code


def test_a_wrong_key_and_a_missing_one_have_different_statuses() -> None:
    assert answer_to(Unauthorized("", is_wrong_key=False)).status == 401
    assert answer_to(Unauthorized("", is_wrong_key=True)).status == 403


def test_retry_after_is_whole_seconds_and_never_zero() -> None:
    assert error_response(Overloaded("", retry_after_s=0.01), "").headers["retry-after"] == "1"
    assert error_response(Overloaded("", retry_after_s=7.2), "").headers["retry-after"] == "8"
    at_once = Overloaded("", retry_after_s=0.0)
    for response in (error_response(at_once, ""), simple.DIALECT.error_response(at_once)):
        assert response.headers["retry-after"] == "1"


@pytest.mark.parametrize("character", ["x", '"', "\u00e9", "\x01"])
def test_a_body_is_never_longer_than_the_limit(character: str) -> None:
    body = error_body("code", character * 5000, "r" * 64, field=character * 5000)
    assert len(body) <= MAX_BODY_BYTES
    assert orjson.loads(body)["error"]["message"]


def test_an_invalid_field_is_named() -> None:
    body = orjson.loads(bytes(error_response(InvalidRequest("no", field="text[3]"), "id").body))
    assert body == {
        "error": {"code": "invalid_request", "message": "no", "request_id": "id", "field": "text[3]"}
    }


def test_a_log_of_an_exception_holds_places_and_no_values() -> None:
    try:
        try:
            dict[str, int]()["user text"]
        except KeyError as cause:
            raise ValueError("user text") from cause
    except ValueError as error:
        places = frames_of(error)
    assert [place for place in places if "Error" in place] == ["ValueError", "KeyError"]
    assert any("test_error_table.py" in place for place in places)
    assert "user text" not in "".join(places)


def test_a_body_of_the_largest_size_keeps_its_whole_message() -> None:
    room = MAX_BODY_BYTES - len(error_body("invalid_request", "", "id"))
    message = "\\" * (room // 2) + "a" * (room % 2)  # in JSON a backslash has two bytes
    body = error_body("invalid_request", message, "id")
    assert len(body) == MAX_BODY_BYTES
    assert orjson.loads(body)["error"]["message"] == message
