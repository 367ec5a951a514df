"""Generated pairs of sentences, enough to train a tokenizer with a tiny vocabulary."""

from __future__ import annotations

from itertools import product
from pathlib import Path

from model.corpus import Pair
from model.tokenizer_training import train_tokenizer

PEOPLE = (("Anna", "Anna"), ("the baker", "der Bäcker"), ("my brother", "mein Bruder"), ("nobody", "niemand"))
VERBS = (("sees", "sieht"), ("draws", "zeichnet"), ("forgets", "vergisst"), ("greets", "grüßt"))
THINGS = (
    ("the river", "den Fluss"),
    ("a letter", "einen Brief"),
    ("the old tree", "den alten Baum"),
    ("42 cats", "42 Katzen"),
)
TIMES = (("today", "heute"), ("on Monday", "am Montag"), ("again", "wieder"), ("in the garden", "im Garten"))


def pairs() -> list[Pair]:
    """256 English sentences with German translations."""
    return [
        Pair(f"{who[0]} {verb[0]} {what[0]} {when[0]}.", f"{who[1]} {verb[1]} {when[1]} {what[1]}.", "home")
        for who, verb, what, when in product(PEOPLE, VERBS, THINGS, TIMES)
    ]


def write_tokenizer(path: Path, *, vocab_size: int = 400) -> Path:
    """Train a tokenizer on `pairs` and write it to `path`. Returns the path."""
    train_tokenizer(pairs(), path, vocab_size=vocab_size, character_coverage=1.0)
    return path


def write_tsv(path: Path, chosen: list[Pair]) -> Path:
    """Write pairs with their domains as three columns. Returns the path."""
    path.write_text("".join(f"{pair.domain}\t{pair.source}\t{pair.target}\n" for pair in chosen), "utf-8")
    return path
