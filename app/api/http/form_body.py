"""Reads the fields of a dialect's request from the query string and from a JSON or urlencoded body, even of a GET."""

from __future__ import annotations

import re
from collections.abc import Iterable

from starlette.requests import ClientDisconnect, Request

from app.api.http.json_body import JSON, check_uncompressed, parse_json, take_turn_to_parse, too_large
from app.errors import MalformedRequest, PayloadTooLarge, RequestCancelled, UnsupportedMedia

FORM = "application/x-www-form-urlencoded"
MAX_FORM_FIELDS = 1000
# The maximum number of a form's percent signs without two hexadecimal digits after them. If larger, a form of percent
# signs blocks the event loop for longer. If smaller, forms that name many percentages unescaped are refused.
MAX_STRAY_PERCENTS = 10_000
# The value of each field by name; a list of values if a form repeats the field.
Fields = dict[str, object]
_STRAY_PERCENT = re.compile(rb"%(?![0-9A-Fa-f]{2})")
_PLUS_TO_SPACE = bytes.maketrans(b"+", b" ")


async def read_fields(request: Request, *, max_bytes: int) -> Fields:
    """The fields of the query string and of the body. If both have a field, the body's value counts.

    A body without a content type is JSON if it begins with a brace, else a form. max_bytes: the body's maximum size.
    Raises PayloadTooLarge as soon as more bytes have arrived, for too many fields of a form or of the query string,
    and for too many brackets `[` and `{`. Raises UnsupportedMedia, MalformedRequest, RequestCancelled.
    """
    fields = parse_form(request.scope["query_string"], name="query string")
    body = await read_body(request, max_bytes=max_bytes)
    media = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    check_uncompressed(request.scope["headers"])
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
    """A JSON object. max_bytes: as in `parse_json`. Raises the errors of `parse_json`."""
    value = parse_json(body, max_bytes=max_bytes)
    if not isinstance(value, dict):
        raise MalformedRequest("the body is not a JSON object")
    return value


def parse_form(body: bytes, *, name: str = "form") -> Fields:
    """The fields of a urlencoded form. Each line end becomes a newline. Raises MalformedRequest, PayloadTooLarge.

    name: what error messages call the form. A percent sign without two hexadecimal digits stands for itself.
    """
    if body.count(b"&") >= MAX_FORM_FIELDS:
        raise PayloadTooLarge(f"the {name} has more than {MAX_FORM_FIELDS} fields")
    body = body.translate(_PLUS_TO_SPACE)
    try:
        return _fields_of(body, name)
    except UnicodeError:
        body, num_stray = _STRAY_PERCENT.subn(b"%25", body, MAX_STRAY_PERCENTS + 1)
    if num_stray > MAX_STRAY_PERCENTS:
        message = (
            f"the {name} has more than {MAX_STRAY_PERCENTS} percent signs without two hexadecimal digits"
        )
        raise MalformedRequest(message, is_form=True)
    return _fields_of(body, name)


def _fields_of(form: bytes, name: str) -> Fields:
    """The fields of a form, its plus signs already replaced. Raises MalformedRequest, and the errors of `_unescape`."""
    pairs = (pair.partition(b"=") for pair in form.split(b"&") if pair)
    return joined_fields(
        (_unescape(key, name), _unescape(value, name).replace("\r\n", "\n").replace("\r", "\n"))
        for key, _, value in pairs
    )


def joined_fields(pairs: Iterable[tuple[str, object]]) -> Fields:
    """The fields of a form. pairs: the name and the value of each field, in order."""
    fields: dict[str, list[object]] = {}
    for key, value in pairs:
        fields.setdefault(key, []).append(value)
    return {key: values if len(values) > 1 else values[0] for key, values in fields.items()}


def _unescape(value: bytes, name: str) -> str:
    """A name or a value of a form, unescaped. Decodes all escapes at once: one by one would block the event loop.

    Raises UnicodeError for a percent sign without two hexadecimal digits, and MalformedRequest for invalid UTF-8.
    """
    if b"%" in value:
        escaped = value.replace(b"\\", b"\\\\").replace(b"%", b"\\x")
        value = escaped.decode("unicode_escape").encode("latin-1")
    try:
        return value.decode()
    except UnicodeError as error:
        raise MalformedRequest(f"the {name} is not UTF-8", is_form=True) from error


async def read_body(request: Request, *, max_bytes: int) -> bytes:
    """The body. A large body is returned when it is its turn to be parsed. max_bytes: its maximum size.

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
