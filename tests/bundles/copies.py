"""Copies of a bundle under other names, versions and language pairs."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType


def copy_bundle(
    bundle: Path,
    folder: Path,
    *,
    name: str,
    version: str = "1",
    pairs: Sequence[tuple[str, str]] = (),
    languages: Mapping[str, str] = MappingProxyType({}),
) -> Path:
    """Copy a bundle to `folder`, in the place of the bundle there, if any.

    As an operator does, write the copy beside the folder, and then rename it.

    pairs: source and target of each pair of the copy, all with the source_prefix of the bundle's first pair; empty: the
        bundle's own pairs.
    languages: new language codes by the codes in the bundle's own pairs. The pairs keep their prefixes.
    """
    fresh, old = folder.with_name("fresh"), folder.with_name("old")
    shutil.copytree(bundle, fresh)
    file = fresh / "manifest.json"
    manifest = json.loads(file.read_text("utf-8"))
    manifest |= {"name": name, "version": version}
    for pair in manifest["language_pairs"]:
        pair |= {side: languages.get(pair[side], pair[side]) for side in ("source", "target")}
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
