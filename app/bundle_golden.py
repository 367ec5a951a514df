"""The check of a golden sentence against the manifest of its bundle."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from app.bundle import Golden, Manifest


def golden_problems(golden: Golden, manifest: Manifest) -> Iterator[str]:
    """What is wrong with a golden sentence: its pair, a variant without ids, or ids outside the vocabulary."""
    num_pairs, vocab_size = len(manifest.language_pairs), manifest.dimensions.vocab_size
    if golden.pair >= num_pairs:
        yield f"pair is {golden.pair}: the manifest has {num_pairs} language_pairs"
    yield from (f"ids has no {precision}" for precision in manifest.variants if precision not in golden.ids)
    for precision, ids in golden.ids.items():
        if not all(0 <= one < vocab_size for one in ids):
            yield f"ids.{precision} has an id that is not from 0 to {vocab_size - 1}"
