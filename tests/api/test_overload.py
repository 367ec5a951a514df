"""At three times its capacity the server rejects at once, answers in time, and keeps its throughput."""

from __future__ import annotations

import asyncio
import time
from collections import Counter

import httpx
import pytest

from tests.api.echo import GOLDEN
from tests.api.server_process import HEADERS, NO_CERTIFICATES, PATIENCE_S, ServerProcess

BODY = {"text": GOLDEN, "source": "en", "target": "de", "beam_size": 1}
STEP_S = 0.02
NUM_ROWS = 8
# GOLDEN has about eleven subwords, one step each: this many requests a second fill the rows.
OFFERED_S = 6.0
TIMEOUT_MS = 2000
NUM_TRIALS = 4
MAX_LATE_S = 0.4
LOOK_S = 0.05

Answers = list[tuple[int, str, float]]


async def offered(url: str, *, rate: float, seconds: float) -> tuple[Answers, float]:
    """Status, Retry-After and seconds of each of so many requests a second, answered or not.

    Also the seconds that what takes no time took at most: this machine kept the caller or the server waiting.
    """
    limits = httpx.Limits(max_connections=None)
    late_s = 0.0
    async with httpx.AsyncClient(
        base_url=url, limits=limits, verify=NO_CERTIFICATES, trust_env=False, timeout=PATIENCE_S
    ) as client:

        async def ask() -> tuple[int, str, float]:
            started = time.monotonic()
            answer = await client.post(
                "/v1/translate", json={**BODY, "timeout_ms": TIMEOUT_MS}, headers=HEADERS
            )
            return (
                answer.status_code,
                answer.headers.get("retry-after", ""),
                time.monotonic() - started,
            )

        async def look_on() -> None:
            nonlocal late_s
            while True:
                started = time.monotonic()
                await client.get("/livez")
                late_s = max(late_s, time.monotonic() - started)
                await asyncio.sleep(LOOK_S)

        looking_on = asyncio.create_task(look_on())
        async with asyncio.TaskGroup() as group:
            tasks = []
            until = time.monotonic() + seconds
            while time.monotonic() < until:
                tasks.append(group.create_task(ask()))
                await asyncio.sleep(1.0 / rate)
        looking_on.cancel()
        return [task.result() for task in tasks], late_s


def pace(client: httpx.Client) -> float:
    """Requests a second with all rows busy, by the time of a single request."""
    started = time.monotonic()
    assert client.post("/v1/translate", json=BODY).status_code == 200
    return NUM_ROWS / (time.monotonic() - started)


@pytest.mark.alone
@pytest.mark.slow
def test_three_times_the_load_is_refused_and_not_late(echo_command: list[str]) -> None:
    settings: dict[str, object] = {"num_rows": NUM_ROWS, "max_beam_size": 4, "max_num_hypotheses": 4}
    settings |= {"sentence_cache_bytes": 0, "coalesce": "false"}
    for _ in range(NUM_TRIALS):
        with (
            ServerProcess([*echo_command, f"step_s={STEP_S}", "start=slow"], settings) as server,
            server.ready().client() as client,
        ):
            capacity = pace(client)
            answers, late_s = asyncio.run(offered(server.url, rate=3 * capacity, seconds=OFFERED_S))
            if late_s < MAX_LATE_S:
                check(server, answers, capacity=min(capacity, pace(client)))
                return
    pytest.skip(f"in {NUM_TRIALS} runs this machine let a process wait for over {MAX_LATE_S} s")


def check(server: ServerProcess, answers: Answers, *, capacity: float) -> None:
    counts = Counter(status for status, _, _ in answers)
    served = [seconds for status, _, seconds in answers if status == 200]
    refused = [retry for status, retry, _ in answers if status == 429]
    assert set(counts) == {200, 429}, counts
    assert len(served) > 0.5 * capacity * OFFERED_S, "what is accepted is done, at the old pace"
    assert len(refused) > len(answers) / 3
    assert all(int(retry) >= 1 for retry in refused)
    reasons = "transduce_rejected_total"
    assert server.metric(f'{reasons}{{reason="would_be_late"}}') == len(refused)
    assert server.metric(f'{reasons}{{reason="deadline"}}') == 0
    assert server.metric("transduce_queue_depth") == 0
    # Every later request is answered.
    with server.client() as client:
        assert client.post("/v1/translate", json={**BODY, "timeout_ms": TIMEOUT_MS}).status_code == 200
