"""The middleware around every request. It is pure ASGI because Starlette's BaseHTTPMiddleware hides disconnects.

`RequestScope` calls `Gate`, which calls the routes. `RequestScope` sets the request id and headers, answers errors,
logs and counts the request. `Gate` refuses requests before their bodies are read.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, NamedTuple

from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from app.api.http.auth import ApiKeys
from app.api.http.closing import CONNECTION
from app.api.http.connections import address_of
from app.api.http.cross_site import SITE_HEADERS, check_site
from app.api.http.dialect import Dialect, DialectError, Dialects
from app.api.http.error_table import (
    ANSWERS,
    UNEXPECTED,
    UNEXPECTED_MESSAGE,
    error_response,
    plain_error,
    unexpected_body,
)
from app.api.http.failures import count_error
from app.api.http.json_body import too_large
from app.api.http.request_head import PROBES, request_id_of
from app.errors import InvalidRequest, NotReady, RequestCancelled, RequestTimeout, ServiceError
from app.observability.logging import log_event
from app.observability.metrics import Metrics
from app.observability.tracing import Tracing

logger = logging.getLogger("app.http")


class RequestScope:
    """Sets the request id and the response's headers, turns exceptions into responses, logs and counts requests."""

    def __init__(
        self, app: ASGIApp, *, metrics: Metrics, dialects: Dialects, tracing: Tracing | None = None
    ) -> None:
        """tracing: None if requests are not traced."""
        self._app = app
        self._metrics = metrics
        self._dialects = dialects
        self._tracing = tracing

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        connection = scope.get("extensions", {}).get(CONNECTION)
        receive = _in_time(receive, connection)
        started = time.monotonic() - (connection["unread_s"] if connection is not None else 0.0)
        state = scope.setdefault("state", {})
        state["request_id"] = request_id_of(scope["headers"])
        state["received_at"] = started
        method = scope["method"]
        if method == "HEAD":
            # Answered as GET (RFC 9110, section 9.3.2). The protocol keeps the scope with HEAD, so it sends no body.
            scope = {**scope, "method": "GET"}
        dialect = state["dialect"] = self._dialects.of(scope["path"])
        answer = _Answer(send, state, dialect.trace_header if dialect else None)
        try:
            await self._app(scope, receive, answer.send)
        except ServiceError as error:
            count_error(self._metrics, error, state["request_id"])
            if not answer.status:
                response = (
                    dialect.error_response(error) if dialect else error_response(error, state["request_id"])
                )
                await response(scope, receive, answer.send)
        except DialectError as error:
            self._metrics.rejected.labels(ANSWERS[InvalidRequest].reason).inc()
            if dialect is None:
                raise
            await dialect.answer(error.status, error.message)(scope, receive, answer.send)
        except Exception as error:
            count_error(self._metrics, error, state["request_id"])
            if not answer.status:
                await _unexpected(dialect, state["request_id"])(scope, receive, answer.send)
            elif not answer.is_complete:
                raise  # BoundedProtocol closes the connection
        finally:
            status = answer.status or _status_without_response(scope)
            self._record(scope, method, status, time.monotonic() - started)

    def _record(self, scope: Scope, method: str, status: int, seconds: float) -> None:
        """Count the finished request and write its log line. method: as the client sent it."""
        unrouted: str = scope["path"] if scope["path"] in PROBES else "unmatched"
        route = getattr(scope.get("route"), "path", unrouted)
        self._metrics.record_request(route=route, method=method, code=status, seconds=seconds)
        log_event(
            logger,
            logging.DEBUG if route in PROBES else logging.INFO,
            "request",
            fields={
                "request_id": scope["state"]["request_id"],
                "route": route,
                "method": method,
                "status": status,
                "duration_ms": round(seconds * 1000, 2),
                "caller": scope["state"].get("caller") or None,
                "sentences": scope["state"].get("num_sentences"),
                "trace_id": self._tracing.trace_id() if self._tracing is not None else None,
            },
        )


def _in_time(receive: Receive, connection: Mapping[str, Any] | None) -> Receive:
    """Raise RequestTimeout in place of a part of a late body. connection: the scope's extension CONNECTION, if any."""
    if connection is None:
        return receive
    late_after_s: Callable[[], float | None] = connection["late_after_s"]

    async def receive_in_time() -> Message:
        message = await receive()
        if message.get("more_body") and (limit_s := late_after_s()) is not None:
            raise RequestTimeout(f"the request did not arrive within {limit_s:g} s")
        return message

    return receive_in_time


def _status_without_response(scope: Scope) -> int:
    """The status of a request without a response: 499 if its client has disconnected, else 503."""
    connection = scope.get("extensions", {}).get(CONNECTION)
    is_disconnected = connection is not None and connection["is_disconnected"]()
    cause = RequestCancelled if is_disconnected else NotReady
    return ANSWERS[cause].status


def _unexpected(dialect: Dialect | None, request_id: str) -> Response:
    if dialect:
        return dialect.answer(UNEXPECTED.status, UNEXPECTED_MESSAGE)
    return plain_error(UNEXPECTED.status, unexpected_body(request_id))


class _Answer:
    """Adds the server's headers to a response and records its status, which is 0 until the response starts.

    is_complete: whether the last part of the body has been sent.
    """

    def __init__(self, send: Send, state: Mapping[str, Any], trace_header: str | None) -> None:
        """state: the scope's state. Its `limit_headers`, if set, returns headers that are sent too.

        trace_header: see `Dialect`.
        """
        self._send = send
        self._state = state
        encoded_id = state["request_id"].encode("latin-1")
        self._headers = [(b"x-request-id", encoded_id), (b"x-content-type-options", b"nosniff")]
        if trace_header is not None:
            self._headers.append((trace_header.encode("latin-1"), encoded_id))
        self.status = 0
        self.is_complete = False

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
            added = self._headers
            if not any(name == b"cache-control" for name, _ in message["headers"]):
                added = [*added, (b"cache-control", b"no-store")]
            message["headers"] = [*message["headers"], *added, *self._state.get("limit_headers", tuple)()]
        else:
            self.is_complete = not message.get("more_body", False)
        await self._send(message)


class Gate:
    """Refuses a request before its body is read.

    The reasons are a declared size above the limit, and a missing or unknown key. A server without keys also refuses a
    request that a page of another site sends.
    """

    def __init__(
        self,
        app: ASGIApp,
        *,
        keys: ApiKeys,
        max_body_bytes: int,
        max_bytes_by_path: Mapping[str, int] | None = None,
        allowed_origins: Collection[str] = (),
    ) -> None:
        """max_body_bytes: the limit on a body's bytes. max_bytes_by_path: the limits of paths that have their own.

        allowed_origins: the origins whose pages may send requests if no key is needed.
        """
        self._app = app
        self._keys = keys
        self._max_body_bytes = max_body_bytes
        self._max_bytes_by_path = dict(max_bytes_by_path or {})
        self._allowed_origins = frozenset(allowed_origins)
        self._checks_site = not keys.are_needed

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Check the request and pass it on. Raises PayloadTooLarge, Unauthorized, CrossSite."""
        if scope["type"] == "http":
            if "\n" in scope["path"]:  # a route's pattern would match the path without its last newline
                scope = {**scope, "path": scope["path"].replace("\n", "%0A")}
            headers = dict(scope["headers"])  # BoundedProtocol refuses a repeated Content-Length
            declared = headers.get(b"content-length") or b"0"
            max_bytes = self._max_bytes_by_path.get(scope["path"], self._max_body_bytes)
            if not declared.isdigit() or int(declared[:20]) > max_bytes:
                raise too_large(max_bytes)
            authorization: Sequence[bytes] = ()
            if b"authorization" in headers:
                authorization = [value for name, value in scope["headers"] if name == b"authorization"]
            dialect, path = scope["state"]["dialect"], scope["path"]
            is_open = dialect is not None and path in dialect.open_paths
            scope["state"]["caller"] = "" if is_open else self._keys.caller(path, authorization)
            is_from_browser = not SITE_HEADERS.isdisjoint(headers)
            is_for_any_site = dialect is not None and path in dialect.any_site_paths
            if self._checks_site and is_from_browser and not is_for_any_site:
                check_site(scope["method"], headers, self._allowed_origins)
        await self._app(scope, receive, send)


class Requester(NamedTuple):
    """The id, the sender and the arrival of a request.

    caller: the name of its API key; empty without one. received_at: seconds of time.monotonic.
    share: the sender as the engine's fair queueing knows it: `caller`, or without keys the client's address.
    """

    request_id: str
    caller: str
    received_at: float
    share: str = ""


def requester_of(request: Request) -> Requester:
    """The id, the sender and the arrival of a request, which RequestScope and Gate have recorded."""
    state = request.scope["state"]
    caller = state["caller"]
    return Requester(
        state["request_id"], caller, state["received_at"], caller or caller_address(request.scope)
    )


def caller_address(scope: Scope) -> str:
    """The client's address, or the 64-bit network of an IPv6 address; empty if unknown."""
    host, _ = scope.get("client") or ("", 0)
    return address_of(host)
