"""The models of a memory budget share the bytes of the sentence cache, also after a reload."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from app.known_models import read_model
from app.observability.metrics import Metrics
from app.pooled_models import PooledModels
from app.settings import Settings
from tests.house_rules.project import ROOT


class Loader:
    """Loads manifests only."""

    def load_one(self, path: Path, settings: Settings) -> Any:
        return SimpleNamespace(manifest=read_model(path, settings).manifest, workers=[])


class Starter:
    """Starts nothing, and records the bytes of the sentence cache that each model gets."""

    text_threads = None
    metrics = Metrics()

    def __init__(self) -> None:
        self.cache_bytes: dict[str, int] = {}

    async def start(self, loaded: Any, _detector: object, *, cache_bytes: int, is_checked: bool) -> Any:
        self.cache_bytes[loaded.manifest.name] = cache_bytes
        return SimpleNamespace(manifest=loaded.manifest)

    async def stop(self, translators: object) -> None:
        pass


def add_model(folder: Path, name: str) -> None:
    manifest = json.loads((ROOT / "bundles" / "en-de" / "manifest.json").read_text("utf-8"))
    (folder / name).mkdir()
    (folder / name / "manifest.json").write_text(json.dumps(manifest | {"name": name}), "utf-8")


def settings_of(folder: Path) -> Settings:
    """Settings of a server with a memory budget for all models of the folder."""
    return Settings(
        bundles=(folder,),
        device="cpu",
        num_threads=1,
        num_lanes=1,
        model_memory=10**10,
        sentence_cache_bytes=12_000,
    )


def test_models_loaded_after_a_reload_share_the_cache_with_the_new_ones(tmp_path: Path) -> None:
    add_model(tmp_path, "a")
    settings = settings_of(tmp_path)
    starter: Any = Starter()
    loader: Any = Loader()

    async def scenario() -> None:
        source = PooledModels(settings, loader, starter, max_bytes=10**10, on_changed_bundle=lambda: None)
        first = await source.load_all(None)
        (model,) = first
        await source.load(model)
        assert starter.cache_bytes == {"a": 12_000}
        add_model(tmp_path, "b")
        add_model(tmp_path, "c")
        second = await source.load_all(first)
        for each in second:
            await source.load(each)
        assert starter.cache_bytes == {"a": 12_000, "b": 4_000, "c": 4_000}
        await source.unload(model)
        await source.load(model)
        assert starter.cache_bytes["a"] == 4_000
        await source.close()

    asyncio.run(scenario())
