"""Two replicas on a real Ray cluster of this machine: their answers, and their end and start under load."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest

import transduce
from benchmarks.ray_cluster import RayCluster
from tests.api.server_process import ROOT, ServerProcess

pytest.importorskip("ray", reason="Ray is not installed (make ray-test)")
pytestmark = pytest.mark.ray

PAIR: dict[str, object] = {"source": "en", "target": "de"}
TEXTS = [
    "The station is near the old bridge.",
    "We meet at half past six.\n\nBring the <b>blue</b> folder, please.",
    "Nobody had expected that the small shop at the corner would survive the winter.",
    "3 of 12 boxes are empty.",
    "Good morning!",
]
# Without the cache, and without sharing between equal sentences, every sentence is decoded anew.
SETTINGS: dict[str, object] = {
    "device": "cpu",
    "precision": "int8",
    "sentence_cache_bytes": 0,
    "coalesce": False,
}
# Requests of the native API and of two dialects. Two of them are refused.
REQUESTS: list[tuple[str, dict[str, object]]] = [
    *[("/v1/translate", {**PAIR, "text": text, "beam_size": beam}) for text in TEXTS for beam in (1, 4)],
    ("/v1/translate", {**PAIR, "text": TEXTS, "num_hypotheses": 2, "beam_size": 2}),
    ("/v1/translate", {**PAIR, "text": TEXTS[0], "beam_size": 99}),
    ("/v1/translate", {**PAIR, "text": TEXTS[0], "target": "xx"}),
    ("/translate", {**PAIR, "q": TEXTS[1], "format": "html"}),
    ("/v2/translate", {"text": TEXTS[:2], "source_lang": "EN", "target_lang": "DE"}),
    ("/v1/detect", {"text": TEXTS[2]}),
]


@pytest.fixture(scope="module")
def cluster() -> Iterator[RayCluster]:
    with RayCluster() as cluster:
        cluster.deploy(SETTINGS, num_replicas=2)
        cluster.wait_for_replicas(2)
        yield cluster


@pytest.fixture(scope="module")
def expected() -> Iterator[httpx.Client]:
    """A client of `transduce serve`."""
    settings = {**SETTINGS, "num_threads": 1}
    with ServerProcess(["transduce", "serve"], settings) as server, server.ready().client() as client:
        yield client


def posted(client: httpx.Client, path: str, body: Mapping[str, object]) -> tuple[int, bytes, str | None]:
    answer = client.post(path, json=body, headers={"X-Request-ID": "the-same"})
    assert answer.headers.get_list("x-request-id") == ["the-same"]
    return answer.status_code, answer.content, answer.headers.get("content-type")


def test_the_answers_are_those_of_the_server_byte_for_byte(
    cluster: RayCluster, expected: httpx.Client
) -> None:
    before = cluster.lines("request")
    with cluster.client() as client:
        for path, body in REQUESTS:
            wanted = posted(expected, path, body)
            for _ in range(4):
                assert posted(client, path, body) == wanted
    after = cluster.lines("request")
    assert all(after[pid] > before.get(pid, 0) for pid in cluster.replicas()), "each replica has answered"


def test_a_stream_ends_with_the_same_answer(cluster: RayCluster, expected: httpx.Client) -> None:
    body = {**PAIR, "text": TEXTS[2]}

    def events(client: httpx.Client) -> dict[str, str]:
        text = client.post("/v1/translate/stream", json=body).text
        return dict(re.findall(r"^event: (\w+)\ndata: (.*)$", text, re.MULTILINE))

    with cluster.client() as client:
        found, wanted = events(client), events(expected)
    assert found.keys() >= {"start", "done"}
    assert [found[name] for name in ("start", "done")] == [wanted[name] for name in ("start", "done")]


class Load:
    """Threads that each translate the texts of TEXTS in turn, and check every answer.

    right, wrong: the answers so far. lost: the errors that remain after the client's retries.
    """

    def __init__(self, url: str, wanted: Mapping[str, str], *, num_clients: int, max_retries: int) -> None:
        self._url, self._wanted, self._max_retries = url, wanted, max_retries
        self._is_stopping = threading.Event()
        self._threads = [threading.Thread(target=self._run, args=(number,)) for number in range(num_clients)]
        self.right: list[str] = []
        self.wrong: list[str] = []
        self.lost: list[str] = []

    def __enter__(self) -> Load:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_stopping.set()
        for thread in self._threads:
            thread.join()

    def _run(self, number: int) -> None:
        with transduce.Client(self._url, max_retries=self._max_retries, timeout_s=120) as client:
            while not self._is_stopping.is_set():
                number += 1
                text = TEXTS[number % len(TEXTS)]
                try:
                    found = client.translate(text, beam_size=4, timeout_ms=60_000, **PAIR).text  # type: ignore[arg-type]
                except transduce.TransduceError as error:
                    self.lost.append(f"{type(error).__name__}: {error}")
                    continue
                if found == self._wanted[text]:
                    self.right.append(found)
                else:
                    self.wrong.append(found)

    def wait_for_more(self, number: int) -> None:
        """Wait for this many further right answers."""
        deadline, wanted = time.monotonic() + 240, len(self.right) + number
        while len(self.right) < wanted:
            assert time.monotonic() < deadline, (len(self.right), self.wrong, self.lost)
            time.sleep(0.1)


@pytest.fixture(scope="module")
def wanted(expected: httpx.Client) -> dict[str, str]:
    """The translations of TEXTS."""

    def translated(text: str) -> Any:
        answer = expected.post("/v1/translate", json={**PAIR, "text": text, "beam_size": 4})
        return answer.json()["translations"][0]["text"]

    return {text: translated(text) for text in TEXTS}


@contextmanager
def without_an_error(cluster: RayCluster, wanted: Mapping[str, str], *, num_clients: int) -> Iterator[Load]:
    """Load from clients that never repeat a request. No request may fail."""
    with Load(cluster.url, wanted, num_clients=num_clients, max_retries=0) as load:
        load.wait_for_more(5)
        yield load
        load.wait_for_more(5)
    assert (load.wrong, load.lost) == ([], [])


def test_a_killed_replica_loses_what_was_in_flight_there(
    cluster: RayCluster, wanted: Mapping[str, str]
) -> None:
    """Clients that repeat a request see no error."""
    with (
        Load(cluster.url, wanted, num_clients=4, max_retries=0) as once,
        Load(cluster.url, wanted, num_clients=4, max_retries=5) as repeating,
    ):
        once.wait_for_more(10)
        killed = cluster.replicas()[0]
        os.kill(killed, signal.SIGKILL)
        once.wait_for_more(10)
        repeating.wait_for_more(10)
        cluster.wait_for_replicas(2, without=[killed])
        once.wait_for_more(10)
    assert once.wrong == repeating.wrong == []
    assert len(once.lost) <= 4, once.lost
    assert all(each.startswith("AnswerLost") for each in once.lost)
    assert repeating.lost == []


def test_new_settings_replace_the_replicas_without_an_error(
    cluster: RayCluster, wanted: Mapping[str, str]
) -> None:
    old = cluster.replicas()
    with without_an_error(cluster, wanted, num_clients=2):
        cluster.deploy({**SETTINGS, "num_rows": 32}, num_replicas=2)
        cluster.wait_for_replicas(2, without=old)


def deploy_one_replica(
    cluster: RayCluster, name: str, settings: Mapping[str, object], *, health_check_period_s: float
) -> int:
    """Replace all replicas by a single one with two worker processes. Returns the process id of the replica.

    name: the name of the new application.
    """
    old = cluster.replicas()
    cluster.deploy(
        {**settings, "num_threads": 2, "num_lanes": 2},
        name=name,
        num_replicas=1,
        health_check_period_s=health_check_period_s,
    )
    (replica,) = cluster.wait_for_replicas(1, without=old)
    return replica


def workers_of(replica: int) -> list[psutil.Process]:
    found = psutil.Process(replica).children()
    workers = [each for each in found if "app.workers" in " ".join(each.cmdline())]
    assert len(workers) == 2
    return workers


def test_a_replica_whose_engine_has_died_ends(cluster: RayCluster) -> None:
    """Without restarts, the first death of a worker ends the replica's process. No health check comes before."""
    settings = {**SETTINGS, "max_worker_restarts": 0}
    replica = deploy_one_replica(cluster, "transduce-dying", settings, health_check_period_s=3600)
    process, workers = psutil.Process(replica), workers_of(replica)
    workers[0].kill()
    _, alive = psutil.wait_procs([process, *workers], timeout=60)
    assert not alive


def test_a_replica_that_is_not_ready_is_replaced(cluster: RayCluster, wanted: Mapping[str, str]) -> None:
    """Its workers are suspended in the middle of a sentence, so its health checks fail."""
    settings = {**SETTINGS, "stall_limit_s": 1}
    replica = deploy_one_replica(cluster, "transduce-stalling", settings, health_check_period_s=1)
    workers = workers_of(replica)
    with Load(cluster.url, wanted, num_clients=2, max_retries=5) as load:
        load.wait_for_more(2)
        for worker in workers:
            worker.suspend()
        cluster.wait_for_replicas(1, without=[replica])
        load.wait_for_more(2)
    assert load.wrong == []
    _, alive = psutil.wait_procs(workers, timeout=30)
    assert not alive


def test_a_queue_starts_a_second_replica_and_an_empty_queue_ends_it(
    cluster: RayCluster, wanted: Mapping[str, str]
) -> None:
    """1 -> 2 -> 1 replicas by queued subwords, without an error."""
    policy = {
        "policy_function": "transduce.ray_serve.scaling:QueuedSubwordsPolicy",
        "policy_kwargs": {"subwords_per_replica": 40},
    }
    quick = {
        "max_replicas": 2,
        "look_back_period_s": 3,
        "upscale_delay_s": 1,
        "downscale_delay_s": 3,
        "policy": policy,
    }
    old = cluster.replicas()
    # A new application starts with one replica.
    cluster.deploy(SETTINGS, name="transduce-scaling", autoscaling_config=quick)
    (first,) = cluster.wait_for_replicas(1, without=old)
    with without_an_error(cluster, wanted, num_clients=1):
        with without_an_error(cluster, wanted, num_clients=12):
            assert first in cluster.wait_for_replicas(2)
        cluster.wait_for_replicas(1)


def test_two_models_are_two_applications_below_prefixes(cluster: RayCluster, tmp_path: Path) -> None:
    copy = shutil.copytree(ROOT / "bundles" / "en-de", tmp_path / "copy")
    manifest = json.loads((copy / "manifest.json").read_text("utf-8"))
    (copy / "manifest.json").write_text(json.dumps({**manifest, "name": "copy"}), "utf-8")
    old = cluster.replicas()
    cluster.deploy_at({"/one": SETTINGS, "/two": {**SETTINGS, "bundle": str(copy)}}, num_replicas=1)
    cluster.wait_for_replicas(2, without=old)
    body = {**PAIR, "text": TEXTS[0]}
    with cluster.client() as client:
        one, two = (client.post(f"{prefix}/v1/translate", json=body).json() for prefix in ("/one", "/two"))
        assert client.post("/v1/translate", json=body).status_code == 404
    assert (one["model"]["name"], two["model"]["name"]) == ("en-de-small", "copy")
    assert one["translations"] == two["translations"]
