"""Soak: the private memory of a server and its workers must not grow with the number of requests.

After a warm-up, the memory is read after every SAMPLE_REQUESTS requests of mixed traffic (benchmarks/soak.py), while
the server is idle. The slope is the median of the slopes between all pairs of samples, so a single early jump does not
count. Row caches do not count: they have their full size from the start, and the system gives them each page at its
first use. The sentence cache is off, because it fills. At least MIN_SHARE_TRANSLATED of the requests must be
translated, and no request may fail. Linux only.

    python -m tests.faults.soak --minutes 30
"""

from __future__ import annotations

import argparse
import itertools
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from statistics import median
from typing import NamedTuple

from benchmarks.serving import read_sentences
from benchmarks.soak import NUM_CLIENTS, ROW_CACHES, Traffic, private_memory
from tests.api.server_process import ServerProcess
from tests.faults import chaos
from transduce.loadtest.server_side import processes_of

# Room for one request of each client. A request has up to 16 lines, and a line may have several sentences.
SETTINGS = {
    **chaos.SETTINGS,
    "bundle": chaos.BUNDLED,
    "max_request_sentences": 64,
    "max_pending_sentences": 64 * NUM_CLIENTS,
}
SAMPLE_REQUESTS = 500
NUM_WARM_UP = 4  # samples that do not count
# The largest slope of `make soak`, in bytes for each request.
MAX_SLOPE = 1_000.0
# At least this share of the requests whose clients wait must get 200. One in nine of these requests is invalid.
MIN_SHARE_TRANSLATED = 0.7
# The traffic stops after each SLICE_S seconds, and its requests are counted.
SLICE_S = 0.5


class Sample(NamedTuple):
    """num_requests: so far. num_bytes: private memory without the row caches. num_cache_bytes: of the row caches."""

    num_requests: int
    num_bytes: float
    num_cache_bytes: float = 0.0


def slope(samples: Sequence[Sample]) -> float:
    """Bytes that are added for each request (Theil and Sen). Raises StatisticsError for fewer than two samples."""
    pairs = itertools.combinations(samples, 2)
    return median((b.num_bytes - a.num_bytes) / (b.num_requests - a.num_requests) for a, b in pairs)


def problems(counts: Counter[str]) -> list[str]:
    """The reasons why the traffic does not count as served. counts: as in `Traffic`, of all clients together."""
    found = [
        f"{name}: {number:,} requests"
        for name, number in sorted(counts.items())
        if name == "connection failed" or (name.startswith("5") and name != "503")
    ]
    num_waited = counts.total() - counts["disconnected"]
    if counts["200"] < MIN_SHARE_TRANSLATED * num_waited:
        found.append(
            f"{counts['200']:,} of {num_waited:,} requests got 200, less than {MIN_SHARE_TRANSLATED:.0%}"
        )
    return found


def sample_memory(pid: int, clients: Sequence[Traffic], *, num_requests: int) -> Iterator[Sample]:
    """Let the clients send requests, and yield a sample whenever they have sent num_requests more. Without end."""
    goal = num_requests
    while True:
        while (sent := sum(client.counts.total() for client in clients)) < goal:
            until = time.monotonic() + SLICE_S
            with ThreadPoolExecutor(len(clients)) as pool:
                for done in [pool.submit(client.run, until) for client in clients]:
                    done.result()
        goal = sent + num_requests
        yield _sample(pid, sent)


def _sample(pid: int, num_requests: int) -> Sample:
    """The memory of a server and its workers now. pid: of the server."""
    memories = [private_memory(each) for each in processes_of(pid)]
    caches = sum(memory.pop(ROW_CACHES) for memory in memories)
    return Sample(num_requests, 1e6 * sum(sum(memory.values()) for memory in memories), 1e6 * caches)


def words() -> list[str]:
    """The words of the benchmark's sentences."""
    return sorted({word.strip(".,;:!?\"'()").lower() for line in read_sentences() for word in line.split()})


def main() -> int:
    """Soak for some minutes, and print each sample. Exit code 1 if the slope is too large or there are `problems`."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.faults.soak",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--minutes", type=float, default=30.0, help="default: 30")
    parser.add_argument(
        "--max-slope", type=float, default=MAX_SLOPE, help=f"bytes a request (default: {MAX_SLOPE:.0f})"
    )
    args = parser.parse_args()
    with ServerProcess(chaos.COMMAND, SETTINGS) as server:
        port = server.ready().port
        clients = [Traffic(port, seed, words()) for seed in range(NUM_CLIENTS)]
        until = time.monotonic() + 60 * args.minutes
        samples = []
        for sample in sample_memory(server.pid, clients, num_requests=SAMPLE_REQUESTS):
            counts = sum((client.counts for client in clients), Counter[str]())
            shown = "  ".join(f"{name}: {number:,}" for name, number in sorted(counts.items()))
            memory = (
                f"{sample.num_bytes / 1e6:8.2f} MB + {sample.num_cache_bytes / 1e6:6.2f} MB of row caches"
            )
            print(f"{sample.num_requests:8,} requests  {memory}  {shown}", flush=True)
            samples.append(sample)
            if time.monotonic() > until and len(samples) >= NUM_WARM_UP + 2:
                break
    found = slope(samples[NUM_WARM_UP:])
    print(f"{found:,.0f} bytes a request; the limit is {args.max_slope:,.0f}")
    failures = problems(counts)
    print(*failures, sep="\n", end="\n" if failures else "")
    return 1 if failures or found > args.max_slope else 0


if __name__ == "__main__":
    sys.exit(main())
