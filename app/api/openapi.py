"""The description of the native API, written by hand as its checks are, and the page made of it."""

from __future__ import annotations

import html
from typing import Any

from app.api.native_schema import FIELDS

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
_FINISH: Json = {"type": "string", "enum": ["stop", "length"]}
_HYPOTHESIS = _object(
    {"text": _STRING, "score": {"type": "number"}, "finish_reason": _FINISH}, ("text", "score")
)
_SEGMENT = _object(
    {
        "source": _SPAN,
        "target": _SPAN,
        "score": {"type": "number", "description": "log-probability over the length penalty"},
        "finish_reason": _FINISH,
        "hypotheses": _array(_HYPOTHESIS),
    },
    ("source", "target", "score", "finish_reason"),
)
_TRANSLATION = _object(
    {
        "text": _STRING,
        "source": _STRING,
        "segments": _array(_SEGMENT),
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
_PROPERTIES: Json = {
    "text": {"oneOf": [_STRING, {**_array(_STRING), "minItems": 1}], "description": "one text, or several"},
    "source": {**_STRING, "description": "language code of the texts"},
    "target": {**_STRING, "description": "language code to translate into"},
    "beam_size": {**_COUNT, "maximum": 16, "description": "hypotheses kept alive; 1 is greedy"},
    "num_hypotheses": {**_COUNT, "maximum": 16, "default": 1, "description": "how many are returned"},
    "length_penalty": {
        "description": "exponent of the model's formula, or a formula by name: wu ((5 + n) / 6)^alpha, power n^alpha",
        "oneOf": [
            {"type": "number", "minimum": 0, "maximum": 10},
            _object(
                {
                    "formula": {"type": "string", "enum": ["wu", "power"]},
                    "alpha": {"type": "number", "minimum": 0, "maximum": 10},
                },
                ("formula", "alpha"),
            ),
        ],
    },
    "max_target_length": {**_COUNT, "description": "most subwords of a sentence's translation"},
    "timeout_ms": {**_COUNT, "description": "deadline of the request"},
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
TRANSLATE: Json = {
    "requestBody": {
        "required": True,
        "content": {"application/json": {"schema": _object(_PROPERTIES, ("text", "source", "target"))}},
    },
    "responses": {
        "200": _answer(
            "one translation a text, in order",
            _object(
                {
                    "translations": _array(_TRANSLATION),
                    "model": _MODEL,
                    "usage": _object(
                        {
                            "source_tokens": {"type": "integer"},
                            "target_tokens": {"type": "integer"},
                            "sentences": {"type": "integer"},
                        }
                    ),
                },
                ("translations", "model", "usage"),
            ),
        ),
        **{status: _answer(meaning, _ERROR) for status, meaning in _REFUSALS.items()},
    },
}
MODELS: Json = {
    "responses": {"200": _answer("the models", _object({"models": {"type": "array"}}, ("models",)))}
}
PROBE: Json = {
    "responses": {
        "200": _answer("yes", _object({"status": _STRING}, ("status",))),
        "503": _answer("no, and why", _object({"status": _STRING}, ("status",))),
    }
}
_STYLE = (
    "body{font:16px/1.5 system-ui,sans-serif;max-width:52rem;margin:2rem auto;padding:0 1rem;color:#222;"
    "background:#fff}code{background:#eee;padding:0 .2em}td,th{text-align:left;vertical-align:top;"
    "padding:.2rem 1rem .2rem 0}"
)


def docs_page(document: Json) -> str:
    """The document's routes as one HTML page, without a script or anything to load."""
    parts = [
        f'<!doctype html><html lang="en"><meta charset="utf-8"><title>API</title><style>{_STYLE}</style>'
    ]
    parts.append(f"<h1>{html.escape(document['info']['title'])}</h1>")
    parts.append('<p>The same for programs: <a href="openapi.json">openapi.json</a>.</p>')
    for path, operations in document["paths"].items():
        for method, operation in operations.items():
            parts.append(f"<h2><code>{method.upper()} {html.escape(path)}</code></h2>")
            parts.append(f"<p>{html.escape(operation.get('summary', ''))}</p>")
            if "requestBody" in operation:
                parts.append(_fields_table())
            parts.append(
                _table("status", {code: row["description"] for code, row in operation["responses"].items()})
            )
    return "".join(parts)


def _fields_table() -> str:
    return _table("field", {name: _PROPERTIES[name]["description"] for name in FIELDS})


def _table(head: str, rows: dict[str, str]) -> str:
    cells = "".join(
        f"<tr><td><code>{html.escape(name)}</code></td><td>{html.escape(meaning)}</td></tr>"
        for name, meaning in rows.items()
    )
    return f"<table><tr><th>{head}</th><th></th></tr>{cells}</table>"
