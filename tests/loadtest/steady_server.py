"""A server in its own process with known responses and service time.

It serves requests one after another, each in exactly the service time, so its capacity is known. It can stall once, and
cycle through the outcomes of `--answers`: `200`, another status, `cut` (the connection ends within the response),
`never`, `garbage` (200 with an invalid body), `fewer` (200 without a text).
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import http.client
import json
import subprocess
import sys
import time
from pathlib import Path
from types import TracebackType
from typing import Self

import uvloop

ROOT = Path(__file__).resolve().parents[2]
LATE = "/late"
PROBE_S = 0.01


class SteadyServer:
    """Started on entry on a free port, killed on exit."""

    def __init__(
        self, *, service_ms: float = 0.0, stall: tuple[float, float] | None = None, answers: str = "200"
    ) -> None:
        stalls = [] if stall is None else ["--stall", *map(str, stall)]
        self._command = [
            sys.executable,
            "-m",
            "tests.loadtest.steady_server",
            f"--service-ms={service_ms}",
            f"--answers={answers}",
            *stalls,
        ]

    def __enter__(self) -> Self:
        self._process = subprocess.Popen(self._command, cwd=ROOT, stdout=subprocess.PIPE)
        assert self._process.stdout is not None
        self.port = int(self._process.stdout.readline())
        self.url = f"http://127.0.0.1:{self.port}"
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._process.kill()
        self._process.wait()
        assert self._process.stdout is not None
        self._process.stdout.close()

    def late_ms(self) -> float:
        """The largest lag of its event loop since the last call, or since its start."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port)
        with contextlib.closing(connection):
            connection.request("GET", LATE)
            return 1e3 * float(connection.getresponse().read())

    @property
    def pid(self) -> int:
        return self._process.pid


class Handler:
    """Serves all connections from one queue. stall: (from, to) in seconds from the first request."""

    def __init__(self, service_s: float, stall: tuple[float, float] | None, answers: list[str]) -> None:
        self.service_s = service_s
        self.stall = stall
        self.answers = answers
        self.num_requests = 0
        self.first_at: float | None = None
        self.free_at = 0.0
        self.late_s = 0.0

    async def watch(self) -> None:
        """Record the largest lag of the event loop until cancelled."""
        while True:
            due_at = time.perf_counter() + PROBE_S
            await asyncio.sleep(PROBE_S)
            self.late_s = max(self.late_s, time.perf_counter() - due_at)

    def ready_at(self, at: float) -> float:
        """The time at which a request that arrives at `at` is served."""
        if self.first_at is None:
            self.first_at = at
        start = max(at, self.free_at)
        if self.stall is not None:
            from_, to = self.first_at + self.stall[0], self.first_at + self.stall[1]
            if from_ <= start < to:
                start = to
        self.free_at = start + self.service_s
        return self.free_at

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while await self.answer(reader, writer):
                pass
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        writer.close()

    async def answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        """Serve one request. Returns whether the connection stays open."""
        head = await reader.readuntil(b"\r\n\r\n")
        if head.startswith(f"GET {LATE} ".encode()):
            late, self.late_s = f"{self.late_s:.6f}", 0.0
            writer.write(f"HTTP/1.1 200 X\r\nContent-Length: {len(late)}\r\n\r\n{late}".encode())
            return False
        if head.startswith(b"GET "):
            writer.write(b"HTTP/1.1 404 X\r\nContent-Length: 0\r\n\r\n")
            return True
        length = int(head.split(b"Content-Length: ")[1].split(b"\r\n")[0])
        request = json.loads(await reader.readexactly(length))
        kind = self.answers[self.num_requests % len(self.answers)]
        self.num_requests += 1
        at = time.perf_counter()
        await asyncio.sleep(max(0.0, self.ready_at(at) - at))
        if kind == "never":
            await reader.read()
            return False
        if kind == "fewer":
            request = {"text": []}
        body = b"{}" if kind == "garbage" else answer_to(request)
        status = kind if kind.isdigit() else "200"
        if status == "422":
            body = b'{"error": {"code": "invalid_request", "message": "text is empty"}}'
        writer.write(
            f"HTTP/1.1 {status} X\r\nServer-Timing: queue;dur=1.5, decode;dur=2.5\r\n"
            f"Content-Length: {len(body)}\r\n\r\n".encode()
        )
        if kind == "cut":
            writer.write(body[:5])
            return False
        writer.write(body)
        return True


def answer_to(request: dict[str, object]) -> bytes:
    """A response of the native API: each text in capitals; one sentence and two tokens per text."""
    texts = request["text"] if isinstance(request["text"], list) else [request["text"]]
    usage = {"source_tokens": 2 * len(texts), "target_tokens": 2 * len(texts), "sentences": len(texts)}
    return json.dumps({"translations": [{"text": str(t).upper()} for t in texts], "usage": usage}).encode()


async def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--service-ms", type=float)
    parser.add_argument("--stall", type=float, nargs=2)
    parser.add_argument("--answers")
    args = parser.parse_args()
    stall = None if args.stall is None else (args.stall[0], args.stall[1])
    handler = Handler(args.service_ms / 1e3, stall, args.answers.split(","))
    server = await asyncio.start_server(handler.serve, "127.0.0.1", 0, backlog=1024)
    print(server.sockets[0].getsockname()[1], flush=True)
    watching = asyncio.create_task(handler.watch())
    async with server:
        await server.serve_forever()
    watching.cancel()


if __name__ == "__main__":
    uvloop.run(main())
