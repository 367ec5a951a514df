"""Watches the folders of the served bundles, and reloads a model when its bundle has changed and is complete."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Iterable, Mapping
from pathlib import Path

from app.bundle import MANIFEST, Manifest, read_manifest
from app.errors import BundleError, ServiceError, SettingsError
from app.file_signature import POLL_S, Signature, signature_of


class BundleWatch:
    """Detects changed manifests. The event loop runs `run`; a thread runs `poll`."""

    def __init__(self, find: Callable[[], Iterable[Path]]) -> None:
        """find: returns the folders of all bundles; raises SettingsError. Changes count from now on."""
        self._find = find
        self._seen = {folder: signature_of([folder / MANIFEST]) for folder in self._folders()}
        self._changing: dict[Path, Signature] = {}

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
            changed = await asyncio.to_thread(self.poll)
            manifests = served()
            for folder, manifest in changed.items():
                before = manifests.get(folder)
                if before is None or (manifest is not None and manifest.name != before.name):
                    reload_all()  # the bundle is new, or holds another model
                elif manifest != before:
                    with contextlib.suppress(ServiceError):
                        await reload_model(before.name)

    def poll(self) -> dict[Path, Manifest | None]:
        """Return the manifests that have changed, once all files of their bundles are the same in two calls.

        The manifest is None if it is invalid. A folder without a manifest is not returned: a new one may follow.
        """
        changed: dict[Path, Manifest | None] = {}
        for folder in {*self._seen, *self._folders()}:
            manifest = signature_of([folder / MANIFEST])
            if not manifest or manifest == self._seen.get(folder):
                self._changing.pop(folder, None)
                continue
            try:
                files = signature_of(sorted(folder.rglob("*")))
            except OSError:  # a folder in it is removed meanwhile: the bundle still changes
                self._changing.pop(folder, None)
                continue
            if self._changing.get(folder) == files:
                del self._changing[folder]
                self._seen[folder] = manifest
                changed[folder] = _manifest(folder)
            else:
                self._changing[folder] = files
        return changed

    def _folders(self) -> list[Path]:
        """The folders of all bundles; empty if `find` fails."""
        try:
            return [*self._find()]
        except (SettingsError, OSError):
            return []


def _manifest(folder: Path) -> Manifest | None:
    try:
        return read_manifest(folder)
    except BundleError:
        return None
