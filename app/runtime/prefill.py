"""The step that decodes a model's `prefill_id` in new rows, at position -1, before their start tokens."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from app.runtime.interface import FREE_ROW_ID, Limits, StepInput


def prefill_step(rows: Sequence[int], num_rows: int, limits: Limits) -> StepInput:
    """The step of rows 0..num_rows-1 that appends the prefilled column to `rows` and leaves the other rows unharmed.

    If the runner cannot skip the other rows, the step overwrites their last column. This does no harm, because a search
    writes its last column before it reads it. limits: prefill_id must not be None.
    """
    assert limits.prefill_id is not None
    last_position = limits.max_target_length - 1
    ids = np.full(num_rows, FREE_ROW_ID if limits.skips_free_rows else 0, np.int32)
    positions = np.full(num_rows, last_position, np.int32)
    ids[rows], positions[rows] = limits.prefill_id, -limits.num_prefilled
    return StepInput(ids, positions, num_candidates=1)
