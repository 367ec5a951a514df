"""Watches the folders of the served bundles, and has a model reloaded when its bundle has changed and is complete."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Iterable, Mapping
from pathlib import Path

from app.bundle import MANIFEST, Manifest, read_manifest
from app.errors import BundleError, ServiceError, SettingsError

# Seconds between two looks. Larger: a new version is served later. Smaller: more calls of the file system.
POLL_S = 2.0
# Path, size, time of change in nanoseconds and inode of each file. A file that is replaced has another inode.
Signature = tuple[tuple[str, int, int, int], ...]


class BundleWatch:
    """Compares the bundles with what it saw before. The event loop runs `run`; a thread runs `poll`."""

    def __init__(self, find: Callable[[], Iterable[Path]]) -> None:
        """find: returns the folders of all bundles; raises SettingsError. The watch begins with what is there now."""
        self._find = find
        self._seen = {folder: _signature([folder / MANIFEST]) for folder in self._found()}
        self._changing: dict[Path, Signature] = {}

    async def run(
        self,
        served: Callable[[], Mapping[Path, Manifest]],
        *,
        reload_model: Callable[[str], Awaitable[object]],
        reload_all: Callable[[], None],
    ) -> None:
        """Look for changes until cancelled. The functions that reload log what is wrong with a bundle.

        served: the manifests of the served models, by folder. reload_model: reloads the model of this name; raises
        ServiceError. reload_all: reads all bundles again.
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
        """Return the manifests of bundles that have changed, once their files are the same in two calls.

        None for a manifest that is invalid. A folder without a manifest is not returned: it may come back.
        """
        changed: dict[Path, Manifest | None] = {}
        for folder in {*self._seen, *self._found()}:
            manifest = _signature([folder / MANIFEST])
            if not manifest or manifest == self._seen.get(folder):
                self._changing.pop(folder, None)
                continue
            files = _signature(sorted(folder.rglob("*")))
            if self._changing.get(folder) == files:
                del self._changing[folder]
                self._seen[folder] = manifest
                changed[folder] = _manifest(folder)
            else:
                self._changing[folder] = files
        return changed

    def _found(self) -> list[Path]:
        """The folders of all bundles; none if the settings name none now."""
        try:
            return [*self._find()]
        except (SettingsError, OSError):
            return []


def _signature(files: Iterable[Path]) -> Signature:
    """The signature of the files that exist."""
    found = []
    for file in files:
        with contextlib.suppress(OSError):
            facts = file.stat()
            found.append((str(file), facts.st_size, facts.st_mtime_ns, facts.st_ino))
    return tuple(found)


def _manifest(folder: Path) -> Manifest | None:
    try:
        return read_manifest(folder)
    except BundleError:
        return None
