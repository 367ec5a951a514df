"""What a server does before it is ready: it loads the language detector, and turns garbage collection on again."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator

import pytest

from tests.api.server_process import ROOT, ServerProcess

TEXT = "The children were playing in the garden."


@pytest.fixture(scope="module")
def fresh() -> Iterator[ServerProcess]:
    """A server with the bundled model. Only these tests use it, because they are about its start."""
    settings: dict[str, object] = {"bundle": ROOT / "bundles" / "en-de", "device": "cpu", "num_threads": 1}
    command = [sys.executable, "-W", "error", "-m", "transduce", "serve"]
    with ServerProcess(command, settings) as process:
        yield process.ready()


def test_the_detector_is_loaded_before_the_server_is_ready(fresh: ServerProcess) -> None:
    events = [json.loads(line)["event"] for line in fresh.log if line.startswith("{")]
    assert events.index("detector_loading") < events.index("detector_loaded") < events.index("ready")


def test_no_request_loads_another_detector(fresh: ServerProcess) -> None:
    with fresh.client() as client:
        body = {"text": TEXT, "source": "auto", "target": "de"}
        translation = client.post("/v1/translate", json=body)
        detection = client.post("/v1/detect", json={"text": TEXT})
    assert translation.status_code == detection.status_code == 200
    assert translation.json()["translations"][0]["source"] == "en"
    assert sum('"detector_loading"' in line for line in fresh.log) == 1


def test_garbage_is_collected_again_once_the_model_is_loaded(fresh: ServerProcess) -> None:
    def num_collections() -> float:
        return fresh.metric('python_gc_collections_total{generation="0"}')

    before = num_collections()
    texts = [f"The house number {number} is old." for number in range(100)]
    with fresh.client() as client:
        answer = client.post("/v1/translate", json={"text": texts, "source": "en", "target": "de"})
        assert answer.status_code == 200
    assert num_collections() > before
