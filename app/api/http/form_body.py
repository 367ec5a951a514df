"""Reads the fields of a dialect's request from the query string and from a JSON or urlencoded body, also on GET."""

from __future__ import annotations

import re
from urllib.parse import parse_qsl

from starlette.requests import ClientDisconnect, Request

from app.api.http.json_body import JSON, parse_json, take_turn_to_parse, too_large
from app.errors import MalformedRequest, PayloadTooLarge, RequestCancelled, UnsupportedMedia

FORM = "application/x-www-form-urlencoded"
MAX_FORM_FIELDS = 1000
# The value of each field by name; a list of values if a form repeats the field.
Fields = dict[str, object]
_BROKEN_ESCAPE = re.compile(rb"%(?![0-9A-Fa-f]{2})")


async def read_fields(request: Request, *, max_bytes: int) -> Fields:
    """The fields of the query string and of the body. If both have a field, the body's value counts.

    A body without a content type is JSON if it begins with a brace, else a form. max_bytes: the most bytes of the body.
    Raises PayloadTooLarge as soon as more bytes have arrived, for too many fields of a form or of the query string,
    and for too many brackets `[` and `{`. Raises UnsupportedMedia, MalformedRequest, RequestCancelled.
    """
    fields = parse_form(request.scope["query_string"], name="query string")
    body = await read_body(request, max_bytes=max_bytes)
    media = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if request.headers.get("content-encoding", "identity").strip().lower() != "identity":
        raise UnsupportedMedia("compressed bodies are not accepted")
    if not body.strip():
        if media == JSON and request.method != "GET":
            raise MalformedRequest("the body is empty")
        return fields
    if media == JSON or (not media and body.lstrip()[:1] == b"{"):
        return {**fields, **parse_object(body, max_bytes=max_bytes)}
    if media in {FORM, ""}:
        return {**fields, **parse_form(body)}
    raise UnsupportedMedia(f"the content type must be {JSON} or {FORM}")


def parse_object(body: bytes, *, max_bytes: int) -> Fields:
    """A JSON object. max_bytes: the most bytes of a body. Raises the errors of `parse_json`."""
    value = parse_json(body, max_bytes=max_bytes)
    if not isinstance(value, dict):
        raise MalformedRequest("the body is not a JSON object")
    return value


def parse_form(body: bytes, *, name: str = "form") -> Fields:
    """The fields of a urlencoded form. Each line end becomes a newline. Raises MalformedRequest, PayloadTooLarge.

    name: of the form, for messages.
    """
    if _BROKEN_ESCAPE.search(body):
        raise MalformedRequest(f"the {name} has a percent sign without two hexadecimal digits", is_form=True)
    try:
        pairs = parse_qsl(
            body.decode("utf-8"),
            keep_blank_values=True,
            encoding="utf-8",
            errors="strict",
            max_num_fields=MAX_FORM_FIELDS,
        )
    except UnicodeError as error:
        raise MalformedRequest(f"the {name} is not UTF-8", is_form=True) from error
    except ValueError as error:
        raise PayloadTooLarge(f"the {name} has more than {MAX_FORM_FIELDS} fields") from error
    fields: dict[str, list[str]] = {}
    for name, value in pairs:
        fields.setdefault(name, []).append(value.replace("\r\n", "\n").replace("\r", "\n"))
    return {name: values if len(values) > 1 else values[0] for name, values in fields.items()}


async def read_body(request: Request, *, max_bytes: int) -> bytes:
    """The body. A large one is returned when it is its turn to be parsed. max_bytes: the most bytes of the body.

    Raises PayloadTooLarge as soon as more bytes have arrived. Raises RequestCancelled.
    """
    body = bytearray()
    try:
        async for chunk in request.stream():
            body += chunk
            if len(body) > max_bytes:
                raise too_large(max_bytes)
    except ClientDisconnect as error:
        raise RequestCancelled("the client disconnected before the end of the body") from error
    await take_turn_to_parse(body)
    return bytes(body)
