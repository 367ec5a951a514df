"""Distinct English texts without numbers, drawn from a seed: templates with word slots, joined to any length.

A server may cache translations, so a load of distinct texts must never repeat one. The first clause makes a sentence
distinct: its words are the digits of a mixed-radix number, which encodes the text's number within the run. Which clause
it is, and the other parts, are random.
"""

from __future__ import annotations

import functools
import math
import random
import tomllib
from dataclasses import dataclass
from pathlib import Path

GRAMMAR = Path(__file__).with_name("grammar.toml")
# The first clause of a distinct sentence has at least this many combinations: more than any run sends.
MIN_COMBINATIONS = 10_000_000
# A sentence of fewer words does not begin with an opening such as "Last May,".
MIN_WORDS_WITH_OPENING = 12
# The combinations of consecutive text numbers are this share of all combinations apart, so that texts differ widely.
STEP_SHARE = (math.sqrt(5) - 1) / 2
SENTENCE_END = "."


@dataclass(frozen=True)
class Template:
    """A list of word choices, one per word of the text. num_combinations: the number of texts it can produce."""

    slots: tuple[tuple[str, ...], ...]
    num_combinations: int

    @property
    def num_words(self) -> int:
        """The number of words of its texts."""
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
    """The contents of `grammar.toml`.

    starts: clauses that may begin a distinct sentence. speaker: words that precede a text.
    """

    clauses: tuple[Template, ...]
    starts: tuple[Template, ...]
    openings: tuple[Template, ...]
    speaker: Template
    connectors: tuple[str, ...]

    @functools.cached_property
    def max_clause_words(self) -> int:
        """The length of the longest clause."""
        return max(clause.num_words for clause in self.clauses)

    @functools.cached_property
    def min_clause_words(self) -> int:
        """The length of the shortest clause."""
        return min(clause.num_words for clause in self.clauses)


@functools.cache
def read_grammar() -> Grammar:
    """Read `grammar.toml`. Raises ValueError for an unknown slot, or if no clause has MIN_COMBINATIONS."""
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
    """Parse a template. A plain word is a slot with one entry; a comma after a slot's name belongs to each entry."""
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
    """A sentence of `num_words` words, or of one word more or less; of four words if `num_words` is less than four.

    With the same seed, all numbers below MIN_COMBINATIONS give different sentences.
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
    # A connector is one word, possibly after a comma.
    while left > grammar.min_clause_words:
        clause = draw.choice(_fitting(left - 1, is_start=False))
        parts += [draw.choice(grammar.connectors), " ", clause.fill(draw.randrange(clause.num_combinations))]
        left -= 1 + clause.num_words
    text = "".join(parts)
    return text[0].upper() + text[1:] + SENTENCE_END


def distinct_opening(seed: int, number: int) -> str:
    """Words that precede a text, such as "Ida Keller, the old baker from Graz, wrote:"; distinct for each `number`."""
    speaker = read_grammar().speaker
    return speaker.fill(_spread(speaker, seed, number))


@functools.lru_cache(maxsize=512)
def _fitting(num_words: int, *, is_start: bool) -> tuple[Template, ...]:
    """The clauses that can come next in a sentence that lacks `num_words` words.

    If one clause can end the sentence, these are the clauses of the nearest length. Else each of them leaves enough
    words for a connector and a further clause.
    """
    grammar = read_grammar()
    clauses = grammar.starts if is_start else grammar.clauses
    if num_words > grammar.max_clause_words:
        room = num_words - 1 - grammar.min_clause_words
        return tuple(clause for clause in clauses if clause.num_words <= room) or clauses
    nearest = min(abs(clause.num_words - num_words) for clause in clauses)
    return tuple(clause for clause in clauses if abs(clause.num_words - num_words) == nearest)


def _spread(template: Template, seed: int, number: int) -> int:
    """The combination for a number. All numbers below num_combinations have different combinations."""
    first, step = _walk(template.num_combinations, seed)
    return (first + step * number) % template.num_combinations


@functools.lru_cache(maxsize=256)
def _walk(total: int, seed: int) -> tuple[int, int]:
    """Start and step of a seed's walk through `total` combinations.

    The step is coprime to `total`, so the walk visits each combination once.
    """
    draw = random.Random(f"walk {seed} {total}")
    step = int(total * STEP_SHARE) + draw.randrange(max(1, total // 1000))
    while math.gcd(step, total) != 1:
        step += 1
    return draw.randrange(total), step
