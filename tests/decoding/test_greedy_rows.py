"""Each search in `GreedyRows` gives the same result as alone, while others are added, removed and moved."""

from __future__ import annotations

import functools
import random
from typing import NamedTuple

import numpy as np
import pytest

from app.decoding.greedy import GreedyRows, GreedySearch
from app.decoding.options import DecodingOptions, FinishReason
from tests.decoding.search_driver import BOS, EOS, random_language

NUM_ROWS, MAX_LENGTH, VOCAB_SIZE, FREE_ROW_ID = 6, 41, 30, -1
Steps = tuple[list[int], list[float]]


@functools.cache
def steps_of(seed: int) -> Steps:
    """A model's subwords and scores. After the first end token all subwords are end tokens."""
    language, rng = (
        random_language(seed, vocab_size=VOCAB_SIZE, eos_bonus=seed % 3 - 1.0),
        random.Random(seed),
    )
    cycle = [rng.randrange(2, VOCAB_SIZE) for _ in range(rng.randint(1, 4))]  # every fourth model loops
    ids: list[int] = []
    scores: list[float] = []
    while len(ids) < 4 * MAX_LENGTH:
        table = language(tuple(ids[-3:]))
        best = cycle[len(ids) % len(cycle)] if seed % 4 == 0 else int(np.argmax(table))
        ids.append(EOS if EOS in ids else best)
        scores.append(0.0 if ids.count(EOS) > 1 else table[best])
    return ids, scores


def search_of(seed: int) -> GreedySearch:
    options = DecodingOptions(beam_size=1, max_target_length=5 + seed % 36, loop_guard=seed % 2 == 0)
    return GreedySearch(options, bos_id=BOS, eos_id=EOS, source_ids=(5, EOS))


def alone(sentence: int) -> tuple[GreedySearch, int]:
    """The finished search of a sentence run alone, and its number of steps."""
    search = search_of(sentence)
    for number, (token, score) in enumerate(zip(*steps_of(sentence), strict=True)):
        search.append(token, score)
        if search.is_done:
            return search, number + 1
    raise AssertionError("a search has no end")


class Running(NamedTuple):
    sentence: int
    search: GreedySearch
    length: int


class RandomBatch:
    """A batch whose sentences are added, removed and moved at random."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.rows = GreedyRows(NUM_ROWS, MAX_LENGTH, eos_id=EOS, free_id=FREE_ROW_ID)
        self.running: dict[int, Running] = {}
        self.waiting = list(range(seed, seed + 60))
        self.done: list[GreedySearch] = []

    def change_rows(self) -> None:
        for row in range(NUM_ROWS):
            if self.waiting and row not in self.running and self.rng.random() < 0.5:
                sentence = self.waiting.pop()
                self.running[row] = Running(sentence, search_of(sentence), 0)
                self.rows.add(row, self.running[row].search)
        free = [row for row in range(NUM_ROWS) if row not in self.running]
        if self.running and free and self.rng.random() < 0.3:
            source, target = self.rng.choice(list(self.running)), self.rng.choice(free)
            self.rows.move(np.array([source], np.int32), np.array([target], np.int32))
            self.running[target] = self.running.pop(source)
        if self.running and self.rng.random() < 0.05:
            removed = self.rng.choice(list(self.running))
            self.rows.remove(removed)
            del self.running[removed]

    def step(self) -> None:
        ahead = min(
            search.options.max_target_length + 1 - length for _, search, length in self.running.values()
        )
        limit = self.rng.randint(1, 50)
        assert self.rows.num_steps_ahead(limit) == min(limit, ahead)
        num_new = self.rng.randint(1, self.rows.num_steps_ahead(4))
        ids, scores = np.full((num_new, NUM_ROWS), 7, np.int64), np.zeros((num_new, NUM_ROWS), np.float32)
        for row, (sentence, search, begin) in self.running.items():
            (tokens, token_scores), end = steps_of(sentence), begin + num_new
            assert self.rows.lengths[row] == begin
            assert self.rows.last_ids[row] == (tokens[begin - 1] if begin else BOS)
            ids[:, row], scores[:, row] = tokens[begin:end], token_scores[begin:end]
            self.running[row] = Running(sentence, search, end)
        for done in self.rows.advance(scores, ids):
            sentence, search, end = self.running.pop(done.row)
            self.rows.remove(done.row)
            expected, num_steps = alone(sentence)
            assert (search.hypotheses(), search.has_looped) == (expected.hypotheses(), expected.has_looped)
            assert (done.num_steps, done.num_last_steps) == (num_steps, num_steps - (end - num_new))
            self.done.append(search)

    def check(self) -> None:
        assert len(self.rows) == len(self.running)
        for row in set(range(NUM_ROWS)).difference(self.running):
            assert (self.rows.last_ids[row], self.rows.lengths[row]) == (FREE_ROW_ID, 0)
        for row, (sentence, search, length) in self.running.items():
            if self.rng.random() < 0.9:
                continue
            self.rows.sync(row)
            assert search.prefixes() == [tuple(steps_of(sentence)[0][:length])]


@pytest.mark.parametrize("seed", range(4))
def test_each_search_gives_the_same_result_as_alone(seed: int) -> None:
    batch = RandomBatch(seed)
    while batch.waiting or batch.running:
        batch.change_rows()
        if batch.running:
            batch.step()
        batch.check()
    assert len(batch.done) > 30
    assert {search.has_looped for search in batch.done} == {True, False}
    reasons = {search.hypotheses()[0].finish_reason for search in batch.done if not search.has_looped}
    assert reasons == {FinishReason.STOP, FinishReason.LENGTH}
