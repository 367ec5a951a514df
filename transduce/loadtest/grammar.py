"""Distinct English texts without numbers, drawn by a seed: clauses with words in their slots, joined to any length.

A server may keep translations of sentences that it has seen, so a load of distinct texts must never repeat one. The
first clause of a sentence makes it distinct: its words are the digits of a mixed radix, and the text's number within
the run, spread over all combinations, is written in them. The other parts are drawn at random.
"""

from __future__ import annotations

import functools
import math
import random
import tomllib
from dataclasses import dataclass
from pathlib import Path

GRAMMAR = Path(__file__).with_name("grammar.toml")
# A distinct sentence begins with a clause of so many combinations at least: more than any run sends.
MIN_COMBINATIONS = 10_000_000
# Sentences of so many words may begin with an opening such as "Last May,".
MIN_WORDS_WITH_OPENING = 12
# Combinations are taken in steps of about this share of all, so that texts of one run are far from alike.
STEP_SHARE = (math.sqrt(5) - 1) / 2
SENTENCE_END = "."


@dataclass(frozen=True)
class Template:
    """A word or the entries of a slot for each word of a text. num_combinations: how many texts it makes."""

    slots: tuple[tuple[str, ...], ...]
    num_combinations: int

    @property
    def num_words(self) -> int:
        """Of any text that it makes."""
        return len(self.slots)

    def fill(self, combination: int) -> str:
        """The text of a combination, from 0 to num_combinations - 1."""
        words = []
        for entries in self.slots:
            combination, place = divmod(combination, len(entries))
            words.append(entries[place])
        return " ".join(words)


@dataclass(frozen=True)
class Grammar:
    """The parts of `grammar.toml`.

    starts: clauses that a distinct sentence may begin with. speaker: stands before a text.
    """

    clauses: tuple[Template, ...]
    starts: tuple[Template, ...]
    openings: tuple[Template, ...]
    speaker: Template
    connectors: tuple[str, ...]

    @functools.cached_property
    def max_clause_words(self) -> int:
        """Of the longest clause."""
        return max(clause.num_words for clause in self.clauses)

    @functools.cached_property
    def min_clause_words(self) -> int:
        """Of the shortest clause."""
        return min(clause.num_words for clause in self.clauses)


@functools.cache
def read_grammar() -> Grammar:
    """The grammar beside this file. Raises ValueError where a slot is unknown or no clause has enough combinations."""
    found = tomllib.loads(GRAMMAR.read_text("utf-8"))
    slots = {name: tuple(words.split()) for name, words in found["slots"].items()}
    clauses = tuple(_template(text, slots) for text in found["clauses"])
    starts = tuple(clause for clause in clauses if clause.num_combinations >= MIN_COMBINATIONS)
    if not starts:
        raise ValueError(f"{GRAMMAR.name}: no clause has {MIN_COMBINATIONS} combinations")
    openings = tuple(_template(text, slots) for text in found["openings"])
    speaker = _template(found["speaker"], slots)
    return Grammar(clauses, starts, openings, speaker, tuple(found["connectors"]))


def _template(text: str, slots: dict[str, tuple[str, ...]]) -> Template:
    """A word of its own is a slot with one entry; a comma after a slot's name is part of each entry."""
    entries: list[tuple[str, ...]] = []
    for part in text.split():
        name, _, mark = part.removeprefix("{").partition("}")
        if not part.startswith("{"):
            entries.append((part,))
        elif name in slots:
            entries.append(tuple(word + mark for word in slots[name]))
        else:
            raise ValueError(f"{GRAMMAR.name}: there is no slot {name}")
    return Template(tuple(entries), math.prod(map(len, entries)))


def distinct_sentence(num_words: int, seed: int, number: int) -> str:
    """A sentence of about `num_words` words; every `number` of a seed below MIN_COMBINATIONS makes another one.

    It has a word more or less at times; the shortest has four words. Another seed draws other sentences.
    """
    grammar = read_grammar()
    draw = random.Random(f"sentence {seed} {number}")
    parts, left = [], num_words
    if num_words >= MIN_WORDS_WITH_OPENING and draw.random() < 0.5:
        opening = draw.choice(grammar.openings)
        parts.append(opening.fill(draw.randrange(opening.num_combinations)) + " ")
        left -= opening.num_words
    first = draw.choice(_fitting(left, is_start=True))
    parts.append(first.fill(_spread(first, seed, number)))
    left -= first.num_words
    # A connector is one word, or a comma and one word.
    while left > grammar.min_clause_words:
        clause = draw.choice(_fitting(left - 1, is_start=False))
        parts += [draw.choice(grammar.connectors), " ", clause.fill(draw.randrange(clause.num_combinations))]
        left -= 1 + clause.num_words
    text = "".join(parts)
    return text[0].upper() + text[1:] + SENTENCE_END


def distinct_opening(seed: int, number: int) -> str:
    """Words to stand before a text, such as "Anna Keller of Graz wrote:"; distinct as `distinct_sentence`."""
    opening = read_grammar().speaker
    return opening.fill(_spread(opening, seed, number))


@functools.lru_cache(maxsize=512)
def _fitting(num_words: int, *, is_start: bool) -> tuple[Template, ...]:
    """Clauses that end a sentence of so many further words, or that leave room for others."""
    grammar = read_grammar()
    clauses = grammar.starts if is_start else grammar.clauses
    if num_words > grammar.max_clause_words:
        room = num_words - 1 - grammar.min_clause_words
        return tuple(clause for clause in clauses if clause.num_words <= room) or clauses
    nearest = min(abs(clause.num_words - num_words) for clause in clauses)
    return tuple(clause for clause in clauses if abs(clause.num_words - num_words) == nearest)


def _spread(template: Template, seed: int, number: int) -> int:
    """The combination that a number stands for: each number below num_combinations has its own."""
    first, step = _walk(template.num_combinations, seed)
    return (first + step * number) % template.num_combinations


@functools.lru_cache(maxsize=256)
def _walk(total: int, seed: int) -> tuple[int, int]:
    """Where a seed's walk through all of `total` combinations begins, and its step, which meets each of them once."""
    draw = random.Random(f"walk {seed} {total}")
    step = int(total * STEP_SHARE) + draw.randrange(max(1, total // 1000))
    while math.gcd(step, total) != 1:
        step += 1
    return draw.randrange(total), step
