"""Which marks of a paragraph nest.

`(` begins and `)` ends what the next letter names: F is a field, w a hyperlink, and any other letter a range.
"""

from __future__ import annotations

import pytest

from app.files.mark_pairs import FIELD, RANGE, unpaired
from app.files.tagged_text import Mark, MarkKind

NAMES = {"F": FIELD, "w": "w"}
KINDS = {"(": MarkKind.OPEN, ")": MarkKind.CLOSE}


@pytest.mark.parametrize(
    ("marks", "points"),
    [
        ("(A (B )B )A", ""),
        ("(A (B )A )B", "(A )A"),
        ("(X (A (B )A )B )X", "(A )A"),
        ("(X (A (B (C )A )B )C )X", "(A (B )A )B"),
        ("(X (A (w )A )w )X", "(A )A"),
        ("(X (w (A )w )A )X", "(A )A"),
        ("(X (A (F )A )F )X", "(A )A"),
        ("(F (F (w )F )w )F", "(F )F"),
        ("(F (w )F )w", "(F )F"),
        ("(A (B )B", "(A"),
        (")A (B )B", ")A"),
        ("(X )A (A )X", ")A (A"),
        ("(X (A )A (A )X", "(A"),
    ],
)
def test_marks_that_overlap_are_points(marks: str, points: str) -> None:
    items = [Mark(KINDS[each[0]], each, NAMES.get(each[1], RANGE + each[1])) for each in marks.split()]
    found = [marks.split()[index] for index in sorted(unpaired(items))]
    assert found == points.split()


def test_of_two_starts_of_one_name_the_last_one_has_the_end() -> None:
    marks = ["(X", "(A", "(A", ")A", ")X"]
    items = [Mark(KINDS[each[0]], each, RANGE + each[1]) for each in marks]
    assert unpaired(items) == {1}


def test_of_two_fields_the_one_that_ends_in_an_element_is_no_pair() -> None:
    marks = ["(F", "(F", "(w", ")F", ")w", ")F"]
    items = [Mark(KINDS[each[0]], each, NAMES[each[1]]) for each in marks]
    assert unpaired(items) == {1, 3}
