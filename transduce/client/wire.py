"""Everything about HTTP that both clients share and that needs no connection: bodies, responses, errors."""

from __future__ import annotations

import ipaddress
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from http import HTTPStatus
from numbers import Real
from typing import Any
from urllib.parse import urlsplit

import httpx

from transduce.client.errors import (
    AnswerLost,
    ConnectionFailed,
    InvalidAnswer,
    NotReady,
    Overloaded,
    RequestRefused,
    ServerFailed,
    TimedOut,
    TransduceError,
)
from transduce.client.options import ScoreOptions, TranslateOptions, request_fields
from transduce.client.results import (
    Json,
    TranslationResult,
    parsed,
    read_translations,
)

TRANSLATE, STREAM, SCORE = "/v1/translate", "/v1/translate/stream", "/v1/score"
DETECT, MODELS = "/v1/detect", "/v1/models"
# Maximum number of seconds to wait for a connection. `timeout_s` applies instead if it is smaller.
CONNECT_TIMEOUT_S = 5.0
# Characters after which a server's message is cut.
MAX_ERROR_CHARACTERS = 300
Texts = str | Sequence[str]


@dataclass(frozen=True)
class Endpoint:
    """A server. url: its root without a final slash, such as http://127.0.0.1:8000.

    timeout_s: seconds to wait for a response, or for the next piece of it.
    """

    url: str
    api_key: str | None
    timeout_s: float

    @classmethod
    def of(cls, url: str, api_key: str | None, timeout_s: float) -> Endpoint:
        """The endpoint of a URL that may end in slashes.

        An empty key counts as none. Raises ValueError if the URL is not like http://host:port, if `is_api_key` refuses
        the key, or if the time is not above 0.
        """
        if not is_server_url(url):
            raise ValueError(f"{url!r} is not of the form http://host:port")
        if api_key and not is_api_key(api_key):
            raise ValueError("the API key has characters other than printable ASCII, or a space at an end")
        if not is_number(timeout_s) or not timeout_s > 0:  # also NaN
            raise ValueError(f"timeout_s is {timeout_s!r}, not a number above 0")
        return cls(url.rstrip("/"), api_key, timeout_s)

    @property
    def connect_timeout_s(self) -> float:
        """Maximum number of seconds to wait for a connection."""
        return min(CONNECT_TIMEOUT_S, self.timeout_s)

    def failure(self, error: httpx.HTTPError | httpx.InvalidURL | httpx.StreamError) -> TransduceError:
        """The client's error for an error of httpx."""
        if isinstance(error, httpx.ConnectError):
            return ConnectionFailed(f"no server answers at {self.url} ({error})")
        if isinstance(error, httpx.ConnectTimeout):
            return ConnectionFailed(f"no server answers at {self.url} within {self.connect_timeout_s:g} s")
        if isinstance(error, httpx.TimeoutException):
            return TimedOut(
                f"no response from {self.url} within {self.timeout_s:g} s ({type(error).__name__})",
            )
        return ConnectionFailed(f"{self.url}: {str(error) or type(error).__name__}")


def is_api_key(value: object) -> bool:
    """Whether a value is an API key that a header can carry: printable ASCII without a space at an end."""
    if not isinstance(value, str) or value != value.strip():
        return False
    return bool(value) and value.isascii() and value.isprintable()


def is_number(value: object) -> bool:
    """Whether a value is a real number: an int, a float or one of NumPy's."""
    return isinstance(value, Real)


def is_server_url(url: object) -> bool:
    """Whether the URL is http or https with a valid host, optionally a valid port and a path, and nothing else."""
    if not isinstance(url, str) or not url.isprintable() or not {" ", "@", "?", "#"}.isdisjoint(url):
        return False
    try:
        parts, parsed = urlsplit(url), httpx.URL(url)
        _ = parsed.host, parsed.raw_host.decode("ascii").encode("idna")  # else a request raises UnicodeError
        return parts.scheme in {"http", "https"} and bool(parts.hostname) and parts.port != 0
    except (ValueError, httpx.InvalidURL):
        return False


def is_loopback(host: str) -> bool:
    """Whether `host` is this machine's loopback address."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost" or host.endswith(".localhost")


def translate_body(text: Texts, source: str, target: str, options: TranslateOptions) -> dict[str, Any]:
    """The body of a translate request. A single `target_prefix` applies to every text.

    Raises TypeError for an unknown option.
    """
    fields = request_fields(options, TranslateOptions)
    prefix = fields.get("target_prefix")
    if isinstance(prefix, str) and not isinstance(text, str):
        fields["target_prefix"] = [prefix] * len(text)
    return {"text": json_texts(text), "source": source, "target": target, **fields}


def score_body(
    text: Texts, translation: Texts, languages: tuple[str, str], options: ScoreOptions
) -> dict[str, Any]:
    """The body of a score request; languages: source and target. Raises TypeError for an unknown option."""
    fields = request_fields(options, ScoreOptions)
    return {
        "text": json_texts(text),
        "translation": json_texts(translation),
        "source": languages[0],
        "target": languages[1],
        **fields,
    }


def request_content(body: dict[str, Any] | None) -> dict[str, Any]:
    """The arguments of httpx that send a body as JSON; none without a body.

    Raises RequestRefused if JSON in UTF-8 cannot hold the body: a lone surrogate, NaN, infinity, or another type.
    """
    if body is None:
        return {}
    try:
        text = json.dumps(body, ensure_ascii=False, separators=(",", ":"), allow_nan=False).encode()
    except (TypeError, ValueError, RecursionError) as error:
        reason = error.reason if isinstance(error, UnicodeEncodeError) else str(error)
        raise RequestRefused(f"the request cannot be sent as JSON: {reason}") from error
    return {"content": text, "headers": {"Content-Type": "application/json"}}


def json_texts(text: Texts) -> str | list[str]:
    """The texts as a JSON value."""
    return text if isinstance(text, str) else list(text)


def num_texts(text: Texts) -> int:
    """The number of texts."""
    return 1 if isinstance(text, str) else len(text)


def json_of(response: httpx.Response) -> Any:
    """The JSON of a successful response. Raises InvalidAnswer."""
    try:
        return response.json()
    except ValueError as error:
        raise InvalidAnswer(f"the response is not JSON ({type(error).__name__})") from error


def translations_of(answer: object, wanted: int) -> TranslationResult:
    """Parse the translations. Raises InvalidAnswer unless there is one per text."""
    result = parsed(read_translations, answer, "a translation")
    if len(result.translations) != wanted:
        raise InvalidAnswer(f"the response holds {len(result.translations)} translations for {wanted} texts")
    return result


def error_of(response: httpx.Response) -> TransduceError:
    """The exception for an error response, whose body has been read."""
    try:
        body = response.json()
    except ValueError:
        body = None
    error = body.get("error") if isinstance(body, dict) else None
    if not isinstance(error, dict) and response.status_code in LOST:
        text = " ".join(response.text.split())[:MAX_ERROR_CHARACTERS]
        return AnswerLost(text or response.reason_phrase, status=response.status_code)
    if error is None:
        error = body
    fields: Json = error if isinstance(error, dict) else {"message": error}
    if not isinstance(fields.get("message"), str):
        fields = {**fields, "message": response.text or response.reason_phrase}
    return make_error(fields, response.status_code, retry_after_s(response.headers))


# Statuses that a proxy sends if the server behind it has ended. If Transduce sends them, the body has an error object.
LOST = {HTTPStatus.INTERNAL_SERVER_ERROR, HTTPStatus.BAD_GATEWAY}
# Error code -> status of a plain response with this error. Codes that are missing here have status 422.
STATUS_BY_CODE = {
    "overloaded": HTTPStatus.TOO_MANY_REQUESTS,
    "quota_exceeded": HTTPStatus.TOO_MANY_REQUESTS,
    "payload_too_large": HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
    "usage_unavailable": HTTPStatus.SERVICE_UNAVAILABLE,
    "not_ready": HTTPStatus.SERVICE_UNAVAILABLE,
    "deadline_exceeded": HTTPStatus.GATEWAY_TIMEOUT,
    "engine_failure": HTTPStatus.INTERNAL_SERVER_ERROR,
    "internal_error": HTTPStatus.INTERNAL_SERVER_ERROR,
}


def stream_error(data: Json) -> TransduceError:
    """The exception for an error event, with the status of a plain response that has the same error."""
    error = data.get("error", data)
    fields = error if isinstance(error, dict) else {}
    code = fields.get("code")
    status = STATUS_BY_CODE.get(code, HTTPStatus.UNPROCESSABLE_ENTITY) if isinstance(code, str) else None
    return make_error(fields, status or HTTPStatus.INTERNAL_SERVER_ERROR, None)


def make_error(fields: Json, status: int, retry_s: float | None) -> TransduceError:
    """The exception for an error object and a status."""
    message = " ".join(str(fields.get("message", "")).split())[:MAX_ERROR_CHARACTERS]
    request_id = _text(fields.get("request_id"))
    if status == HTTPStatus.TOO_MANY_REQUESTS:
        return Overloaded(message, status=status, request_id=request_id, retry_after_s=retry_s)
    if status == HTTPStatus.SERVICE_UNAVAILABLE:
        return NotReady(message, status=status, request_id=request_id, retry_after_s=retry_s)
    if status == HTTPStatus.GATEWAY_TIMEOUT:
        return TimedOut(message, status=status, request_id=request_id)
    if status >= HTTPStatus.INTERNAL_SERVER_ERROR:
        return ServerFailed(message, status=status, request_id=request_id)
    if status >= HTTPStatus.BAD_REQUEST:
        code = _text(fields.get("code")) or ""
        field = _text(fields.get("field"))
        return RequestRefused(message, status=status, request_id=request_id, code=code, field=field)
    return InvalidAnswer(f"status {status} does not belong to this API ({message[:40]!r}); is the URL right?")


def retry_after_s(headers: Mapping[str, str]) -> float | None:
    """The seconds of the Retry-After header (RFC 9110, 10.2.3); None without one, or if it is a date or negative."""
    try:
        seconds = float(headers.get("Retry-After", ""))
    except ValueError:
        return None
    return seconds if 0 <= seconds < math.inf else None


def _text(value: object) -> str | None:
    return value if isinstance(value, str) else None
