"""Inline markup for tests, with a small scanner and alignments by word pairs."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

import numpy as np

from app.text.alignment import Alignment, words
from app.text.tags import Tag, TagKind


def scan(markup: str) -> tuple[str, list[Tag]]:
    """Scan a sentence without entities. Returns text and tags.

    <a ...> is an opening tag, </a> a closing tag, and <a/> a point.
    """
    text = ""
    tags = []
    for part in re.split(r"(<[^>]*>)", markup):
        if part.startswith("<"):
            kind = TagKind.CLOSE if part[1] == "/" else TagKind.POINT if part[-2] == "/" else TagKind.OPEN
            tags.append(Tag(len(text), part, kind, part.strip("</>").split()[0]))
        else:
            text += part
    return text, tags


def with_tags(text: str, tags: Sequence[Tag]) -> str:
    """Return `text` with the markup of tags at their positions, which never decrease."""
    parts: list[str] = []
    done = 0
    for tag in tags:
        parts += (text[done : tag.position], tag.markup)
        done = tag.position
    return "".join([*parts, text[done:]])


def aligned(source: str, target: str, pairs: Iterable[tuple[int, int]]) -> Alignment:
    """Make an alignment whose subwords are words. pairs: (target word, source word) indices that have weight 1."""
    source_words, target_words = words(source), words(target)
    weights = np.zeros((len(target_words), len(source_words)))
    for target_word, source_word in pairs:
        weights[target_word, source_word] = 1
    return Alignment(
        tuple((word.start, word.end) for word in source_words),
        tuple((word.start, word.end) for word in target_words),
        weights,
    )


def is_well_formed(markup: str) -> bool:
    """Whether every tag is closed in the right order."""
    opened: list[str] = []
    for tag in scan(markup)[1]:
        if tag.kind is TagKind.OPEN:
            opened.append(tag.name)
        elif tag.kind is TagKind.CLOSE and (not opened or opened.pop() != tag.name):
            return False
    return not opened
