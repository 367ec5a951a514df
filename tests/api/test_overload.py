"""Three times what the server can do: refused at once, not late, and the work goes on."""

from __future__ import annotations

import asyncio
import time
from collections import Counter

import httpx
import pytest

from tests.api.echo import GOLDEN
from tests.api.server_process import HEADERS, NO_CERTIFICATES, ServerProcess

BODY = {"text": GOLDEN, "source": "en", "target": "de", "beam_size": 1}
STEP_S = 0.02
NUM_ROWS = 8
# GOLDEN is some eleven subwords, a step each: so many requests a second fill the rows.
OFFERED_S = 6.0
TIMEOUT_MS = 2000

Answers = list[tuple[int, str, float]]


async def offered(url: str, *, rate: float, seconds: float) -> Answers:
    """Status, Retry-After and seconds of each of so many requests a second, answered or not."""
    limits = httpx.Limits(max_connections=None)
    async with httpx.AsyncClient(
        base_url=url, limits=limits, verify=NO_CERTIFICATES, trust_env=False, timeout=20.0
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

        async with asyncio.TaskGroup() as group:
            tasks = []
            until = time.monotonic() + seconds
            while time.monotonic() < until:
                tasks.append(group.create_task(ask()))
                await asyncio.sleep(1.0 / rate)
        return [task.result() for task in tasks]


@pytest.mark.slow
def test_three_times_the_load_is_refused_and_not_late(echo_command: list[str]) -> None:
    settings: dict[str, object] = {"num_rows": NUM_ROWS, "max_beam_size": 4, "max_num_hypotheses": 4}
    settings |= {"sentence_cache_bytes": 0, "coalesce": "false"}
    with (
        ServerProcess([*echo_command, f"step_s={STEP_S}"], settings) as server,
        server.ready().client() as client,
    ):
        started = time.monotonic()
        assert client.post("/v1/translate", json=BODY).status_code == 200
        capacity = NUM_ROWS / (time.monotonic() - started)
        answers = asyncio.run(offered(server.url, rate=3 * capacity, seconds=OFFERED_S))
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
        # Afterwards everybody is served.
        assert client.post("/v1/translate", json={**BODY, "timeout_ms": TIMEOUT_MS}).status_code == 200
