"""Lost and repeated placeholders of a translation are repaired, by the alignment of its words."""

from __future__ import annotations

import numpy as np
import pytest

from app.text.alignment import Alignment, WordAlignment, words
from app.text.casing import Casing
from app.text.segmentation import Span
from app.text.segments import (
    Fallback,
    SegmentTranslation,
    SourceSegment,
    join_parts,
    repair,
    spans_between_placeholders,
    with_number_placeholders,
)
from app.text.tags import MAX_TAGS
from tests.text.markup_samples import aligned

A, B = "\U000f0000", "\U000f0001"


def segment(source: str) -> SourceSegment:
    placeholders = tuple(character for character in source if character in {A, B})
    return SourceSegment(
        source=source,
        placeholders=placeholders,
        casing=Casing.PLAIN,
        block=0,
        span=Span(0, len(source)),
        is_part=False,
        tags=range(0),
        positions=range(len(source)),
        written=source,
    )


def translated(
    source: str, text: str, pairs: list[tuple[int, int]], num_appended: int = 0
) -> SegmentTranslation:
    return SegmentTranslation(text, aligned(source, text, pairs), num_appended)


@pytest.mark.parametrize(
    ("source", "text", "pairs", "expected"),
    [
        (f"Dear {A} come", "Lieber komm", [(0, 0), (1, 2)], f"Lieber {A} komm"),
        (f"{A} come", "komm", [(0, 1)], f"{A} komm"),
        (f"come {A}", "komm", [(0, 0)], f"komm {A}"),
        (f"come {A}.", "komm.", [(0, 0), (1, 2)], f"komm {A}."),
        (f"see {A} and {B} now", "jetzt sehen und", [(0, 4), (1, 0), (2, 2)], f"{A} jetzt sehen und {B}"),
    ],
)  # fmt: skip
def test_a_lost_placeholder_is_placed_by_the_alignment(
    source: str, text: str, pairs: list[tuple[int, int]], expected: str
) -> None:
    repaired = repair(segment(source), translated(source, text, pairs))
    assert repaired.text == expected
    assert repaired.fallbacks == (Fallback.PLACEHOLDER_ALIGNED,)
    assert repaired.alignment is not None
    for (start, end), word in zip(repaired.alignment.target, words(text), strict=True):
        assert repaired.text[start:end] == word.of(text)


@pytest.mark.parametrize(
    ("source", "text", "pairs", "prefix", "expected"),
    [
        (f"{A} come here", "Komm hierher", [(0, 1), (1, 2)], "Komm", f"Komm {A} hierher"),
        (f"{A} come here", "Komm hierher", [(0, 1), (1, 2)], "Komm hier", f"Komm hierher {A}"),
        (f"{A} {B} come", "Komm bald", [(0, 2)], "Komm", f"Komm {A} {B} bald"),
        (f"A {A} and.", "Am Baum.", [(0, 0), (1, 1)], "Am Baum.", f"Am Baum. {A}"),
        (f"A {A} and.", "Am Baum.", [], "Am Baum.", f"Am Baum. {A}"),
        (f"A {A} and.", "Am Baum.", [], "Am", f"Am Baum {A}."),
        (f"A {A} and {B}.", f"So.{A}", [], f"So.{A}", f"So.{A} {B}"),
    ],
)  # fmt: skip
def test_a_lost_placeholder_is_inserted_behind_the_prefix(
    source: str, text: str, pairs: list[tuple[int, int]], prefix: str, expected: str
) -> None:
    translation = SegmentTranslation(
        text, aligned(source, text, pairs) if pairs else None, prefix_end=len(prefix)
    )
    repaired = repair(segment(source), translation)
    assert repaired.text == expected
    assert repaired.text[: repaired.prefix_end] == prefix


def test_the_end_of_the_prefix_moves_with_the_text() -> None:
    repaired = repair(segment("come here"), SegmentTranslation("Komm  bald hierher", prefix_end=10))
    assert repaired.text[: repaired.prefix_end] == "Komm bald"


def test_without_an_alignment_a_lost_placeholder_is_appended() -> None:
    repaired = repair(segment(f"Dear {A} come to {B}"), SegmentTranslation(f"Komm {B}"))
    assert (repaired.text, repaired.fallbacks) == (f"Komm {B} {A}", (Fallback.PLACEHOLDER_AT_END,))
    assert repair(segment(f"Dear {A}"), SegmentTranslation("")).text == A


def test_appended_verbatim_spans_are_placed_by_the_alignment() -> None:
    source = f"see {A}\U0001f600 now \U0001f680"
    text = f"jetzt sehen {A}\U0001f600 \U0001f680"
    translation = translated(source, text, [(0, 4), (1, 0)], num_appended=2)
    repaired = repair(segment(source), translation)
    assert repaired.fallbacks == (Fallback.PLACEHOLDER_ALIGNED,)
    assert f"{A}\U0001f600" in repaired.text
    assert repaired.text.count("\U0001f680") == 1
    assert repaired.text != text
    at_end = repair(segment(source), SegmentTranslation(text, None, 2))
    assert (at_end.text, at_end.fallbacks) == (text, (Fallback.PLACEHOLDER_AT_END,))


def test_lost_spans_are_inserted_in_the_order_of_the_source() -> None:
    repaired = repair(segment(f"{A} so {B}\U0001f600"), SegmentTranslation(f"so {B}\U0001f600", None, 1))
    assert repaired.text == f"so {A} {B}\U0001f600"


def test_an_inserted_placeholder_is_separated_from_words() -> None:
    source = f"The {A} is at {B}."
    repaired = repair(segment(source), translated(source, f"Auf {A} ist.", [(0, 0), (1, 4), (2, 2), (3, 5)]))
    assert sorted(repaired.text.split()) == sorted(["Auf", A, B, "ist."])
    # A placeholder within a word of the source gets no space.
    source = f"pre{A}fix so"
    repaired = repair(segment(source), translated(source, "vorne so", [(0, 1), (1, 3)]))
    assert len(repaired.text) == len("vorne so") + 1
    # A lost hyphen within a word of the source gets none, either.
    source = "The X\u2011ray runs"
    repaired = repair(
        segment(source), translated(source, "Es rennt \u2011", [(0, 4), (1, 4)], num_appended=1)
    )
    assert repaired.text == "\u2011Es rennt"


def test_a_complete_translation_is_unchanged() -> None:
    source = f"Dear {A} come"
    translation = translated(source, f"Komm, {A}", [(0, 2)])
    repaired = repair(segment(source), translation)
    assert (repaired.text, repaired.fallbacks) == (f"Komm, {A}", ())
    assert spans_between_placeholders(segment(source), translation) == []


def test_repeated_and_unknown_placeholders_are_removed_and_the_alignment_follows() -> None:
    source = f"Dear {A} come"
    text = f"{A} {B}Komm {A} her"
    repaired = repair(segment(source), translated(source, text, [(0, 1), (2, 2), (3, 1), (4, 2)]))
    assert (repaired.text, repaired.fallbacks) == (f"{A} Komm her", (Fallback.PLACEHOLDER_REPEATED,))
    assert repaired.alignment is not None
    spans = [repaired.text[start:end] for start, end in repaired.alignment.target]
    assert spans == [A, "", "Komm", "", "her"]


def test_a_private_use_character_of_the_text_is_kept() -> None:
    plain = segment(f"see {B} and {B}")._replace(placeholders=())
    assert repair(plain, SegmentTranslation(f"{B} und {B}")).text == f"{B} und {B}"


def test_the_parts_around_placeholders_are_joined() -> None:
    whole = segment(f"Dear {A}, come to {B} 12 now")
    parts = spans_between_placeholders(whole, SegmentTranslation(f"Komm {A}"))
    assert [part.of(whole.source) for part in parts] == ["Dear", ", come to", "12 now"]
    translations = map(SegmentTranslation, ("Liebe", ", komm zu", "12 jetzt"))
    joined = join_parts(whole, parts, list(translations))
    assert (joined.text, joined.fallbacks) == (
        f"Liebe {A}, komm zu {B} 12 jetzt",
        (Fallback.PLACEHOLDER_SPLIT,),
    )
    assert repair(whole, joined).fallbacks == (Fallback.PLACEHOLDER_SPLIT,)


@pytest.mark.parametrize(("kept", "expected"), [((False, False), False), ((False, True), True)])
def test_joined_parts_keep_the_source_if_one_of_them_does(kept: tuple[bool, ...], expected: bool) -> None:
    whole = segment(f"Dear {A} come")
    parts = spans_between_placeholders(whole, SegmentTranslation("Komm"))
    translations = [SegmentTranslation("so", keeps_source=each) for each in kept]
    assert join_parts(whole, parts, translations).keeps_source is expected


def test_parts_that_nothing_separates_get_a_space() -> None:
    whole = segment("\u4ed6\u6765\uff0c\u5979\u8d70\u3002")
    translations = [
        translated("\u4ed6\u6765\uff0c", "He comes,", [(0, 0), (0, 1)]),
        SegmentTranslation("she goes."),
    ]
    joined = join_parts(whole, [Span(0, 3), Span(3, 6)], translations, " ")
    assert joined.text == "He comes, she goes."
    assert join_parts(whole, [Span(0, 3), Span(3, 6)], translations).text == "He comes,she goes."


def test_numbers_become_placeholders() -> None:
    whole = segment(f"On 3.5.1990 {A} paid 1,234.5 for the 21st A4, twice 7")
    whole = whole._replace(positions=[10 + place for place in range(len(whole.source))])
    with_placeholders = with_number_placeholders(whole, whole.source)
    assert [number for _, number in with_placeholders.numbers] == ["3.5.1990", "1,234.5", "21st", "A4", "7"]
    assert with_placeholders.restore_numbers(with_placeholders.source) == whole.source
    assert not any(map(str.isdigit, with_placeholders.source))
    assert list(with_placeholders.placeholders) == [
        character for character in with_placeholders.source if ord(character) > 0xEFFFF
    ]
    assert len(with_placeholders.positions) == len(with_placeholders.source)
    for place, character in zip(with_placeholders.positions, with_placeholders.source, strict=True):
        assert character in dict(with_placeholders.numbers) or whole.source[place - 10] == character
    repaired = repair(with_placeholders, SegmentTranslation("bezahlt"))
    assert repaired.fallbacks == (Fallback.NUMBERS_CARRIED, Fallback.PLACEHOLDER_AT_END)
    assert with_placeholders.restore_numbers(repaired.text).count("1,234.5") == 1


def test_a_segment_is_not_divided_with_an_alignment_or_if_only_an_emoji_is_lost() -> None:
    source = f"Dear {A} come"
    assert spans_between_placeholders(segment(source), translated(source, "Komm", [(0, 2)])) == []
    assert (
        spans_between_placeholders(segment("so \U0001f600"), SegmentTranslation("so \U0001f600", None, 1))
        == []
    )


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("don't e-mail", ["don't", "e", "-", "mail"]),
        ("He\u0301 x\u200dy", ["He\u0301", "x\u200dy"]),
        ("3.5, 12:30.", ["3.5", ",", "12:30", "."]),
        (f"({A}{B})", ["(", A, B, ")"]),
        ("'tis rock'", ["'", "tis", "rock", "'"]),
        (" \t", []),
    ],
)
def test_how_a_text_is_divided_into_words(text: str, expected: list[str]) -> None:
    assert [word.of(text) for word in words(text)] == expected


def test_word_weights_are_sums_of_subwords_without_the_end_token() -> None:
    weights = np.array([[0.2, 0.2, 0.6], [0.5, 0.1, 0.4], [0.0, 0.0, 1.0]])
    alignment = Alignment(((0, 2), (2, 4), (4, 4)), ((0, 2), (2, 4), (5, 6)), weights)
    found = WordAlignment("abcd e", alignment)
    assert found.share(0, 2)[0] == pytest.approx(0.7)
    assert found.share(0, 3)[0] == pytest.approx(0.85)
    assert list(found.known) == [1, 0]
    assert found.share(0, 4)[1] == 0


def test_nan_weights_are_ignored() -> None:
    found = WordAlignment("ab", Alignment(((0, 2),), ((0, 2),), np.array([[np.nan]])))
    assert list(found.known) == [0]


def test_a_run_needs_a_word() -> None:
    with pytest.raises(ValueError, match="at least one word"):
        WordAlignment("a", aligned("a", "a", [(0, 0)])).best_run(0, 1, 1, 1)


def test_more_lost_placeholders_than_the_maximum_keep_their_order() -> None:
    lost = "".join(chr(ord(A) + number) for number in range(MAX_TAGS + 1))
    source = f"Hallo {lost}."
    one = segment(source)._replace(placeholders=tuple(lost))
    found = repair(one, translated(source, "Hello.", [(0, 0)])).text
    assert [character for character in found if character >= A] == [*lost]
