"""Watches the folders of the bundles, and reloads a model when its bundle has changed and is complete."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Iterable, Mapping
from pathlib import Path

from app.bundle import MANIFEST, Manifest, read_manifest
from app.errors import BundleError, ServiceError, SettingsError
from app.file_signature import POLL_S, Signature, signature_of


class BundleWatch:
    """Finds bundles whose manifests are not the served ones. The event loop runs `run`; a thread runs `poll`."""

    def __init__(self, find: Callable[[], Iterable[Path]]) -> None:
        """find: returns the folders of all bundles; raises SettingsError."""
        self._find = find
        self._manifests: dict[Path, tuple[Signature, Manifest | None]] = {}
        # Each bundle's files at the last poll. Empty if all manifests were served.
        self._last: dict[Path, Signature] = {}
        # For each folder that is not served: the files of all bundles when `poll` last returned the folder.
        self._tried: dict[Path, dict[Path, Signature]] = {}

    async def run(
        self,
        served: Callable[[], Mapping[Path, Manifest]],
        *,
        reload_model: Callable[[str], Awaitable[object]],
        reload_all: Callable[[], None],
    ) -> None:
        """Poll until cancelled, and reload what has changed.

        served: returns the manifests of the served models, by folder. reload_model: reloads the model of this name;
        raises ServiceError. reload_all: reads all bundles again. Both functions log the problems of a bundle.
        """
        while True:
            await asyncio.sleep(POLL_S)
            changed = await asyncio.to_thread(self.poll, served())
            manifests = served()
            for folder, manifest in changed.items():
                before = manifests.get(folder)
                if before is None or (manifest is not None and manifest.name != before.name):
                    reload_all()  # the bundle is new, or holds another model
                elif manifest != before:
                    with contextlib.suppress(ServiceError):
                        await reload_model(before.name)

    def poll(self, served: Mapping[Path, Manifest]) -> dict[Path, Manifest | None]:
        """Return the manifests that are not served, once all files of their bundles are the same in two calls in a row.

        A manifest that stays unserved is returned again in two cases:
        - its bundle's files have changed, and are then the same in two calls in a row;
        - another bundle's files have changed, and all bundles' files are then the same in two calls in a row.

        A manifest is None if it is invalid. A folder without a manifest is not returned, because its new manifest may
        not be written yet. served: the manifests of the served models, by folder.
        """
        self._manifests = {
            folder: self._read(folder, signature)
            for folder in {*served, *self._folders()}
            if (signature := signature_of([folder / MANIFEST]))
        }
        waiting = {
            folder: manifest
            for folder, (_, manifest) in self._manifests.items()
            if manifest is None or manifest != served.get(folder)
        }
        last = self._last
        files = {folder: _files(folder) for folder in self._manifests} if waiting else {}
        changed: dict[Path, Manifest | None] = {}
        tried: dict[Path, dict[Path, Signature]] = {}
        for folder, manifest in waiting.items():
            before = self._tried.get(folder, {})
            if last.get(folder) == files[folder] != before.get(folder) or last == files != before:
                changed[folder] = manifest
                before = files
            tried[folder] = before
        self._last, self._tried = files, tried
        return changed

    def _read(self, folder: Path, signature: Signature) -> tuple[Signature, Manifest | None]:
        """The manifest with its signature. An unchanged one is not read again."""
        known = self._manifests.get(folder)
        return known if known is not None and known[0] == signature else (signature, _manifest(folder))

    def _folders(self) -> list[Path]:
        """The folders of all bundles; empty if `find` fails."""
        try:
            return [*self._find()]
        except (SettingsError, OSError):
            return []


def _files(folder: Path) -> Signature:
    """The signature of all files of a bundle; empty if a folder in it is removed meanwhile."""
    try:
        return signature_of(sorted(folder.rglob("*")))
    except OSError:
        return ()


def _manifest(folder: Path) -> Manifest | None:
    try:
        return read_manifest(folder)
    except BundleError:
        return None
