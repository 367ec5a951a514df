"""The server that is fuzzed over HTTP: the bundled model, with limits that keep every request short."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.api.server_process import ROOT, ServerProcess
from tests.e2e.conftest import SERVE_BY_FORK

SETTINGS: dict[str, object] = {
    "bundle": ROOT / "bundles" / "en-de",
    "precision": "int8",
    "num_threads": 1,
    "max_items": 4,
    "max_item_characters": 200,
    "max_request_characters": 400,
    "max_beam_size": 4,
    "max_num_hypotheses": 4,
    "max_body_bytes": 100_000,
    "max_file_bytes": 100_000,
}


@pytest.fixture(scope="module")
def fuzzed() -> Iterator[ServerProcess]:
    with ServerProcess(SERVE_BY_FORK, SETTINGS) as process:
        yield process.ready()
