"""Splitting loses no text. If every span is replaced by itself, the result is the text."""

from __future__ import annotations

import itertools
import re

import pytest
import sentencex
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from app.text.segmentation import (
    Span,
    best_cut,
    fitting_pieces,
    fitting_spans,
    join,
    sentence_spans,
    trimmed,
)
from tests.text.growth import check_near_linear

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
def test_spans_are_in_order_and_cover_every_letter(text: str) -> None:
    assume(not re.search(r"[A-Za-z][)\]]", text))  # the letter of a list mark is in no span
    covered: set[int] = set()
    end = 0
    for span in spans_of(text):
        assert end <= span.start < span.end <= len(text)
        end = span.end
        covered.update(range(span.start, span.end))
    assert all(index in covered for index, character in enumerate(text) if character.isalpha())


@pytest.mark.seconds
@settings(max_examples=300, deadline=None)
@given(ANY_TEXT)
def test_spans_exclude_white_space_and_line_breaks(text: str) -> None:
    for span in spans_of(text):
        core = span.of(text)
        assert core == core.strip()
        assert not set(core) & set(BREAKS)


@settings(max_examples=200, deadline=None)
@given(ANY_TEXT, st.integers(1, 12))
def test_over_long_sentences_are_split_without_loss(text: str, limit: int) -> None:
    whole = trimmed(text, 0, len(text))
    if whole is None:
        return
    parts = sorted(fitting_spans(text, whole, lambda part: len(part) <= limit))
    assert all(part.end - part.start <= limit for part in parts)
    assert join(text, parts, [part.of(text) for part in parts]).text == text
    kept = "".join(part.of(text) for part in parts)
    assert [c for c in kept if c.isalpha()] == [c for c in text if c.isalpha()]


def test_parts_are_in_order() -> None:
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
        ("12:30\n3.5 %\n(1) 2024-05-01", []),  # a line without a letter is not translated
        (" \t\n\u00a0\u200b\ufeff", []),
        ("\u061c\u0645\u0631\u062d\u0628\u0627 abc\u061c", ["\u0645\u0631\u062d\u0628\u0627 abc"]),
        ("", []),
        # sentencex panics on "B\u00a0.", so it gets a plain space in place of the no-break space. After a panic the
        # text would be one sentence.
        ("We came. B\u00a0. He left.", ["We came.", "B\u00a0.", "He left."]),
    ],
)
def test_where_sentences_begin_and_end(text: str, expected: list[str]) -> None:
    assert [span.of(text) for span in spans_of(text)] == expected


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("  - Bread and butter", "Bread and butter"),
        ("\u2022\u00a0Bread", "Bread"),
        ("* * Bread", "Bread"),
        ("> ## Bread", "Bread"),
        ("1. Bread", "Bread"),
        ("2.10.3) Bread", "Bread"),
        ("a) Bread (b) butter", "Bread (b) butter"),
        ("(iv) Bread", "Bread"),
        ("- [ ] 1. Bread", "Bread"),
        ("1\ufe0f\u20e3 Bread", "Bread"),
        ("1\u20e3 Bread", "Bread"),
        ("\u2116 5 loaves", "\u2116 5 loaves"),
        ("\u2705 Bread", "Bread"),
        ("\U0001f469\U0001f3fd\u200d\U0001f4bb Bread", "Bread"),
        ("\u2265 5 loaves", "5 loaves"),
        ("\u2013 Bread, he said.", "Bread, he said."),
        ("-5 degrees", "-5 degrees"),  # a minus has no space after it
        ("3.5 million loaves", "3.5 million loaves"),
        # "2024." is no list mark, because it has four digits. But sentencex makes it a sentence, and a sentence without
        # a letter has no span.
        ("2024. A year of bread", "A year of bread"),
        ("*Bread* and butter", "*Bread* and butter"),
        ("(I know", "(I know"),
        ("\U0001f600Bread", "\U0001f600Bread"),
    ],
)
def test_spans_exclude_list_marks(line: str, expected: str) -> None:
    assert [span.of(line) for span in spans_of(line)] == [expected]


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("Read more \u2192", "Read more"),
        ("Read more\u2192 \u2192 ", "Read more"),
        ("Read more \u27a1\ufe0f", "Read more"),
        ("Read more! \u25ba", "Read more!"),
        ("Read more >", "Read more"),
        ("Read more \u00a0\u00bb", "Read more"),
        ("Read more \u2764\ufe0f \u203a", "Read more \u2764\ufe0f"),
        ("Read \u2192 more", "Read \u2192 more"),
        ("Read more \U0001f600", "Read more \U0001f600"),
        ("Read <more >", "Read <more >"),
        ("\u00ab Bonjour \u00bb", "\u00ab Bonjour \u00bb"),
    ],
)
def test_spans_exclude_arrows_at_the_end(line: str, expected: str) -> None:
    assert [span.of(line) for span in spans_of(line)] == [expected]


def test_the_time_for_many_arrows_is_linear() -> None:
    check_near_linear(
        lambda size: list(sentence_spans("a" + "> \u2192" * (size // 3) + "b >", "en")), 100_000
    )


@pytest.mark.parametrize(
    "box", ["\u2610", "\u2611", "\u2612", "\u2611\ufe0f", "\uf0a8", "\uf06f", "\uf0fd", "\uf0fe"]
)
def test_a_check_box_separates_options(box: str) -> None:
    text = f"Bread: {box} white {box} a) brown {box}{box} none"
    assert [span.of(text) for span in spans_of(text)] == ["Bread:", "white", "brown", "none"]


LIST_MARKS = st.lists(
    st.sampled_from(["- ", "1. ", "\t", "a) ", "[x] ", "\u2022\u3000", "# ", "\u2705 "]), max_size=5
)


@given(st.lists(st.tuples(LIST_MARKS, st.sampled_from(["Bread and butter", "Hello, you", ""])), max_size=8))
def test_list_marks_and_line_breaks_are_unchanged(
    lines: list[tuple[list[str], str]],
) -> None:
    text = "\r\n".join("".join(list_marks) + rest for list_marks, rest in lines)
    spans = spans_of(text)
    assert [span.of(text) for span in spans] == [rest for _, rest in lines if rest]
    joined = join(text, spans, ["x"] * len(spans)).text
    assert joined == "\r\n".join("".join(list_marks) + "x" * bool(rest) for list_marks, rest in lines)


def test_characters_that_do_not_fit_are_parts_of_their_own() -> None:
    refused = iter(["abc", "bc"])

    def fits(part: str) -> bool:
        assert part == next(refused), "a single character is not asked about"
        return False

    assert list(fitting_spans("abc", Span(0, 3), fits)) == [Span(0, 1), Span(1, 2), Span(2, 3)]


def test_pieces_of_an_over_long_sentence_are_flagged_as_parts() -> None:
    text = "one, two, three four"
    (whole,) = fitting_pieces(text, Span(0, 20), lambda part: len(part) <= 20)
    assert (whole.span, whole.is_part) == (Span(0, 20), False)
    parts = fitting_pieces(text, Span(0, 20), lambda part: len(part) <= 12)
    assert [(part.span.of(text), part.is_part) for part in parts] == [
        ("one, two,", True),
        ("three four", True),
    ]


def test_a_piece_is_flagged_as_a_part_if_the_other_half_has_no_letter() -> None:
    (part,) = fitting_pieces("one 1234", Span(0, 8), lambda part: len(part) <= 4)
    assert (part.span, part.is_part) == (Span(0, 3), True)


@pytest.mark.parametrize("language", ["de", "de-AT"])
def test_a_date_of_the_language_ends_no_sentence(language: str) -> None:
    assert len(list(sentence_spans("Am 3. Oktober regnet es. Am 4. nicht.", language))) == 2


@pytest.mark.parametrize(
    ("text", "left"),
    [
        # The end of a clause is better than a space that is nearer to the middle.
        ("the clause, and now the second one", "the clause,"),
        # The end of a clause outside the middle half is no better than another space.
        ("a, bbbbbbbbbbbbbbbb cccccccccccccccccc", "a, bbbbbbbbbbbbbbbb"),
        # Any space is better than the middle of a word.
        ("aaaaaaaaaaaaaaaaaaaaaaaaaa bb", "aaaaaaaaaaaaaaaaaaaaaaaaaa"),
        ("aaaaaaaa", "aaaa"),
        # Chinese has no space after the end of a clause, but a quotation may end there.
        ("\u6211\u4eec\u5728\uff0c\u6cb3\u8fb9\u7684\u8001\u6811\u4e0b", "\u6211\u4eec\u5728\uff0c"),
        ("\u201c\u6211\u4eec\uff0c\u201d\u6cb3\u8fb9\u8001\u6811", "\u201c\u6211\u4eec\uff0c\u201d"),
        # Arabic, Hindi and Burmese clauses end with other marks.
        ("the clause\u060c and now the second one", "the clause\u060c"),
        ("the clause\u0964 and now the second one", "the clause\u0964"),
        ("the clause\u104a and now the second one", "the clause\u104a"),
        ("aae\u0301\u0302\u0303bb", "aa"),  # a letter keeps its combining marks
        ("x\U0001f468\u200d\U0001f469\u200d\U0001f467y", "x"),  # a joined emoji is not split
        ("ab\U0001f1e9\U0001f1eacd", "ab"),
    ],
)
def test_the_best_cut(text: str, left: str) -> None:
    assert text[: best_cut(text, Span(0, len(text)))] == left


@pytest.mark.parametrize(
    "unit", [" ", ".", "a. ", "\n", "a", "?! ", "a\u0301", '"a. ', "\U0001f600 ", "a, ", "- ", "1. "]
)
def test_splitting_into_sentences_and_joining_take_linear_time(unit: str) -> None:
    def split_and_join(size: int) -> None:
        text = unit * (size // len(unit))
        joined = join(text, spans := spans_of(text), [span.of(text) for span in spans])
        assert joined.text == text

    check_near_linear(split_and_join, 100_000)


def test_splitting_an_over_long_sentence_is_near_linear() -> None:
    text = "word " * 20_000
    num_checked = 0

    def fits(part: str) -> bool:
        nonlocal num_checked
        num_checked += len(part)
        return len(part) <= 100

    parts = list(fitting_spans(text, Span(0, len(text) - 1), fits))
    assert len(parts) >= 1000
    # After ten halvings the parts fit, so each character is checked 11 times. In quadratic time it would be 500 times.
    assert num_checked < 16 * len(text)


class PanicException(BaseException):
    """An exception with the name that Rust's Python bindings use."""


def test_a_line_on_which_the_library_fails_is_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    def panic(_language: str, _line: str) -> list[str]:
        raise PanicException

    monkeypatch.setattr("sentencex.segment", panic)
    assert [span.of("One. Two.\nThree.") for span in spans_of("One. Two.\nThree.")] == ["One. Two.", "Three."]
    monkeypatch.setattr("sentencex.segment", lambda _language, line: [line[:3]])
    assert spans_of("One. Two.") == [Span(0, 9)]


def test_an_interrupt_in_the_library_is_raised(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(_language: str, _line: str) -> list[str]:
        raise KeyboardInterrupt

    monkeypatch.setattr("sentencex.segment", interrupt)
    with pytest.raises(KeyboardInterrupt):
        spans_of("One. Two.")


@pytest.mark.parametrize("language", ["en", "de", "fr", "ru", "el", "hy", "ja"])
def test_the_library_is_not_called_for_a_line_without_a_possible_sentence_end(
    monkeypatch: pytest.MonkeyPatch, language: str
) -> None:
    symbols = "".join(
        chr(code) for code in range(32, 127) if not chr(code).isalnum() and chr(code) not in ".!?;:)"
    )
    lines = [
        form.replace("*", symbol)
        for symbol in symbols
        for form in ("He said* so", "a *Bb", "1* Bb c", "Up *I* c")
    ]
    calls: list[str] = []

    def counted_segment(code: str, line: str) -> list[str]:
        calls.append(line)
        return list(real_segment(code, line))

    real_segment = sentencex.segment
    monkeypatch.setattr("sentencex.segment", counted_segment)
    for line in lines:
        assert real_segment(language, line) == [line]
        list(sentence_spans(line, language))
    assert not calls
    list(sentence_spans("One; two: b) three", language))
    assert calls


def test_join_needs_a_translation_for_each_span() -> None:
    with pytest.raises(ValueError, match="shorter"):
        join("a b", [Span(0, 1), Span(2, 3)], ["x"])


def test_join_returns_the_positions_of_translations() -> None:
    joined = join("(A) b!", [Span(1, 2), Span(4, 5)], ["long", ""])
    assert joined.text == "(long) !"
    assert joined.spans == ((1, 5), (7, 7))


CONTROLS = [chr(code) for code in (*range(0x20), *range(0x7F, 0xA0))]


@pytest.mark.parametrize("control", CONTROLS, ids=lambda control: f"U+{ord(control):04X}")
def test_a_control_character_separates_sentences(control: str) -> None:
    assert spans_of(f"a{control}b{control}{control}") == [(0, 1), (2, 3)]
    assert spans_of(f"{control}It is late") == [(1, 11)]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Chair    2 pieces     $50", ["Chair", "2 pieces"]),
        ("Two  spaces are one sentence", ["Two  spaces are one sentence"]),
        ("He said   that he would come.", ["He said   that he would come."]),
        ("| Name | Age |\n|------|-----|", ["Name", "Age"]),
        ("Home \u00b7 About us \u2022 Help", ["Home", "About us", "Help"]),
        ("Lunch: [ ] Yes [x] No, a[x] b", ["Lunch:", "Yes", "No, a[x] b"]),
        ("a|b and 3\u00b74", ["a|b and 3\u00b74"]),
        ("Soup.....4 and tea ...... 12, v1...5", ["Soup", "4 and tea", "12, v1...5"]),
        ("Paint (red | blue) | Wood", ["Paint (red | blue)", "Wood"]),
        ("b)   Pears", ["Pears"]),
        ("// Reads the name", ["Reads the name"]),
        ("WARNING: Do not open. NOTE: It is hot.", ["WARNING:", "Do not open.", "NOTE:", "It is hot."]),
        ("USB: a port. Note: it is hot. HELP:", ["USB: a port.", "Note: it is hot.", "HELP:"]),
    ],
)
def test_columns_cells_and_labels_are_separate(text: str, expected: list[str]) -> None:
    assert [span.of(text) for span in sentence_spans(text, "en")] == expected


def test_spaces_separate_no_columns_where_line_breaks_are_spaces() -> None:
    (span,) = sentence_spans("One    two", "en", has_columns=False)
    assert span == (0, 10)
