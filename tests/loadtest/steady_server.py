"""A server in its own process with known responses and a known service time, described in replies.py.

It never responds sooner than its service time permits. On a busy machine it responds later.
"""

from __future__ import annotations

import argparse
import asyncio
import subprocess
import sys
import time
from pathlib import Path
from types import TracebackType
from typing import Self

import uvloop

from tests.loadtest.replies import Replies
from transduce.loadtest.pacing import wait_until

ROOT = Path(__file__).resolve().parents[2]


class SteadyServer:
    """The server's process: it is started on a free port on entry, and killed on exit.

    hold: (first, num): request number `first`, counted from 0, and all later requests get no response until `num`
    requests have arrived.
    """

    def __init__(
        self, *, service_ms: float = 0.0, answers: str = "200", hold: tuple[int, int] | None = None
    ) -> None:
        held = [] if hold is None else ["--hold", *map(str, hold)]
        self._command = [
            sys.executable,
            "-m",
            "tests.loadtest.steady_server",
            f"--service-ms={service_ms}",
            f"--answers={answers}",
            *held,
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

    @property
    def pid(self) -> int:
        return self._process.pid


class Handler:
    """Serves all connections from one queue of replies. hold: as in SteadyServer."""

    def __init__(self, replies: Replies, hold: tuple[int, int]) -> None:
        self.replies = replies
        self.first_held, self.num_awaited = hold
        self.have_arrived = asyncio.Event()

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
        if head.startswith(b"GET "):
            writer.write(b"HTTP/1.1 404 X\r\nContent-Length: 0\r\n\r\n")
            return True
        length = int(head.split(b"Content-Length: ")[1].split(b"\r\n")[0])
        reply = self.replies.reply_to(await reader.readexactly(length), time.perf_counter())
        if self.replies.num_requests >= self.num_awaited:
            self.have_arrived.set()
        if reply.number >= self.first_held:
            await self.have_arrived.wait()
        await wait_until(reply.ready_at)  # a timer may be a millisecond early
        if reply.content is None:
            await reader.read()
        else:
            writer.write(reply.content)
        return not reply.is_last


async def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--service-ms", type=float)
    parser.add_argument("--answers")
    parser.add_argument("--hold", type=int, nargs=2, default=(0, 0))
    args = parser.parse_args()
    handler = Handler(Replies(args.service_ms / 1e3, kinds=args.answers.split(",")), tuple(args.hold))
    server = await asyncio.start_server(handler.serve, "127.0.0.1", 0, backlog=1024)
    print(server.sockets[0].getsockname()[1], flush=True)
    async with server:
        await server.serve_forever()


if __name__ == "__main__":
    uvloop.run(main())
