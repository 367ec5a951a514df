"""Load generators over plain keep-alive connections: a closed loop, and Poisson arrivals.

The client writes prepared bytes and reads responses. While the clock runs, it parses only a response's length. So the
client's core does not limit the measured rate.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import random
import ssl
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

import httpx

HOST = "127.0.0.1"
PATH = "/v1/translate"
TIMEOUT_MS = 60_000  # the largest that the server accepts by default
_HEAD = "POST {path} HTTP/1.1\r\nHost: {host}\r\nContent-Type: application/json\r\nContent-Length: {length}\r\n\r\n"


class LoadError(Exception):
    """The server's response is not a 200."""


@dataclass(frozen=True)
class Request:
    """A request to translate one text or several.

    number: set by the code that makes the request, to find the request of an answer. body: the JSON. content: the
    complete HTTP request.
    """

    number: int
    beam_size: int
    body: bytes
    content: bytes


@dataclass(frozen=True)
class TimedAnswer:
    """One response, not parsed yet. Times are in seconds of time.perf_counter. due_at: the scheduled send time."""

    request: Request
    due_at: float
    sent_at: float
    ended_at: float
    head: bytes
    body: bytes

    @property
    def latency_ms(self) -> float:
        """Milliseconds from the scheduled send time to the last byte of the response."""
        return (self.ended_at - self.due_at) * 1e3

    @property
    def phases_ms(self) -> dict[str, float]:
        """The header Server-Timing: milliseconds by phase."""
        value = next(
            line.partition(b":")[2]
            for line in self.head.split(b"\r\n")
            if line.lower().startswith(b"server-timing:")
        )
        parts = (part.strip().split(";dur=") for part in value.decode().split(","))
        return {name: float(milliseconds) for name, milliseconds in parts}

    @property
    def comparison_key(self) -> tuple[str, int, tuple[float, ...]]:
        """Text, number of target subwords, and scores of the segments. Equal ids give equal keys. For one text only."""
        answer: Any = json.loads(self.body)
        (translation,) = answer["translations"]
        scores = tuple(float(segment["score"]) for segment in translation["segments"])
        return translation["text"], int(answer["usage"]["target_tokens"]), scores


def make_request(number: int, text: str | Sequence[str], *, pair: tuple[str, str], beam_size: int) -> Request:
    """Prepare a request's bytes. text: one or several. pair: source and target language."""
    fields = {
        "text": text,
        "source": pair[0],
        "target": pair[1],
        "beam_size": beam_size,
        "timeout_ms": TIMEOUT_MS,
    }
    return request_of(number, fields, beam_size=beam_size)


def request_of(number: int, fields: Mapping[str, object], *, beam_size: int = 0) -> Request:
    """Prepare the bytes of a request with these fields. beam_size: for the report; 0 if the server chooses it."""
    body = json.dumps(fields, ensure_ascii=False).encode()
    return Request(
        number, beam_size, body, _HEAD.format(path=PATH, host=HOST, length=len(body)).encode() + body
    )


class Connection:
    """One connection with one request at a time. The end of the `async with` closes it."""

    def __init__(self, port: int) -> None:
        self._port = port

    async def __aenter__(self) -> Self:
        self._reader, self._writer = await asyncio.open_connection(HOST, self._port)
        return self

    async def __aexit__(self, *_: object) -> None:
        self._writer.close()
        with contextlib.suppress(OSError):  # the server may have closed it first
            await self._writer.wait_closed()

    async def post(self, request: Request, *, due_at: float | None = None) -> TimedAnswer:
        """Send a request and return the complete response. due_at: default is now. Raises LoadError."""
        sent_at = time.perf_counter()
        self._writer.write(request.content)
        head = await self._reader.readuntil(b"\r\n\r\n")
        lowered = head.lower()
        length = int(lowered.split(b"content-length:", 1)[1].split(b"\r\n", 1)[0])
        body = await self._reader.readexactly(length)
        ended_at = time.perf_counter()
        if not head.startswith(b"HTTP/1.1 200 "):
            status = head.partition(b"\r\n")[0].decode()
            raise LoadError(f"{status}: {body[:200].decode(errors='replace')}")
        return TimedAnswer(request, sent_at if due_at is None else due_at, sent_at, ended_at, head, body)


async def closed_loop(
    port: int, requests: Sequence[Request], *, num_clients: int, num_answers: int, limit_s: float
) -> list[TimedAnswer]:
    """Clients that each send their next request after the previous response, cycling through `requests`.

    Ends after num_answers responses or limit_s seconds, and then awaits the requests in flight. So no client is idle
    before the last response that counts. Returns the answers in order of arrival.
    """
    upcoming = itertools.cycle(requests)
    answers: list[TimedAnswer] = []
    until = time.perf_counter() + limit_s

    async def client() -> None:
        async with Connection(port) as connection:
            while len(answers) < num_answers and time.perf_counter() < until:
                answers.append(await connection.post(next(upcoming)))

    async with asyncio.TaskGroup() as group:
        for _ in range(num_clients):
            group.create_task(client())
    return answers[:num_answers]


async def random_arrivals(
    port: int, requests: Sequence[Request], *, rate: float, seed: int
) -> list[TimedAnswer]:
    """Send each request once, in order, at the times of a Poisson process, without waiting for responses.

    rate: requests/s. The gaps are scaled, so that the mean rate is exactly `rate`.
    """
    draw = random.Random(seed)
    times = list(itertools.accumulate(draw.expovariate(1.0) for _ in requests))
    scale = len(requests) / rate / times[-1]
    answers: list[TimedAnswer] = []
    connections: list[Connection] = []
    idle: list[Connection] = []

    async def send(request: Request, due_at: float) -> None:
        if idle:
            connection = idle.pop()
        else:
            connection = await Connection(port).__aenter__()
            connections.append(connection)
        answers.append(await connection.post(request, due_at=due_at))
        idle.append(connection)

    started_at = time.perf_counter()
    try:
        async with asyncio.TaskGroup() as group:
            for request, offset in zip(requests, times, strict=True):
                due_at = started_at + offset * scale
                await asyncio.sleep(max(0.0, due_at - time.perf_counter()))
                group.create_task(send(request, due_at))
    finally:
        for connection in connections:
            await connection.__aexit__()
    return answers


async def httpx_loop(
    port: int, requests: Sequence[Request], *, num_clients: int, num_answers: int, limit_s: float
) -> list[float]:
    """`closed_loop` with httpx, to check the client of this module.

    Returns when each response ended, in seconds of time.perf_counter.
    Each client has its own connection pool, because a pool scans all of its connections for every request.
    """
    upcoming = itertools.cycle(requests)
    ended_at: list[float] = []
    until = time.perf_counter() + limit_s
    headers = {"Content-Type": "application/json"}
    # The context has no certificates. The loopback uses no TLS, and loading certificates is slow.
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)

    async def post() -> None:
        async with httpx.AsyncClient(trust_env=False, verify=context, timeout=TIMEOUT_MS / 1e3) as client:
            while len(ended_at) < num_answers and time.perf_counter() < until:
                content = next(upcoming).body
                answer = await client.post(f"http://{HOST}:{port}{PATH}", content=content, headers=headers)
                answer.raise_for_status()
                ended_at.append(time.perf_counter())

    async with asyncio.TaskGroup() as group:
        for _ in range(num_clients):
            group.create_task(post())
    return ended_at[:num_answers]


def rate_of(ended_at: Sequence[float], *, num_warm_up: int) -> float:
    """Responses/s after the first num_warm_up responses. Raises ValueError if num_warm_up is 0 or none follow."""
    if not 0 < num_warm_up < len(ended_at):
        raise ValueError(f"{len(ended_at)} answers are too few for a rate")
    return (len(ended_at) - num_warm_up) / (ended_at[-1] - ended_at[num_warm_up - 1])
