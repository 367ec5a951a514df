"""A server with a memory budget: models are loaded when requests need them, and unloaded to make room for others."""

from __future__ import annotations

import json
import shutil
import signal
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psutil
import pytest

from tests.api.server_process import ServerProcess
from tests.bundles.copies import copy_bundle
from tests.e2e.conftest import SERVE_BY_FORK
from tests.e2e.small_models import MODELS, SETTINGS, TEXT, budget, loaded, post


@pytest.fixture
def server(bundles: Path) -> Iterator[ServerProcess]:
    """A server whose memory budget fits two of the three models. It has loaded the first."""
    settings = {**SETTINGS, "model_memory": budget(bundles, 2)}
    with ServerProcess([*SERVE_BY_FORK, "--bundles", str(bundles)], settings) as process:
        yield process.ready()


def test_requests_load_and_unload_models(server: ServerProcess) -> None:
    with server.client() as client:
        names = [model["name"] for model in client.get("/v1/models").json()["models"]]
        assert names == list(MODELS), "all models are listed"
        assert {row["code"] for row in client.get("/languages").json()} == {"de", "en", "fr", "it"}
        assert loaded(client) == ["first"], "the first model is loaded at the start"
        answers = [post(client, name) for name in ("first", "second", "second", "first", "third")]
        assert [answer.json()["model"]["name"] for answer in answers] == [
            "first", "second", "second", "first", "third",
        ]  # fmt: skip
        has_loaded = ["load;dur=" in answer.headers["server-timing"] for answer in answers]
        assert has_loaded == [False, True, False, False, True]
        assert loaded(client) == ["first", "third"], "the second was used least recently"
        texts = {answer.json()["translations"][0]["text"] for answer in answers}
        assert len(texts) == 1, "the weights are the same"
        metrics = client.get("/metrics").text.splitlines()
    assert "transduce_models_loaded 2.0" in metrics
    assert 'transduce_model_loads_total{outcome="done"} 3.0' in metrics
    assert "transduce_model_unloads_total 1.0" in metrics
    assert server.metric("transduce_model_memory_bytes") > 0
    assert server.metric('transduce_phase_duration_seconds_count{phase="load"}') == 2


def test_requests_of_many_clients_all_get_answers(server: ServerProcess) -> None:
    def client_loop(number: int) -> list[int]:
        names = [*MODELS][number % 3 :] + [*MODELS][: number % 3]
        with server.client() as client:
            return [post(client, name, timeout_ms=60_000).status_code for name in names * 2]

    with ThreadPoolExecutor(6) as pool:
        codes = [code for found in pool.map(client_loop, range(6)) for code in found]
    assert codes == [200] * 36
    server.wait_until("transduce_models_loaded", 2)


def test_other_routes_load_models_too(server: ServerProcess) -> None:
    with server.client() as client:
        simple = client.post("/translate", json={"q": TEXT, "source": "fr", "target": "en"})
        assert simple.status_code == 200
        assert loaded(client) == ["first", "second"]
        stream = client.post("/v1/translate/stream", json={"text": TEXT, "source": "it", "target": "en"})
        assert "event: done" in stream.text
        assert loaded(client) == ["second", "third"]
        scored = {"text": TEXT, "translation": TEXT, "source": "en", "target": "de"}
        assert "load;dur=" in client.post("/v1/score", json=scored).headers["server-timing"]
        assert "second" not in loaded(client)
        ready = client.get("/v2/models/second/ready").json()
        assert ready == {"name": "second", "ready": True}, "a model that is not loaded is ready, too"


def test_a_pivoted_pair_loads_both_of_its_models(bundles: Path) -> None:
    settings = {**SETTINGS, "model_memory": budget(bundles, 2), "pivot": "en"}
    through_english = {"text": TEXT, "source": "it", "target": "de"}
    with (
        ServerProcess([*SERVE_BY_FORK, "--bundles", str(bundles)], settings) as process,
        process.ready().client() as client,
    ):
        answers = [client.post("/v1/translate", json=through_english) for _ in range(2)]
        assert [answer.status_code for answer in answers] == [200, 200]
        assert [model["name"] for model in answers[0].json()["models"]] == ["third", "first"]
        assert ["load;dur=" in answer.headers["server-timing"] for answer in answers] == [True, False]
        assert loaded(client) == ["first", "third"]


def test_a_pivoted_pair_whose_models_do_not_fit_together_is_refused_at_once(bundles: Path) -> None:
    settings = {**SETTINGS, "model_memory": budget(bundles, 1), "pivot": "en"}
    through_english = {"text": TEXT, "source": "it", "target": "de", "timeout_ms": 3_000}
    with (
        ServerProcess([*SERVE_BY_FORK, "--bundles", str(bundles)], settings) as process,
        process.ready().client() as client,
    ):
        answer = client.post("/v1/translate", json=through_english)
        assert answer.status_code == 503, answer.text
        assert "the models third and first do not fit in memory together" in answer.json()["error"]["message"]
        assert int(answer.headers["retry-after"]) >= 1
        assert post(client, "first").status_code == 200, "the server still answers"


def test_only_requests_for_a_broken_model_fail(server: ServerProcess, bundles: Path) -> None:
    weights = next((bundles / "m-second" / "int8").glob("*.bin"))
    weights.write_bytes(bytes(weights.stat().st_size))
    with server.client() as client:
        for _ in range(2):
            answer = post(client, "second")
            assert answer.status_code == 503
            assert "the model second cannot be loaded" in answer.json()["error"]["message"]
            assert int(answer.headers["retry-after"]) > 1
        assert "SHA-256" in server.wait_for("model_load_failed")["problem"]
        assert post(client, "third").status_code == 200
        assert client.get("/readyz").status_code == 200
    assert server.metric('transduce_model_loads_total{outcome="failed"}') == 1, (
        "the second request is refused without another load"
    )


def test_a_reload_replaces_only_loaded_models_that_have_changed(
    server: ServerProcess, bundles: Path, tiny_bundle: Path
) -> None:
    with server.client() as client:
        for name in ("second", "third"):
            copy_bundle(tiny_bundle, bundles / f"m-{name}", name=name, version="2", pairs=[MODELS[name]])
        copy_bundle(tiny_bundle, bundles / "m-z", name="last", pairs=[("es", "en")])
        psutil.Process(server.pid).send_signal(signal.SIGHUP)
        assert server.wait_for("reloaded")["model"] == "first, second, third, last"
        assert loaded(client) == ["first"]
        assert server.metric('transduce_model_loads_total{outcome="done"}') == 1
        assert post(client, "second").json()["model"]["version"] == "2"
        copy_bundle(tiny_bundle, bundles / "m-second", name="second", version="3", pairs=[MODELS["second"]])
        shutil.rmtree(bundles / "m-first")
        psutil.Process(server.pid).send_signal(signal.SIGHUP)
        assert server.wait_for("reloaded")["version"] == "3, 2, 1"
        assert loaded(client) == ["second"]
        assert post(client, "first").status_code == 422, "the pair is gone"
    server.wait_until("transduce_models_loaded", 1)


def test_a_bundle_replaced_without_a_reload_is_served_in_its_new_version(
    server: ServerProcess, bundles: Path, tiny_bundle: Path
) -> None:
    copy_bundle(tiny_bundle, bundles / "m-second", name="second", version="2", pairs=[MODELS["second"]])
    with server.client() as client:
        assert post(client, "second").json()["model"]["version"] == "2"
        server.wait_for("reloaded")
        versions = [model["version"] for model in client.get("/v1/models").json()["models"]]
    assert versions == ["1", "2", "1"]


def test_a_broken_new_version_changes_nothing(
    server: ServerProcess, bundles: Path, tiny_bundle: Path
) -> None:
    copy_bundle(tiny_bundle, bundles / "m-first", name="first", version="2", pairs=[MODELS["first"]])
    (bundles / "m-first" / "source.spm").write_bytes(b"not a tokenizer")
    psutil.Process(server.pid).send_signal(signal.SIGHUP)
    assert "source.spm" in json.dumps(server.wait_for("reload_failed"))
    with server.client() as client:
        assert post(client, "first").json()["model"]["version"] == "1"


def test_a_failed_reload_leaves_the_models_in_memory_whose_bundles_are_gone(
    server: ServerProcess, bundles: Path, tiny_bundle: Path
) -> None:
    """The budget is full."""
    with server.client() as client:
        assert post(client, "second").status_code == 200
        folder = copy_bundle(
            tiny_bundle, bundles / "m-first", name="first", version="2", pairs=[MODELS["first"]]
        )
        (folder / "source.spm").write_bytes(b"not a tokenizer")
        shutil.rmtree(bundles / "m-second")
        psutil.Process(server.pid).send_signal(signal.SIGHUP)
        assert "source.spm" in json.dumps(server.wait_for("reload_failed"))
        assert loaded(client) == ["first", "second"]
        assert [post(client, name).status_code for name in ("first", "second")] == [200, 200]


def test_preload_names_the_models_of_the_start_and_one_fork_server_forks_all_workers(bundles: Path) -> None:
    """The fork server is replaced if it dies, and ends with the server."""
    settings = {**SETTINGS, "num_lanes": 2, "num_threads": 2}
    settings |= {"model_memory": budget(bundles, 2, settings), "preload": "third, m-second"}
    with ServerProcess([*SERVE_BY_FORK, "--bundles", str(bundles)], settings) as process:
        with process.ready().client() as client:
            assert loaded(client) == ["second", "third"]
            assert post(client, "first").status_code == 200
            assert len(loaded(client)) == 2
            children = psutil.Process(process.pid).children(recursive=True)
            assert len(children) == 5, "two workers for each loaded model, and the fork server"
            min(children, key=lambda child: child.create_time()).kill()  # the fork server is the oldest
            assert [post(client, name).status_code for name in MODELS] == [200] * 3
        children = psutil.Process(process.pid).children(recursive=True)
        assert len(children) == 5, "with another fork server"
        process.signal()
        assert process.ended() == 0
        _, alive = psutil.wait_procs(children, timeout=30)
        assert not alive


@pytest.mark.parametrize(
    ("preload", "num_models", "problem"),
    [
        ("", 0, "the model first needs about"),
        ("first,second,third", 2, "first, second, third together need about"),
        ("fourth", 2, "there is no model or folder fourth; there are: first, second, third"),
    ],
)
def test_a_start_with_an_impossible_budget_or_preload_fails(
    bundles: Path, preload: str, num_models: int, problem: str
) -> None:
    settings = {**SETTINGS, "model_memory": budget(bundles, num_models), "preload": preload}
    with ServerProcess([*SERVE_BY_FORK, "--bundles", str(bundles)], settings) as process:
        assert process.ended() == 78
        assert problem in "".join(process.errors)
