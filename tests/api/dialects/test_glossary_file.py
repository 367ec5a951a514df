"""The glossary file of a server: no other user may read it, and if it cannot be read or written, the answer is 503."""

from __future__ import annotations

import resource
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import httpx
import pytest

from tests.api.server_process import ServerProcess

GLOSSARY = {
    "name": "wood",
    "source_lang": "en",
    "target_lang": "de",
    "entries_format": "tsv",
    "entries": "a\tb",
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("glossaries")


@pytest.fixture(scope="module")
def server(echo_command: list[str], folder: Path) -> Iterator[ServerProcess]:
    with ServerProcess(echo_command, {"glossary_path": folder / "glossaries.sqlite"}) as process:
        yield process.ready()


def make(client: httpx.Client) -> httpx.Response:
    return client.post("/v2/glossaries", json=GLOSSARY)


def test_no_other_user_may_read_the_glossary_file(server: ServerProcess, folder: Path) -> None:
    with server.client() as client, closing(sqlite3.connect(folder / "glossaries.sqlite")) as other:
        assert make(client).status_code == 201
        assert other.execute("SELECT COUNT(*) FROM terms").fetchone() == (1,)  # so the -wal file exists
        modes = {path.name: path.stat().st_mode & 0o777 for path in folder.iterdir()}
    assert "glossaries.sqlite-wal" in modes
    assert set(modes.values()) == {0o600}


def test_a_locked_glossary_file_can_be_read_and_refuses_changes(server: ServerProcess, folder: Path) -> None:
    with server.client() as client:
        with closing(sqlite3.connect(folder / "glossaries.sqlite")) as other:
            other.execute("BEGIN IMMEDIATE")
            refused = make(client)
            assert refused.status_code == 503
            assert int(refused.headers["retry-after"]) >= 1
            assert client.get("/v2/glossaries").status_code == 200, "a reader does not wait for a writer"
        assert make(client).status_code == 201


def test_translations_are_refused_while_the_glossary_file_cannot_be_read(
    server: ServerProcess, folder: Path
) -> None:
    with server.client() as client, closing(sqlite3.connect(folder / "glossaries.sqlite")) as other:
        languages = {
            "source_lang": "en",
            "target_lang": "de",
            "glossary_id": make(client).json()["glossary_id"],
        }
        other.execute("ALTER TABLE glossaries RENAME TO moved")
        try:
            refused = [
                client.post("/v2/translate", json={"text": ["a"], **languages}),
                client.post("/v2/document", data=languages, files={"file": ("a.txt", b"a")}),
            ]
        finally:
            other.execute("ALTER TABLE moved RENAME TO glossaries")
    for answer in refused:
        assert answer.status_code == 503
        assert int(answer.headers["retry-after"]) >= 1
        assert answer.json() == {"message": "the glossaries cannot be read now"}


def test_a_glossary_is_refused_while_the_disk_is_full(server: ServerProcess) -> None:
    """The limits of the process forbid that any file grows, as on a full disk."""
    with server.client() as client:
        before = resource.prlimit(server.pid, resource.RLIMIT_FSIZE)
        resource.prlimit(server.pid, resource.RLIMIT_FSIZE, (1, before[1]))
        try:
            refused = make(client)
        finally:
            resource.prlimit(server.pid, resource.RLIMIT_FSIZE, before)
        assert refused.status_code == 503
        assert int(refused.headers["retry-after"]) >= 1
        assert refused.json() == {"message": "the glossaries cannot be read or written now"}
        assert make(client).status_code == 201
