"""Which models of a memory budget are loaded and checked, and their equal shares of the sentence cache.

The last reload decides the number of shares.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Collection
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from app.errors import BundleError
from app.known_models import read_model
from app.observability.metrics import Metrics
from app.pooled_models import PooledModels
from app.settings import Settings
from tests.house_rules.project import ROOT


class Loader:
    """Loads manifests only. is_broken: whether loads fail. broken: the folders whose loads fail."""

    is_broken = False
    broken: Collection[str] = ()

    def load_one(self, path: Path, settings: Settings) -> Any:
        if self.is_broken or path.name in self.broken:
            raise BundleError(path.name, ["a file is missing"])
        return SimpleNamespace(manifest=read_model(path, settings).manifest, workers=[])


class Starter:
    """Starts nothing, and records the bytes of the sentence cache that each model gets.

    checked: for each start, whether the golden sentences are checked already.
    """

    text_threads = None
    metrics = Metrics()

    def __init__(self) -> None:
        self.cache_bytes: dict[str, int] = {}
        self.checked: list[bool] = []

    async def start(self, loaded: Any, _detector: object, *, cache_bytes: int, is_checked: bool) -> Any:
        self.cache_bytes[loaded.manifest.name] = cache_bytes
        self.checked.append(is_checked)
        return SimpleNamespace(manifest=loaded.manifest)

    async def stop(self, translators: object) -> None:
        pass


def add_model(folder: Path, name: str) -> None:
    manifest = json.loads((ROOT / "bundles" / "en-de" / "manifest.json").read_text("utf-8"))
    (folder / name).mkdir()
    (folder / name / "manifest.json").write_text(json.dumps(manifest | {"name": name}), "utf-8")


def add_language(bundle: Path) -> None:
    """Add a language pair to a bundle, so that it differs from the served model."""
    manifest = json.loads((bundle / "manifest.json").read_text("utf-8"))
    manifest["language_pairs"].append(manifest["language_pairs"][0] | {"target": "fr"})
    (bundle / "manifest.json").write_text(json.dumps(manifest), "utf-8")


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


def test_models_loaded_after_a_reload_share_the_cache_with_the_new_models(tmp_path: Path) -> None:
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


@pytest.mark.parametrize("is_of_all", [True, False], ids=["of all models", "of one model"])
def test_a_failed_reload_changes_neither_the_detector_nor_the_shares_of_the_cache(
    tmp_path: Path, is_of_all: bool
) -> None:
    add_model(tmp_path, "a")
    settings = settings_of(tmp_path)
    starter: Any = Starter()
    loader: Any = Loader()

    async def scenario() -> None:
        source = PooledModels(settings, loader, starter, max_bytes=10**10, on_changed_bundle=lambda: None)
        first = await source.load_all(None)
        (model,) = first
        detector = source._detector.current
        add_model(tmp_path, "b")
        add_language(tmp_path / "a")
        loader.is_broken = True
        with pytest.raises(BundleError):
            await (source.load_all(first) if is_of_all else source.load_one(first, model, is_forced=True))
        loader.is_broken = False
        assert source._detector.current is detector
        await source.unload(model)
        await source.load(model)
        assert starter.cache_bytes == {"a": 12_000}
        second = await source.load_all(first)
        assert source._detector.current is not detector
        for each in second:
            await source.load(each)
        assert starter.cache_bytes == {"a": 6_000, "b": 6_000}
        await source.close()

    asyncio.run(scenario())


def test_the_golden_sentences_of_a_version_are_checked_once(tmp_path: Path) -> None:
    add_model(tmp_path, "a")
    starter: Any = Starter()
    loader: Any = Loader()
    changes: list[str] = []

    async def scenario() -> None:
        source = PooledModels(
            settings_of(tmp_path),
            loader,
            starter,
            max_bytes=10**10,
            on_changed_bundle=lambda: changes.append("a"),
        )
        (model,) = await source.load_all(None)
        await source.unload(model)
        await source.load(model)
        assert (starter.checked, changes) == ([False, True], [])
        add_language(tmp_path / "a")
        await source.unload(model)
        await source.load(model)
        assert (starter.checked, changes) == ([False, True, False], ["a"])
        await source.close()

    asyncio.run(scenario())


def test_a_failed_start_leaves_no_model_in_memory(tmp_path: Path) -> None:
    for name in ("a", "b"):
        add_model(tmp_path, name)
    starter: Any = Starter()
    loader: Any = Loader()
    loader.broken = {"b"}
    settings = settings_of(tmp_path).model_copy(update={"preload": ("a", "b")})

    async def scenario() -> None:
        source = PooledModels(settings, loader, starter, max_bytes=10**10, on_changed_bundle=lambda: None)
        with pytest.raises(BundleError):
            await source.load_all(None)
        assert starter.cache_bytes.keys() == {"a"}
        assert source.num_bytes == 0
        await source.close()

    asyncio.run(scenario())


def test_a_reload_loads_only_the_changed_models_that_are_in_memory(tmp_path: Path) -> None:
    for name in ("a", "b", "c"):
        add_model(tmp_path, name)
    starter: Any = Starter()
    loader: Any = Loader()

    async def scenario() -> None:
        source = PooledModels(
            settings_of(tmp_path), loader, starter, max_bytes=10**10, on_changed_bundle=lambda: None
        )
        first = await source.load_all(None)
        await source.load([*first][1])
        starter.cache_bytes.clear()
        for name in ("b", "c"):
            add_language(tmp_path / name)
        second = await source.load_all(first)
        assert starter.cache_bytes.keys() == {"b"}
        assert [model.translator.is_loaded for model in second] == [True, True, False]
        await source.close()

    asyncio.run(scenario())
