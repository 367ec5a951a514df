"""How each API words a request and its answer. Another server is one more `Dialect`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import orjson


class BadAnswerError(Exception):
    """A 200 whose body is no answer to what was spec."""


class StreamError(Exception):
    """A stream that began well and ended in an error event."""


@dataclass(frozen=True)
class RequestSpec:
    """What one request asks for.

    Attributes:
        texts: one or several; an empty tuple is never spec.
        is_array: several go as an array, one may too.
        options: further fields of the body.
    """

    texts: tuple[str, ...]
    is_array: bool = False
    options: Mapping[str, Any] = field(default_factory=dict)

    @property
    def value(self) -> str | list[str]:
        """The texts as they stand in a body."""
        return list(self.texts) if self.is_array or len(self.texts) != 1 else self.texts[0]


@dataclass(frozen=True, slots=True)
class ParsedResponse:
    """What an answer tells. Token and sentence counts are 0 where the dialect tells none."""

    texts: tuple[str, ...]
    num_source_tokens: int = 0
    num_target_tokens: int = 0
    num_sentences: int = 0


class Dialect(Protocol):
    """One API.

    Attributes:
        name: as `--dialect` takes it.
        path: below the server's root.
        first_text: what stands in a streamed body once it holds text; empty where answers come whole.
    """

    name: str
    path: str
    first_text: tuple[bytes, ...]

    def headers(self, api_key: str | None) -> dict[str, str]:
        """Beside Host and Content-Length."""
        ...

    def body(self, spec: RequestSpec, source: str, target: str, api_key: str | None) -> bytes:
        """The request's body."""
        ...

    def read(self, body: bytes) -> ParsedResponse:
        """Read a 200's body; raises BadAnswerError, StreamError."""
        ...


MAX_ERROR_CHARACTERS = 200
JSON_HEADERS = {"Content-Type": "application/json"}


class NativeDialect:
    """`POST /v1/translate` (docs/http-api.md)."""

    name = "native"
    path = "/v1/translate"
    first_text: tuple[bytes, ...] = ()

    def headers(self, api_key: str | None) -> dict[str, str]:
        """The key as a bearer token."""
        return {**JSON_HEADERS, **({"Authorization": f"Bearer {api_key}"} if api_key else {})}

    def body(self, spec: RequestSpec, source: str, target: str, api_key: str | None) -> bytes:
        """The key is in the headers."""
        return orjson.dumps({"text": spec.value, "source": source, "target": target, **spec.options})

    def read(self, body: bytes) -> ParsedResponse:
        """Texts and usage; raises BadAnswerError."""
        return _native_answer(_json(body))


class StreamDialect(NativeDialect):
    """`POST /v1/translate/stream`: server-sent events, the last of which is the whole answer."""

    name = "stream"
    path = "/v1/translate/stream"
    first_text = (b"event: delta", b"event: segment", b"event: replace")

    def headers(self, api_key: str | None) -> dict[str, str]:
        """As of the native dialect, and what is wanted back."""
        return {**super().headers(api_key), "Accept": "text/event-stream"}

    def read(self, body: bytes) -> ParsedResponse:
        """The `done` event; raises BadAnswerError, StreamError."""
        for event in reversed(body.replace(b"\r\n", b"\n").split(b"\n\n")):
            lines = (line.partition(b":") for line in event.split(b"\n"))
            fields = {name: value.removeprefix(b" ") for name, _, value in lines}
            if fields.get(b"event") == b"done":
                return _native_answer(_json(fields.get(b"data", b"")))
            if fields.get(b"event") == b"error":
                raise StreamError
        raise BadAnswerError("the stream ends without a done event")


class RootDialect:
    """`POST /translate` as clients of LibreTranslate send it (docs/http-dialects.md)."""

    name = "root"
    path = "/translate"
    first_text: tuple[bytes, ...] = ()

    def headers(self, api_key: str | None) -> dict[str, str]:
        """The key is in the body."""
        return JSON_HEADERS

    def body(self, spec: RequestSpec, source: str, target: str, api_key: str | None) -> bytes:
        """`q`, `source`, `target`, `api_key`."""
        fields: dict[str, Any] = {"q": spec.value, "source": source, "target": target, **spec.options}
        return orjson.dumps({**fields, "api_key": api_key} if api_key else fields)

    def read(self, body: bytes) -> ParsedResponse:
        """`translatedText`; raises BadAnswerError."""
        found = _json(body).get("translatedText")
        texts = [found] if isinstance(found, str) else found
        return ParsedResponse(_texts(texts))


class V2Dialect:
    """`POST /v2/translate`, whose key has a scheme of its own (docs/http-dialects.md)."""

    name = "v2"
    path = "/v2/translate"
    first_text: tuple[bytes, ...] = ()

    def headers(self, api_key: str | None) -> dict[str, str]:
        """The key with the scheme that clients of this API send."""
        return {**JSON_HEADERS, **({"Authorization": f"DeepL-Auth-Key {api_key}"} if api_key else {})}

    def body(self, spec: RequestSpec, source: str, target: str, api_key: str | None) -> bytes:
        """Always an array; languages in capitals."""
        fields = {"text": list(spec.texts), "source_lang": source.upper(), "target_lang": target.upper()}
        return orjson.dumps({**fields, **spec.options})

    def read(self, body: bytes) -> ParsedResponse:
        """`translations[].text`; raises BadAnswerError."""
        return ParsedResponse(_translations(_json(body)))


DIALECTS: dict[str, Dialect] = {
    dialect.name: dialect for dialect in (NativeDialect(), StreamDialect(), RootDialect(), V2Dialect())
}


def error_message(body: bytes) -> str:
    """What the body of an error says, of any dialect: one line of at most MAX_ERROR_CHARACTERS."""
    try:
        found: object = orjson.loads(body)
    except orjson.JSONDecodeError:
        found = body.decode("utf-8", errors="replace")
    for name in ("error", "message"):  # native: error.message; at the root and inference: error; v2: message
        if isinstance(found, dict) and name in found:
            found = found[name]
    text = found if isinstance(found, str) else body.decode("utf-8", errors="replace")
    return " ".join(text.split())[:MAX_ERROR_CHARACTERS]


def _json(body: bytes) -> dict[str, Any]:
    try:
        found = orjson.loads(body)
    except orjson.JSONDecodeError as error:
        raise BadAnswerError("the answer is not JSON") from error
    if not isinstance(found, dict):
        raise BadAnswerError("the answer is no JSON object")
    return found


def _texts(found: object) -> tuple[str, ...]:
    if not isinstance(found, list) or not all(isinstance(text, str) for text in found):
        raise BadAnswerError("the answer holds no texts")
    return tuple(found)


def _translations(answer: dict[str, Any]) -> tuple[str, ...]:
    found = answer.get("translations")
    if not isinstance(found, Sequence) or not all(isinstance(each, dict) for each in found):
        raise BadAnswerError("the answer holds no translations")
    return _texts([each.get("text") for each in found])


def _native_answer(answer: dict[str, Any]) -> ParsedResponse:
    usage = answer.get("usage")
    if not isinstance(usage, dict):
        raise BadAnswerError("the answer holds no usage")
    return ParsedResponse(
        _translations(answer),
        num_source_tokens=_count(usage, "source_tokens"),
        num_target_tokens=_count(usage, "target_tokens"),
        num_sentences=_count(usage, "sentences"),
    )


def _count(usage: dict[str, Any], name: str) -> int:
    found = usage.get(name)
    if not isinstance(found, int):
        raise BadAnswerError("the answer's usage is not in numbers")
    return found
