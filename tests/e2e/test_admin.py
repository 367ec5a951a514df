"""Administrators load, unload and reload single models, with a token. A server can watch its bundles itself."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from tests.api.server_process import ServerProcess
from tests.bundles.copies import copy_bundle
from tests.e2e.conftest import SERVE_BY_FORK
from tests.e2e.small_models import MODELS, SETTINGS, budget, loaded, post

TOKEN = "an-administrators-token"
BEARER = {"authorization": f"Bearer {TOKEN}"}


@pytest.fixture
def on_demand(bundles: Path) -> Iterator[ServerProcess]:
    """A server with an API key, whose memory budget fits two of the three models."""
    settings = {
        **SETTINGS,
        "model_memory": budget(bundles, 2),
        "admin_token": TOKEN,
        "api_keys": hashlib.sha256(b"a key").hexdigest(),
    }
    with ServerProcess([*SERVE_BY_FORK, "--bundles", str(bundles)], settings) as process:
        yield process.ready()


@pytest.fixture
def eager(bundles: Path) -> Iterator[ServerProcess]:
    """A server that holds all models."""
    settings = {**SETTINGS, "admin_token": TOKEN}
    with ServerProcess([*SERVE_BY_FORK, "--bundles", str(bundles)], settings) as process:
        yield process.ready()


def act(client: httpx.Client, name: str, action: str, **headers: str) -> httpx.Response:
    return client.post(f"/admin/models/{name}/{action}", headers=headers or BEARER)


def test_the_routes_need_the_token_and_no_key(on_demand: ServerProcess) -> None:
    with on_demand.client() as client:
        for value in (
            "",
            "Bearer",
            f"Bearer {TOKEN}x",
            f"Bearer {TOKEN[:-1]}",
            f"Basic {TOKEN}",
            "Bearer a key",
        ):
            answer = act(client, "first", "unload", authorization=value)
            assert answer.status_code == 401, value
            assert answer.headers["www-authenticate"] == "Bearer"
        assert client.get("/v1/models", headers=BEARER).status_code == 403, "the token is no key"
        unknown = (
            act(client, "..%2Ffirst", "load"),
            act(client, "m-first", "load"),
            act(client, "x", "reload"),
        )
        for answer in unknown:
            assert answer.status_code == 404
        assert unknown[1].json()["error"]["code"] == unknown[2].json()["error"]["code"] == "unknown_model"
        paths = client.get("/openapi.json", headers={"authorization": "Bearer a key"}).json()["paths"]
        assert "/admin/models/{name}/unload" in paths


def test_load_and_unload(on_demand: ServerProcess) -> None:
    with on_demand.client() as admin, on_demand.client() as client:
        client.headers["authorization"] = "Bearer a key"
        answer = act(admin, "third", "load")
        assert (answer.status_code, answer.json()["name"], answer.json()["loaded"]) == (200, "third", True)
        assert loaded(client) == ["first", "third"]
        for _ in range(2):
            assert act(admin, "first", "unload").json()["loaded"] is False
        assert loaded(client) == ["third"]
        assert "load;dur=" in post(client, "first").headers["server-timing"]


def test_reload_of_a_model_that_is_not_in_memory(
    on_demand: ServerProcess,
    bundles: Path,
    tiny_bundle: Path,
) -> None:
    with on_demand.client() as client:
        folder = copy_bundle(
            tiny_bundle, bundles / "m-third", name="third", version="2", pairs=[("it", "en")]
        )
        answer = act(client, "third", "reload").json()
        assert (answer["version"], answer["loaded"]) == ("2", True)
        (folder / "golden.jsonl").unlink()
        refused = act(client, "third", "reload")
        assert refused.status_code == 422
        assert "golden.jsonl is missing" in refused.json()["error"]["message"]
        copy_bundle(tiny_bundle, folder, name="other", pairs=[("it", "en")])
        assert "it holds the model other now" in act(client, "third", "reload").json()["error"]["message"]


def test_after_a_failed_reload_the_old_version_serves(
    on_demand: ServerProcess, bundles: Path, tiny_bundle: Path
) -> None:
    """The memory budget is full, and the reloaded model is the least recently used one."""
    with on_demand.client() as client:
        client.headers["authorization"] = "Bearer a key"
        assert post(client, "second").status_code == 200
        folder = copy_bundle(
            tiny_bundle, bundles / "m-first", name="first", version="2", pairs=[MODELS["first"]]
        )
        weights = next((folder / "int8").glob("*.bin"))
        weights.write_bytes(bytes(weights.stat().st_size))
        assert act(client, "first", "reload", **BEARER).status_code == 422
        assert post(client, "first").json()["model"]["version"] == "1"


def test_a_reload_with_another_language_renews_the_detector(
    on_demand: ServerProcess, eager: ServerProcess, bundles: Path, tiny_bundle: Path
) -> None:
    """The detector knows `pt-BR` only if a served model has it. Otherwise it detects `pt`."""
    portuguese = {
        "text": "Onde fica a estação de trem mais próxima, por favor?",
        "source": "auto",
        "target": "pt-BR",
    }
    copy_bundle(tiny_bundle, bundles / "m-third", name="third", version="2", pairs=[("en", "pt-BR")])
    for server in (on_demand, eager):
        with server.client() as client:
            client.headers["authorization"] = "Bearer a key"
            assert act(client, "third", "reload").status_code == 200
            answer = client.post("/v1/translate", json=portuguese).json()
            assert answer["translations"][0]["text"] == portuguese["text"], "it is in the target language"


def test_without_a_budget_a_model_is_reloaded_but_not_unloaded(
    eager: ServerProcess,
    bundles: Path,
) -> None:
    with eager.client() as client:
        assert loaded(client) == list(MODELS)
        refused = act(client, "first", "unload")
        assert refused.status_code == 409
        assert "TRANSDUCE_MODEL_MEMORY" in refused.json()["error"]["message"]
        assert act(client, "first", "load").json()["loaded"] is True
        answer = act(client, "second", "reload")
        assert answer.json()["name"] == "second"
        assert post(client, "second").status_code == 200
        weights = next((bundles / "m-second" / "int8").glob("*.bin"))
        weights.write_bytes(bytes(weights.stat().st_size))
        refused = act(client, "second", "reload")
        assert refused.status_code == 422
        assert "SHA-256" in refused.json()["error"]["message"]
        assert post(client, "second").status_code == 200


def test_the_server_notices_a_changed_bundle(
    bundles: Path, tiny_bundle: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """All files come by a rename, because a slow copy could look complete to a watch that polls so often."""
    fresh = tmp_path_factory.mktemp("fresh")
    changed = copy_bundle(tiny_bundle, fresh / "changed", name="second", version="2", pairs=[("fr", "en")])
    new = copy_bundle(tiny_bundle, fresh / "new", name="last", pairs=[("es", "en")])
    folder = bundles / "m-second"

    def set_version(version: str) -> None:
        manifest = (folder / "manifest.json").read_text("utf-8")
        text = re.sub('"version": "[23?]"', f'"version": "{version}"', manifest)
        (fresh / "manifest.json").write_text(text, "utf-8")
        (fresh / "manifest.json").rename(folder / "manifest.json")

    command = ["tests.e2e.quick_watch", "serve", "--bundles", str(bundles), "--watch"]
    with ServerProcess(command, SETTINGS) as server, server.ready().client() as client:
        folder.rename(fresh / "old")
        changed.rename(folder)
        assert server.wait_for("reloaded")["version"] == "1, 2, 1"
        set_version("?")
        assert "version" in server.wait_for("reload_failed")["problem"]
        set_version("3")
        assert server.wait_for("reloaded")["version"] == "1, 3, 1"
        new.rename(bundles / "m-z")
        assert server.wait_for("reloaded")["model"] == "first, second, third, last"
        answer = client.post("/v1/translate", json={"text": "Hola.", "source": "es", "target": "en"})
        assert answer.json()["model"]["name"] == "last"


def test_without_a_token_there_are_no_routes(tiny_bundle: Path) -> None:
    command = [*SERVE_BY_FORK, "--bundle", str(tiny_bundle)]
    with ServerProcess(command, SETTINGS) as process, process.ready().client() as client:
        answer = act(client, "tiny-en-de", "reload")
        assert answer.status_code == 404
        assert answer.json()["error"]["code"] == "not_found"
