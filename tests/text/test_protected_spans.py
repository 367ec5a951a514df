"""Protected spans are found whole, and prose is not protected."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.text.protected_spans import merged, protected_spans
from app.text.segmentation import Span
from tests.text.growth import check_near_linear

PROTECTED = [
    "{{name}}", "{{ user.name | default('a b') }}", "{% if ready %}", "{# note #}", "${home}", "%{count}", "#{title}",
    "{0}", "{}", "{name}", "{user.name}", "{0:.2f}", "{price!r}",
    "{count, plural, one {# item} other {# items of {owner}}}", "{when, date, short}", "{n, number}",
    "%s", "%d", "%5d", "%-10s", "%.2f", "%ld", "%zu", "%@", "%%", "%1$s", "%2$-5d", "%(name)s", "%(total).2f",
    "<0>", "</12>", "<1/>", "<https://example.org>", "<a@example.org>",
    '<x id="1"/>', "<b>", "</b>", "<br/>", '<a href="https://example.org/?a=1&b=2" title=\'x\'>', "<ns:tag>",
    "https://example.org/a_(b)?c=d&e=%20#f", "http://[2001:db8::1]:80/x", "ftp://example.org", "www.example.org/x",
    "mailto:anna@example.org", "https://b\u00fccher.example/stra\u00dfe", "https://example.org/{id}/edit",
    "anna.b+c@mail.example.org", "a@b.de",
]  # fmt: skip
PROSE = [
    "100% sure", "50 % off", "5% discount", "20%de", "a % b", "3 < 4 and 5 > 4", "see {the note below}", "{ a b }",
    "anna at example.org", "@anna", "12:30", "e.g. this", "and/or", "x_y", "C++", "{unclosed", "closed}", "<3", "$5",
    "<3 and 4>", "snake_case", "www", "http is a protocol", "that@", "one, two",
]  # fmt: skip


@pytest.mark.parametrize("placeholder", PROTECTED)
@pytest.mark.parametrize(
    "frame", ["{}", "We saw {} there.", "({}), and", "\u201c{}\u201d", "Go to {}.", "{}: yes"]
)
def test_a_protected_span_is_found_whole(placeholder: str, frame: str) -> None:
    before, after = frame.split("{}")
    text = before + placeholder + after
    assert [span.of(text) for span in protected_spans(text)] == [placeholder]


@pytest.mark.parametrize("text", PROSE)
def test_prose_is_not_protected(text: str) -> None:
    assert protected_spans(text) == []


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("See https://example.org/a.", ["https://example.org/a"]),
        ("See (https://example.org/a_(b)).", ["https://example.org/a_(b)"]),
        ("Is it https://example.org?!", ["https://example.org"]),
        ("\u8acb\u770bhttps://example.org/a\u3002\u8b1d", ["https://example.org/a"]),
        ("{a}{b} %s%d", ["{a}", "{b}", "%s", "%d"]),
        ("%dpx and %sfold", ["%d", "%s"]),
        ("{{a}} {unclosed {b}", ["{{a}}", "{b}"]),
        ("100%% of %d%%", ["%%", "%d", "%%"]),
        ("<i>%s</i>", ["<i>", "%s", "</i>"]),
        ('<a href="{link}">', ['<a href="{link}">']),
    ],
)
def test_where_protected_spans_end(text: str, expected: list[str]) -> None:
    assert [span.of(text) for span in protected_spans(text)] == expected


@given(
    st.lists(
        st.sampled_from([*PROTECTED, *PROSE, "{", "}", "%", "<", ">", "@", " ", "\n", "word"]), max_size=20
    )
)
def test_spans_are_in_order_and_apart(parts: list[str]) -> None:
    text = "".join(parts)
    end = 0
    for span in protected_spans(text):
        assert end <= span.start < span.end <= len(text)
        end = span.end


@given(st.lists(st.sampled_from(PROTECTED), max_size=12))
def test_all_protected_spans_between_words_are_found(parts: list[str]) -> None:
    text = " word ".join(parts)
    assert [span.of(text) for span in protected_spans(text)] == parts


def test_spans_that_share_a_character_are_merged() -> None:
    spans = [Span(5, 7), Span(0, 2), Span(1, 4), Span(4, 5)]
    assert list(merged(spans)) == [Span(0, 4), Span(4, 5), Span(5, 7)]


@pytest.mark.parametrize(
    "unit",
    ["{", "}", "{{", "{}", "{a", "{a,b,", "%(", "%(a", "%1", "%1$", "<a ", "<a", "http://", "http://(", "www.", "a@",
     "a.", "a@a.", "@a-", "-a@b", "a-", "mailto:", "{%", "(", "https://a)"],
)  # fmt: skip
def test_time_is_linear(unit: str) -> None:
    """The colon keeps `protected_spans` from returning at once."""
    check_near_linear(lambda size: protected_spans(":" + unit * (size // len(unit))), 400_000)
