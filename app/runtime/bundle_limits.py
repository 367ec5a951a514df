"""The runner limits of a bundle's model, in a module of their own so that `app.runtime.interface` imports no bundle."""

from __future__ import annotations

from app.bundle import Manifest
from app.runtime.interface import Limits


def limits_of(manifest: Manifest, num_rows: int, num_kept_rows: int = 0) -> Limits:
    """The limits of a runner.

    num_rows: cache rows for any caller. num_kept_rows: further rows, which are kept for callers that come later.
    """
    return Limits(
        num_rows=num_rows + num_kept_rows,
        num_kept_rows=num_kept_rows,
        max_source_length=manifest.max_source_length,
        max_target_length=manifest.max_target_length,
        vocab_size=manifest.dimensions.vocab_size,
        bos_id=manifest.special_ids.bos,
        eos_id=manifest.special_ids.eos,
        has_alignment=manifest.alignment is not None,
        min_log_probability=None if manifest.shortlist is None else manifest.shortlist.min_log_probability,
        prefill_id=manifest.special_ids.bos if manifest.has_target_starts else None,
    )
