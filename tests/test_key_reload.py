"""A server watches its file of API keys."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from app import key_reload
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
