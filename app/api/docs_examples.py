"""What stands at first in the form of each route on the page of the API, and what a route without a schema is for."""

from __future__ import annotations

from typing import Any, NamedTuple

Json = dict[str, Any]


class Example(NamedTuple):
    """A request. query: behind the path. body: JSON, or the other fields of a form that takes a file."""

    summary: str
    body: Json | None = None
    query: str = ""
    takes_file: bool = False


_TEXT = "Where is the station?"
_PAIR = {"source": "en", "target": "de"}
_V2_PAIR = {"source_lang": "en", "target_lang": "de"}
_KEY: Json = {"document_key": ""}
_INFER: Json = {
    "inputs": [{"name": "text", "datatype": "BYTES", "shape": [1], "data": [_TEXT]}],
    "parameters": _PAIR,
}
_MODEL_ROUTES = {
    ("GET", "{}"): Example("The model: its inputs and outputs"),
    ("GET", "{}/ready"): Example("Whether the model takes requests"),
    ("POST", "{}/infer"): Example("Translate a tensor of texts", _INFER),
}
# Method and path.
EXAMPLES: dict[tuple[str, str], Example] = {
    ("POST", "/v1/translate"): Example("", {"text": _TEXT, **_PAIR}),
    ("POST", "/v1/translate/stream"): Example("", {"text": f"{_TEXT} It is late.", **_PAIR, "beam_size": 1}),
    ("POST", "/v1/score"): Example("", {"text": "It is late.", "translation": "Es ist spät.", **_PAIR}),
    ("POST", "/v1/detect"): Example("", {"text": ["Where is the station?", "Wo ist der Bahnhof?"]}),
    ("POST", "/translate"): Example("Translate one text or several", {"q": _TEXT, **_PAIR}),
    ("POST", "/detect"): Example("Which language a text is in", {"q": _TEXT}),
    ("POST", "/suggest"): Example("Refused: no suggestions are taken", {"q": _TEXT, "s": "", **_PAIR}),
    ("POST", "/translate_file"): Example(
        "Translate a file in its format; the answer names where it is then", _PAIR, takes_file=True
    ),
    ("GET", "/download_file/{name}"): Example("A translated file, by the name that /translate_file told"),
    ("GET", "/languages"): Example("The languages, each with those that it is translated into"),
    ("GET", "/health"): Example("Whether the server takes requests"),
    ("GET", "/frontend/settings"): Example("What a page has to know of the server"),
    ("POST", "/v2/translate"): Example("Translate one text or several", {"text": [_TEXT], **_V2_PAIR}),
    ("GET", "/v2/languages"): Example(
        "The languages of texts, or with type=target those of translations", query="?type=target"
    ),
    ("GET", "/v2/usage"): Example("Characters that this key had translated, and how many it may"),
    ("POST", "/v2/document"): Example(
        "Translate a file; the answer has its id and key", _V2_PAIR, takes_file=True
    ),
    ("GET", "/v2/document/{document_id}"): Example("How far a file is", query="?document_key="),
    ("POST", "/v2/document/{document_id}"): Example("How far a file is", _KEY),
    ("GET", "/v2/document/{document_id}/result"): Example("The translated file", query="?document_key="),
    ("POST", "/v2/document/{document_id}/result"): Example("The translated file", _KEY),
    ("GET", "/v2/glossary-language-pairs"): Example("The pairs that a glossary can be of"),
    ("GET", "/v2/glossaries"): Example("This key's glossaries"),
    ("POST", "/v2/glossaries"): Example(
        "Make a glossary",
        {"name": "Travel", **_V2_PAIR, "entries_format": "tsv", "entries": "station\tHaltestelle"},
    ),
    ("GET", "/v2/glossaries/{glossary_id}"): Example("One glossary"),
    ("GET", "/v2/glossaries/{glossary_id}/entries"): Example("Its terms, as tab-separated values"),
    ("DELETE", "/v2/glossaries/{glossary_id}"): Example("Delete it"),
    ("GET", "/v2"): Example("The server and the extensions of the protocol that it knows"),
    ("GET", "/v2/health/live"): Example("Whether this process works"),
    ("GET", "/v2/health/ready"): Example("Whether traffic should come here"),
    **{
        (method, path.format(base)): example
        for base in ("/v2/models/{name}", "/v2/models/{name}/versions/{number}")
        for (method, path), example in _MODEL_ROUTES.items()
    },
    ("GET", "/openapi.json"): Example("The description of the native API"),
}
