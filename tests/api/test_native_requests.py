"""A request body becomes the translator's arguments. Absent fields have the model's defaults."""

from __future__ import annotations

from typing import Any

import pytest

from app.api.http.middleware import Requester
from app.api.limits import RequestLimits
from app.api.native.requests import ModelOptions, NativeParser
from app.decoding.options import EXTRA_TARGET_LENGTH, DecodingOptions, LengthPenalty, Sampling
from app.decoding.validation import Bounds
from app.errors import InvalidRequest
from app.text.glossary import Term
from app.translator import ScoreRequest, TranslationRequest

DEFAULTS = DecodingOptions(beam_size=5, length_penalty=LengthPenalty.POWER, alpha=0.3, max_target_length=90)
LIMITS = RequestLimits(
    max_body_bytes=10_000,
    max_items=4,
    max_item_characters=100,
    max_request_characters=200,
    max_beam_size=8,
    max_num_hypotheses=8,
    default_timeout_s=3.0,
    max_timeout_s=6.0,
)
BOUNDS = Bounds(vocab_size=100, eos_id=2, max_target_length=90, max_beam_size=64, has_alignment=True)
PARSER = NativeParser(LIMITS, [ModelOptions(DEFAULTS, BOUNDS)])
REQUESTER = Requester("id", "somebody", 1000.0)


def parsed(**fields: Any) -> TranslationRequest:
    return PARSER.translate({"text": "a", "source": "en", "target": "de", **fields}, REQUESTER)


def scored(**fields: Any) -> ScoreRequest:
    body = {"text": "a", "translation": "b", "source": "en", "target": "de", **fields}
    return PARSER.score(body, REQUESTER)


def test_without_options_the_models_defaults_apply() -> None:
    request = parsed()
    assert request.options.merged(DEFAULTS) == DEFAULTS
    assert request.extra_target_length == EXTRA_TARGET_LENGTH
    assert request.deadline == 1003.0
    assert not request.returns_tokens
    assert (request.suppress, request.target_prefixes) == ((), ())


@pytest.mark.parametrize(
    ("fields", "beam_size"),
    [
        ({"num_hypotheses": 7}, 7),
        ({"num_hypotheses": 3}, 5),
        ({"num_hypotheses": 3, "beam_size": 3}, 3),
        ({"sampling": {}}, 1),
    ],
)
def test_the_default_beam_fits_the_other_options(fields: dict[str, Any], beam_size: int) -> None:
    assert parsed(**fields).options.merged(DEFAULTS).beam_size == beam_size


@pytest.mark.parametrize("fields", [{"max_target_length": 80}, {"max_target_ratio": 20}])
def test_a_maximum_length_in_the_request_replaces_the_default_one(fields: dict[str, Any]) -> None:
    assert parsed(**fields).extra_target_length is None


@pytest.mark.parametrize("fields", [{"token_scores": True}, {"num_alternatives": 1}, {"alignment": True}])
def test_each_of_these_options_returns_tokens(fields: dict[str, Any]) -> None:
    assert parsed(**fields).returns_tokens
    assert scored(**fields).returns_tokens


@pytest.mark.parametrize(
    ("source", "target"),
    [
        ("I want", "می\u200cخواهم"),
        ("5 km", "5\u00a0km"),
        ("人工\u3000知能", "AI"),
        ("क्\u200dष", "Silben\u00adtrennung"),
    ],
)
def test_a_term_may_have_spaces_and_joiners_that_are_not_printable(source: str, target: str) -> None:
    assert parsed(glossary={"terms": {f" {source} ": target}}).terms == (Term(source, target),)


@pytest.mark.parametrize(
    ("terms", "problem"),
    [
        ({"a": "b", " ": "c"}, "term 2 is empty"),
        ({"a": "\u3000"}, "translation of term 1 is empty"),
        ({"a" * 513: "b"}, "term 1 has 513 characters, more than 512"),
        ({"a": "b", "c": "d\u2028e"}, "translation of term 2 has a control character (U+2028)"),
        ({"c": "d\uffff"}, "translation of term 1 has a control character (U+FFFF)"),
    ],
)
def test_a_term_that_a_stored_glossary_refuses_is_refused(terms: dict[str, str], problem: str) -> None:
    with pytest.raises(InvalidRequest) as error:
        parsed(glossary={"terms": terms})
    assert error.value.field == "glossary.terms"
    assert error.value.message == f"glossary.terms is not valid: the {problem}"


def test_sampling_has_its_own_defaults() -> None:
    options = parsed(sampling={"seed": 4, "top_p": 0.5}).options
    assert options.sampling == Sampling(temperature=1.0, top_k=0, top_p=0.5, seed=4)


def test_a_pair_is_scored_with_the_length_penalty_of_the_model() -> None:
    request = scored(timeout_ms=500)
    assert (request.texts, request.translations, request.deadline) == (("a",), ("b",), 1000.5)
    options = request.options.merged(DEFAULTS)
    assert (options.length_penalty, options.alpha) == (LengthPenalty.POWER, 0.3)


def test_the_names_of_ignored_tags_have_no_case_in_html() -> None:
    names = {"format": "html", "ignore_tags": ["CODE", "pre"]}
    assert parsed(**names).xml.ignored == {"code", "pre"}
    assert parsed(**names | {"format": "xml"}).xml.ignored == {"CODE", "pre"}
