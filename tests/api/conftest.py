from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from app.text.tokenizer import Tokenizer
from tests.api.server_process import ROOT, ServerProcess
from tests.model.sentences import write_tokenizer


@pytest.fixture(scope="session")
def tokenizer_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tokenizer(tmp_path_factory.mktemp("echo") / "tokenizer.spm")


@pytest.fixture(scope="session")
def tokenizer(tokenizer_path: Path) -> Tokenizer:
    return Tokenizer(tokenizer_path)


@pytest.fixture(scope="session")
def echo_command(tokenizer_path: Path) -> list[str]:
    """The module and the arguments of the echo server. Arguments such as step_s=0.01 may follow."""
    return ["tests.api.echo_server", str(tokenizer_path)]


@pytest.fixture
def hang_file(tmp_path: Path) -> Path:
    """The hang_file of the echo server: while this file exists, decoder steps hang. It does not exist at first."""
    return tmp_path / "hang"


@pytest.fixture
def load_file(tmp_path: Path) -> Path:
    """The load_file of the echo server: while this file exists, the model is loading. It exists at first."""
    file = tmp_path / "load"
    file.touch()
    return file


@pytest.fixture(scope="module")
def server(echo_command: list[str]) -> Iterator[ServerProcess]:
    """A server with short read timeouts and small limits on texts."""
    settings: dict[str, object] = {
        "read_timeout_s": 1,
        "max_item_characters": 2000,
        "max_request_characters": 4000,
    }
    with ServerProcess(echo_command, settings) as process:
        yield process.ready()


@pytest.fixture(scope="module")
def client(server: ServerProcess) -> Iterator[httpx.Client]:
    with server.client() as client:
        yield client


@pytest.fixture(scope="session")
def bundled() -> Iterator[httpx.Client]:
    """A client of a server with the bundled model."""
    settings: dict[str, object] = {
        "bundle": ROOT / "bundles" / "en-de",
        "num_threads": 1,
        "device": "cpu",
        "precision": "int8",
    }
    with ServerProcess(["transduce", "serve"], settings) as process, process.ready().client() as client:
        yield client
