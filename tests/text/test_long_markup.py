"""Parsing a text with markup takes linear time."""

from __future__ import annotations

import pytest

from app.text.parsed_text import ParseOptions, TextFormat, parse_text
from tests.text.growth import TIMES, check_near_linear

OPTIONS = ParseOptions("en", "de", TextFormat.HTML)


@pytest.mark.seconds
@pytest.mark.parametrize(
    "seed",
    [
        "H<sub>2</sub>O ",
        "word<sup>1, ",
        "<b>3</b>word ",
        "a<b>1</b> ",
        "<b>{1}</b> ",
        "<b>{1} ",
        "<i>a</i>",
        "<a ",
        "<!--",
        "<p>a",
    ],
)
def test_a_long_html_text_is_parsed_in_linear_time(seed: str) -> None:
    def parse(size: int) -> None:
        text = "The house " + seed * (size // len(seed))
        parse_text(text, OPTIONS).segments(lambda source: len(source) < 400)

    check_near_linear(parse, 20_000)


def test_the_spans_of_many_segments_take_linear_time() -> None:
    size = 2_000
    texts = {
        count: parse_text("It <b>is</b> late. " * count, OPTIONS) for count in (size // TIMES, size, 2 * size)
    }
    segments = {count: text.segments(lambda _source: True) for count, text in texts.items()}

    def find_spans(count: int) -> None:
        for segment in segments[count]:
            texts[count].span(segment)
            texts[count].source_range(segment, 3, 5)

    check_near_linear(find_spans, size)
