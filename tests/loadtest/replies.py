"""The responses and the service times of the simulated servers.

A server takes exactly the service time for each request, one after another, so its capacity is known. It can stall
once, and it cycles through the kinds of responses: `200`, another status, `cut` (the connection ends within the
response), `never`, `garbage` (200 with an invalid body), `fewer` (200 without a text), `hints` (103, then 200).
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Reply:
    """The response to one request.

    Attributes:
        number: the number of requests that arrived earlier.
        ready_at: the time at which the response is sent.
        content: what is sent; None if nothing ever is.
        is_last: whether the connection ends after the response.
    """

    number: int
    ready_at: float
    content: bytes | None
    is_last: bool


class Replies:
    """Serves all connections from one queue. stall: (from, to) in seconds from the first request."""

    def __init__(
        self,
        service_s: float = 0.0,
        *,
        stall: tuple[float, float] | None = None,
        kinds: Sequence[str] = ("200",),
    ) -> None:
        self.service_s = service_s
        self.stall = stall
        self.kinds = kinds
        self.num_requests = 0
        self.first_at: float | None = None
        self.free_at = 0.0

    def reply_to(self, body: bytes, at: float) -> Reply:
        """Make the response to a request. at: the time at which the request arrives."""
        kind = self.kinds[self.num_requests % len(self.kinds)]
        number = self.num_requests
        self.num_requests += 1
        return Reply(number, self._ready_at(at), content_of(kind, body), is_last=kind in {"cut", "never"})

    def _ready_at(self, at: float) -> float:
        if self.first_at is None:
            self.first_at = at
        start = max(at, self.free_at)
        if self.stall is not None:
            from_, to = self.first_at + self.stall[0], self.first_at + self.stall[1]
            if from_ <= start < to:
                start = to
        self.free_at = start + self.service_s
        return self.free_at


def content_of(kind: str, request: bytes) -> bytes | None:
    """The bytes of a response; None if nothing is ever sent."""
    if kind == "never":
        return None
    body = b"{}" if kind == "garbage" else answer_to({"text": []} if kind == "fewer" else json.loads(request))
    if kind == "422":
        body = b'{"error": {"code": "invalid_request", "message": "text is empty"}}'
    status = kind if kind.isdigit() else "200"
    head = f"HTTP/1.1 {status} X\r\nServer-Timing: queue;dur=1.5, decode;dur=2.5\r\nContent-Length: {len(body)}\r\n\r\n"
    if kind == "hints":
        head = f"HTTP/1.1 103 X\r\nServer-Timing: proxy;dur=9\r\n\r\n{head}"
    return head.encode() + (body[:5] if kind == "cut" else body)


def answer_to(request: dict[str, object]) -> bytes:
    """A response of the native API: each text in capitals; one sentence and two tokens per text."""
    texts = request["text"] if isinstance(request["text"], list) else [request["text"]]
    usage = {"source_tokens": 2 * len(texts), "target_tokens": 2 * len(texts), "sentences": len(texts)}
    return json.dumps({"translations": [{"text": str(t).upper()} for t in texts], "usage": usage}).encode()
