"""A server watches its file of API keys."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest

from app import file_signature, key_reload
from app.file_signature import Signature
from app.key_reload import KeyReload

LIMIT_S = 60.0


def test_a_change_between_the_first_reading_and_the_watch_is_seen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(key_reload, "POLL_S", 0.01)
    path = tmp_path / "keys.toml"
    path.write_text("old")

    async def count_readings() -> int:
        done = asyncio.Event()
        num_readings = 0

        def read() -> tuple[()]:
            nonlocal num_readings
            num_readings += 1
            return ()

        reload = KeyReload(read, lambda _keys: done.set(), path=path)
        path.write_text("newer")
        reload.watch()
        await asyncio.wait_for(done.wait(), LIMIT_S)
        await asyncio.sleep(0.1)  # ten polls
        await reload.close()
        return num_readings

    assert asyncio.run(count_readings()) == 1


def test_a_changed_file_is_read_when_it_is_complete(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The file changes before each look at it. It is incomplete at first, and missing for three polls."""
    path = tmp_path / "keys.toml"
    path.write_text("old")

    def nothing() -> None:
        pass

    steps: Iterator[Callable[[], object]] = iter(
        [
            nothing,
            lambda: path.write_text("a"),
            lambda: path.write_text("half"),
            lambda: path.write_text("whole"),
            nothing,
            nothing,  # the look before the reading
            path.unlink,
            nothing,
            nothing,
            lambda: path.write_text("newest"),
        ]
    )

    def signature_of(files: Sequence[Path]) -> Signature:
        next(steps, nothing)()
        return file_signature.signature_of(files)

    monkeypatch.setattr(key_reload, "POLL_S", 0.0)
    monkeypatch.setattr(key_reload, "signature_of", signature_of)

    async def contents() -> list[str]:
        done = asyncio.Event()
        read: list[str] = []

        def read_keys() -> tuple[()]:
            read.append(path.read_text() if path.exists() else "missing")
            return ()

        def replace(_keys: object) -> None:
            if read[-1] == "newest":
                done.set()

        reload = KeyReload(read_keys, replace, path=path)
        reload.watch()
        await asyncio.wait_for(done.wait(), LIMIT_S)
        await reload.close()
        return read

    assert asyncio.run(contents()) == ["whole", "newest"]
