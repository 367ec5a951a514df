"""Splitting loses nothing: whatever is replaced by itself gives the very text."""

from __future__ import annotations

import itertools
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from app.text.segmentation import Span, best_cut, fitting_spans, join, sentence_spans, trimmed

BREAKS = "\n\r\t\v\f\x1c\x1d\x1e\x85\u2028\u2029"
WORDS = st.sampled_from(
    [
        "Hello",
        "Mr.",
        "B\u00a0.",
        "world!",
        "a",
        "3.5",
        "(so)",
        "\u00e9",
        "e\u0301",
        "\U0001f600",
        "\u4f60\u597d",
        "...",
        "\u200b",
        "x\u200dy",
    ]
)
GAPS = st.sampled_from([" ", "  ", "\u00a0", "\u3000", ", ", ". ", *BREAKS, "\r\n", "\n\n  ", ""])
PROSE = st.lists(st.tuples(WORDS, GAPS), max_size=40).map(lambda parts: "".join(itertools.chain(*parts)))
ANY_TEXT = st.one_of(PROSE, st.text(max_size=200))


def spans_of(text: str) -> list[Span]:
    return list(sentence_spans(text, "en"))


@settings(max_examples=300, deadline=None)
@given(ANY_TEXT)
def test_nothing_is_lost(text: str) -> None:
    spans = spans_of(text)
    joined = join(text, spans, [span.of(text) for span in spans])
    assert joined.text == text
    assert joined.spans == tuple((span.start, span.end) for span in spans)


@settings(max_examples=300, deadline=None)
@given(ANY_TEXT)
def test_spans_are_in_order_and_hold_every_letter_and_digit(text: str) -> None:
    covered: set[int] = set()
    end = 0
    for span in spans_of(text):
        assert end <= span.start < span.end <= len(text)
        end = span.end
        covered.update(range(span.start, span.end))
    assert all(index in covered for index, character in enumerate(text) if character.isalnum())


@settings(max_examples=300, deadline=None)
@given(ANY_TEXT)
def test_white_space_and_line_breaks_stay_outside(text: str) -> None:
    for span in spans_of(text):
        core = span.of(text)
        assert core == core.strip()
        assert not set(core) & set(BREAKS)


@settings(max_examples=200, deadline=None)
@given(ANY_TEXT, st.integers(1, 12))
def test_over_long_sentences_are_cut_and_not_cut_off(text: str, limit: int) -> None:
    whole = trimmed(text, 0, len(text))
    if whole is None:
        return
    parts = sorted(fitting_spans(text, whole, lambda part: len(part) <= limit))
    assert all(part.end - part.start <= limit for part in parts)
    assert join(text, parts, [part.of(text) for part in parts]).text == text
    kept = "".join(part.of(text) for part in parts)
    assert [c for c in kept if c.isalnum()] == [c for c in text if c.isalnum()]


def test_parts_come_in_order() -> None:
    text = "one, two, three, four, five, six"
    parts = list(fitting_spans(text, Span(0, len(text)), lambda part: len(part) <= 10))
    assert parts == sorted(parts)
    assert len(parts) > 3


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Hello Mr. Smith. How are you?", ["Hello Mr. Smith.", "How are you?"]),
        ("  indented\n\n\tand tabbed  ", ["indented", "and tabbed"]),
        ("one\r\ntwo\u2028three\x85four", ["one", "two", "three", "four"]),
        ("\ufeff\u200bHello.\u200b", ["Hello."]),
        ("--- *** ---\n\U0001f600 \U0001f600", []),
        (" \t\n\u00a0\u200b\ufeff", []),
        ("", []),
        (
            "We came. B\u00a0. He left.",
            ["We came.", "B\u00a0.", "He left."],
        ),  # not one sentence, as after a panic
    ],
)
def test_sentences(text: str, expected: list[str]) -> None:
    assert [span.of(text) for span in spans_of(text)] == expected


@pytest.mark.parametrize(
    ("text", "left"),
    [
        ("the first clause, and the second", "the first clause,"),  # a clause end beats the nearer space
        ("a, bbbbbbbbbbbbbbbb cccccccccccccccccc", "a, bbbbbbbbbbbbbbbb"),  # but not one far from the middle
        (
            "aaaaaaaaaaaaaaaaaaaaaaaaaa bb",
            "aaaaaaaaaaaaaaaaaaaaaaaaaa",
        ),  # a space anywhere beats a word's middle
        ("aaaaaaaa", "aaaa"),
        ("aae\u0301\u0302\u0303bb", "aa"),  # a letter keeps its marks
        ("x\U0001f468\u200d\U0001f469\u200d\U0001f467y", "x"),  # and a family its members
        ("ab\U0001f1e9\U0001f1eacd", "ab"),
    ],
)
def test_the_best_cut(text: str, left: str) -> None:
    assert text[: best_cut(text, Span(0, len(text)))] == left


@pytest.mark.parametrize("unit", [" ", ".", "a. ", "\n", "a", "?! ", "a\u0301", '"a. ', "\U0001f600 ", "a, "])
def test_time_is_linear(unit: str) -> None:
    """Quadratic work on this size would take minutes; ten seconds is far from both."""
    started = time.monotonic()
    text = unit * (400_000 // len(unit))
    joined = join(text, spans := spans_of(text), [span.of(text) for span in spans])
    assert joined.text == text
    assert time.monotonic() - started < 10


def test_cutting_is_near_linear() -> None:
    text = "word " * 20_000
    sizes = [0]

    def fits(part: str) -> bool:
        sizes[0] += len(part)
        return len(part) <= 100

    parts = list(fitting_spans(text, Span(0, len(text) - 1), fits))
    assert len(parts) >= 1000
    assert sizes[0] < 16 * len(text)  # log2(100,000 / 100) is 10


class PanicException(BaseException):
    """As Rust's bindings name theirs."""


def test_a_line_that_the_library_fails_on_is_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    def panic(_language: str, _line: str) -> list[str]:
        raise PanicException

    monkeypatch.setattr("sentencex.segment", panic)
    assert [span.of("One. Two.\nThree.") for span in spans_of("One. Two.\nThree.")] == ["One. Two.", "Three."]
    monkeypatch.setattr("sentencex.segment", lambda _language, line: [line[:3]])
    assert spans_of("One. Two.") == [Span(0, 9)]


def test_an_interrupt_in_the_library_is_no_panic(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(_language: str, _line: str) -> list[str]:
        raise KeyboardInterrupt

    monkeypatch.setattr("sentencex.segment", interrupt)
    with pytest.raises(KeyboardInterrupt):
        spans_of("One.")


def test_join_wants_a_translation_for_each_span() -> None:
    with pytest.raises(ValueError, match="shorter"):
        join("a b", [Span(0, 1), Span(2, 3)], ["x"])


def test_join_tells_where_translations_stand() -> None:
    joined = join("(A) b!", [Span(1, 2), Span(4, 5)], ["long", ""])
    assert joined.text == "(long) !"
    assert joined.spans == ((1, 5), (7, 7))
