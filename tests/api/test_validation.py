"""Pydantic's errors become the server's errors. They name field, limit and size, never the value."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated, Any

import pytest
from pydantic import AfterValidator, Field, ValidationError

from app.api.http.error_table import MAX_BODY_BYTES, error_response
from app.api.http.validation import RequestBody, TolerantBody, request_error, validate
from app.api.native.models import TranslateBody, native_limits
from app.decoding.validation import Bounds
from app.errors import InvalidRequest, PayloadTooLarge, RequestError
from tests.api.test_native_requests import BOUNDS, LIMITS

CONTEXT = native_limits(replace(LIMITS, max_items=128), [BOUNDS])
BASE: dict[str, Any] = {"text": "a", "source": "en", "target": "de"}
CANARY = "Canary7391"


def fail(_value: str) -> str:
    raise ValueError(CANARY)


class Inner(RequestBody):
    size: Annotated[int, Field(ge=1, le=8)] = 1


class Outer(RequestBody):
    inner: Inner | None = None
    several: list[Inner] = Field(default_factory=list)
    checked: Annotated[str, AfterValidator(fail)] = ""


class Required(RequestBody):
    name: str


class Tolerant(TolerantBody):
    inner: Inner | None = None
    target_lang: str = ""


def refused(kind: type[RequestBody], body: object, context: object = None) -> RequestError:
    with pytest.raises(RequestError) as error:
        validate(kind, body, context)
    return error.value


@pytest.mark.parametrize(
    ("body", "field", "message"),
    [
        ({"inner": {"size": 9}}, "inner.size", "inner.size must be at most 8"),
        ({"inner": {"size": 0}}, "inner.size", "inner.size must be at least 1"),
        ({"inner": {"size": 4.0}}, "inner.size", "inner.size must be a whole number"),
        ({"inner": {"size": 1e20}}, "inner.size", "inner.size is too large"),
        ({"inner": {"size": -1e20}}, "inner.size", "inner.size is too large"),
        ({"inner": []}, "inner", "inner must be a JSON object"),
        ({"inner": None}, "inner", "inner must not be null: leave it out"),
        ({"several": [{}, {"size": True}]}, "several[1].size", "several[1].size must be a whole number"),
        ({"inner": {"sizes": 1}}, "inner.sizes", "inner.sizes is not known; did you mean inner.size?"),
        ({"inner": {CANARY: 1}}, "inner", "a field of inner is not known; the known fields are size"),
        ({CANARY: 1}, None, "a field is not known; the known fields are inner, several, checked"),
        ([], None, "the body must be a JSON object"),
        ({"checked": CANARY}, "checked", "checked is not valid"),
    ],
)
def test_an_error_has_the_field_and_the_limit(body: object, field: str | None, message: str) -> None:
    error = refused(Outer, body)
    assert isinstance(error, InvalidRequest)
    assert (error.field, error.message) == (field, message)


def test_a_required_field_must_not_be_left_out_instead_of_null() -> None:
    error = refused(Required, {"name": None})
    assert (error.field, error.message) == ("name", "name must not be null")
    assert refused(Required, {}).message == "name is missing"


def test_a_tolerant_body_ignores_unknown_fields_and_null() -> None:
    assert validate(Tolerant, {"inner": None, "other": [CANARY]}).inner is None


def test_a_tolerant_body_refuses_a_misspelt_field_and_repeats_only_a_plain_name() -> None:
    error = refused(Tolerant, {"inner": {}, "target lang": "DE"})
    assert error.message == "a field is not known; the known fields are inner, target_lang"
    error = refused(Tolerant, {"inner": {}, "target_lan": "DE"})
    assert error.message == "target_lan is not known; did you mean target_lang?"


def test_too_long_texts_are_refused_as_payload_too_large() -> None:
    for text, field in (("a" * 101, "text"), (["a", "b" * 101], "text[1]")):
        error = refused(TranslateBody, {**BASE, "text": text}, CONTEXT)
        assert isinstance(error, PayloadTooLarge)
        assert (error.field, error.message) == (field, f"{field} has 101 characters, the limit is 100")


@pytest.mark.parametrize(
    "changes",
    [
        {"text": [0] * 500_000},
        {f"key {index}": 1 for index in range(100_000)},
        {"sampling": {f"key {index}": 1 for index in range(100_000)}},
        {"glossary": {"terms": {f"term {index}": "a" for index in range(100_000)}}},
        {"source": "e" * 900_000},
    ],
    ids=["items", "fields", "inner fields", "terms", "characters"],
)
def test_a_large_body_is_refused_at_its_first_fault(changes: dict[str, Any]) -> None:
    """Listing every error would block the event loop for hundreds of milliseconds."""
    with pytest.raises(ValidationError) as error:
        TranslateBody.model_validate({**BASE, **changes}, context=CONTEXT)
    assert error.value.error_count() == 1
    refusal = request_error(error.value, TranslateBody)
    assert len(bytes(error_response(refusal, "id").body)) <= MAX_BODY_BYTES


def test_the_models_limits_come_from_its_bounds() -> None:
    bounds = Bounds(vocab_size=50, eos_id=2, max_target_length=30)
    context = native_limits(LIMITS, [bounds])
    assert refused(TranslateBody, {**BASE, "max_target_length": 31}, context).message.endswith("at most 30")
    assert refused(TranslateBody, {**BASE, "sampling": {"top_k": 51}}, context).message.endswith("at most 50")
