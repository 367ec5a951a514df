"""Parsing a text with markup takes linear time."""

from __future__ import annotations

import time

import pytest

from app.text.parsed_text import ParseOptions, TextFormat, parse_text

SIZE = 80_000
LIMIT_S = 4.0


@pytest.mark.parametrize(
    "seed", ["H<sub>2</sub>O ", "a<b>1</b> ", "<b>{1}</b> ", "<b>{1} ", "<i>a</i>", "<a ", "<!--", "<p>a"]
)
def test_a_long_html_text_is_parsed_in_time(seed: str) -> None:
    text = "The house " + seed * (SIZE // len(seed))
    started = time.process_time()
    parse_text(text, ParseOptions("en", "de", TextFormat.HTML)).segments(lambda source: len(source) < 400)
    assert time.process_time() - started < LIMIT_S
