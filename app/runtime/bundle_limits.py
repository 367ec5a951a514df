"""What a bundle's model can hold; apart from the seam, which knows no bundles."""

from __future__ import annotations

from app.bundle import Manifest
from app.runtime.interface import Limits


def limits_of(manifest: Manifest, num_rows: int, num_kept_rows: int = 0) -> Limits:
    """What a runner of a bundle holds with a cache of `num_rows` rows and `num_kept_rows` kept ones beside them."""
    return Limits(
        num_rows=num_rows + num_kept_rows,
        num_kept_rows=num_kept_rows,
        max_source_length=manifest.max_source_length,
        max_target_length=manifest.max_target_length,
        vocab_size=manifest.dimensions.vocab_size,
        bos_id=manifest.special_ids.bos,
        eos_id=manifest.special_ids.eos,
        has_alignment=manifest.alignment is not None,
    )
