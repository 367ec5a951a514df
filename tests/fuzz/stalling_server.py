"""A server whose event loop computes for half a second when /stall is requested. Prints its port."""

from __future__ import annotations

import asyncio
import time


async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Answer every request of a connection with an empty JSON object."""
    while head := await reader.readline():
        while (await reader.readline()).strip():
            pass
        if b" /stall " in head:
            until = time.thread_time() + 0.5
            while time.thread_time() < until:
                pass
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 2\r\n\r\n{}")


async def main() -> None:
    """Listen on a free port until the process is killed."""
    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(main())
