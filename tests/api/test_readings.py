"""What /metrics says about a running server: its models, workers, connections, and whether it is ready."""

from __future__ import annotations

import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families

from tests.api.echo import release_steps
from tests.api.server_process import HANG_TIMEOUT_S, ServerProcess

GERMAN = "Anna sieht heute den Fluss, und die Kinder spielen bei dem alten Haus."
FRENCH = "Anna voit la rivière aujourd'hui, et les enfants jouent près de la vieille maison."
STALL_LIMIT_S = 1.0


@pytest.fixture(scope="module")
def hang(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("hang") / "hang"


@pytest.fixture(scope="module")
def server(echo_command: list[str], hang: Path) -> Iterator[ServerProcess]:
    """Three models, of which two translate German to French through English."""
    settings: dict[str, object] = {
        "pivot": "en",
        "stall_limit_s": STALL_LIMIT_S,
        "max_connections": 9,
        "max_connections_per_address": 9,
        "max_pending_sentences": 1500,
        "default_timeout_s": HANG_TIMEOUT_S,
        "max_timeout_s": HANG_TIMEOUT_S,
    }
    command = [*echo_command, "pairs=de>en;en>fr;fr>en", f"hang_file={hang}"]
    with ServerProcess(command, settings) as process:
        yield process.ready()


def post(client: httpx.Client, text: Any, target: str, **fields: object) -> list[int]:
    """Translate. Returns the number of sentences of each text."""
    answer = client.post("/v1/translate", json={"text": text, "target": target, **fields})
    assert answer.status_code == 200, answer.text
    return [len(translation["segments"]) for translation in answer.json()["translations"]]


def by_model(server: ServerProcess, name: str) -> dict[str, float]:
    return {
        model: server.metric(f'transduce_model_{name}_total{{model="{model}"}}')
        for model in ("echo", "echo-2", "echo-3")
    }


def test_each_model_counts_its_own_sentences(server: ServerProcess) -> None:
    with server.client() as client:
        assert by_model(server, "requests") == {"echo": 0, "echo-2": 0, "echo-3": 0}
        post(client, "Der Fluss ist alt.", "fr", source="de")  # both halves of a pivoted pair
        assert by_model(server, "sentences") == {"echo": 1, "echo-2": 1, "echo-3": 0}
        german, *french = post(client, [GERMAN, FRENCH, FRENCH], "en", source="auto")  # needs two models
        assert by_model(server, "requests") == {"echo": 2, "echo-2": 1, "echo-3": 1}
        assert by_model(server, "sentences") == {"echo": 1 + german, "echo-2": 1, "echo-3": sum(french)}
    assert server.metric("transduce_sentences_total") == 1 + german + sum(french)


def test_limits_and_build_are_shown(server: ServerProcess) -> None:
    assert server.metric("transduce_queue_depth_limit") == 3 * 1500
    assert server.metric("transduce_queue_tokens_limit") == 3 * 65_536
    assert server.metric("transduce_step_age_limit_seconds") == STALL_LIMIT_S
    assert server.metric("transduce_http_connections_limit") == 9
    with server.client() as client:
        families = {each.name: each for each in text_string_to_metric_families(client.get("/metrics").text)}
    (build,) = families["transduce_build_info"].samples
    assert set(build.labels) == {"version", "kernels", "providers"}
    limits = {each.labels["model"]: each.value for each in families["transduce_worker_rows_limit"].samples}
    assert limits == {"echo": 64, "echo-2": 64, "echo-3": 64}


def test_connections_are_counted_by_their_state(server: ServerProcess) -> None:
    with server.connect(), server.client() as client:
        client.get("/livez")
        text = client.get("/metrics").text
        assert 'transduce_http_connections{state="active"} 1.0' in text, "the scrape itself"
        assert 'transduce_http_connections{state="idle"} 1.0' in text
        assert 'transduce_http_connections{state="reserve"} 0.0' in text


def test_a_stalled_worker_has_an_old_step_and_the_server_is_not_ready(
    server: ServerProcess, hang: Path
) -> None:
    worker = '{model="echo-2",worker="1"}'
    assert server.metric("transduce_ready") == 1
    with server.client() as client, server.client() as probe, ThreadPoolExecutor(1) as pool:
        release_steps(hang, 2)
        try:
            # The worker reports a step of a stream at once, because the step has new tokens. It holds back all other
            # reports (`app/engine/reporter.py`), so without a stream `transduce_worker_rows` would stay 0.
            body = {"text": "Anna sees the river.", "source": "en", "target": "fr", "beam_size": 1}
            running = pool.submit(client.post, "/v1/translate/stream", json=body)
            server.wait_until("transduce_ready", 0)
            assert probe.get("/readyz").status_code == 503
            assert server.metric(f"transduce_worker_step_age_seconds{worker}") > STALL_LIMIT_S
            assert server.metric(f"transduce_worker_rows{worker}") == 1
            for name in ("step_age_seconds", "rows"):
                assert server.metric(f'transduce_worker_{name}{{model="echo",worker="0"}}') == 0
        finally:
            hang.unlink()
        assert running.result(HANG_TIMEOUT_S).status_code == 200
    server.wait_until("transduce_ready", 1)
    server.wait_until(f"transduce_worker_step_age_seconds{worker}", 0)
    assert server.metric(f"transduce_worker_rows{worker}") == 0


def test_the_event_loop_is_measured(server: ServerProcess) -> None:
    name = "transduce_event_loop_lag_seconds_count"
    before, until = server.metric(name), time.monotonic() + HANG_TIMEOUT_S
    while server.metric(name) <= before:
        assert time.monotonic() < until
        time.sleep(0.05)
