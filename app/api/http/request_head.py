"""Checks a request's line and headers, and makes the responses to the requests that `BoundedProtocol` refuses.

The rules are those of RFC 9112, sections 3.2 (Host) and 6.1 (Transfer-Encoding). A request is refused if two
implementations could disagree about its end or its host.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from random import getrandbits
from typing import NamedTuple

import httptools

from app.api.http.error_table import HTTP_CODES, error_body


class Refusal(NamedTuple):
    """A response that `BoundedProtocol` sends without the application. The connection is closed after it."""

    status: int
    message: str


NOT_HTTP = Refusal(400, "not valid HTTP")
BAD_VERSION = Refusal(400, "the version must be HTTP/1.1 or HTTP/1.0")
BAD_HOST = Refusal(400, "there must be one valid Host")
BAD_TRANSFER_ENCODING = Refusal(400, "Transfer-Encoding may be given once, as chunked, and only in HTTP/1.1")
BAD_CHUNKS = Refusal(400, "the body has too many bytes of chunk framing")
PROBES_ONLY = Refusal(404, "this port serves only probes")
FULL = Refusal(503, "too many connections")
DISPLACED = Refusal(503, "too many connections; this one was idle for the longest time")
UNREAD = Refusal(503, "the server is too busy to read requests in time; come back later")
_REASONS = {
    400: b"Bad Request",
    404: b"Not Found",
    431: b"Request Header Fields Too Large",
    503: b"Service Unavailable",
}
_REQUEST_ID = re.compile(rb"[A-Za-z0-9._-]{1,64}")
# Paths that the server also answers on the probe port, on reserved connections, and if the request has waited unread
# for more than MAX_UNREAD_S.
PROBES = frozenset({"/livez", "/readyz", "/metrics", "/health", "/v2/health/live", "/v2/health/ready"})
# The characters of a host, its port and the brackets of an IPv6 address (RFC 3986, section 3.2).
_HOST_BYTES = b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-._~!$&'()*+,;=%:[]"


class RefusedRequest(Exception):
    """Stops the parser from within a callback. refusal: the response."""

    def __init__(self, refusal: Refusal) -> None:
        super().__init__(refusal.message)
        self.refusal = refusal


FRAMING_NAMES = frozenset({b"host", b"transfer-encoding", b"expect"})


class Framing:
    """Whether the current request has a Host, a chunked body, and the header `Expect: 100-continue`."""

    __slots__ = ("expects_continue", "has_host", "is_chunked")

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        """Forget the headers of the last request."""
        self.has_host = self.is_chunked = self.expects_continue = False

    def record(self, name: bytes, value: bytes) -> None:
        """Record a header. name: one of FRAMING_NAMES.

        Raises RefusedRequest if Host or Transfer-Encoding is invalid or repeated.
        """
        if name == b"host":
            if self.has_host or value.translate(None, _HOST_BYTES):
                raise RefusedRequest(BAD_HOST)
            self.has_host = True
        elif name == b"expect":
            self.expects_continue = value.lower() == b"100-continue"
        else:
            if self.is_chunked or value.lower() != b"chunked":
                raise RefusedRequest(BAD_TRANSFER_ENCODING)
            self.is_chunked = True

    def check(self, version: str) -> None:
        """Check the recorded headers against the HTTP version, such as `1.1`. Raises RefusedRequest."""
        if version not in {"1.1", "1.0"}:
            raise RefusedRequest(BAD_VERSION)
        if version == "1.1" and not self.has_host:
            raise RefusedRequest(BAD_HOST)
        if version == "1.0" and self.is_chunked:
            raise RefusedRequest(BAD_TRANSFER_ENCODING)


def request_id_of(headers: Iterable[tuple[bytes, bytes]]) -> str:
    """The caller's X-Request-Id if it has 1 to 64 ASCII letters, digits and `.`, `_`, `-`; else a new one."""
    sent = next((value for name, value in headers if name == b"x-request-id"), b"")
    return sent.decode("ascii") if _REQUEST_ID.fullmatch(sent) else f"{getrandbits(128):032x}"


def refusal_of(error: httptools.HttpParserError) -> Refusal:
    """The refusal that stopped the parser; NOT_HTTP if the parser itself found an error."""
    cause = error.__context__
    return cause.refusal if isinstance(cause, RefusedRequest) else NOT_HTTP


def header_too_large(max_bytes: int) -> Refusal:
    """The refusal of a request line and headers that are together above the limit."""
    return Refusal(431, f"header above {max_bytes} bytes")


def refusal_bytes(refusal: Refusal, request_id: str) -> bytes:
    """The complete HTTP response of a refusal. Its body has the format of the native API's errors."""
    status, message = refusal
    body = error_body(HTTP_CODES[status], message, request_id)
    retry = b"retry-after: 1\r\n" if status == FULL.status else b""
    head = (
        b"HTTP/1.1 %d %b\r\ncontent-type: application/json\r\ncontent-length: %d\r\nx-request-id: %b\r\n"
        b"x-content-type-options: nosniff\r\ncache-control: no-store\r\n%bconnection: close\r\n\r\n"
    )
    return head % (status, _REASONS[status], len(body), request_id.encode("ascii"), retry) + body


def without_upgrade(
    method: bytes, target: bytes, version: str, headers: Iterable[tuple[bytes, bytes]]
) -> bytes:
    """A request's head as bytes, without the header `Upgrade` and without `upgrade` in the header `Connection`.

    headers: names in lower case with their values. The parser has accepted them.
    """
    lines = [b"%b %b HTTP/%b" % (method, target, version.encode("ascii"))]
    for name, value in headers:
        if name == b"upgrade":
            continue
        if name == b"connection":
            options = [option.strip() for option in value.split(b",")]
            kept = b", ".join(option for option in options if option.lower() != b"upgrade")
            lines.append(b"connection: " + kept)
        else:
            lines.append(b"%b: %b" % (name, value))
    return b"\r\n".join([*lines, b"", b""])
