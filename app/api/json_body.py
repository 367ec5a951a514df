"""A request's body as JSON: its type, its size while it arrives, its syntax."""

from __future__ import annotations

import orjson
from starlette.requests import ClientDisconnect, Request

from app.errors import MalformedRequest, PayloadTooLarge, RequestCancelled, UnsupportedMedia

JSON = "application/json"


async def read_json(request: Request, *, max_bytes: int) -> object:
    """The parsed body.

    Raises UnsupportedMedia (not JSON in UTF-8, or compressed), PayloadTooLarge as soon as a byte too many has
    come, MalformedRequest (also for NaN, numbers beyond a double, lone surrogates, a byte order mark, nesting
    deeper than 1,024), RequestCancelled.
    """
    _check_media(request)
    body = bytearray()
    try:
        async for chunk in request.stream():
            body += chunk
            if len(body) > max_bytes:
                raise too_large(max_bytes)
    except ClientDisconnect as error:
        raise RequestCancelled("the caller left before the body was whole") from error
    try:
        return orjson.loads(body)
    except orjson.JSONDecodeError as error:
        # Nothing of orjson's message: it may hold a part of the body.
        raise MalformedRequest("the body is not valid JSON in UTF-8") from error


def too_large(max_bytes: int) -> PayloadTooLarge:
    """The error for a body above the limit."""
    return PayloadTooLarge(f"the body is larger than {max_bytes} bytes")


def _check_media(request: Request) -> None:
    encoding = request.headers.get("content-encoding", "identity").strip().lower()
    if encoding != "identity":
        raise UnsupportedMedia("compressed bodies are not read here")
    media, _, parameters = request.headers.get("content-type", "").partition(";")
    if media.strip().lower() != JSON:
        raise UnsupportedMedia(f"the content type must be {JSON}")
    charset = parameters.replace(" ", "").replace('"', "").lower()
    if charset not in {"", "charset=utf-8"}:
        raise UnsupportedMedia(f"the content type must be {JSON}, in UTF-8")
