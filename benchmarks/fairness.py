"""Measure whether one caller's load delays another caller's requests.

The quiet caller sends five lines a second, each on an open connection. The loud caller sends the case's load. Each
case has its own server. In each turn the quiet caller runs alone, then beside the load. Latency counts from the time
when a line was due. The clients run on the server's cores, so the result has the share of a core that the clients use.
Writes JSON and prints a table. Linux only.

    python -m benchmarks.fairness --output benchmarks/results/fairness.json
"""

from __future__ import annotations

import argparse
import asyncio
import hashlib
import itertools
import json
import random
import resource
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.cache import summary
from benchmarks.machine import describe_run
from benchmarks.server_process import HOST, NO_CACHE, Process, serve_command
from benchmarks.serving import read_sentences

RESULT = Path(__file__).with_name("results") / "fairness.json"
OTHER_ADDRESS = "127.0.0.2"
LINES_A_SECOND = 5.0
LOUD, QUIET = "loud", "quiet"
# The goal for the p99 latency beside the load, as a multiple of the p99 alone. This command shows it, and
# `benchmarks.engine.summary` compares it.
GOAL = 3.0
PAUSE_S = 1.0  # after the load stops, so that the server can cancel its running requests
MAX_CHARACTERS, MAX_ITEM_CHARACTERS = 49_000, 4_900

Body = dict[str, object]


@dataclass(frozen=True)
class Case:
    """The loud caller's load: closed-loop clients. bodies: returns the next request's body.

    has_keys: True if API keys identify the callers. False if their addresses do.
    """

    name: str
    num_clients: int
    bodies: Callable[[Iterator[str]], Body]
    has_keys: bool = True


@dataclass
class Results:
    """Results of all runs alone, or of all runs beside the load.

    statuses: the quiet caller's. served_ms: the quiet caller's latencies of responses with status 200. loud: the loud
    caller's statuses.
    """

    statuses: Counter[int] = field(default_factory=Counter)
    served_ms: list[float] = field(default_factory=list)
    loud: Counter[int] = field(default_factory=Counter)


def _body(text: str | list[str], **options: object) -> Body:
    return {"text": text, "source": "en", "target": "de", "timeout_ms": 20_000, **options}


def _lines(number: int, **options: object) -> Callable[[Iterator[str]], Body]:
    return lambda sentences: _body(list(itertools.islice(sentences, number)), **options)


def _short(number: int) -> Callable[[Iterator[str]], Body]:
    """A function that returns a request of `number` short sentences."""

    def body(sentences: Iterator[str]) -> Body:
        short = [" ".join(next(sentences).split()[:4]).rstrip(".,;:?!") + "." for _ in range(number)]
        return _body(items_of(short))

    return body


def _full(sentences: Iterator[str]) -> Body:
    """A request of a little more than MAX_CHARACTERS, which is near the server's limit."""
    chosen, length = [], 0
    while length < MAX_CHARACTERS:
        chosen.append(next(sentences))
        length += len(chosen[-1]) + 1
    return _body(items_of(chosen))


def items_of(sentences: Sequence[str]) -> list[str]:
    """Join sentences to texts of at most MAX_ITEM_CHARACTERS, not counting the space at the end of each text."""
    texts = [""]
    for sentence in sentences:
        if len(texts[-1]) + len(sentence) > MAX_ITEM_CHARACTERS:
            texts.append("")
        texts[-1] += f"{sentence} "
    return texts


CASES = (
    Case("16 clients, 128 lines each, beam 16", 16, _lines(128, beam_size=16)),
    Case("16 clients, 128 lines each, beam 4", 16, _lines(128, beam_size=4)),
    Case("60 lines, beam 16, min_target_length 200", 1, _lines(60, beam_size=16, min_target_length=200)),
    Case("4 clients, 1,000 sentences each", 4, _short(1000)),
    Case("64 clients, one line each", 64, _lines(1)),
    Case("64 clients, one line each, beam 16", 64, _lines(1, beam_size=16)),
    Case("4 clients, 49,000 characters each, by address", 4, _full, has_keys=False),
)


def shuffled_forever(sentences: Sequence[str]) -> Iterator[str]:
    """The sentences again and again, in a new random order each time."""
    draw = random.Random(3)
    while True:
        yield from draw.sample(sentences, len(sentences))


class Client:
    """One connection of a caller. The caller is identified by its API key or by its local address."""

    def __init__(self, port: int, caller: str, *, has_keys: bool) -> None:
        self._port = port
        self._key = caller if has_keys else ""
        self._address = OTHER_ADDRESS if caller == QUIET and not has_keys else HOST

    async def open(self) -> None:
        """Open the connection."""
        self._reader, self._writer = await asyncio.open_connection(
            HOST, self._port, local_addr=(self._address, 0)
        )

    def close(self) -> None:
        """Close the connection."""
        self._writer.close()

    async def post(self, body: Body) -> tuple[int, float]:
        """Send a request. Returns the status, and Retry-After in seconds; 0 if it is missing."""
        content = json.dumps(body).encode()
        key = f"Authorization: Bearer {self._key}\r\n" if self._key else ""
        head = f"POST /v1/translate HTTP/1.1\r\nHost: {HOST}\r\n{key}Content-Type: application/json\r\n"
        self._writer.write(f"{head}Content-Length: {len(content)}\r\n\r\n".encode() + content)
        answer = (await self._reader.readuntil(b"\r\n\r\n")).lower()
        await self._reader.readexactly(int(answer.split(b"content-length:", 1)[1].split(b"\r\n", 1)[0]))
        retry = answer.partition(b"retry-after:")[2].partition(b"\r\n")[0]
        return int(answer.split(b" ")[1]), float(retry or 0)


async def send_lines(
    port: int, case: Case, sentences: Sequence[str], results: Results, *, seconds: float
) -> None:
    """Send each of the quiet caller's lines when it is due, without waiting for earlier answers."""
    idle: list[Client] = []
    draw = random.Random(11)

    async def one(sentence: str, due_at: float) -> None:
        client = idle.pop() if idle else None
        if client is None:
            client = Client(port, QUIET, has_keys=case.has_keys)
            await client.open()
        status, _ = await client.post(_body(sentence))
        results.statuses[status] += 1
        if status == 200:
            results.served_ms.append((time.perf_counter() - due_at) * 1e3)
        idle.append(client)

    for _ in range(4):
        client = Client(port, QUIET, has_keys=case.has_keys)
        await client.open()
        idle.append(client)
    due_at = time.perf_counter()
    until = due_at + seconds
    async with asyncio.TaskGroup() as group:
        for sentence in itertools.cycle(sentences):
            due_at += draw.uniform(0.5, 1.5) / LINES_A_SECOND
            if due_at > until:
                break
            await asyncio.sleep(max(0.0, due_at - time.perf_counter()))
            group.create_task(one(sentence, due_at))
    for client in idle:
        client.close()


async def send_lines_beside_load(
    port: int, case: Case, sentences: Sequence[str], results: Results, *, seconds: float
) -> None:
    """Measure the quiet caller beside the load, which starts a second earlier.

    Raises the error of a load client that has failed.
    """
    upcoming = shuffled_forever(sentences)

    async def load() -> None:
        client = Client(port, LOUD, has_keys=case.has_keys)
        await client.open()
        try:
            while True:
                status, retry_after_s = await client.post(case.bodies(upcoming))
                results.loud[status] += 1
                await asyncio.sleep(min(retry_after_s, 1.0))
        finally:
            client.close()

    loads = [asyncio.ensure_future(load()) for _ in range(case.num_clients)]
    await asyncio.sleep(1.0)
    await send_lines(port, case, sentences, results, seconds=seconds)
    for task in loads:
        task.cancel()
    for end in await asyncio.gather(*loads, return_exceptions=True):
        if isinstance(end, Exception):
            raise end  # without this client, the load was smaller than the case's


def measure(case: Case, *, seconds: float, num_turns: int, sentences: Sequence[str]) -> dict[str, object]:
    """Run one case on its own server."""
    settings = dict(NO_CACHE)
    if case.has_keys:
        settings["api_keys"] = ",".join(hashlib.sha256(name.encode()).hexdigest() for name in (LOUD, QUIET))
    alone, together = Results(), Results()
    with Process(serve_command(sys.executable, None, settings)) as server:
        asyncio.run(send_lines(server.port, case, sentences, Results(), seconds=1.0))  # warm-up
        cpu_before_s, began_at = client_cpu_s(), time.perf_counter()
        for _ in range(num_turns):
            asyncio.run(send_lines(server.port, case, sentences, alone, seconds=seconds))
            asyncio.run(send_lines_beside_load(server.port, case, sentences, together, seconds=seconds))
            time.sleep(PAUSE_S)
        client_s, wall_s = client_cpu_s() - cpu_before_s, time.perf_counter() - began_at
    idle, seen = summary(alone.served_ms), summary(together.served_ms) if together.served_ms else None
    return {
        "case": case.name,
        "alone": idle,
        "beside": seen,
        "times_p99": round(seen["p99_ms"] / idle["p99_ms"], 2) if seen else None,
        "times_p50": round(seen["p50_ms"] / idle["p50_ms"], 2) if seen else None,
        "statuses": {str(status): number for status, number in sorted(together.statuses.items())},
        "statuses_of_the_load": {str(status): number for status, number in sorted(together.loud.items())},
        "testers_share_of_a_core": round(client_s / wall_s, 3),
    }


def client_cpu_s() -> float:
    """CPU time of this process, which runs the clients."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def table(found: Sequence[dict[str, object]]) -> str:
    """The figures as a Markdown table."""
    rows = ["| case | goal | seen |", "|---|---|---|"]
    for one in found:
        idle, seen, statuses = one["alone"], one["beside"], one["statuses"]
        assert isinstance(idle, dict)
        assert isinstance(statuses, dict)
        latency = "none answered"
        if isinstance(seen, dict):
            latency = f"p50 {one['times_p50']} times, p99 {one['times_p99']} times"
            latency += f" ({idle['p99_ms']:.0f} to {seen['p99_ms']:.0f} ms)"
        refused = sum(number for status, number in statuses.items() if status != "200")
        rows.append(
            f"| {one['case']} | none refused, p99 at most {GOAL:g} times that alone | "
            f"{refused} of {sum(statuses.values())} refused; {latency} |"
        )
    return "\n".join(rows)


def main() -> None:
    """Measure, print the table, and write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--output", type=Path, default=RESULT, help="JSON file")
    parser.add_argument(
        "--seconds", type=float, default=6.0, help="duration of a run, alone or beside the load (default: 6)"
    )
    parser.add_argument(
        "--turns", type=int, default=2, help="number of runs alone, and of runs beside the load (default: 2)"
    )
    parser.add_argument(
        "--case",
        type=int,
        choices=range(1, len(CASES) + 1),
        action="append",
        help="case number, from 1; may be repeated (default: all)",
    )
    args = parser.parse_args()
    chosen = [CASES[number - 1] for number in args.case] if args.case else CASES
    run = describe_run("benchmarks.fairness")
    found = []
    for case in chosen:
        one = measure(case, seconds=args.seconds, num_turns=args.turns, sentences=read_sentences())
        found.append(one)
        print(json.dumps(one), flush=True)
    print(table(found))
    result = {**run, "figures": found}
    args.output.write_text(json.dumps(result, indent=1) + "\n", "utf-8")


if __name__ == "__main__":
    main()
