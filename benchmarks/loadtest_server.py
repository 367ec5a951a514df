"""A server with known service times, to check load testers.

`spread`: service times follow a log-normal distribution (median 30 ms, sigma 0.5). The n-th request takes the quantile
frac(n x golden ratio). These quantiles cover 0 to 1 evenly, so the percentiles are known. The times depend only on the
order of the requests, not on their concurrency.

`stalls`: each request takes 20 ms, and requests run concurrently. A request that comes in the first 0.8 s of every 4 s
first waits until the 0.8 s are over.
"""

from __future__ import annotations

import argparse
import asyncio
import math
import time
from statistics import NormalDist

import uvloop

MEDIAN_S = 0.030
SIGMA = 0.5
SHORT_S = 0.020
STALL_S = 0.8
STALL_EVERY_S = 4.0
GOLDEN = (math.sqrt(5) - 1) / 2
BODY = b'{"translations":[{"text":"Ja."}],"usage":{"source_tokens":2,"target_tokens":2,"sentences":1}}'
ANSWER = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%b" % (
    len(BODY),
    BODY,
)


def percentile_s(share: float) -> float:
    """A percentile of the service times of `spread`, in seconds. share: between 0 and 1."""
    return MEDIAN_S * math.exp(SIGMA * NormalDist().inv_cdf(share))


class Handler:
    """Answers requests after their service time. kind: `spread` or `stalls`."""

    def __init__(self, kind: str) -> None:
        self._has_stalls = kind == "stalls"
        self._started_at = time.perf_counter()
        self._num = 0

    def service_time_s(self) -> float:
        """The service time of the next response, in seconds."""
        if not self._has_stalls:
            self._num += 1
            return percentile_s(max(1e-6, self._num * GOLDEN % 1.0))
        since_stall_began_s = (time.perf_counter() - self._started_at) % STALL_EVERY_S
        return SHORT_S + max(0.0, STALL_S - since_stall_began_s)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer the requests of one connection."""
        try:
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                _, _, after = head.lower().partition(b"content-length:")
                if after:
                    await reader.readexactly(int(after.split(b"\r\n", 1)[0]))
                await asyncio.sleep(self.service_time_s())
                writer.write(ANSWER)
        except (asyncio.IncompleteReadError, ConnectionError):
            writer.close()


async def main() -> None:
    """Print the port and serve until killed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("kind", choices=("spread", "stalls"))
    args = parser.parse_args()
    server = await asyncio.start_server(Handler(args.kind).serve, "127.0.0.1", 0, backlog=1024)
    print(server.sockets[0].getsockname()[1], flush=True)
    async with server:
        await server.serve_forever()


if __name__ == "__main__":
    uvloop.run(main())
