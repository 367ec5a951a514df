"""`Slots` compared with a naive model: every occupied row holds the cache of its hypothesis."""

from __future__ import annotations

import random
from itertools import takewhile

import numpy as np

from app.decoding.options import DecodingOptions
from app.decoding.search import new_search
from app.engine.sequence import Sequence
from app.engine.slots import RowCopies, Slots

NUM_ROWS = 20


def make_sequence(beam_size: int) -> Sequence:
    options = DecodingOptions(beam_size=beam_size)
    search = new_search(options, bos_id=1, eos_id=2)
    return Sequence(np.array([2], np.int32), options, "request", "caller", 1e9, 0.0, search)


class NaiveRows:
    """A cache of labels. The content of a row is a pair: sentence, name of the hypothesis."""

    def __init__(self) -> None:
        self.rows: list[tuple[int, str] | None] = [None] * NUM_ROWS

    def apply(self, copies: RowCopies) -> None:
        sources, targets, _, _ = copies.columns().tolist()
        assert len(set(targets)) == len(targets)
        assert not set(targets) & set(sources)
        before = list(self.rows)
        for source, target in zip(sources, targets, strict=True):
            self.rows[target] = before[source]


def common_columns(one: tuple[int, str] | None, other: tuple[int, str] | None) -> int:
    """Return how many columns two rows of a sentence share, according to the names of their hypotheses."""
    assert one is not None
    assert other is not None
    assert one[0] == other[0]
    named = zip(one[1].split(".")[1:], other[1].split(".")[1:], strict=True)
    return len(list(takewhile(lambda pair: pair[0] == pair[1], named)))


def check(slots: Slots, cache: NaiveRows, names: dict[Sequence, list[str]]) -> None:
    held = [row for sequence in names for row in sequence.rows]
    assert len(held) == len(set(held))
    assert all(0 <= row < slots.end for row in held)
    assert slots.num_reserved == sum(sequence.num_reserved_rows for sequence in names) <= NUM_ROWS
    for sequence, own in names.items():
        assert [cache.rows[row] for row in sequence.rows] == [(id(sequence), name) for name in own]


def spread_or_reorder(
    slots: Slots, cache: NaiveRows, names: dict[Sequence, list[str]], rng: random.Random
) -> None:
    reorders, spreads = RowCopies(), RowCopies()
    for sequence, own in names.items():
        width = rng.randint(1, sequence.num_reserved_rows)
        sequence.search.parents = [rng.randrange(len(own)) for _ in range(width)]
        sequence.length += 1
        names[sequence] = [own[parent] for parent in sequence.search.parents]
        slots.follow_parents(sequence, reorders=reorders, spreads=spreads)
    for source, target, length, shared in zip(*reorders.columns().tolist(), strict=True):
        assert length > shared == common_columns(cache.rows[source], cache.rows[target])
    cache.apply(reorders)
    cache.apply(spreads)


def test_random_sequences_keep_their_caches() -> None:
    for seed in range(150):
        rng = random.Random(seed)
        slots, cache = Slots(NUM_ROWS), NaiveRows()
        names: dict[Sequence, list[str]] = {}
        for _ in range(40):
            for sequence in [one for one in names if rng.random() < 0.2]:
                slots.release(sequence)
                del names[sequence]
            newcomer = make_sequence(rng.choice([1, 1, 2, 4, 7]))
            if slots.can_admit(newcomer):
                slots.admit(newcomer)
                (row,) = newcomer.rows
                names[newcomer] = ["start"]
                cache.rows[row] = (id(newcomer), "start")
            check(slots, cache, names)
            num_rows, num_soon_taken = sum(len(sequence.rows) for sequence in names), rng.choice([0, 0, 3])
            cache.apply(slots.compact(num_soon_taken))
            assert num_rows <= slots.end <= num_rows + num_soon_taken
            check(slots, cache, names)
            names.update({one: [f"{name}.{n}" for n, name in enumerate(own)] for one, own in names.items()})
            for sequence, own in names.items():
                for row, name in zip(sequence.rows, own, strict=True):
                    cache.rows[row] = (id(sequence), name)
            spread_or_reorder(slots, cache, names, rng)
            check(slots, cache, names)


def follow(slots: Slots, sequence: Sequence, parents: list[int]) -> tuple[RowCopies, RowCopies]:
    reorders, spreads = RowCopies(), RowCopies()
    sequence.search.parents = parents
    slots.follow_parents(sequence, reorders=reorders, spreads=spreads)
    return reorders, spreads


def test_only_rows_whose_parent_changed_are_copied() -> None:
    slots, sequence = Slots(NUM_ROWS), make_sequence(4)
    slots.admit(sequence)
    sequence.length = 1
    reorders, spreads = follow(slots, sequence, [0, 0, 0, 0])
    assert not reorders
    assert spreads.moves == [0, 1, 1, 0, 0, 2, 1, 0, 0, 3, 1, 0]
    sequence.length = 2
    reorders, spreads = follow(slots, sequence, [3, 1, 0, 2])  # the same four hypotheses in another order
    assert not reorders
    assert not spreads
    assert sequence.rows == [3, 1, 0, 2]
    sequence.length = 3
    reorders, spreads = follow(slots, sequence, [1, 1, 0, 3])  # hypothesis 2, in row 0, is dropped
    assert not spreads
    assert reorders.moves == [1, 0, 3, 1]
    assert sequence.rows == [1, 0, 3, 2]


def test_new_sequences_take_free_rows_and_compaction_moves_the_last_rows() -> None:
    slots = Slots(NUM_ROWS)
    sequences = [make_sequence(1) for _ in range(6)]
    for number, sequence in enumerate(sequences):
        slots.admit(sequence)
        sequence.length = number + 1
    for ended in (1, 2, 4):
        slots.release(sequences[ended])
    newcomer = make_sequence(1)
    slots.admit(newcomer)
    assert newcomer.rows == [1]
    moves = slots.compact()
    assert moves.moves == [5, 2, 6, 0]
    assert sequences[5].rows == [2]
    assert slots.end == 4
    assert not slots.compact()


def test_a_beam_is_admitted_only_as_a_whole() -> None:
    slots = Slots(NUM_ROWS)
    slots.admit(make_sequence(16))
    assert slots.end == 1
    assert slots.can_admit(make_sequence(4))
    assert not slots.can_admit(make_sequence(5))


def test_compaction_keeps_free_rows_for_a_new_beam() -> None:
    slots = Slots(NUM_ROWS)
    first, second = make_sequence(4), make_sequence(4)
    for sequence in (first, second):
        slots.admit(sequence)
        follow(slots, sequence, [0, 0, 0, 0])
    slots.release(first)
    newcomer = make_sequence(4)
    slots.admit(newcomer)
    assert not slots.compact(3)
    assert (newcomer.rows, second.rows, slots.end) == ([0], [4, 5, 6, 7], 8)
    follow(slots, newcomer, [0, 0, 0, 0])
    assert newcomer.rows == [0, 1, 2, 3]
    assert slots.num_occupied == slots.end
