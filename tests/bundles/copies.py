"""Copies of a bundle under other names, versions and language pairs."""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from pathlib import Path


def copy_bundle(
    bundle: Path,
    folder: Path,
    *,
    name: str,
    version: str = "1",
    pairs: Sequence[tuple[str, str]] = (),
) -> Path:
    """Put a copy at `folder`, as an operator replaces a bundle: it is written beside it and renamed.

    pairs: source and target of each pair; empty for the bundle's own.
    """
    fresh, old = folder.with_name("fresh"), folder.with_name("old")
    shutil.copytree(bundle, fresh)
    file = fresh / "manifest.json"
    manifest = json.loads(file.read_text("utf-8"))
    manifest |= {"name": name, "version": version}
    if pairs:
        prefix = manifest["language_pairs"][0]["source_prefix"]
        manifest["language_pairs"] = [
            {"source": source, "target": target, "source_prefix": prefix} for source, target in pairs
        ]
    file.write_text(json.dumps(manifest), "utf-8")
    if folder.exists():
        folder.rename(old)
    fresh.rename(folder)
    shutil.rmtree(old, ignore_errors=True)
    return folder
