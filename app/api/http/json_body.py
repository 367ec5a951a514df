"""Reads a request's body as JSON. Checks its content type, its size while it arrives, and its syntax."""

from __future__ import annotations

import codecs
from collections.abc import Collection, Iterable

import orjson
from starlette.requests import Request

from app.errors import MalformedRequest, PayloadTooLarge, RequestCancelled, UnsupportedMedia
from app.loop_turns import take_turn

JSON = "application/json"
JSON_BYTES = JSON.encode()
# Programs for Windows write it before a text in UTF-8. RFC 8259, section 8.1, allows a parser to ignore it.
_BYTE_ORDER_MARK = codecs.BOM_UTF8
# A body may have at most max_bytes / BYTES_PER_CONTAINER arrays and objects. Brackets and braces in strings also count.
# If smaller, parsing a body of brackets blocks the event loop for more than a few milliseconds. If larger, bodies of
# many short arrays are refused.
BYTES_PER_CONTAINER = 8
# Larger bodies take turns, one an iteration of the event loop: their parsing and validation take up to 10 ms for 50,000
# bytes. If larger, many such bodies delay other requests. If smaller, requests with short texts wait for turns.
LARGE_BODY_BYTES = 8_192


async def read_json(request: Request, *, max_bytes: int) -> object:
    """The parsed body. max_bytes: the maximum size of the body.

    Raises UnsupportedMedia if the body is compressed or not JSON in UTF-8. Raises PayloadTooLarge as soon as more
    bytes have arrived, and for too many brackets `[` and `{`. Raises MalformedRequest for invalid JSON, NaN, numbers
    that are too large for a double, lone surrogates, and nesting deeper than 1,024. Raises RequestCancelled.
    """
    _check_media(request.scope["headers"])
    body: bytes | bytearray = b""
    has_more = True
    while has_more:
        message = await request.receive()
        if message["type"] == "http.disconnect":
            raise RequestCancelled("the client disconnected before the end of the body")
        part, has_more = message.get("body", b""), message.get("more_body", False)
        if body or has_more:
            body = body if isinstance(body, bytearray) else bytearray(body)
            body += part
        else:
            body = part
        if len(body) > max_bytes:
            raise too_large(max_bytes)
    await take_turn_to_parse(body)
    return parse_json(body, max_bytes=max_bytes)


def parse_json(body: bytes | bytearray, *, max_bytes: int) -> object:
    """The value of a JSON text, which may begin with a byte order mark.

    max_bytes: the maximum size of any body, which limits the number of `[` and `{` in it.

    Raises PayloadTooLarge, MalformedRequest.
    """
    max_containers = max_bytes // BYTES_PER_CONTAINER
    if body.count(b"[") + body.count(b"{") > max_containers:
        raise PayloadTooLarge(
            f"the body has more than {max_containers} brackets [ and {{, those in texts included"
        )
    start = len(_BYTE_ORDER_MARK) if body.startswith(_BYTE_ORDER_MARK) else 0
    try:
        return orjson.loads(memoryview(body)[start:])
    except orjson.JSONDecodeError as error:
        # orjson's message may hold a part of the body.
        raise MalformedRequest("the body is not valid JSON in UTF-8") from error


async def take_turn_to_parse(body: bytes | bytearray) -> None:
    """Wait for a turn if the body is so large that its parsing and validation delay other requests."""
    if len(body) > LARGE_BODY_BYTES:
        await take_turn()


def too_large(max_bytes: int) -> PayloadTooLarge:
    """The error for a body above the limit."""
    return PayloadTooLarge(f"the body is larger than {max_bytes} bytes")


def check_uncompressed(headers: Iterable[tuple[bytes, bytes]]) -> None:
    """Raise UnsupportedMedia if a header Content-Encoding names a compression. headers: the scope's."""
    for name, value in headers:
        if name == b"content-encoding" and value.strip().lower() != b"identity":
            raise UnsupportedMedia("compressed bodies are not accepted")


def _check_media(headers: Collection[tuple[bytes, bytes]]) -> None:
    check_uncompressed(headers)
    content_type = next((value for name, value in headers if name == b"content-type"), b"")
    if content_type == JSON_BYTES:
        return
    media, _, parameters = content_type.decode("latin-1").partition(";")
    if media.strip().lower() != JSON:
        raise UnsupportedMedia(f"the content type must be {JSON}")
    for parameter in parameters.split(";"):
        name, _, value = parameter.partition("=")
        if name.strip().lower() == "charset" and value.strip(' "').lower() != "utf-8":
            raise UnsupportedMedia(f"the content type must be {JSON}, in UTF-8")
