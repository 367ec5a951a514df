"""Spaces separate columns, or are a gap in a sentence."""

from __future__ import annotations

import pytest

from app.text.columns import running_gaps
from app.text.parsed_text import ParseOptions, parse_text
from tests.text.growth import check_near_linear


@pytest.mark.parametrize(
    "text",
    [
        "He said   that he would come.",
        "Yes, he said,    that would be fine!",
        "When he came,   the door was open,\nbut nobody was there.",
        "The door was open\n\nand   nobody heard what he   had said\nto them   about the house",
    ],
)
def test_a_single_gap_between_small_letters_is_in_a_sentence(text: str) -> None:
    assert running_gaps(text)


@pytest.mark.parametrize(
    "text",
    [
        "fresh bread   two large loaves",  # a single line without an end mark
        "fresh bread     two large loaves.",  # five spaces
        "fresh bread   two loaves   every day.",
        "bread   two large loaves.",
        "fresh bread   Two large loaves.",
        "fresh bread:   two large loaves.",
        "fresh bread   3 loaves a day.",
        "fresh bread   two large loaves.\nsome milk     one litre or more",
        "The food:\n\nfresh bread   two large loaves.\n              and butter",
    ],
)
def test_other_gaps_separate_columns(text: str) -> None:
    assert not running_gaps(text)


@pytest.mark.parametrize(
    ("text", "sources"),
    [
        ("  -a, --all  show all files", ["show all files"]),
        ("Options:\n  -v  show it\n  --size=SIZE  the size", ["Options:", "-v", "show it", "the size"]),
        ("{name}  is here", ["\U000f0000  is here"]),
        ("See --all  or so", ["See \U000f0000  or so"]),
    ],
)
def test_two_spaces_separate_columns_after_options(text: str, sources: list[str]) -> None:
    segments = parse_text(text, ParseOptions("en", "de")).segments(lambda source: True)
    assert [segment.source for segment in segments] == sources


@pytest.mark.seconds
@pytest.mark.parametrize("seed", ["a b   c d\n", "   ", "a b   ", "a b   c d\t", "-a  ", "\n   a"])
def test_columns_are_found_in_linear_time(seed: str) -> None:
    def read(size: int) -> None:
        parse_text(seed * (size // len(seed)), ParseOptions("en", "de")).segments(lambda source: True)

    check_near_linear(read, 20_000)
