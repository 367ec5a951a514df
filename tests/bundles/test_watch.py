"""The watch returns each changed bundle once, after its files have stopped changing."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from app.bundle_folders import find_bundles
from app.bundle_watch import BundleWatch
from app.errors import SettingsError
from app.settings import Settings
from tests.bundles.copies import copy_bundle


@pytest.fixture
def folder(tiny: Path, tmp_path: Path) -> Path:
    copy_bundle(tiny / "bundle", tmp_path / "a", name="a")
    return tmp_path


@pytest.fixture
def watch(folder: Path) -> BundleWatch:
    settings = Settings(bundles=(folder,))
    return BundleWatch(lambda: find_bundles(settings))


def names(watch: BundleWatch) -> list[str | None]:
    return [None if manifest is None else manifest.name for manifest in watch.poll().values()]


def test_nothing_has_changed_at_first(watch: BundleWatch) -> None:
    assert watch.poll() == watch.poll() == {}


def test_a_new_version_is_returned_once(watch: BundleWatch, folder: Path, tiny: Path) -> None:
    copy_bundle(tiny / "bundle", folder / "a", name="a", version="2")
    assert watch.poll() == {}, "its files may still be written"
    (manifest,) = watch.poll().values()
    assert manifest is not None
    assert manifest.version == "2"
    assert watch.poll() == watch.poll() == {}


def test_the_watch_waits_while_files_change(watch: BundleWatch, folder: Path, tiny: Path) -> None:
    copy_bundle(tiny / "bundle", folder / "a", name="a", version="2")
    for second in range(3):
        os.utime(folder / "a" / "source.spm", (second, second))
        assert watch.poll() == {}
    assert names(watch) == ["a"]


def test_an_invalid_manifest_is_returned_too(watch: BundleWatch, folder: Path) -> None:
    (folder / "a" / "manifest.json").write_text("{}", "utf-8")
    assert watch.poll() == {}
    assert names(watch) == [None]
    assert watch.poll() == {}, "it is tried once"


def test_the_watch_finds_a_new_bundle_and_waits_for_a_missing_one(
    watch: BundleWatch, folder: Path, tiny: Path
) -> None:
    copy_bundle(tiny / "bundle", folder / "b", name="b")
    watch.poll()
    assert names(watch) == ["b"]
    for name in ("a", "b"):
        shutil.rmtree(folder / name)
    with pytest.raises(SettingsError):
        find_bundles(Settings(bundles=(folder,)))
    assert watch.poll() == watch.poll() == {}
    copy_bundle(tiny / "bundle", folder / "a", name="a")
    watch.poll()
    assert names(watch) == ["a"]


def test_a_folder_that_is_removed_during_a_poll_does_not_end_the_watch(
    watch: BundleWatch, folder: Path, tiny: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    copy_bundle(tiny / "bundle", folder / "a", name="a", version="2")

    def removed(_folder: Path, _pattern: str) -> list[Path]:
        raise FileNotFoundError

    with monkeypatch.context() as patch:
        patch.setattr(Path, "rglob", removed)
        assert watch.poll() == {}
    assert watch.poll() == {}
    assert names(watch) == ["a"]
