from __future__ import annotations

import hashlib
from collections.abc import Iterator

import deepl
import httpx
import pytest

from tests.api.server_process import ServerProcess

KEY = "a key with blanks & signs"


@pytest.fixture(autouse=True)
def _without_retries(monkeypatch: pytest.MonkeyPatch) -> None:
    """The DeepL client does not repeat a failed request, unless a test allows it."""
    monkeypatch.setattr(deepl.http_client, "max_network_retries", 0)


@pytest.fixture(scope="session")
def echo(echo_command: list[str]) -> Iterator[ServerProcess]:
    """The echo server, en to de, with small limits."""
    settings: dict[str, object] = {
        "max_item_characters": 200,
        "max_request_characters": 300,
        "max_items": 20,
        "max_num_hypotheses": 4,
    }
    with ServerProcess(echo_command, settings) as process:
        yield process.ready()


@pytest.fixture(scope="session")
def http(echo: ServerProcess) -> Iterator[httpx.Client]:
    with echo.client() as client:
        yield client


@pytest.fixture(scope="session")
def locked(echo_command: list[str]) -> Iterator[ServerProcess]:
    """The echo server with an API key and the default limits. The translation of files is off."""
    digest = hashlib.sha256(KEY.encode()).hexdigest()
    with ServerProcess(echo_command, {"api_keys": digest, "files_enabled": False}) as process:
        yield process.ready()


@pytest.fixture(scope="session")
def locked_http(locked: ServerProcess) -> Iterator[httpx.Client]:
    with locked.client() as client:
        yield client
