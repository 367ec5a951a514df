"""What POST /v1/translate takes and answers, checked by hand.

The checks raise with the field, the limit and the value's size, and never with the value. They run before
anything is done in proportion to a number that the caller chose.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from app.decoding.options import LengthPenalty
from app.errors import InvalidRequest, PayloadTooLarge
from app.translator import Segment, SegmentHypothesis, Translation, TranslationRequest, TranslationResult

MAX_ALPHA = 10.0
MAX_LANGUAGE_CHARACTERS = 35
FIELDS = (
    "text",
    "source",
    "target",
    "beam_size",
    "num_hypotheses",
    "length_penalty",
    "max_target_length",
    "timeout_ms",
)


@dataclass(frozen=True)
class RequestLimits:
    """The server's limits on one request; `app.settings` has their meaning and defaults."""

    max_body_bytes: int
    max_items: int
    max_item_characters: int
    max_request_characters: int
    max_beam_size: int
    max_num_hypotheses: int
    default_timeout_s: float
    max_timeout_s: float


@dataclass(frozen=True)
class Requester:
    """Whose request it is, and when it came, in seconds of time.monotonic."""

    request_id: str
    caller: str
    received_at: float


def parse_translate(
    body: object, limits: RequestLimits, *, requester: Requester, max_target_length: int
) -> TranslationRequest:
    """Check a parsed body. Raises InvalidRequest, PayloadTooLarge.

    max_target_length: the most subwords that the model can be asked for.
    """
    if not isinstance(body, dict):
        raise InvalidRequest("the body must be a JSON object")
    if not body.keys() <= set(FIELDS):
        raise InvalidRequest(f"a field is not known; the fields are {', '.join(FIELDS)}")
    timeout_ms = _integer(body, "timeout_ms", 1, math.floor(limits.max_timeout_s * 1000))
    timeout_s = limits.default_timeout_s if timeout_ms is None else timeout_ms / 1000
    beam_size = _integer(body, "beam_size", 1, limits.max_beam_size)
    num_hypotheses = _integer(body, "num_hypotheses", 1, limits.max_num_hypotheses) or 1
    if beam_size is not None and num_hypotheses > beam_size:
        raise InvalidRequest(
            f"num_hypotheses ({num_hypotheses}) must not be above beam_size ({beam_size})",
            field="num_hypotheses",
        )
    formula, alpha = _length_penalty(body)
    return TranslationRequest(
        texts=_texts(body, limits),
        source=_source(body),
        target=_language(body, "target"),
        request_id=requester.request_id,
        caller=requester.caller,
        deadline=requester.received_at + timeout_s,
        beam_size=beam_size,
        num_hypotheses=num_hypotheses,
        length_penalty=formula,
        alpha=alpha,
        max_target_length=_integer(body, "max_target_length", 1, max_target_length),
    )


def _texts(body: dict[str, object], limits: RequestLimits) -> tuple[str, ...]:
    """`text`: a string or an array of strings, within the limits on items and characters."""
    given = body.get("text")
    if isinstance(given, str):
        items: list[object] = [given]
    elif isinstance(given, list):
        items = given
    else:
        raise InvalidRequest("text must be a string or an array of strings", field="text")
    if not items:
        raise InvalidRequest("text must hold at least one string", field="text")
    if len(items) > limits.max_items:
        raise PayloadTooLarge(f"text has {len(items)} items, the limit is {limits.max_items}", field="text")
    texts: list[str] = []
    for index, item in enumerate(items):
        name = f"text[{index}]" if isinstance(given, list) else "text"
        if not isinstance(item, str):
            raise InvalidRequest(f"{name} must be a string", field=name)
        if len(item) > limits.max_item_characters:
            raise PayloadTooLarge(
                f"{name} has {len(item)} characters, the limit is {limits.max_item_characters}", field=name
            )
        texts.append(item)
    total = sum(map(len, texts))
    if total > limits.max_request_characters:
        raise PayloadTooLarge(
            f"text has {total} characters in all, the limit is {limits.max_request_characters}", field="text"
        )
    return tuple(texts)


def _source(body: dict[str, object]) -> str:
    source = _language(body, "source")
    if source == "auto":
        raise InvalidRequest("the source language is not detected here: name it", field="source")
    return source


def _language(body: dict[str, object], name: str) -> str:
    """A language code; whether there is such a pair is the translator's to say."""
    value = body.get(name)
    if not isinstance(value, str) or not 0 < len(value) <= MAX_LANGUAGE_CHARACTERS:
        raise InvalidRequest(f"{name} must be a language code, such as en", field=name)
    return value


def _integer(body: dict[str, object], name: str, low: int, high: int) -> int | None:
    """A whole number within low..high, or None where the field is absent. A boolean is none."""
    if name not in body:
        return None
    value = body[name]
    if type(value) is not int:
        raise InvalidRequest(f"{name} must be a whole number from {low} to {high}", field=name)
    if not low <= value <= high:
        raise InvalidRequest(f"{name} must be from {low} to {high}", field=name)
    return value


def _length_penalty(body: dict[str, object]) -> tuple[LengthPenalty | None, float | None]:
    """A number (the exponent of the model's own formula) or an object with `formula` and `alpha`."""
    if "length_penalty" not in body:
        return None, None
    value = body["length_penalty"]
    if not isinstance(value, dict):
        return None, _alpha(value)
    if value.keys() != {"formula", "alpha"}:
        raise InvalidRequest(
            "length_penalty must have formula and alpha, and no more", field="length_penalty"
        )
    names = [str(known) for known in LengthPenalty]
    if value["formula"] not in names:
        raise InvalidRequest(
            f"length_penalty.formula must be one of {', '.join(names)}", field="length_penalty.formula"
        )
    return LengthPenalty(value["formula"]), _alpha(value["alpha"])


def _alpha(value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= MAX_ALPHA:
        raise InvalidRequest(
            f"length_penalty must be a number from 0 to {MAX_ALPHA:g}", field="length_penalty"
        )
    return float(value)


def translate_answer(
    result: TranslationResult, *, model: dict[str, str], request: TranslationRequest
) -> object:
    """The answer's JSON."""
    is_nbest = request.num_hypotheses > 1
    return {
        "translations": [_translation(each, request.source, is_nbest) for each in result.translations],
        "model": model,
        "usage": {
            "source_tokens": result.source_tokens,
            "target_tokens": result.target_tokens,
            "sentences": result.num_sentences,
        },
    }


def _translation(translation: Translation, source: str, is_nbest: bool) -> dict[str, object]:
    answer: dict[str, object] = {
        "text": translation.text,
        "source": source,
        "segments": [_segment(segment, is_nbest) for segment in translation.segments],
    }
    if is_nbest:
        answer["hypotheses"] = [{"text": text} for text in translation.hypotheses]
    return answer


def _segment(segment: Segment, is_nbest: bool) -> dict[str, object]:
    best = segment.hypotheses[0]
    answer: dict[str, object] = {
        "source": {"start": segment.source[0], "end": segment.source[1]},
        "target": {"start": segment.target[0], "end": segment.target[1]},
        "score": best.score,
        "finish_reason": str(best.finish_reason),
    }
    if is_nbest:
        answer["hypotheses"] = [_hypothesis(each) for each in segment.hypotheses]
    return answer


def _hypothesis(hypothesis: SegmentHypothesis) -> dict[str, object]:
    return {
        "text": hypothesis.text,
        "score": hypothesis.score,
        "finish_reason": str(hypothesis.finish_reason),
    }
