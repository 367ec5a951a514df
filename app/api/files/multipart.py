"""Reads an uploaded file and its fields from multipart/form-data, within the limits of the file routes."""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator
from dataclasses import dataclass
from email.errors import MessageError
from email.header import decode_header
from pathlib import PurePath
from urllib.parse import unquote_to_bytes

from python_multipart.multipart import parse_options_header
from starlette.datastructures import UploadFile
from starlette.formparsers import MultiPartException, MultiPartParser
from starlette.requests import ClientDisconnect, Request

from app.api.files.full_disk import storage_failure
from app.api.http.form_body import Fields, joined_fields
from app.api.http.json_body import check_uncompressed, too_large
from app.errors import InvalidRequest, MalformedRequest, RequestCancelled, UnsupportedMedia

MULTIPART = "multipart/form-data"
MAX_FIELDS = 30
MAX_FIELD_BYTES = 10_000
MAX_NAME_CHARACTERS = 200
# The charsets that HTTP clients declare. Python has others, but some decode to lone surrogates, and some are slow.
CHARSETS = ("utf-8", "us-ascii", "iso-8859-1")
# A name that consists of encoded words (RFC 2047).
_ENCODED_WORDS = re.compile(r"(?:=\?[^?]+\?[bBqQ]\?[^?]*\?= ?)+")


@dataclass(frozen=True)
class Upload:
    """An uploaded form. name: the file's name without a folder. content: the file's bytes.

    fields: the other fields.
    """

    name: str
    content: bytes
    fields: Fields


async def read_upload(request: Request, *, max_bytes: int) -> Upload:
    """The file in the field `file`, and the other fields.

    max_bytes: the maximum size of the whole body. Raises PayloadTooLarge as soon as more bytes have arrived. Raises
    InvalidRequest if there is no file, and NotReady if the disk is full or cannot be written: a file of more than
    1 MiB is on disk until all of it has arrived. Raises UnsupportedMedia, MalformedRequest, RequestCancelled.
    """
    media = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if media != MULTIPART:
        raise UnsupportedMedia(f"the content type must be {MULTIPART}")
    _, parameters = parse_options_header(request.headers["content-type"])
    if parameters.get(b"charset", b"utf-8").decode("latin-1").lower() not in CHARSETS:
        raise UnsupportedMedia(f"the charset must be one of {', '.join(CHARSETS)}")
    check_uncompressed(request.scope["headers"])
    parser = _UploadParser(
        request.headers,
        _bounded(request, max_bytes),
        max_files=1,
        max_fields=MAX_FIELDS,
        max_part_size=MAX_FIELD_BYTES,
    )
    try:
        form = await parser.parse()
    except MultiPartException as error:
        raise MalformedRequest(
            "the body is not a form of one file and some short fields", is_form=True
        ) from error
    except ClientDisconnect as error:
        raise RequestCancelled("the client disconnected before the end of the body") from error
    except OSError as error:
        raise storage_failure(error) from error
    try:
        file = form.get("file")
        if not isinstance(file, UploadFile):
            raise InvalidRequest("file must be an uploaded file", field="file")
        fields = joined_fields(each for each in form.multi_items() if isinstance(each[1], str))
        name = PurePath((file.filename or "").replace("\\", "/")).name[-MAX_NAME_CHARACTERS:]
        return Upload(name, await file.read(), fields)
    finally:
        await form.close()


class _UploadParser(MultiPartParser):
    """Starlette's parser, which here also reads the two forms in which .NET's client sends names that are not ASCII."""

    def on_headers_finished(self) -> None:
        """Add a field or a file. `filename*` has priority over `filename`."""
        part = self._current_part
        disposition = part.content_disposition or b""
        name = _extended_name(disposition)
        if name is not None:  # the base class reads a part as a file only if it has `filename`
            part.content_disposition = disposition + b'; filename=""'
        super().on_headers_finished()
        if part.file is not None:
            part.file.filename = name or _decode_words(part.file.filename or "")


def _extended_name(disposition: bytes) -> str | None:
    """The name in the parameter `filename*` (RFC 5987); None without one, or if it cannot be decoded."""
    # `parse_options_header` leaves out the parameters with an asterisk.
    _, parameters = parse_options_header(disposition.replace(b"*", b"!"))
    charset, _, rest = parameters.get(b"filename!", b"").decode("latin-1").partition("'")
    if charset.lower() not in CHARSETS:
        return None
    try:
        return unquote_to_bytes(rest.partition("'")[2]).decode(charset) or None
    except UnicodeDecodeError:
        return None


def _decode_words(name: str) -> str:
    """A name in encoded words, decoded; any other name unchanged."""
    if not _ENCODED_WORDS.fullmatch(name):
        return name
    try:
        words = decode_header(name)
        if any(charset not in CHARSETS for _, charset in words):
            return name
        return "".join(word.decode(charset) for word, charset in words)
    except (MessageError, ValueError):
        return name


async def _bounded(request: Request, max_bytes: int) -> AsyncGenerator[bytes, None]:
    num_bytes = 0
    async for chunk in request.stream():
        num_bytes += len(chunk)
        if num_bytes > max_bytes:
            raise too_large(max_bytes)
        yield chunk
