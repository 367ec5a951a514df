"""Which folders count as bundles, and the name of a bundle that is the current directory itself."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from app import bundle_folders
from app.bundle import load_bundle, read_manifest
from app.bundle_folders import find_bundles
from app.errors import BundleError, SettingsError
from app.settings import Settings
from app.startup import LoadedModels, load_model, release_models
from transduce.cli import main


@pytest.fixture
def folder(tiny: Path, tmp_path: Path) -> Path:
    """A folder with a bundle and what a killed export leaves beside it."""
    for name in ("my", ".my.export.tmp", ".my.export.old"):
        shutil.copytree(tiny / "bundle", tmp_path / "bundles" / name)
    return tmp_path / "bundles"


def test_work_folders_of_an_export_are_no_bundles(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert find_bundles(Settings(bundles=(folder,))) == [folder / "my"]
    assert main(["models", str(folder), "--json"]) == 0
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [row["bundle"] for row in rows] == [str(folder / "my")]


def test_a_bundle_that_is_named_twice_is_found_once(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder.parent)
    named = (Path("bundles"), Path("bundles/my"), folder / "my")
    assert find_bundles(Settings(bundles=named)) == [folder / "my"]


def test_a_server_without_settings_serves_the_only_bundle(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def add(folder: Path) -> Path:
        folder.mkdir(parents=True)
        (folder / "manifest.json").touch()
        return folder

    here, package = tmp_path / "here", tmp_path / "package"
    here.mkdir()
    monkeypatch.chdir(here)
    monkeypatch.setattr(bundle_folders, "__file__", str(package / "app" / "bundle_folders.py"))
    with pytest.raises(SettingsError, match="no bundle found"):
        find_bundles(Settings())
    mine = add(here / "bundles" / "my")
    assert find_bundles(Settings()) == [mine]
    add(here / "bundles" / "other")
    with pytest.raises(SettingsError, match=r"holds more than one bundle \(my, other\)"):
        find_bundles(Settings())
    own = add(package / "bundles" / "own")
    assert find_bundles(Settings()) == [own], "it is beside the package"


def test_a_bundle_that_is_the_current_directory_has_its_folders_name(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(folder / "my")
    for settings in (Settings(bundle=Path()), Settings(bundles=(Path(),))):
        (found,) = find_bundles(settings)
        assert found == folder / "my"
    model = load_model(found, Settings(num_lanes=1))
    release_models(LoadedModels((model,)))
    assert model.name == "my"
    assert load_bundle(Path()).path == folder / "my"
    Path("source.spm").write_bytes(b"")
    with pytest.raises(BundleError, match=r"^bundle my: source\.spm has 0 bytes"):
        load_bundle(Path())
    Path("manifest.json").write_bytes(b"{}")
    with pytest.raises(BundleError, match=r"^bundle my: "):
        read_manifest(Path())
