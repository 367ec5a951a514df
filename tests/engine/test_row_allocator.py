"""`RowAllocator` compared with a naive model: every occupied row holds the cache of its hypothesis."""

from __future__ import annotations

import random
from itertools import takewhile

import numpy as np

from app.decoding.options import DecodingOptions
from app.decoding.search import new_search
from app.engine.row_allocator import RowAllocator, RowCopies
from app.engine.sequence import Sequence

NUM_ROWS = 20


def make_sequence(beam_size: int) -> Sequence:
    options = DecodingOptions(beam_size=beam_size)
    search = new_search(options, bos_id=1, eos_id=2)
    return Sequence(np.array([2], np.int32), options, "request", "caller", 1e9, 0.0, search)


class NaiveRows:
    """A cache of labels. The content of a row is a pair: the sequence's `id()`, and the name of the hypothesis."""

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
    """Return how many columns two rows of a sentence share. After "start", a name has one component a column."""
    assert one is not None
    assert other is not None
    assert one[0] == other[0]
    named = zip(one[1].split(".")[1:], other[1].split(".")[1:], strict=True)
    return len(list(takewhile(lambda pair: pair[0] == pair[1], named)))


def check(allocator: RowAllocator, cache: NaiveRows, names: dict[Sequence, list[str]]) -> None:
    held = [row for sequence in names for row in sequence.rows]
    assert len(held) == len(set(held))
    assert all(0 <= row < allocator.end for row in held)
    assert allocator.num_reserved == sum(sequence.num_reserved_rows for sequence in names) <= NUM_ROWS
    for sequence, own in names.items():
        assert [cache.rows[row] for row in sequence.rows] == [(id(sequence), name) for name in own]


def spread_or_reorder(
    allocator: RowAllocator, cache: NaiveRows, names: dict[Sequence, list[str]], rng: random.Random
) -> None:
    """Let each sequence continue random hypotheses of its own, and copy rows as `follow_parents` says.

    reorders: the copies to rows of dropped hypotheses. spreads: the copies to new rows.
    """
    reorders, spreads = RowCopies(), RowCopies()
    for sequence, own in names.items():
        width = rng.randint(1, sequence.num_reserved_rows)
        sequence.search.parents = [rng.randrange(len(own)) for _ in range(width)]
        sequence.length += 1
        names[sequence] = [own[parent] for parent in sequence.search.parents]
        allocator.follow_parents(sequence, reorders=reorders, spreads=spreads)
    for source, target, length, shared in zip(*reorders.columns().tolist(), strict=True):
        assert length > shared == common_columns(cache.rows[source], cache.rows[target])
    cache.apply(reorders)
    cache.apply(spreads)


def test_random_sequences_keep_their_caches() -> None:
    for seed in range(150):
        rng = random.Random(seed)
        allocator, cache = RowAllocator(NUM_ROWS), NaiveRows()
        names: dict[Sequence, list[str]] = {}
        for _ in range(40):
            for sequence in [one for one in names if rng.random() < 0.2]:
                allocator.release(sequence)
                del names[sequence]
            newcomer = make_sequence(rng.choice([1, 1, 2, 4, 7]))
            if allocator.can_admit(newcomer):
                allocator.admit(newcomer)
                (row,) = newcomer.rows
                names[newcomer] = ["start"]
                cache.rows[row] = (id(newcomer), "start")
            check(allocator, cache, names)
            num_rows, num_soon_taken = sum(len(sequence.rows) for sequence in names), rng.choice([0, 0, 3])
            cache.apply(allocator.compact(num_soon_taken))
            assert num_rows <= allocator.end <= num_rows + num_soon_taken
            check(allocator, cache, names)
            names.update({one: [f"{name}.{n}" for n, name in enumerate(own)] for one, own in names.items()})
            for sequence, own in names.items():
                for row, name in zip(sequence.rows, own, strict=True):
                    cache.rows[row] = (id(sequence), name)
            spread_or_reorder(allocator, cache, names, rng)
            check(allocator, cache, names)


def follow(allocator: RowAllocator, sequence: Sequence, parents: list[int]) -> tuple[RowCopies, RowCopies]:
    reorders, spreads = RowCopies(), RowCopies()
    sequence.search.parents = parents
    allocator.follow_parents(sequence, reorders=reorders, spreads=spreads)
    return reorders, spreads


def test_only_rows_whose_parent_changed_are_copied() -> None:
    allocator, sequence = RowAllocator(NUM_ROWS), make_sequence(4)
    allocator.admit(sequence)
    sequence.length = 1
    reorders, spreads = follow(allocator, sequence, [0, 0, 0, 0])
    assert not reorders
    # For each copy: source row, target row, length, shared columns.
    assert spreads.moves == [0, 1, 1, 0, 0, 2, 1, 0, 0, 3, 1, 0]
    sequence.length = 2
    reorders, spreads = follow(allocator, sequence, [3, 1, 0, 2])  # the same four hypotheses in another order
    assert not reorders
    assert not spreads
    assert sequence.rows == [3, 1, 0, 2]
    sequence.length = 3
    reorders, spreads = follow(allocator, sequence, [1, 1, 0, 3])  # hypothesis 2, in row 0, is dropped
    assert not spreads
    assert reorders.moves == [1, 0, 3, 1]
    assert sequence.rows == [1, 0, 3, 2]


def test_new_sequences_take_free_rows_and_compaction_moves_the_last_rows() -> None:
    allocator = RowAllocator(NUM_ROWS)
    sequences = [make_sequence(1) for _ in range(6)]
    for number, sequence in enumerate(sequences):
        allocator.admit(sequence)
        sequence.length = number + 1
    for ended in (1, 2, 4):
        allocator.release(sequences[ended])
    newcomer = make_sequence(1)
    allocator.admit(newcomer)
    assert newcomer.rows == [1]
    moves = allocator.compact()
    assert moves.moves == [5, 2, 6, 0]
    assert sequences[5].rows == [2]
    assert allocator.end == 4
    assert not allocator.compact()


def test_a_beam_is_admitted_only_as_a_whole() -> None:
    allocator = RowAllocator(NUM_ROWS)
    allocator.admit(make_sequence(16))
    assert allocator.end == 1
    assert allocator.can_admit(make_sequence(4))
    assert not allocator.can_admit(make_sequence(5))


def test_compaction_keeps_free_rows_for_a_new_beam() -> None:
    allocator = RowAllocator(NUM_ROWS)
    first, second = make_sequence(4), make_sequence(4)
    for sequence in (first, second):
        allocator.admit(sequence)
        follow(allocator, sequence, [0, 0, 0, 0])
    allocator.release(first)
    newcomer = make_sequence(4)
    allocator.admit(newcomer)
    assert not allocator.compact(3)
    assert (newcomer.rows, second.rows, allocator.end) == ([0], [4, 5, 6, 7], 8)
    follow(allocator, newcomer, [0, 0, 0, 0])
    assert newcomer.rows == [0, 1, 2, 3]
    assert allocator.num_occupied == allocator.end
