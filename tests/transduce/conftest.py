"""A scripted HTTP server over a real socket, for the tests of the client."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest

from tests.transduce.asgi_server import asgi_server, read_body


@dataclass
class Answer:
    """One prepared response."""

    status: int
    body: bytes = b"{}"
    headers: dict[str, str] = field(default_factory=dict)


@dataclass
class ScriptedServer:
    """Responds to each POST with the next of `answers`. After the last one it responds with the texts in upper case.

    requests: the parsed bodies in order of arrival. headers: of the requests. paths: such as `POST /v1/translate`.
    models: name, version and the one language pair (`en>de`) of each model in the response to GET. GET requests are
        not in the lists above.
    """

    url: str
    answers: list[Answer] = field(default_factory=list)
    requests: list[dict[str, Any]] = field(default_factory=list)
    headers: list[dict[str, str]] = field(default_factory=list)
    paths: list[str] = field(default_factory=list)
    models: list[tuple[str, str, str]] = field(default_factory=lambda: [("first", "1", "en>de")])

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        assert scope["type"] == "http"
        body = await read_body(receive)
        if scope["method"] == "GET":
            await self._send(send, self._models())
            return
        self.requests.append(json.loads(body))
        self.headers.append({name.decode(): value.decode() for name, value in scope["headers"]})
        self.paths.append(f"{scope['method']} {scope['path']}")
        await self._send(send, self.answers.pop(0) if self.answers else self.default_answer())

    async def _send(self, send: Any, answer: Answer) -> None:
        headers = [(name.encode(), value.encode()) for name, value in answer.headers.items()]
        await send({"type": "http.response.start", "status": answer.status, "headers": headers})
        await send({"type": "http.response.body", "body": answer.body})

    def _models(self) -> Answer:
        sizes = {"max_source_length": 255, "max_target_length": 255}
        models = [
            {
                "name": name,
                "version": version,
                "language_pairs": [dict(zip(("source", "target"), pair.split(">"), strict=True))],
                **sizes,
            }
            for name, version, pair in self.models
        ]
        return Answer(200, json.dumps({"models": models}).encode())

    def default_answer(self) -> Answer:
        translations = [{"text": text.upper()} for text in self.requests[-1]["text"]]
        return Answer(200, json.dumps({"translations": translations}).encode())


@dataclass
class Listener:
    """The app of the one HTTP server, which passes requests to the scripted server of the running test."""

    url: str
    scripted: ScriptedServer | None = None

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        assert self.scripted is not None
        await self.scripted(scope, receive, send)


@pytest.fixture(scope="session")
def listener() -> Iterator[Listener]:
    """A server for all tests, because uvicorn takes one or two tenths of a second to end."""
    app = Listener(url="")
    with asgi_server(app) as app.url:
        yield app


@pytest.fixture
def server(listener: Listener) -> ScriptedServer:
    listener.scripted = ScriptedServer(url=listener.url)
    return listener.scripted
