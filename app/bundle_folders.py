"""Finds the bundles to serve: the folders that the settings name, or the only bundle in a folder `bundles`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from app.errors import SettingsError
from app.settings import PREFIX, Settings


def find_bundles(settings: Settings) -> list[Path]:
    """The folders of the bundles to serve: those of the settings, or the only bundle in a folder `bundles`.

    `bundles` is searched beside the package (a checkout), in the package, and in the current directory. The paths are
    absolute, because `.` has no name for messages. Raises SettingsError if there is no bundle, or if the settings do
    not choose one of several.
    """
    if settings.bundle is not None:
        return [settings.bundle.absolute()]
    if settings.bundles:
        return _bundles_in(settings.bundles)
    package = Path(__file__).resolve().parent
    places = dict.fromkeys(folder / "bundles" for folder in (package.parent, package, Path.cwd()))
    for folder_of_bundles in places:
        found = bundle_folders(folder_of_bundles)
        if len(found) > 1:
            names = ", ".join(path.name for path in found)
            problem = (
                f"{folder_of_bundles} holds more than one bundle ({names}); set {PREFIX}BUNDLE to one of them, "
                f"or {PREFIX}BUNDLES to {folder_of_bundles} to serve all"
            )
            raise SettingsError([problem])
        if found:
            return found
    searched = ", ".join(map(str, places))
    raise SettingsError([f"no bundle found (searched {searched}); set {PREFIX}BUNDLE to its folder"])


def _bundles_in(folders: Sequence[Path]) -> list[Path]:
    """The bundles among these folders and in them, each once. Raises SettingsError for a folder without any."""
    folders_of_bundles: dict[Path, None] = {}
    problems = []
    for folder in folders:
        place = folder.absolute()
        bundles = [place] if (place / "manifest.json").is_file() else bundle_folders(place)
        if not bundles:
            problems.append(f"{PREFIX}BUNDLES: {folder} holds no bundle")
        folders_of_bundles |= dict.fromkeys(bundles)
    if problems:
        raise SettingsError(problems)
    return list(folders_of_bundles)


def bundle_folders(folder: Path) -> list[Path]:
    """The folders in a folder that are bundles, by name.

    Folders whose names begin with a dot are left out: exports work in them.
    """
    return sorted(manifest.parent for manifest in folder.glob("[!.]*/manifest.json"))
