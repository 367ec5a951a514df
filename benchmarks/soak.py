"""Measure the growth of a server's memory under mixed traffic, by process and kind of memory.

Clients send a random mix of requests: lines, paragraphs, beams, samples, alignments, streams and invalid bodies. They
close some connections before the answer. At every interval the benchmark reads the private memory of the server and of
each worker, by kind:

- row caches: keys and values of all rows. If a column of a cache has MIN_DENSE_BYTES (`app/runtime/native_runner.py`)
  or more, only the first NUM_SPARSE_ROWS rows of this cache count here
- kernels: scratch memory of the native kernels, their weights unless other processes share them, and the other rows of
  such a cache
- copied: pages that a worker shared after the fork and has written since
- allocator: other memory of the C allocator
- files: pages of mapped files that no other process has in memory, written or not

Linux only.

    python -m benchmarks.soak --minutes 10 --output benchmarks/results/soak.json
"""

from __future__ import annotations

import argparse
import http.client
import json
import os
import random
import socket
import sys
import threading
import time
from collections import Counter
from pathlib import Path
from typing import Any

from benchmarks.machine import describe_run
from benchmarks.server_process import HOST, ServeOptions, ServerProcess
from benchmarks.serving import read_sentences
from transduce.loadtest.server_side import processes_of

RESULT = Path(__file__).with_name("results") / "soak.json"
NUM_CLIENTS = 8
# Shares of all requests: invalid requests, and requests whose client disconnects before the answer.
SHARE_INVALID, SHARE_DISCONNECTING = 0.1, 0.1
ROW_CACHES = "row caches"
KINDS = (ROW_CACHES, "kernels", "copied", "allocator", "files")
HEADERS = {"content-type": "application/json"}


def private_memory(pid: int | str) -> dict[str, float]:
    """Private memory of a process in 10^6 bytes by kind (KINDS). Raises OSError if it has ended."""
    found = dict.fromkeys(KINDS, 0.0)
    path, private, is_shared = "", 0, False
    for line in Path(f"/proc/{pid}/smaps").read_text("utf-8", errors="replace").splitlines():
        name, _, rest = line.partition(":")
        if name in ("Private_Clean", "Private_Dirty"):
            private += int(rest.split()[0]) * 1024
        elif name == "Shared_Dirty":
            is_shared = int(rest.split()[0]) > 0
        elif name == "VmFlags":
            kind = _kind(path, set(rest.split()))
            found["copied" if kind == "allocator" and is_shared else kind] += private / 1e6
            private = 0
        elif "-" in name.split(" ")[0] and " " in line:
            path = line.split(maxsplit=5)[5] if len(line.split(maxsplit=5)) == 6 else ""
            private = 0
    return found


def _kind(path: str, flags: set[str]) -> str:
    """The kind of a mapping. madvise flags mark row caches (nh, no huge pages) and kernels (hg, huge pages)."""
    if path.startswith("/"):
        return "files"
    if path:
        return "allocator"
    return ROW_CACHES if "nh" in flags else "kernels" if "hg" in flags else "allocator"


class Traffic:
    """One client's random requests. counts: responses by status, and connections that were closed or failed."""

    def __init__(self, port: int, seed: int, words: list[str]) -> None:
        self._port = port
        self._chance = random.Random(seed)
        self._words = words
        self.counts: Counter[str] = Counter()

    def run(self, until: float) -> None:
        """Send requests one after another until a time of time.monotonic."""
        connection = http.client.HTTPConnection(HOST, self._port, timeout=60)
        while time.monotonic() < until:
            drawn = self._chance.random()
            try:
                if drawn < SHARE_DISCONNECTING:
                    self._disconnect_early()
                    continue
                path, body = self._request()
                if drawn < SHARE_DISCONNECTING + SHARE_INVALID:
                    body = body[: self._chance.randrange(len(body))]
                connection.request("POST", path, body, HEADERS)
                answer = connection.getresponse()
                answer.read()
                self.counts[str(answer.status)] += 1
            except (OSError, http.client.HTTPException):
                self.counts["connection failed"] += 1
                connection.close()
        connection.close()

    def _request(self) -> tuple[str, bytes]:
        """A random path and body."""
        chance = self._chance
        lines = [self._line() for _ in range(chance.choice((1, 1, 1, 1, 4, 16)))]
        fields: dict[str, Any] = {"text": lines, "source": "en", "target": "de"}
        path = "/v1/translate"
        kind = chance.randrange(8)
        if kind == 0:
            fields |= {"sampling": {"seed": chance.randrange(1 << 30)}}
        elif kind == 1:
            path, fields["text"] = "/v1/translate/stream", " ".join(lines)
        elif kind == 2:
            fields |= {"beam_size": 4, "alignment": True, "num_hypotheses": 2}
        else:
            fields |= {"beam_size": chance.choice((1, 1, 2, 4, 4, 8, 16))}
        return path, json.dumps(fields).encode()

    def _line(self) -> str:
        length = self._chance.choice((3, 6, 9, 12, 15, 20, 30, 60))
        return " ".join(self._chance.choices(self._words, k=length)).capitalize() + "."

    def _disconnect_early(self) -> None:
        """Send a request, wait a little, and close the connection. Raises OSError."""
        path, body = self._request()
        head = f"POST {path} HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\n"
        head += f"content-length: {len(body)}\r\n\r\n"
        with socket.create_connection((HOST, self._port), timeout=60) as connection:
            connection.sendall(head.encode() + body)
            time.sleep(self._chance.random() * 0.1)
        self.counts["disconnected"] += 1


def measure(server: ServerProcess, *, minutes: float, interval_s: float) -> dict[str, Any]:
    """Memory of every process by kind, at the start and after every interval; and the clients' counts."""
    words = sorted({word.strip(".,;:!?\"'()").lower() for line in read_sentences() for word in line.split()})
    until = time.monotonic() + 60 * minutes
    clients = [Traffic(server.port, seed, words) for seed in range(NUM_CLIENTS)]
    threads = [threading.Thread(target=client.run, args=(until,)) for client in clients]
    pids = processes_of(server.pid)
    samples: list[dict[str, Any]] = [{"minutes": 0.0, "processes": [private_memory(pid) for pid in pids]}]
    started_at = time.monotonic()
    for thread in threads:
        thread.start()
    while any(thread.is_alive() for thread in threads):
        time.sleep(interval_s)
        now = (time.monotonic() - started_at) / 60
        samples.append({"minutes": round(now, 2), "processes": [private_memory(pid) for pid in pids]})
        print(
            f"{now:5.1f} min", *(memory_line(one) for one in samples[-1]["processes"]), sep="  ", flush=True
        )
    return {"samples": samples, "answers": dict(sum((one.counts for one in clients), Counter[str]()))}


def memory_line(memory: dict[str, float]) -> str:
    """One process's memory as a line."""
    return " + ".join(f"{memory[kind]:.2f}" for kind in KINDS)


def main() -> int:
    """Measure, print each sample and write JSON. A sample has the server's process first, then its workers."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--python", default=sys.executable, help="the server's Python (default: this one)")
    parser.add_argument("--bundle", type=Path, help="the bundle that is served (default: the bundled model)")
    parser.add_argument("--minutes", type=float, default=10.0, help="duration of the traffic (default: 10)")
    parser.add_argument(
        "--interval", type=float, default=30.0, metavar="S", help="seconds between two samples (default: 30)"
    )
    parser.add_argument(
        "--niceness", type=int, default=0, help="niceness of the server and the clients (default: 0)"
    )
    parser.add_argument("--output", type=Path, default=RESULT, help="JSON file")
    args = parser.parse_args()
    os.nice(args.niceness)
    run = describe_run("benchmarks.soak", python=args.python)
    print("private memory in MB:", " + ".join(KINDS), flush=True)
    with ServerProcess(ServeOptions(args.python, args.bundle, has_cache=True)) as server:
        found = measure(server, minutes=args.minutes, interval_s=args.interval)
    result = {
        **run,
        **found,
    }
    args.output.write_text(json.dumps(result, indent=1) + "\n", "utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
