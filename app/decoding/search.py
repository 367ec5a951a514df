"""The search's seam: one object per sentence, its strategy chosen once, the engine's loop blind to it.

A search is told the best candidates for each of its live hypotheses and goes on to its next live
hypotheses, or is done. It knows nothing of caches or of other sentences. What the engine reads of it:

num_candidates: how many of the best candidates it wants from each of its rows.
wants_distributions, wants_alignment: whether the next step must bring its rows' whole distributions, and their
    attention to the source. Never for the plain searches, greedy and beam.
last_ids: last subword of each live hypothesis; the start token before the first step.
parents: for each live hypothesis, which of those before the step it continues.
is_done: nothing is alive any more.
has_looped: it is done because it went round in circles; `guarded_search` is to be run instead.
hypotheses(): the answer, best first, at most num_hypotheses; empty until it is done, and where it looped.
fresh(): a search with the same options that has not begun.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from app.decoding.beam import BeamSearch, advance_beams
from app.decoding.greedy import GreedySearch
from app.decoding.guided import GuidedSearch, advance_guided, is_guided
from app.decoding.loop_guard import guarded
from app.decoding.options import DecodingOptions

Search = GreedySearch | BeamSearch | GuidedSearch
# Those that `advance` takes on; the plain greedy ones are `GreedyRows`' own.
SteppedSearch = BeamSearch | GuidedSearch


def new_search(
    options: DecodingOptions, *, bos_id: int, eos_id: int, source_ids: Sequence[int] = ()
) -> Search:
    """The one place where options become a strategy. Their ratios have become lengths before.

    source_ids: the end token last; read where the options ask for attention to it, and by the loop guard.
    """
    strategy = GreedySearch if options.beam_size == 1 else BeamSearch
    plain = strategy(options, bos_id=bos_id, eos_id=eos_id, source_ids=source_ids)
    return GuidedSearch(plain) if is_guided(options) else plain


def guarded_search(search: Search) -> Search:
    """The second attempt at a sentence whose search has looped."""
    options = guarded(search.options)
    return new_search(options, bos_id=search.bos_id, eos_id=search.eos_id, source_ids=search.source_ids)


def advance(
    searches: Sequence[SteppedSearch],
    rows: Sequence[list[int]],
    *,
    log_probabilities: NDArray[np.float32],
    ids: NDArray[np.int64],
    distributions: NDArray[np.float32] | None = None,
    alignment: NDArray[np.float32] | None = None,
) -> None:
    """Take every search one step on, plain ones of one width together in one numpy operation.

    rows: of each search, the row of each of its live hypotheses.
    log_probabilities, ids: (num_rows, num_candidates), the candidates of every row, each row descending.
    distributions: (num_rows, vocab_size), alignment: (num_rows, capacity); there where a search wants them.
    """
    guided: tuple[list[GuidedSearch], list[list[int]]] = ([], [])
    beams: dict[int, tuple[list[BeamSearch], list[list[int]]]] = {}
    for search, own_rows in zip(searches, rows, strict=True):
        if isinstance(search, BeamSearch):
            group = beams.setdefault(search.num_candidates, ([], []))
            group[0].append(search)
            group[1].append(own_rows)
        else:
            guided[0].append(search)
            guided[1].append(own_rows)
    for group in beams.values():
        advance_beams(*group, log_probabilities=log_probabilities, ids=ids)
    if guided[0]:
        advance_guided(
            *guided,
            log_probabilities=log_probabilities,
            ids=ids,
            distributions=distributions,
            alignment=alignment,
        )
