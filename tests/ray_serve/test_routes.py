"""The application as Ray's proxy calls it: over another ASGI server than ours, below a prefix."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import httpx
import pytest

from app.main import Application
from app.settings import Settings
from app.text.tokenizer import Tokenizer
from tests.api.echo import GOLDEN, EchoLoader
from tests.api.server_process import HANG_TIMEOUT_S
from tests.model.sentences import write_tokenizer
from transduce.ray_serve.routes import ReplicaRoutes

BODY = {"text": GOLDEN, "source": "en", "target": "de"}


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> Tokenizer:
    return Tokenizer(write_tokenizer(tmp_path_factory.mktemp("echo") / "tokenizer.spm"))


def served(
    tokenizer: Tokenizer, talk: Callable[[httpx.AsyncClient], Awaitable[None]], *, prefix: str = ""
) -> None:
    """Run `talk` against the routes of an application with the echo model. prefix: the prefix of Ray's route."""

    async def run() -> None:
        application = Application(Settings(num_threads=1), loader=EchoLoader(tokenizer))
        ready = asyncio.Event()
        application.on_ready = ready.set
        transport = httpx.ASGITransport(ReplicaRoutes(application.app), root_path=prefix)
        async with (
            application.lifespan(),
            httpx.AsyncClient(transport=transport, base_url=f"http://ray{prefix}") as client,
        ):
            await asyncio.wait_for(ready.wait(), HANG_TIMEOUT_S)
            await talk(client)

    asyncio.run(run())


# The last prefix is also the beginning of the application's own paths.
@pytest.mark.parametrize("prefix", ["", "/en-de", "/v1"])
def test_requests_are_answered_below_the_prefix_of_a_route(tokenizer: Tokenizer, prefix: str) -> None:
    async def talk(client: httpx.AsyncClient) -> None:
        assert (await client.get("/readyz")).json() == {"status": "ok"}
        assert (await client.post("/v1/translate", json=BODY)).json()["translations"]
        assert (await client.get("/v1/nowhere")).status_code == 404
        assert (await client.get(f"http://ray{prefix}")).status_code == 200

    served(tokenizer, talk, prefix=prefix)


def test_a_translation_is_streamed(tokenizer: Tokenizer) -> None:
    """The stream needs nothing that only our own HTTP protocol has."""

    async def talk(client: httpx.AsyncClient) -> None:
        answer = await client.post("/v1/translate/stream", json=BODY)
        assert answer.status_code == 200
        assert "event: done" in answer.text

    served(tokenizer, talk)


def test_the_request_id_is_the_proxys(tokenizer: Tokenizer) -> None:
    """The proxy adds the header X-Request-ID. The body of an error names the same id."""

    async def talk(client: httpx.AsyncClient) -> None:
        answer = await client.post("/v1/translate", json={}, headers={"X-Request-ID": "from-ray"})
        assert "x-request-id" not in answer.headers
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert answer.json()["error"]["request_id"] == "from-ray"

    served(tokenizer, talk)


def test_lifespan_events_are_answered_without_the_application() -> None:
    async def app(*_: Any) -> None:
        raise AssertionError("the replica has started the application already")

    sent: list[str] = []

    async def run() -> None:
        messages = iter(["lifespan.startup", "lifespan.shutdown"])

        async def receive() -> dict[str, str]:
            return {"type": next(messages)}

        async def send(message: Any) -> None:
            sent.append(message["type"])

        await ReplicaRoutes(app)({"type": "lifespan"}, receive, send)

    asyncio.run(run())
    assert sent == ["lifespan.startup.complete", "lifespan.shutdown.complete"]
