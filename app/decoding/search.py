"""The search's seam: one object per sentence, its strategy chosen once, the engine's loop blind to it.

A search is told the best candidates for each of its live hypotheses and goes on to its next live
hypotheses, or is done. It knows nothing of caches or of other sentences. What the engine reads of it:

num_candidates: how many of the best candidates it wants from each of its rows.
last_ids: last subword of each live hypothesis; the start token before the first step.
parents: for each live hypothesis, which of those before the step it continues.
is_done: nothing is alive any more.
hypotheses(): the answer, best first, at most num_hypotheses; empty until it is done.
fresh(): a search with the same options that has not begun.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from app.decoding.beam import BeamSearch, advance_beams
from app.decoding.greedy import GreedySearch, advance_greedy
from app.decoding.options import DecodingOptions

Search = GreedySearch | BeamSearch


def new_search(options: DecodingOptions, *, bos_id: int, eos_id: int) -> Search:
    """The one place where options become a strategy."""
    strategy = GreedySearch if options.beam_size == 1 else BeamSearch
    return strategy(options, bos_id=bos_id, eos_id=eos_id)


def advance(
    searches: Sequence[Search],
    rows: Sequence[list[int]],
    *,
    log_probabilities: NDArray[np.float32],
    ids: NDArray[np.int64],
) -> None:
    """Take every search one step on, those of one shape together in one numpy operation.

    rows: of each search, the row of each of its live hypotheses.
    log_probabilities, ids: (num_rows, num_candidates), the candidates of every row, each row descending.
    """
    greedy: tuple[list[GreedySearch], list[list[int]]] = ([], [])
    beams: dict[tuple[int, int], tuple[list[BeamSearch], list[list[int]]]] = {}
    for search, own_rows in zip(searches, rows, strict=True):
        if isinstance(search, GreedySearch):
            greedy[0].append(search)
            greedy[1].append(own_rows)
        else:
            group = beams.setdefault((search.num_candidates, len(own_rows)), ([], []))
            group[0].append(search)
            group[1].append(own_rows)
    if greedy[0]:
        advance_greedy(*greedy, log_probabilities=log_probabilities, ids=ids)
    for group in beams.values():
        advance_beams(*group, log_probabilities=log_probabilities, ids=ids)
