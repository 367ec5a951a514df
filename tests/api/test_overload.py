"""Above its capacity the server rejects requests that would be late, counts them, and serves all requests afterwards.

The number of requests that the server answers meanwhile depends on the machine. benchmarks/overload.py measures it.
"""

from __future__ import annotations

import asyncio
from collections import Counter

import httpx
import pytest

from tests.api.echo import GOLDEN
from tests.api.server_process import HANG_TIMEOUT_S, HEADERS, NO_CERTIFICATES, ServerProcess

BODY = {"text": GOLDEN, "source": "en", "target": "de", "beam_size": 1}
# GOLDEN has about eleven subwords, one step each. So four rows answer at most about 8 requests/s, and about 15 within
# the deadline. If the 24 clients send more than 8 requests/s, some of the requests are rejected.
STEP_S = 0.05
NUM_ROWS = 4
TIMEOUT_MS = 2000
NUM_CLIENTS = 24
# Requests that must be answered before the load ends.
NUM_ANSWERED = 15
# Seconds before a client whose request failed sends the next, so that the clients do not take all CPU time.
PAUSE_S = 0.3

Answers = list[tuple[int, str]]


async def overload(url: str) -> Answers:
    """Let clients send one request after another until NUM_ANSWERED are 200. Returns each status and Retry-After."""
    answers: Answers = []
    async with httpx.AsyncClient(
        base_url=url,
        limits=httpx.Limits(max_connections=None),
        verify=NO_CERTIFICATES,
        trust_env=False,
        timeout=HANG_TIMEOUT_S,
    ) as client:

        async def post_repeatedly() -> None:
            while sum(status == 200 for status, _ in answers) < NUM_ANSWERED:
                answer = await client.post(
                    "/v1/translate", json={**BODY, "timeout_ms": TIMEOUT_MS}, headers=HEADERS
                )
                answers.append((answer.status_code, answer.headers.get("retry-after", "")))
                if answer.status_code != 200:
                    await asyncio.sleep(PAUSE_S)

        async with asyncio.timeout(HANG_TIMEOUT_S), asyncio.TaskGroup() as group:
            for _ in range(NUM_CLIENTS):
                group.create_task(post_repeatedly())
    return answers


@pytest.mark.slow
def test_requests_that_would_be_late_are_rejected(echo_command: list[str]) -> None:
    settings: dict[str, object] = {"num_rows": NUM_ROWS, "max_beam_size": 4, "max_num_hypotheses": 4}
    settings |= {"sentence_cache_bytes": 0, "coalesce": "false"}
    command = [*echo_command, f"step_s={STEP_S}", "start=slow"]
    with ServerProcess(command, settings) as server, server.ready().client() as client:
        answers = asyncio.run(overload(server.url))
        counts = Counter(status for status, _ in answers)
        # On a busy machine an accepted request may exceed its deadline.
        assert set(counts) <= {200, 429, 504}, counts
        assert counts[200] >= NUM_ANSWERED
        assert counts[429] > 0
        assert all(int(retry) >= 1 for status, retry in answers if status == 429)
        assert server.metric('transduce_rejected_total{reason="would_be_late"}') == counts[429]
        assert server.metric('transduce_rejected_total{reason="deadline"}') == counts[504]
        assert server.metric("transduce_sentences_total") >= counts[200]
        assert server.metric("transduce_queue_depth") == 0
        assert server.metric("transduce_inflight_requests") == 0
        assert client.post("/v1/translate", json=BODY).status_code == 200
