"""The dialects: how each API formats a request and its response. To support another API, add a `Dialect`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import orjson


class BadAnswerError(Exception):
    """A response with status 200 whose body is not a valid result."""


class StreamError(Exception):
    """A stream that began with status 200 and ended in an error event."""


@dataclass(frozen=True)
class RequestSpec:
    """The content of one request.

    Attributes:
        texts: one or more texts.
        is_array: whether a single text is sent as an array. Several texts always are.
        options: further fields of the body.
    """

    texts: tuple[str, ...]
    is_array: bool = False
    options: Mapping[str, Any] = field(default_factory=dict)

    @property
    def value(self) -> str | list[str]:
        """The texts as a JSON value."""
        return list(self.texts) if self.is_array or len(self.texts) != 1 else self.texts[0]


@dataclass(frozen=True, slots=True)
class ParsedResponse:
    """The content of one response. Token and sentence counts are 0 if the dialect has none."""

    texts: tuple[str, ...]
    num_source_tokens: int = 0
    num_target_tokens: int = 0
    num_sentences: int = 0


class Dialect(Protocol):
    """One API.

    Attributes:
        name: its value for `--dialect`.
        path: below the server's root.
        first_text: byte strings, one of which comes with the first text of a streamed body; empty if responses are not
            streamed.
    """

    name: str
    path: str
    first_text: tuple[bytes, ...]

    def headers(self, api_key: str | None) -> dict[str, str]:
        """The headers besides Host, User-Agent and Content-Length."""
        ...

    def body(self, spec: RequestSpec, source: str, target: str, api_key: str | None) -> bytes:
        """The request's body."""
        ...

    def read(self, body: bytes) -> ParsedResponse:
        """Parse the body of a response with status 200; raises BadAnswerError, StreamError."""
        ...


# Characters after which a server's message is cut.
MAX_ERROR_CHARACTERS = 200
JSON_HEADERS = {"Content-Type": "application/json"}


class NativeDialect:
    """`POST /v1/translate` (docs/http-api.md)."""

    name = "native"
    path = "/v1/translate"
    first_text: tuple[bytes, ...] = ()

    def headers(self, api_key: str | None) -> dict[str, str]:
        """The key is a bearer token."""
        return {**JSON_HEADERS, **({"Authorization": f"Bearer {api_key}"} if api_key else {})}

    def body(self, spec: RequestSpec, source: str, target: str, api_key: str | None) -> bytes:
        """The fields of the native API; the key is in the headers."""
        return orjson.dumps({"text": spec.value, "source": source, "target": target, **spec.options})

    def read(self, body: bytes) -> ParsedResponse:
        """Parse texts and usage; raises BadAnswerError."""
        return _native_answer(_json(body))


class StreamDialect(NativeDialect):
    """`POST /v1/translate/stream`: server-sent events; the last one holds the whole result."""

    name = "stream"
    path = "/v1/translate/stream"
    first_text = (b"event: delta", b"event: segment", b"event: replace")

    def headers(self, api_key: str | None) -> dict[str, str]:
        """The headers of the native dialect, and Accept."""
        return {**super().headers(api_key), "Accept": "text/event-stream"}

    def read(self, body: bytes) -> ParsedResponse:
        """Parse the `done` event; raises BadAnswerError, StreamError."""
        for event in reversed(body.replace(b"\r\n", b"\n").split(b"\n\n")):
            lines = (line.partition(b":") for line in event.split(b"\n"))
            fields = {name: value.removeprefix(b" ") for name, _, value in lines}
            if fields.get(b"event") == b"done":
                return _native_answer(_json(fields.get(b"data", b"")))
            if fields.get(b"event") == b"error":
                raise StreamError
        raise BadAnswerError("the stream ends without a done event")


class RootDialect:
    """`POST /translate`, the API of LibreTranslate (docs/http-dialects.md)."""

    name = "root"
    path = "/translate"
    first_text: tuple[bytes, ...] = ()

    def headers(self, api_key: str | None) -> dict[str, str]:
        """Only the content type; the key is in the body."""
        return JSON_HEADERS

    def body(self, spec: RequestSpec, source: str, target: str, api_key: str | None) -> bytes:
        """`q`, `source`, `target`, `api_key`."""
        fields: dict[str, Any] = {"q": spec.value, "source": source, "target": target, **spec.options}
        return orjson.dumps({**fields, "api_key": api_key} if api_key else fields)

    def read(self, body: bytes) -> ParsedResponse:
        """Parse `translatedText`; raises BadAnswerError."""
        found = _json(body).get("translatedText")
        texts = [found] if isinstance(found, str) else found
        return ParsedResponse(_texts(texts))


class V2Dialect:
    """`POST /v2/translate`, whose key has its own scheme (docs/http-dialects.md)."""

    name = "v2"
    path = "/v2/translate"
    first_text: tuple[bytes, ...] = ()

    def headers(self, api_key: str | None) -> dict[str, str]:
        """The key with the scheme of this API's clients."""
        return {**JSON_HEADERS, **({"Authorization": f"DeepL-Auth-Key {api_key}"} if api_key else {})}

    def body(self, spec: RequestSpec, source: str, target: str, api_key: str | None) -> bytes:
        """The texts are always an array; language codes are in capitals."""
        fields = {"text": list(spec.texts), "source_lang": source.upper(), "target_lang": target.upper()}
        return orjson.dumps({**fields, **spec.options})

    def read(self, body: bytes) -> ParsedResponse:
        """Parse `translations[].text`; raises BadAnswerError."""
        return ParsedResponse(_translations(_json(body)))


DIALECTS: dict[str, Dialect] = {
    dialect.name: dialect for dialect in (NativeDialect(), StreamDialect(), RootDialect(), V2Dialect())
}


def error_message(body: bytes) -> str:
    """The message in the body of an error response of any dialect.

    One line of at most MAX_ERROR_CHARACTERS, without characters that a terminal would obey.
    """
    try:
        found: object = orjson.loads(body)
    except orjson.JSONDecodeError:
        found = body.decode("utf-8", errors="replace")
    for name in ("error", "message"):  # native: error.message; at the root and inference: error; v2: message
        if isinstance(found, dict) and name in found:
            found = found[name]
    text = found if isinstance(found, str) else body.decode("utf-8", errors="replace")
    return "".join(filter(str.isprintable, " ".join(text.split())))[:MAX_ERROR_CHARACTERS]


def _json(body: bytes) -> dict[str, Any]:
    try:
        found = orjson.loads(body)
    except orjson.JSONDecodeError as error:
        raise BadAnswerError("the response is not JSON") from error
    if not isinstance(found, dict):
        raise BadAnswerError("the response is not a JSON object")
    return found


def _texts(found: object) -> tuple[str, ...]:
    if not isinstance(found, list) or not all(isinstance(text, str) for text in found):
        raise BadAnswerError("the response holds no texts")
    return tuple(found)


def _translations(answer: dict[str, Any]) -> tuple[str, ...]:
    found = answer.get("translations")
    if not isinstance(found, Sequence) or not all(isinstance(each, dict) for each in found):
        raise BadAnswerError("the response holds no translations")
    return _texts([each.get("text") for each in found])


def _native_answer(answer: dict[str, Any]) -> ParsedResponse:
    usage = answer.get("usage")
    if not isinstance(usage, dict):
        raise BadAnswerError("the response holds no usage")
    return ParsedResponse(
        _translations(answer),
        num_source_tokens=_count(usage, "source_tokens"),
        num_target_tokens=_count(usage, "target_tokens"),
        num_sentences=_count(usage, "sentences"),
    )


def _count(usage: dict[str, Any], name: str) -> int:
    found = usage.get(name)
    if not isinstance(found, int):
        raise BadAnswerError("the response's usage is not numeric")
    return found
