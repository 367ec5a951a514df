"""Replace the served model ten times under load, and compare every answer with the answers of the two versions.

Each version first answers all requests on a server of its own. Then one server serves a copy of the first version. It
gets requests at a share of the slower version's capacity. Meanwhile the two versions replace each other, and SIGHUP
makes the server reload. The result counts the requests without an answer, and the answers in which a sentence differs
from the answer of the version they name. Both should be 0. Writes JSON. Linux only.

    python -m benchmarks.swaps --old BUNDLE --new bundles/en-de --output benchmarks/results/swaps.json
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import json
import random
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from os import kill
from pathlib import Path
from typing import Any

from benchmarks.cache import PAIR, summary
from benchmarks.load import (
    TIMEOUT_MS,
    Connection,
    LoadError,
    Request,
    TimedAnswer,
    closed_loop,
    rate_of,
    request_of,
)
from benchmarks.machine import measured
from benchmarks.server_process import ServeOptions, ServerProcess
from benchmarks.serving import read_sentences

RESULT = Path(__file__).with_name("results") / "swaps.json"
NUM_CLIENTS = 32  # of the pass that measures the capacity
SENTENCES_A_REQUEST = 4
SEED = 11
POLL_S = 0.05
RELOADS = 'transduce_reloads_total{outcome="done"}'
FAILED_RELOADS = 'transduce_reloads_total{outcome="failed"}'

Texts = tuple[str, ...]


@dataclass(frozen=True)
class Answer:
    """A request's answer. version: the model version that the answer names. texts: the translations."""

    version: str
    texts: Texts

    @classmethod
    def parse(cls, answer: TimedAnswer) -> Answer:
        """The answer in a response's body."""
        found: Any = json.loads(answer.body)
        return cls(found["model"]["version"], tuple(one["text"] for one in found["translations"]))


def make_requests() -> list[Request]:
    """Requests of several sentences each, from the benchmark's sentences."""
    sentences, requests = read_sentences(), []
    for number, start in enumerate(range(0, len(sentences), SENTENCES_A_REQUEST)):
        texts = sentences[start : start + SENTENCES_A_REQUEST]
        fields = {"text": texts, "source": PAIR[0], "target": PAIR[1], "timeout_ms": TIMEOUT_MS}
        requests.append(request_of(number, fields))
    return requests


def answers_alone(bundle: Path, requests: Sequence[Request]) -> tuple[dict[int, Answer], float]:
    """The answers of a server that has only this version, by request number, and the requests/s of a closed loop."""
    with ServerProcess(ServeOptions(sys.executable, bundle)) as server:
        loop = closed_loop(
            server.port, requests, num_clients=NUM_CLIENTS, num_answers=2 * len(requests), limit_s=300
        )
        answers = asyncio.run(loop)
    rate = rate_of([answer.ended_at for answer in answers], num_warm_up=NUM_CLIENTS)
    return {answer.request.number: Answer.parse(answer) for answer in answers}, rate


def put_bundle(source: Path, folder: Path) -> None:
    """Replace the bundle at `folder` by a copy, as an operator does: write it beside the old one, then rename both."""
    fresh, old = folder.with_name("fresh"), folder.with_name("old")
    shutil.copytree(source, fresh)
    if folder.exists():
        folder.rename(old)
    fresh.rename(folder)
    shutil.rmtree(old, ignore_errors=True)


async def swap(
    server: ServerProcess, folder: Path, bundles: Sequence[Path], *, every_s: float
) -> list[float]:
    """Replace the served bundle by each of these in turn. Returns the seconds of each replacement.

    every_s: seconds from the start of one replacement to the start of the next, if the first has ended by then.
    Raises RuntimeError if a replacement fails.
    """
    took = []
    for number, bundle in enumerate(bundles, start=1):
        started_at = time.perf_counter()
        await asyncio.to_thread(put_bundle, bundle, folder)
        kill(server.pid, signal.SIGHUP)
        while await asyncio.to_thread(server.metric, RELOADS) < number:
            if await asyncio.to_thread(server.metric, FAILED_RELOADS):
                raise RuntimeError(f"replacement {number} failed")
            await asyncio.sleep(POLL_S)
        took.append(time.perf_counter() - started_at)
        await asyncio.sleep(max(0.0, every_s - took[-1]))
    return took


async def under_load(
    server: ServerProcess, requests: Sequence[Request], *, rate: float, until: asyncio.Task[list[float]]
) -> tuple[list[TimedAnswer], list[str]]:
    """Send requests at Poisson times until a task has ended. Returns the answers and the failures."""
    draw, answers, failures = random.Random(SEED), list[TimedAnswer](), list[str]()

    async def send(request: Request, due_at: float) -> None:
        try:
            async with Connection(server.port) as connection:
                answers.append(await connection.post(request, due_at=due_at))
        except (OSError, EOFError, LoadError) as error:
            failures.append(f"{type(error).__name__}: {error}"[:200])

    due_at = time.perf_counter()
    async with asyncio.TaskGroup() as group:
        for request in itertools.cycle(requests):
            due_at += draw.expovariate(rate)
            with suppress(TimeoutError):
                await asyncio.wait_for(asyncio.shield(until), max(0.0, due_at - time.perf_counter()))
            if until.done():
                break
            group.create_task(send(request, due_at))
    return answers, failures


def compared(
    answers: Sequence[TimedAnswer], expected: Mapping[str, Mapping[int, Answer]]
) -> dict[str, object]:
    """How many answers each version gave, and how many differ from the answer of the version they name."""
    by_version: Counter[str] = Counter()
    num_other = num_of_neither = 0
    for timed in answers:
        answer = Answer.parse(timed)
        by_version[answer.version] += 1
        number = timed.request.number
        if expected[answer.version][number] != answer:
            num_other += 1
            num_of_neither += all(alone[number].texts != answer.texts for alone in expected.values())
    one, other = expected.values()
    differing = sum(one[number].texts != other[number].texts for number in one)
    return {
        "answers_by_version": dict(sorted(by_version.items())),
        "num_not_of_named_version": num_other,
        "num_of_neither_version": num_of_neither,
        "requests_that_versions_answer_differently": differing,
    }


def measure(old: Path, new: Path, *, seconds: float, num_swaps: int, share: float) -> dict[str, object]:
    """Measure each version on its own server, then the swaps."""
    requests = make_requests()
    expected: dict[str, dict[int, Answer]] = {}
    rates = []
    for bundle in (old, new):
        answers, rate = answers_alone(bundle, requests)
        expected[answers[0].version] = answers
        rates.append(rate)
    if len(expected) < 2:
        sys.exit(f"both bundles have the version {min(expected)}: no answer would tell which of them gave it")
    rate = share * min(rates)
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch) / "bundle"
        put_bundle(old, folder)
        with ServerProcess(ServeOptions(sys.executable, folder)) as server:

            async def run() -> tuple[list[TimedAnswer], list[str], list[float], float]:
                turns = list(itertools.islice(itertools.cycle((new, old)), num_swaps))
                started_at = time.perf_counter()
                swaps = asyncio.create_task(swap(server, folder, turns, every_s=seconds / num_swaps))
                answers, failures = await under_load(server, requests, rate=rate, until=swaps)
                return answers, failures, await swaps, time.perf_counter() - started_at

            timed, failures, took, elapsed_s = asyncio.run(run())
    return {
        "capacity_per_s": round(min(rates), 1),
        "offered_per_s": round(rate, 1),
        "seconds": round(elapsed_s, 1),
        "num_answers": len(timed),
        "num_failures": len(failures),
        "failures": failures[:10],
        **compared(timed, expected),
        "answered": summary([answer.latency_ms for answer in timed]),
        "swap_s": [round(one, 2) for one in took],
    }


def main() -> None:
    """Measure and write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--old", type=Path, required=True, help="the bundle of one version")
    parser.add_argument(
        "--new", type=Path, required=True, help="the bundle of another version of the same pair"
    )
    parser.add_argument("--output", type=Path, default=RESULT, help="JSON file")
    parser.add_argument("--seconds", type=float, default=60.0, help="duration of the load (default: 60)")
    parser.add_argument("--swaps", type=int, default=10, help="number of replacements (default: 10)")
    parser.add_argument(
        "--share", type=float, default=0.7, help="load as a share of the capacity (default: 0.7)"
    )
    args = parser.parse_args()
    result = measured(
        "benchmarks.swaps",
        lambda: measure(args.old, args.new, seconds=args.seconds, num_swaps=args.swaps, share=args.share),
    )
    print(json.dumps(result["figures"], indent=1))
    args.output.write_text(json.dumps(result, indent=1) + "\n", "utf-8")


if __name__ == "__main__":
    main()
