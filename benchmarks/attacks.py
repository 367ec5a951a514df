"""Attack a real server over sockets. Show the limit that applies, its effect, and the effect on another caller.

Each attack comes from one address. A neighbour at another address sends a text on a new connection, requests /livez,
and waits for 50 ms, again and again. Its texts are in turn a short line, one of some 300 characters, and a line whose
language the server detects. The server prepares the short line on its event loop, and the other two on threads. Writes
JSON; `python -m benchmarks.engine.page` makes the table of docs/operations.md. Linux only.

    python -m benchmarks.attacks --output benchmarks/results/attacks.json
"""

from __future__ import annotations

import argparse
import http.client
import itertools
import json
import multiprocessing
import resource
import sys
import time
from collections.abc import Sequence
from multiprocessing.connection import Connection
from multiprocessing.synchronize import Event
from pathlib import Path
from typing import Self

from benchmarks.attack_cases import ATTACKS, NEIGHBOUR, Attack, post
from benchmarks.attack_ends import ENDS
from benchmarks.machine import measured
from benchmarks.server_process import HOST, NO_CACHE, Process, serve_command

RESULT = Path(__file__).with_name("results") / "attacks.json"
NEIGHBOUR_PAUSE_S = 0.05  # before each text of the neighbour
LONG_LINE = "The old man walks slowly to the river and looks at the water. " * 5
PAUSE_S = 1.0  # after an attack, so that the server can close its connections
SETTINGS = {**NO_CACHE, "files_enabled": "true", "reader_stall_s": "2"}


class Neighbour:
    """Another caller, in a process of its own. It sends texts during a `with` block, in which the attack runs.

    num_failures: texts that were not translated, or after which /livez did not answer 200. times_ms: latencies of all
    other texts. Both are set when the block ends.
    """

    def __init__(self, port: int) -> None:
        self._is_over = multiprocessing.Event()
        self._results, results = multiprocessing.Pipe(duplex=False)
        self._process = multiprocessing.Process(target=_send_texts, args=(port, self._is_over, results))
        self.times_ms: list[float] = []
        self.num_failures = 0

    def __enter__(self) -> Self:
        self._process.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_over.set()
        self.times_ms, self.num_failures = self._results.recv()
        self._process.join()


def _send_texts(port: int, is_over: Event, results: Connection) -> None:
    """Send texts and probes until is_over. Sends the times in ms and the number of failures to `results`."""
    times_ms: list[float] = []
    num_failures = 0
    for number in itertools.count():
        if is_over.wait(NEIGHBOUR_PAUSE_S):
            break
        started_at = time.perf_counter()
        try:
            status = post(port, _text(number), address=NEIGHBOUR)
            time_ms = 1000 * (time.perf_counter() - started_at)
            is_alive = _probe(port)
        except (OSError, http.client.HTTPException):
            status, is_alive = 0, False
        if status == 200 and is_alive:
            times_ms.append(time_ms)
        else:
            num_failures += 1
    results.send((times_ms, num_failures))


def _text(number: int) -> dict[str, object]:
    """The body of the neighbour's request with this number."""
    bodies: tuple[dict[str, object], ...] = (
        {"text": f"House {number} is green."},
        {"text": f"{LONG_LINE}House {number} is green."},
        {"text": f"House {number} is green.", "source": "auto"},
    )
    return bodies[number % len(bodies)]


def _probe(port: int) -> bool:
    connection = http.client.HTTPConnection(HOST, port, timeout=10, source_address=(NEIGHBOUR, 0))
    try:
        connection.request("GET", "/livez")
        return connection.getresponse().status == 200
    finally:
        connection.close()


def attack_server(attacks: Sequence[Attack]) -> list[dict[str, object]]:
    """Run attacks one after another against one server. Returns a row for each."""
    rows: list[dict[str, object]] = []
    with Process(serve_command(sys.executable, None, SETTINGS)) as server:
        for attack in attacks:
            with Neighbour(server.port) as neighbour:
                time.sleep(4 * NEIGHBOUR_PAUSE_S)
                seen = attack.run(server)
                time.sleep(4 * NEIGHBOUR_PAUSE_S)
            rows.append(
                {
                    "attack": attack.name,
                    "limit": attack.limit,
                    "seen": seen,
                    "neighbour": {
                        "num_answered": len(neighbour.times_ms),
                        "num_failures": neighbour.num_failures,
                        "max_ms": round(max(neighbour.times_ms, default=0.0)),
                    },
                }
            )
            print(json.dumps(rows[-1]), file=sys.stderr)
            time.sleep(PAUSE_S)
    return rows


def all_rows(pattern: str) -> list[dict[str, object]]:
    """The rows of all attacks whose names contain `pattern`. Attacks that end a server have no neighbour."""
    rows = attack_server([attack for attack in ATTACKS if pattern in attack.name])
    for name, limit, run in ENDS:
        if pattern in name:
            rows.append({"attack": name, "limit": limit, "seen": run()})
            print(json.dumps(rows[-1]), file=sys.stderr)
    return rows


def main(arguments: Sequence[str] | None = None) -> int:
    """Attack, print and write; returns the exit code."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--output", type=Path, default=RESULT)
    parser.add_argument("--only", default="", help="run the attacks whose names contain this")
    args = parser.parse_args(arguments)
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, 8192), hard))
    result = measured("benchmarks.attacks", lambda: all_rows(args.only))
    args.output.parent.mkdir(parents=True, exist_ok=True)
    args.output.write_text(json.dumps(result, indent=1) + "\n", "utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
