"""The interface of a search. Each sentence has its own search object, whatever the strategy.

A step of a search takes the best candidates of each live hypothesis. It makes the next live hypotheses or ends the
search. A search does not handle caches or other sentences. The engine reads these members:

num_candidates: how many candidates the search needs from each row.
wants_distributions, wants_alignment: whether the next step needs the rows' whole distributions, and their attention to
    the source. Never set by plain searches (greedy and beam).
last_ids: the last subword of each live hypothesis; the start token before the first step.
parents: for each live hypothesis, the index of its parent (the hypothesis that it continues) among the hypotheses that
    were live before the step.
is_done: whether the search has ended, so no hypothesis is live.
has_looped: whether the search ended because its hypothesis repeats itself. The engine then runs `guarded_search`.
prefixes(): the subwords of each live hypothesis.
hypotheses(): the result, at most num_hypotheses, best first. It is empty until the search is done, and if it looped.
fresh(): a search with the same options before its first step.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from app.decoding.beam import BeamSearch, advance_beams
from app.decoding.greedy import GreedySearch
from app.decoding.guided import GuidedSearch, advance_guided, is_guided
from app.decoding.loop_guard import guarded
from app.decoding.options import DecodingOptions

Search = GreedySearch | BeamSearch | GuidedSearch
# The searches that `advance` takes. `GreedyRows` advances plain greedy ones.
SteppedSearch = BeamSearch | GuidedSearch


def new_search(
    options: DecodingOptions, *, bos_id: int, eos_id: int, source_ids: Sequence[int] = ()
) -> Search:
    """A new search with the strategy that the options need. Only this function chooses a strategy.

    options: with length ratios already converted to lengths (`bounded_by_source`). bos_id: the model's start token,
        which a start_id of the options replaces. source_ids: with an end token and a tag if the model's sources have
        them. Recorded attention has a column for each source id, and the loop guard looks for repetitions in
        source_ids.
    """
    if options.start_id is not None:
        bos_id = options.start_id
    strategy = GreedySearch if options.beam_size == 1 else BeamSearch
    plain = strategy(options, bos_id=bos_id, eos_id=eos_id, source_ids=source_ids)
    return GuidedSearch(plain) if is_guided(options) else plain


def uses_shortlist(options: DecodingOptions) -> bool:
    """Whether a search chooses among the shortlist of its source."""
    return options.shortlist is not None and not is_guided(options)


def guarded_search(search: Search) -> Search:
    """A new search for a sentence whose first search looped."""
    options = guarded(search.options)
    return new_search(options, bos_id=search.bos_id, eos_id=search.eos_id, source_ids=search.source_ids)


def widened_search(search: Search) -> Search:
    """A new search among the whole vocabulary, for a sentence whose result among its shortlist is bad."""
    options = replace(search.options, shortlist=None)
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
    """Advance every search by one step. Plain beams of one width are advanced together.

    rows: for each search, the row of each live hypothesis.
    log_probabilities, ids: (num_rows, num_candidates), the candidates of every row, each row descending.
    distributions: (num_rows, vocab_size). alignment: (num_rows, capacity) attention to the source, where capacity is at
        least the maximum length of a source. Neither is None if a search needs it.
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
