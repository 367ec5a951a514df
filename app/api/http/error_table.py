"""The table that maps errors to HTTP, and the bodies of errors on the native API.

A body has at most MAX_BODY_BYTES. It repeats only these parts of a request: the request id, the name of a misspelt
field, language codes, and values of options.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import NamedTuple

import orjson
from starlette.responses import Response

from app.errors import (
    CrossSite,
    DeadlineExceeded,
    EngineFailure,
    InvalidRequest,
    MalformedRequest,
    ModelInUse,
    ModelRefused,
    NotReady,
    Overloaded,
    PayloadTooLarge,
    QuotaExceeded,
    RequestCancelled,
    RequestError,
    RequestTimeout,
    RetryLater,
    ServiceError,
    SourceTooLong,
    Unauthorized,
    UnknownModel,
    UnsupportedLanguages,
    UnsupportedMedia,
    UsageUnavailable,
)

MAX_BODY_BYTES = 1024
MAX_MESSAGE_CHARACTERS = 600
MAX_FIELD_CHARACTERS = 100


class Answer(NamedTuple):
    """The HTTP side of an error. `code` is for programs. `reason` is the label of transduce_rejected_total."""

    status: int
    code: str
    reason: str


ANSWERS: dict[type[ServiceError], Answer] = {
    MalformedRequest: Answer(400, "malformed_request", "invalid"),
    Unauthorized: Answer(401, "unauthorized", "unauthorized"),
    CrossSite: Answer(403, "cross_site", "unauthorized"),
    RequestTimeout: Answer(408, "request_timeout", "read_timeout"),
    PayloadTooLarge: Answer(413, "payload_too_large", "too_large"),
    UnsupportedMedia: Answer(415, "unsupported_media", "invalid"),
    InvalidRequest: Answer(422, "invalid_request", "invalid"),
    UnsupportedLanguages: Answer(422, "unsupported_languages", "invalid"),
    SourceTooLong: Answer(422, "source_too_long", "invalid"),
    UnknownModel: Answer(404, "unknown_model", "invalid"),
    ModelInUse: Answer(409, "model_in_use", "invalid"),
    ModelRefused: Answer(422, "model_refused", "invalid"),
    Overloaded: Answer(429, "overloaded", "queue_full"),
    QuotaExceeded: Answer(429, "quota_exceeded", "quota"),
    RequestCancelled: Answer(499, "cancelled", "cancelled"),
    EngineFailure: Answer(500, "engine_failure", "engine"),
    NotReady: Answer(503, "not_ready", "not_ready"),
    UsageUnavailable: Answer(503, "usage_unavailable", "usage_unavailable"),
    DeadlineExceeded: Answer(504, "deadline_exceeded", "deadline"),
}
WOULD_BE_LATE = Answer(429, "overloaded", "would_be_late")
WRONG_KEY = Answer(403, "forbidden", "unauthorized")
UNEXPECTED = Answer(500, "internal_error", "engine")
UNEXPECTED_MESSAGE = "the server failed to answer this request"
# Codes of the errors that the router and `BoundedProtocol` return, by status.
HTTP_CODES = {
    404: "not_found",
    405: "method_not_allowed",
    400: "malformed_http",
    431: "headers_too_large",
    503: "not_ready",
}


class OrjsonResponse(Response):
    """A response in JSON."""

    media_type = "application/json"

    def __init__(
        self, content: object, status_code: int = 200, headers: Mapping[str, str] | None = None
    ) -> None:
        """content: the object to serialise. headers: beside Content-Length and Content-Type."""
        self.status_code = status_code
        self.background = None
        self.body = orjson.dumps(content)
        encoded = [
            (name.lower().encode("latin-1"), value.encode("latin-1"))
            for name, value in (headers or {}).items()
        ]
        length = b"%d" % len(self.body)
        self.raw_headers = [*encoded, (b"content-length", length), (b"content-type", b"application/json")]


def answer_to(error: ServiceError) -> Answer:
    """An error's row of the table."""
    if isinstance(error, Unauthorized) and error.is_wrong_key:
        return WRONG_KEY
    if isinstance(error, Overloaded) and error.would_be_late:
        return WOULD_BE_LATE
    return ANSWERS[type(error)]


def error_body(code: str, message: str, request_id: str, field: str | None = None, **languages: str) -> bytes:
    """The body `{"error": {...}}`. The message is shortened so that the body has at most MAX_BODY_BYTES.

    languages: codes of the detected source and of the target.
    """
    message = message[:MAX_MESSAGE_CHARACTERS]
    while True:
        error = {"code": code, "message": message, "request_id": request_id, **languages}
        if field is not None:
            error["field"] = field[:MAX_FIELD_CHARACTERS]
        body = orjson.dumps({"error": error})
        if len(body) <= MAX_BODY_BYTES or not message:
            return body
        message = message[: len(message) // 2]  # in JSON a character may take several bytes


def unexpected_body(request_id: str) -> bytes:
    """The body for an error that is no ServiceError."""
    return error_body(UNEXPECTED.code, UNEXPECTED_MESSAGE, request_id)


def error_response(error: ServiceError, request_id: str) -> Response:
    """The answer to a ServiceError."""
    answer = answer_to(error)
    field = error.field if isinstance(error, RequestError) else None
    languages = {}
    if isinstance(error, UnsupportedLanguages) and error.is_detected:
        languages = {"source": error.source, "target": error.target}
    headers = {}
    if isinstance(error, RetryLater):
        headers["retry-after"] = str(max(1, math.ceil(error.retry_after_s)))
    if isinstance(error, Unauthorized):
        headers["www-authenticate"] = "Bearer"
    body = error_body(answer.code, error.message, request_id, field, **languages)
    return plain_error(answer.status, body, headers)


def plain_error(status: int, body: bytes, headers: dict[str, str] | None = None) -> Response:
    """The response with a serialised error body."""
    return Response(body, status_code=status, headers=headers, media_type="application/json")
