"""How likely a difference in BLEU is by the choice of sentences alone."""

from __future__ import annotations

import pytest

from benchmarks.engine.quality import p_of_difference

REFERENCES = [
    f"the {size} house by the {place} was sold last year"
    for size in ("old", "small", "red", "grey", "new")
    for place in ("river", "station", "church", "lake")
]


def changed(every: int, *, beginning: int = 0) -> list[str]:
    """The references; every `every`-th one lacks two words."""
    return [
        text.replace(" was sold", "") if number % every == beginning else text
        for number, text in enumerate(REFERENCES)
    ]


def test_the_same_translations_do_not_differ() -> None:
    assert p_of_difference(changed(3), changed(3), REFERENCES) == 1.0


def test_what_is_better_in_every_sentence_is_no_chance() -> None:
    assert p_of_difference(REFERENCES, changed(1), REFERENCES) < 0.01


def test_what_is_better_here_and_worse_there_may_be_chance() -> None:
    assert p_of_difference(changed(2), changed(2, beginning=1), REFERENCES) == pytest.approx(0.5, abs=0.4)
