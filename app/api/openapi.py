"""The description of the native API, written by hand as its checks are."""

from __future__ import annotations

from typing import Any

from app.api.native.options import NUMBERS
from app.api.native.schema import SCORED_FIELDS
from app.api.native.text_fields import MAX_TAGS, MAX_TERMS
from app.decoding.validation import MAX_ALPHA, MAX_SEED
from app.text.parsed_text import Splitting, TextFormat
from app.text.segments import Fallback

Json = dict[str, Any]


def _object(properties: Json, required: tuple[str, ...] = ()) -> Json:
    return {
        "type": "object",
        "properties": properties,
        "required": list(required),
        "additionalProperties": False,
    }


def _array(items: Json) -> Json:
    return {"type": "array", "items": items}


def _answer(description: str, schema: Json) -> Json:
    return {"description": description, "content": {"application/json": {"schema": schema}}}


_STRING: Json = {"type": "string"}
_COUNT: Json = {"type": "integer", "minimum": 1}
_SPAN = _object(
    {
        "start": {"type": "integer"},
        "end": {"type": "integer", "description": "exclusive; both count code points"},
    },
    ("start", "end"),
)
_FINISH: Json = {
    "type": "string",
    "enum": ["stop", "length", "constraint", "source", "repetition"],
    "description": "the end token, the limit on the length, options that left nothing to say, nothing was said and the "
    "source stands, or a repetition of the source that is not said as often",
}
_LOG_PROBABILITY: Json = {"type": "number", "description": "natural logarithm"}
_SUBWORD: Json = {"type": ["string", "null"], "description": "null: the end of the sentence"}
_TOKEN = _object(
    {
        "text": _SUBWORD,
        "target": {**_SPAN, "description": "where it stands in the translation"},
        "log_probability": _LOG_PROBABILITY,
        "source": {**_SPAN, "description": "the subword of the text that it pays most attention to"},
        "attention": {"type": "number", "description": "how much, 0 to 1"},
        "weights": {
            **_array({"type": "number"}),
            "description": "with attention: how much it pays to each of source_tokens, 0 to 1",
        },
        "alternatives": {
            **_array(
                _object({"text": _SUBWORD, "log_probability": _LOG_PROBABILITY}, ("text", "log_probability"))
            ),
            "description": "the most probable in this place, before any constraint, best first",
        },
    },
    ("text", "target", "log_probability"),
)
_SCORE: Json = {
    "type": "number",
    "description": "log_probability over the length penalty, with the coverage penalty",
}
_TOLD: Json = {
    "score": _SCORE,
    "finish_reason": _FINISH,
    "log_probability": {**_LOG_PROBABILITY, "description": "summed over the tokens; only with tokens"},
    "tokens": {**_array(_TOKEN), "description": "with token_scores, num_alternatives or alignment"},
}
_SOURCE_TOKENS: Json = {
    **_array(_SPAN),
    "description": "with attention: the text's subwords; empty spans are end tokens and parts of characters",
}
_SEGMENT = _object(
    {
        "source": _SPAN,
        "target": _SPAN,
        **_TOLD,
        "source_tokens": _SOURCE_TOKENS,
        "is_part": {"type": "boolean", "description": "of a sentence that is too long for the model at once"},
        "fallbacks": {
            **_array({"type": "string", "enum": [fallback.value for fallback in Fallback]}),
            "description": "what its translation needed beyond the model's own doing",
        },
        "changed_numbers": {
            **_object({"missing": _array(_STRING), "added": _array(_STRING)}, ("missing", "added")),
            "description": "numbers that its translation lacks, and that it added",
        },
        "has_looped": {"type": "boolean", "description": "with loop_guard: it was decoded twice"},
        "hypotheses": _array(_object({"text": _STRING, **_TOLD}, ("text", "score", "finish_reason"))),
    },
    ("source", "target", "score", "finish_reason"),
)
_TRANSLATION = _object(
    {
        "text": _STRING,
        "source": {**_STRING, "description": "its language, as given or detected"},
        "confidence": {"type": "number", "description": "with source auto: of the detection, 0 to 1"},
        "segments": _array(_SEGMENT),
        "glossary_hits": {
            **_array(
                _object(
                    {"source": _SPAN, "term": _STRING, "translation": _STRING},
                    ("source", "term", "translation"),
                )
            ),
            "description": "with glossary: the terms that stand in the translation",
        },
        "hypotheses": _array(_object({"text": _STRING}, ("text",))),
    },
    ("text", "source", "segments"),
)
_MODEL = _object({"name": _STRING, "version": _STRING}, ("name", "version"))
_ERROR = _object(
    {
        "error": _object(
            {"code": _STRING, "message": _STRING, "request_id": _STRING, "field": _STRING},
            ("code", "message", "request_id"),
        )
    },
    ("error",),
)


def _number(name: str, description: str, default: float | None = None) -> Json:
    low, high = NUMBERS[name]
    default_of = {} if default is None else {"default": default}
    return {"type": "number", "minimum": low, "maximum": high, "description": description, **default_of}


_TEXTS: Json = {"oneOf": [_STRING, {**_array(_STRING), "minItems": 1}]}
_TAGS: Json = {**_array(_STRING), "maxItems": MAX_TAGS}
_ALPHA: Json = {"type": "number", "minimum": 0, "maximum": MAX_ALPHA}
_SWITCH: Json = {"type": "boolean", "default": False}
_LENGTH: Json = {"type": "integer", "minimum": 0, "default": 0}
TRANSLATE_PROPERTIES: Json = {
    "text": {**_TEXTS, "description": "one text, or several"},
    "source": {**_STRING, "description": "language code of the texts; auto: detected, text by text"},
    "target": {**_STRING, "description": "language code to translate into"},
    "format": {
        "enum": [text_format.value for text_format in TextFormat],
        "default": "text",
        "description": "what the texts are written in",
    },
    "splitting": {
        "enum": [splitting.value for splitting in Splitting],
        "default": "sentences",
        "description": "sentences end at line breaks too, at line breaks not, or nowhere but at line breaks",
    },
    "ignore_tags": {**_TAGS, "description": "elements whose content is not translated; of html and xml"},
    "splitting_tags": {**_TAGS, "description": "elements of xml at which a sentence always ends"},
    "non_splitting_tags": {**_TAGS, "description": "elements of xml at which none ends"},
    "glossary": {
        "description": "terms and what stands for them in the translation: a stored glossary, or terms given here",
        "oneOf": [
            _object({"id": _STRING}, ("id",)),
            _object(
                {
                    "terms": {
                        "type": "object",
                        "additionalProperties": _STRING,
                        "minProperties": 1,
                        "maxProperties": MAX_TERMS,
                    }
                },
                ("terms",),
            ),
        ],
    },
    "beam_size": {**_COUNT, "maximum": 16, "description": "hypotheses kept alive; 1 is greedy"},
    "num_hypotheses": {
        **_COUNT,
        "maximum": 16,
        "default": 1,
        "description": "how many are returned; with sampling how many are drawn",
    },
    "patience": _number("patience", "beam_size times this many complete hypotheses end the search", 1),
    "early_stop": {
        "enum": ["first", "bound"],
        "default": "first",
        "description": "a search ends at the first complete hypotheses, or when no better one can come",
    },
    "sampling": {
        **_object(
            {
                "temperature": {"type": "number", "minimum": 0.01, "maximum": 100, "default": 1},
                "top_k": {"type": "integer", "minimum": 0, "default": 0},
                "top_p": {"type": "number", "minimum": 0.001, "maximum": 1, "default": 1},
                "seed": {"type": "integer", "minimum": 0, "maximum": MAX_SEED},
            }
        ),
        "description": "draw each subword by its probability; needs beam_size 1; without a seed anew each time; "
        "sample k of num_hypotheses, counted from 0, is what seed + k draws",
    },
    "length_penalty": {
        "description": "exponent of the model's formula, or a formula by name: wu ((5 + n) / 6)^alpha, power n^alpha",
        "oneOf": [
            _ALPHA,
            _object(
                {"formula": {"type": "string", "enum": ["wu", "power"]}, "alpha": _ALPHA},
                ("formula", "alpha"),
            ),
        ],
    },
    "coverage_penalty": _number("coverage_penalty", "weight of the source that no attention was paid to", 0),
    "min_target_length": {**_LENGTH, "description": "fewest subwords of a sentence's translation"},
    "max_target_length": {**_COUNT, "description": "most subwords of a sentence's translation"},
    "min_target_ratio": _number("min_target_ratio", "fewest, as a multiple of the source's subwords", 0),
    "max_target_ratio": _number("max_target_ratio", "most, as a multiple of the source's subwords"),
    "no_repeat_ngram_size": {
        **_LENGTH,
        "description": "no so many subwords in a row stand there twice; 0: off",
    },
    "repetition_penalty": _number(
        "repetition_penalty", "factor of the log-probability of what was said before", 1
    ),
    "loop_guard": {
        **_SWITCH,
        "description": "end translations that go round in circles and decode them once more",
    },
    "num_alternatives": {
        **_LENGTH,
        "maximum": 16,
        "description": "tell tokens, each with so many that could have stood there",
    },
    "alignment": {**_SWITCH, "description": "tell tokens, each with the part of the text that it comes from"},
    "suppress": {**_TEXTS, "description": "words or phrases that no translation contains"},
    "target_prefix": {**_TEXTS, "description": "what the translation of each text begins with"},
    "token_scores": {**_SWITCH, "description": "tell tokens, each with its log-probability"},
    "attention": {
        **_SWITCH,
        "description": "with alignment: and each token's weight for every subword of the text",
    },
    "timeout_ms": {**_COUNT, "description": "deadline of the request"},
}
SCORE_PROPERTIES: Json = {
    name: TRANSLATE_PROPERTIES.get(name, {**_TEXTS, "description": "one translation for each text"})
    for name in SCORED_FIELDS
}
_REFUSALS: Json = {
    "400": "not JSON in UTF-8",
    "401": "no API key",
    "403": "an unknown API key",
    "413": "too many bytes, texts, characters or sentences",
    "415": "another content type than application/json",
    "422": "a field that is unknown, missing or outside its limits, or a language pair that is not served",
    "429": "the queue is full; see Retry-After",
    "500": "the engine failed",
    "503": "loading, draining or dead; see Retry-After",
    "504": "the deadline passed",
}
_USAGE = _object(
    {
        "source_tokens": {"type": "integer"},
        "target_tokens": {"type": "integer"},
        "sentences": {"type": "integer"},
    }
)


def _route(properties: Json, required: tuple[str, ...], description: str, answer: Json) -> Json:
    """A route that takes an object of these properties; answer: its answer's, beside model and usage."""
    schema = _object({**answer, "model": _MODEL, "usage": _USAGE}, (next(iter(answer)), "model", "usage"))
    return _taking(properties, required, description, schema)


def _taking(properties: Json, required: tuple[str, ...], description: str, schema: Json) -> Json:
    return {
        "requestBody": {
            "required": True,
            "content": {"application/json": {"schema": _object(properties, required)}},
        },
        "responses": {
            "200": _answer(description, schema),
            **{status: _answer(meaning, _ERROR) for status, meaning in _REFUSALS.items()},
        },
    }


TRANSLATE = _route(
    TRANSLATE_PROPERTIES,
    ("text", "source", "target"),
    "one translation a text, in order",
    {
        "translations": _array(_TRANSLATION),
        "seed": {"type": "integer", "description": "with sampling: draws the same again"},
    },
)
SCORE = _route(
    SCORE_PROPERTIES,
    ("text", "translation", "source", "target"),
    "one score a pair, in order",
    {
        "scores": _array(
            _object(
                {
                    "log_probability": _LOG_PROBABILITY,
                    "score": _SCORE,
                    "num_tokens": {"type": "integer", "description": "subwords, the end token counted"},
                    "tokens": _TOLD["tokens"],
                    "source_tokens": _SOURCE_TOKENS,
                },
                ("log_probability", "score", "num_tokens"),
            )
        )
    },
)
_CONFIDENCE: Json = {"type": "number", "description": "0 to 1"}
DETECT = _taking(
    {"text": TRANSLATE_PROPERTIES["text"]},
    ("text",),
    "one detection a text, in order",
    _object(
        {
            "detections": _array(
                _object(
                    {
                        "language": {"type": ["string", "null"], "description": "null: there are no letters"},
                        "confidence": _CONFIDENCE,
                        "candidates": _array(
                            _object(
                                {"language": _STRING, "confidence": _CONFIDENCE}, ("language", "confidence")
                            )
                        ),
                    },
                    ("language", "confidence", "candidates"),
                )
            )
        },
        ("detections",),
    ),
)
MODELS: Json = {
    "responses": {"200": _answer("the models", _object({"models": {"type": "array"}}, ("models",)))}
}
PROBE: Json = {
    "responses": {
        "200": _answer("yes", _object({"status": _STRING}, ("status",))),
        "503": _answer("no, and why", _object({"status": _STRING}, ("status",))),
    }
}
