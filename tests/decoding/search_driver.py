"""Random language models, and a driver that runs searches over them in a batch, without an engine."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from app.decoding.beam import BeamSearch
from app.decoding.greedy import GreedySearch
from app.decoding.guided import GuidedSearch
from app.decoding.options import DecodingOptions, Hypothesis
from app.decoding.search import Search, advance, new_search
from tests.decoding.reference_search import Attention, NextScores

BOS, EOS = 0, 1
Row = NDArray[np.float32]
SOURCE = (5, 6, 7, EOS)


def random_language(seed: int, *, vocab_size: int, eos_bonus: float = 1.0) -> NextScores:
    """A language model with random log-probabilities. The seed and the prefix determine them."""
    known: dict[tuple[int, ...], list[float]] = {}

    def next_scores(prefix: tuple[int, ...]) -> list[float]:
        if prefix not in known:
            logits = np.random.default_rng([seed, len(prefix), *prefix]).normal(size=vocab_size) * 2
            logits[EOS] += eos_bonus
            scores = logits - np.log(np.exp(logits).sum())
            known[prefix] = scores.astype(np.float32).tolist()
        return known[prefix]

    return next_scores


def random_attention(seed: int) -> Attention:
    """Random attention weights over SOURCE. The seed and the prefix determine them."""

    def attention(prefix: tuple[int, ...]) -> list[float]:
        weights = np.random.default_rng([seed, 77, *prefix]).dirichlet(np.ones(len(SOURCE)) * 0.5)
        row: list[float] = np.maximum(weights, 1e-6).astype(np.float32).tolist()
        return row

    return attention


def start(options: DecodingOptions) -> Search:
    return new_search(options, bos_id=BOS, eos_id=EOS, source_ids=SOURCE)


def drive(
    searches: list[Search],
    languages: Sequence[NextScores],
    *,
    num_candidates: int = 0,
    attention: Attention | None = None,
) -> list[list[Hypothesis]]:
    """Run searches in a batch until all are done, and return the hypotheses of each. Stored prefixes replace the cache.

    A step has distributions or attention only if a search wants them. languages: one model for each search.
    num_candidates: the minimum number of candidates of each step.
    """
    prefixes: list[list[tuple[int, ...]]] = [[()] for _ in searches]
    while alive := [index for index, search in enumerate(searches) if not search.is_done]:
        k = max(num_candidates, *(searches[index].num_candidates for index in alive), 1)
        tables: list[Row] = []
        rows: list[list[int]] = []
        attention_rows: list[Row] = []
        for index in alive:
            rows.append(list(range(len(tables), len(tables) + len(prefixes[index]))))
            tables += [np.array(languages[index](prefix), np.float32) for prefix in prefixes[index]]
            if attention is not None:  # with two columns beyond the source, as in a cache
                attention_rows += [
                    np.array([*attention(prefix), 0.0, 0.0], np.float32) for prefix in prefixes[index]
                ]
        table = np.stack(tables)
        # As in a runner's first step, the end token is no candidate (`StepOutput`).
        ranked = table.copy()
        ranked[
            [row for index, own in zip(alive, rows, strict=True) for row in own if prefixes[index] == [()]],
            EOS,
        ] = -np.inf
        order = np.argsort(-ranked, axis=1, kind="stable")[:, :k]
        scores = np.take_along_axis(ranked, order, axis=1)
        stepped: list[tuple[BeamSearch | GuidedSearch, list[int]]] = []
        for index, own_rows in zip(alive, rows, strict=True):
            search = searches[index]
            if isinstance(search, GreedySearch):
                search.append(int(order[own_rows[0], 0]), float(scores[own_rows[0], 0]))
            else:
                stepped.append((search, own_rows))
        advance(
            [search for search, _ in stepped],
            [own_rows for _, own_rows in stepped],
            log_probabilities=scores,
            ids=order.astype(np.int64),
            distributions=table if any(searches[index].wants_distributions for index in alive) else None,
            alignment=np.stack(attention_rows)
            if any(searches[index].wants_alignment for index in alive)
            else None,
        )
        for index in alive:
            search = searches[index]
            if not search.is_done:
                prefixes[index] = [
                    (*prefixes[index][parent], token)
                    for parent, token in zip(search.parents, search.last_ids, strict=True)
                ]
    return [search.hypotheses() for search in searches]


def found_by(
    options: DecodingOptions, language: NextScores, attention: Attention | None = None
) -> list[Hypothesis]:
    """The hypotheses of one search that runs alone."""
    return drive([start(options)], [language], attention=attention)[0]


def assert_same(found: list[Hypothesis], expected: list[Hypothesis]) -> None:
    assert [(one.ids, one.finish_reason) for one in found] == [
        (one.ids, one.finish_reason) for one in expected
    ]
    for one, other in zip(found, expected, strict=True):
        assert math.isclose(one.log_probability, other.log_probability, abs_tol=1e-9)
        assert math.isclose(one.score, other.score, abs_tol=1e-6)
        np.testing.assert_allclose(one.token_log_probabilities, other.token_log_probabilities, atol=1e-9)
