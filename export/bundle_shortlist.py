"""Writes a bundle again with a shortlist, beside the target, and renames it into place."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path

from app.bundle import Bundle
from app.bundle_shortlist import Shortlist
from app.shortlist_file import SHORTLIST, ShortlistTable, read_shortlists, write_shortlists
from export.bundle_writer import file_entries, write_manifest
from export.output_folder import (
    ExportError,
    check_output,
    new_folder_beside,
    publish_bundle,
)


def check_copy(bundle: Bundle, output: Path) -> Path:
    """The folder to replace, as `check_output` returns it.

    Raises ExportError as `check_output` does, and for an output inside the bundle, because a copy would copy itself.
    """
    folder = check_output(output)
    if bundle.path.resolve() in folder.parents:
        raise ExportError(f"{output} lies in the bundle {bundle.path}: name a folder outside it")
    return folder


def tables_of(bundle: Bundle) -> dict[int, ShortlistTable]:
    """The bundle's tables by the index of their direction in the manifest's language_pairs."""
    entry = bundle.manifest.shortlist
    if entry is None:
        return {}
    return dict(zip(entry.pairs, read_shortlists(bundle.file(SHORTLIST)), strict=True))


def write_with_shortlist(
    bundle: Bundle, output: Path, tables: Mapping[int, ShortlistTable], min_log_probability: float
) -> None:
    """Write a copy of a bundle with these tables, and replace `output` by it. Missing parents are made.

    tables: by the index of the direction in the manifest's language_pairs. Raises ExportError as `check_copy` does,
    ExportError and LockedError as `new_folder_beside` does, BundleError if the result is no bundle, and ValidationError
    for a log-probability above 0.
    """
    entry = Shortlist(pairs=tuple(tables), min_log_probability=min_log_probability)
    output = check_copy(bundle, output)
    with new_folder_beside(output) as copy:
        shutil.copytree(bundle.path, copy)
        write_shortlists(copy / SHORTLIST, list(tables.values()))
        update = {"shortlist": entry, "files": file_entries(copy)}
        write_manifest(copy, bundle.manifest.model_copy(update=update))
        publish_bundle(copy, output)
