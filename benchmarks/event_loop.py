"""Measure how long large or numerous requests block the event loop.

A probe in a separate process requests /livez every few milliseconds over one connection. Meanwhile the clients of one
case send their requests to the same server. The probe's largest latency shows how long the event loop was blocked.
Writes JSON and prints a table. Linux only.

    python -m benchmarks.event_loop --output benchmarks/results/event_loop.json
"""

from __future__ import annotations

import argparse
import asyncio
import json
import multiprocessing
import sys
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path

from benchmarks.cache import summary
from benchmarks.fairness import Body, client_cpu_s, items_of
from benchmarks.files import UPLOAD, upload_body
from benchmarks.machine import describe_run
from benchmarks.server_process import HOST, Process, serve_command
from benchmarks.serving import read_sentences

RESULT = Path(__file__).with_name("results") / "event_loop.json"
# The goal for the probe's longest latency. This command shows it, and `benchmarks.engine.summary` compares it.
GOAL_MS = 100.0
PROBE = f"GET /livez HTTP/1.1\r\nHost: {HOST}\r\n\r\n".encode()
PROBE_EVERY_S = 0.004
JSON = "application/json"
SETTINGS = {"files_enabled": "true", "max_file_bytes": "10000000"}
MAX_CHARACTERS = 49_000
NUM_TERMS = 400


@dataclass(frozen=True)
class Case:
    """Clients that repeat one request. expected_status: the status that at least one response should have."""

    name: str
    num_clients: int
    path: str
    content_type: str
    content: Callable[[], bytes]
    expected_status: int = 200


def cached_texts(**more: object) -> bytes:
    """A request of nearly the maximum length. It is the same each time, so its sentences are cached.

    more: further fields of its body.
    """
    sentences, length = [], 0
    for sentence in read_sentences() * 3:
        if length + len(sentence) > MAX_CHARACTERS:
            break
        sentences.append(sentence)
        length += len(sentence) + 1
    body: Body = {
        "text": items_of(sentences),
        "source": "en",
        "target": "de",
        "beam_size": 1,
        "timeout_ms": 60_000,
    }
    return json.dumps({**body, **more}).encode()


def cached_texts_with_terms() -> bytes:
    """The request of `cached_texts` with many glossary terms, which occur in the texts."""
    words = dict.fromkeys(
        word for sentence in read_sentences() for word in sentence.split() if word.isalpha()
    )
    terms = {word: f"{word.capitalize()}x" for word in list(words)[:NUM_TERMS]}
    return cached_texts(glossary={"terms": terms})


def empty_arrays() -> bytes:
    """A body of about 1 MB with as many arrays as possible."""
    return b'{"text": [' + b",".join([b"[]"] * 320_000) + b"]}"


def json_file() -> bytes:
    """An upload of a JSON file of 4 MB. Source and target language are equal, so nothing is decoded."""
    texts = [f"{sentence} {number}" for number in range(120) for sentence in read_sentences()]
    content = json.dumps(dict(enumerate(texts)))[:4_000_000].rpartition(", ")[0] + "}"
    return upload_body("texts.json", content.encode(), source="de", target="de")


TRANSLATE = "/v1/translate"
CASES = (
    Case("1 client, 49,000 characters of cached sentences", 1, TRANSLATE, JSON, cached_texts),
    Case("4 clients, 49,000 characters of cached sentences", 4, TRANSLATE, JSON, cached_texts),
    Case("16 clients, 49,000 characters of cached sentences", 16, TRANSLATE, JSON, cached_texts),
    Case("16 clients, the same with a glossary of 400 terms", 16, TRANSLATE, JSON, cached_texts_with_terms),
    Case("4 clients, 1 MB of empty arrays", 4, TRANSLATE, JSON, empty_arrays, expected_status=413),
    Case("1 client, a JSON file of 4 MB", 1, "/translate_file", UPLOAD, json_file),
)


async def probe(port: int, parent: Connection) -> None:
    """Request /livez repeatedly until the parent sends a message, then send it the latencies in milliseconds."""
    reader, writer = await asyncio.open_connection(HOST, port)
    found = []
    while not parent.poll():
        began_at = time.perf_counter()
        writer.write(PROBE)
        head = await reader.readuntil(b"\r\n\r\n")
        await reader.readexactly(int(head.lower().split(b"content-length:", 1)[1].split(b"\r\n", 1)[0]))
        found.append((time.perf_counter() - began_at) * 1e3)
        await asyncio.sleep(PROBE_EVERY_S)
    writer.close()
    parent.send(found)


def run_probe(port: int, parent: Connection) -> None:
    """Run a probe. It has its own process, so that the work of the load's clients does not delay it."""
    asyncio.run(probe(port, parent))


async def load(port: int, case: Case, seconds: float) -> Counter[int]:
    """Run a case's clients. Returns the number of responses by status."""
    content, statuses = case.content(), Counter[int]()
    head = f"POST {case.path} HTTP/1.1\r\nHost: {HOST}\r\nContent-Type: {case.content_type}\r\n"
    request = f"{head}Content-Length: {len(content)}\r\n\r\n".encode() + content
    until = time.perf_counter() + seconds

    async def client() -> None:
        while time.perf_counter() < until:
            reader, writer = await asyncio.open_connection(HOST, port, limit=1 << 20)
            writer.write(request)
            answer = (await reader.readuntil(b"\r\n\r\n")).lower()
            await reader.readexactly(int(answer.split(b"content-length:", 1)[1].split(b"\r\n", 1)[0]))
            writer.close()
            statuses[int(answer.split(b" ")[1])] += 1

    async with asyncio.TaskGroup() as group:
        for _ in range(case.num_clients):
            group.create_task(client())
    return statuses


def measure(port: int, case: Case, seconds: float) -> dict[str, object]:
    """Run a case once so that its sentences are cached, then run it with the probe."""
    asyncio.run(load(port, case, 0.001))
    pipe, probe_end = multiprocessing.Pipe()
    probing = multiprocessing.get_context("spawn").Process(target=run_probe, args=(port, probe_end))
    probing.start()
    time.sleep(0.5)
    cpu_before_s, began_at = client_cpu_s(), time.perf_counter()
    statuses = asyncio.run(load(port, case, seconds))
    share = (client_cpu_s() - cpu_before_s) / (time.perf_counter() - began_at)
    pipe.send("end")
    found: list[float] = pipe.recv()
    probing.join()
    return {
        "case": case.name,
        "probes": summary(found),
        "statuses": {str(status): number for status, number in sorted(statuses.items())},
        "has_expected_status": case.expected_status in statuses,
        "testers_share_of_a_core": round(share, 3),
    }


def table(found: Sequence[dict[str, object]]) -> str:
    """The figures as a Markdown table."""
    rows = ["| case | goal for the longest | seen |", "|---|---|---|"]
    for one in found:
        probes = one["probes"]
        assert isinstance(probes, dict)
        seen = f"median {probes['p50_ms']:.0f}, p99 {probes['p99_ms']:.0f}, longest {probes['max_ms']:.0f} ms"
        rows.append(f"| {one['case']} | {GOAL_MS:.0f} ms | {seen} |")
    return "\n".join(rows)


def main() -> None:
    """Measure, print the table, and write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--output", type=Path, default=RESULT, help="JSON file")
    parser.add_argument("--seconds", type=float, default=4.0, help="duration of each case (default: 4)")
    args = parser.parse_args()
    run = describe_run("benchmarks.event_loop")
    found = []
    with Process(serve_command(sys.executable, None, SETTINGS)) as server:
        for case in CASES:
            found.append(measure(server.port, case, args.seconds))
            print(json.dumps(found[-1]), flush=True)
    print(table(found))
    result = {**run, "figures": found}
    args.output.write_text(json.dumps(result, indent=1) + "\n", "utf-8")


if __name__ == "__main__":
    main()
