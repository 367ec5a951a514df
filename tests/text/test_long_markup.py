"""Parsing a text with markup takes linear time."""

from __future__ import annotations

import time

import pytest

from app.text.parsed_text import ParseOptions, TextFormat, parse_text
from tests.text.growth import TIMES, check_near_linear

SIZE = 80_000
LIMIT_S = 4.0


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
def test_a_long_html_text_is_parsed_in_time(seed: str) -> None:
    text = "The house " + seed * (SIZE // len(seed))
    started = time.process_time()
    parse_text(text, ParseOptions("en", "de", TextFormat.HTML)).segments(lambda source: len(source) < 400)
    assert time.process_time() - started < LIMIT_S


@pytest.mark.seconds
def test_the_spans_of_many_segments_take_linear_time() -> None:
    size = 8_000
    options = ParseOptions("en", "de", TextFormat.HTML)
    texts = {
        count: parse_text("It <b>is</b> late. " * count, options) for count in (size // TIMES, size, 2 * size)
    }
    segments = {count: text.segments(lambda _source: True) for count, text in texts.items()}

    def find_spans(count: int) -> None:
        for segment in segments[count]:
            texts[count].span(segment)
            texts[count].source_range(segment, 3, 5)

    check_near_linear(find_spans, size)
