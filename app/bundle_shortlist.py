"""The manifest's entry for a bundle's shortlist, and the check of its file."""

from __future__ import annotations

from collections.abc import Container, Sequence
from pathlib import Path

from pydantic import Field

from app.language_pairs import LanguagePair, ManifestPart
from app.shortlist_file import SHORTLIST, ShortlistError, read_shortlists


class Shortlist(ManifestPart):
    """The file `shortlist.bin` (`app.shortlist_file`).

    pairs: for each table of the file, the index of the table's direction in the manifest's `language_pairs`.
    min_log_probability: a sentence is decoded again with the whole vocabulary if the mean log-probability of its
        subwords, the end token included, is below this number.
    """

    pairs: tuple[int, ...] = Field(min_length=1)
    min_log_probability: float = Field(le=0)


def shortlist_problems(
    path: Path, entry: Shortlist | None, files: Container[str], num_pairs: int, vocab_size: int
) -> list[str]:
    """The problems of a bundle's shortlist.

    path: the bundle's folder, in which each listed file is there and has the listed size. files: the names that the
    manifest lists. num_pairs: the number of the manifest's directions.
    """
    if (entry is not None) != (SHORTLIST in files):
        return [f"the manifest needs both or neither of shortlist and files.{SHORTLIST}"]
    if entry is None:
        return []
    if len(set(entry.pairs)) < len(entry.pairs) or not all(0 <= index < num_pairs for index in entry.pairs):
        return [f"shortlist.pairs: {list(entry.pairs)} must be different numbers from 0 to {num_pairs - 1}"]
    try:
        tables = read_shortlists(path / SHORTLIST)
    except (ShortlistError, OSError) as error:
        return [f"{SHORTLIST} cannot be used: {error}"]
    if len(tables) != len(entry.pairs):
        return [f"{SHORTLIST} has {len(tables)} tables, and shortlist.pairs {len(entry.pairs)}"]
    if tables[0].vocab_size != vocab_size:
        return [f"{SHORTLIST} is for {tables[0].vocab_size} subwords, and the model has {vocab_size}"]
    return []


def shortlists_of(entry: Shortlist | None, pairs: Sequence[LanguagePair]) -> dict[LanguagePair, int]:
    """The index of the table of each direction that has one. pairs: the manifest's language_pairs."""
    return {} if entry is None else {pairs[index]: table for table, index in enumerate(entry.pairs)}
