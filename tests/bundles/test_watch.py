"""The watch returns each bundle that is not served, after its files have stopped changing.

A bundle that is still not served is returned again when the files of any bundle have changed.
"""

from __future__ import annotations

import asyncio
import os
import shutil
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from app.bundle import Manifest, read_manifest
from app.bundle_folders import find_bundles
from app.bundle_watch import BundleWatch
from app.errors import NotReady, SettingsError
from app.settings import Settings
from tests.bundles.copies import copy_bundle


@pytest.fixture
def folder(tiny: Path, tmp_path: Path) -> Path:
    copy_bundle(tiny / "bundle", tmp_path / "a", name="a")
    return tmp_path


class Watch:
    """A watch, and the manifests that are served."""

    def __init__(self, folder: Path) -> None:
        settings = Settings(bundles=(folder,))
        self._watch = BundleWatch(lambda: find_bundles(settings))
        self.served = {path: read_manifest(path) for path in find_bundles(settings)}

    def poll(self) -> dict[Path, Manifest | None]:
        return self._watch.poll(self.served)

    async def run(
        self, reload_model: Callable[[str], Awaitable[None]], reload_all: Callable[[], None]
    ) -> None:
        await self._watch.run(lambda: self.served, reload_model=reload_model, reload_all=reload_all)

    def serve(self, *folders: Path) -> None:
        self.served |= {folder: read_manifest(folder) for folder in folders}


@pytest.fixture
def watch(folder: Path) -> Watch:
    return Watch(folder)


def polled_names(watch: Watch) -> list[str | None]:
    return [None if manifest is None else manifest.name for manifest in watch.poll().values()]


def test_nothing_has_changed_at_first(watch: Watch) -> None:
    assert watch.poll() == watch.poll() == {}


def test_a_new_version_is_returned_once(watch: Watch, folder: Path, tiny: Path) -> None:
    copy_bundle(tiny / "bundle", folder / "a", name="a", version="2")
    assert watch.poll() == {}, "its files may still be written"
    (manifest,) = watch.poll().values()
    assert manifest is not None
    assert manifest.version == "2"
    assert watch.poll() == watch.poll() == {}, "it may be loading"
    watch.serve(folder / "a")
    assert watch.poll() == watch.poll() == {}


def test_the_watch_waits_while_files_change(watch: Watch, folder: Path, tiny: Path) -> None:
    copy_bundle(tiny / "bundle", folder / "a", name="a", version="2")
    for second in range(3):
        os.utime(folder / "a" / "source.spm", (second, second))
        assert watch.poll() == {}
    assert polled_names(watch) == ["a"]


def test_an_invalid_manifest_is_returned_too(watch: Watch, folder: Path) -> None:
    (folder / "a" / "manifest.json").write_text("{}", "utf-8")
    assert watch.poll() == {}
    assert polled_names(watch) == [None]
    assert watch.poll() == {}, "it is tried once"


def test_the_watch_finds_a_new_bundle_and_waits_for_a_missing_one(
    watch: Watch, folder: Path, tiny: Path
) -> None:
    copy_bundle(tiny / "bundle", folder / "b", name="b")
    watch.poll()
    assert polled_names(watch) == ["b"]
    for name in ("a", "b"):
        shutil.rmtree(folder / name)
    with pytest.raises(SettingsError):
        find_bundles(Settings(bundles=(folder,)))
    assert watch.poll() == watch.poll() == {}
    copy_bundle(tiny / "bundle", folder / "a", name="a", version="2")
    watch.poll()
    assert polled_names(watch) == ["a"]


def test_a_folder_that_is_removed_during_a_poll_does_not_end_the_watch(
    watch: Watch, folder: Path, tiny: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    copy_bundle(tiny / "bundle", folder / "a", name="a", version="2")

    def removed(_folder: Path, _pattern: str) -> list[Path]:
        raise FileNotFoundError

    with monkeypatch.context() as patch:
        patch.setattr(Path, "rglob", removed)
        assert watch.poll() == {}
    assert watch.poll() == {}
    assert polled_names(watch) == ["a"]


def test_a_bundle_that_could_not_be_served_is_returned_again_when_its_files_have_changed(
    watch: Watch, folder: Path
) -> None:
    shutil.copytree(folder / "a", folder / "b")
    weights = next((folder / "b" / "int8").iterdir())
    content = weights.read_bytes()
    weights.unlink()
    watch.poll()
    assert polled_names(watch) == ["a"]
    assert watch.poll() == watch.poll() == {}
    weights.write_bytes(content)
    assert watch.poll() == {}, "its files may still be written"
    assert polled_names(watch) == ["a"]
    assert watch.poll() == watch.poll() == {}


def test_a_bundle_that_could_not_be_served_is_returned_again_when_another_one_has_changed(
    watch: Watch, folder: Path, tiny: Path
) -> None:
    """While any bundle is broken, the server does not start to serve a new bundle.

    So the watch returns the new bundle again when the broken bundle is removed, or when a served bundle has changed.
    """
    (folder / "bad").mkdir()
    (folder / "bad" / "manifest.json").write_text("{", "utf-8")
    copy_bundle(tiny / "bundle", folder / "b", name="b")
    watch.poll()
    assert set(polled_names(watch)) == {"b", None}
    assert watch.poll() == watch.poll() == {}
    shutil.rmtree(folder / "bad")
    watch.poll()
    assert polled_names(watch) == ["b"]
    assert watch.poll() == watch.poll() == {}
    os.utime(folder / "a" / "source.spm", (1, 1))
    watch.poll()
    assert polled_names(watch) == ["b"]
    watch.serve(folder / "b")
    assert watch.poll() == watch.poll() == {}


def test_a_bundle_is_returned_once_while_another_one_is_written(
    watch: Watch, folder: Path, tiny: Path
) -> None:
    for name in ("b", "c"):
        copy_bundle(tiny / "bundle", folder / name, name=name)
    found = []
    for second in range(4):
        os.utime(folder / "c" / "source.spm", (second, second))
        found += polled_names(watch)
    assert found == ["b"]


def test_an_unchanged_manifest_is_read_once(
    watch: Watch, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[Path] = []

    def recorded(path: Path) -> Manifest:
        read.append(path)
        return read_manifest(path)

    monkeypatch.setattr("app.bundle_watch.read_manifest", recorded)
    for _ in range(3):
        assert watch.poll() == {}
    assert read == [folder / "a"]


def test_an_invalid_manifest_reloads_its_model_and_a_new_bundle_or_another_name_reloads_all(
    watch: Watch, folder: Path, tiny: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("app.bundle_watch.POLL_S", 0.0)
    (folder / "a" / "manifest.json").write_text("{}", "utf-8")
    calls: list[str] = []

    async def reload_model(name: str) -> None:
        calls.append(name)
        copy_bundle(tiny / "bundle", folder / "a", name="b")

    def reload_all() -> None:
        calls.append("all")
        if len(calls) == 2:
            watch.serve(folder / "a")
            copy_bundle(tiny / "bundle", folder / "c", name="c")
        else:
            raise asyncio.CancelledError

    with pytest.raises(asyncio.CancelledError):
        asyncio.run(watch.run(reload_model, reload_all))
    assert calls == ["a", "all", "all"]


def test_a_served_bundle_is_watched_while_the_bundles_cannot_be_found(folder: Path, tiny: Path) -> None:
    def find() -> list[Path]:
        raise SettingsError(["a folder holds no bundle"])

    watch, served = BundleWatch(find), {folder / "a": read_manifest(folder / "a")}
    copy_bundle(tiny / "bundle", folder / "a", name="a", version="2")
    assert watch.poll(served) == {}
    assert list(watch.poll(served)) == [folder / "a"]


def test_the_watch_goes_on_after_a_reload_that_fails(
    watch: Watch, folder: Path, tiny: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("app.bundle_watch.POLL_S", 0.0)
    copy_bundle(tiny / "bundle", folder / "a", name="a", version="2")
    calls: list[str] = []

    async def reload_model(name: str) -> None:
        calls.append(name)
        if len(calls) == 2:
            raise asyncio.CancelledError
        copy_bundle(tiny / "bundle", folder / "a", name="a", version="3")
        raise NotReady("the server is loading")

    with pytest.raises(asyncio.CancelledError):
        asyncio.run(watch.run(reload_model, lambda: None))
    assert calls == ["a", "a"]
