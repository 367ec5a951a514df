"""Sends a response's head and body in one write, where the body is complete when the head is sent.

uvicorn checks each header by itself and writes head and body one after the other. For short answers that takes longer
than the rest of the sending. Every other response is sent by uvicorn.
"""

from __future__ import annotations

import re

from starlette.types import Message
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, RequestResponseCycle

# Bytes that no header may hold. A caller that could put them there could write headers and responses of its own.
_CONTROL = re.compile(rb"[\x00-\x08\x0a-\x1f\x7f]")
_NO_BODY = frozenset({204, 304})


class SingleWriteResponse:
    """One request's response. `send` is the ASGI callable that the application gets."""

    def __init__(self, cycle: RequestResponseCycle) -> None:
        self._cycle = cycle
        self._head: Message | None = None  # held back until the body arrives

    async def send(self, message: Message) -> None:
        """As `RequestResponseCycle.send`."""
        head, cycle = self._head, self._cycle
        if head is None:
            if message["type"] == "http.response.start" and self._is_plain(message):
                self._head = message
            else:
                await cycle.send(message)  # type: ignore[arg-type]  # as uvicorn names the same
            return
        self._head = None
        body = message.get("body", b"")
        written = None
        if message["type"] == "http.response.body" and not message.get("more_body", False):
            written = _written(head, cycle.default_headers, body)
        if written is None or cycle.disconnected or cycle.flow.write_paused or cycle.response_started:
            await cycle.send(head)  # type: ignore[arg-type]
            await cycle.send(message)  # type: ignore[arg-type]
            return
        cycle.response_started = cycle.response_complete = True
        cycle.waiting_for_100_continue = False
        cycle.transport.write(written)
        cycle.message_event.set()
        cycle.on_response()

    def _is_plain(self, head: Message) -> bool:
        cycle = self._cycle
        is_usual = cycle.keep_alive and not cycle.access_log and cycle.scope["method"] != "HEAD"
        return is_usual and head["status"] not in _NO_BODY


def _written(head: Message, own: list[tuple[bytes, bytes]], body: bytes) -> bytes | None:
    """The response as bytes; None where its headers lack the body's length, or set how it is transferred.

    own: the server's headers.
    """
    lines = [STATUS_LINE[head["status"]][:-2]]
    length = None
    for name, value in (*own, *head["headers"]):
        if name == b"content-length":
            length = value
        elif name in {b"connection", b"transfer-encoding"}:
            return None
        lines.append(name + b": " + value)
    if length != b"%d" % len(body) or _CONTROL.search(b"\t".join(lines)):
        return None
    return b"\r\n".join([*lines, b"", body])
