"""Tags follow their words. For any alignment each tag appears once, and the result is well formed."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.text.alignment import Alignment, words
from app.text.tags import MAX_DEPTH, MAX_TAGS, Tag, TagKind, partners, place_tags
from tests.text.markup_samples import aligned, is_well_formed, scan, with_tags


def placed(markup: str, target: str, pairs: list[tuple[int, int]]) -> str:
    source, tags = scan(markup)
    placement = place_tags(source, tags, target, aligned(source, target, pairs))
    assert placement.is_sure
    return with_tags(target, placement.tags)


@pytest.mark.parametrize(
    ("markup", "target", "pairs", "expected"),
    [
        ("the <b>red</b> house", "das rote Haus", [(0, 0), (1, 1), (2, 2)], "das <b>rote</b> Haus"),
        ("<b>Today</b> we sing", "Wir singen heute", [(0, 1), (1, 2), (2, 0)], "Wir singen <b>heute</b>"),
        # elements change places
        (
            "a <i>red</i> <b>house</b>",
            "une maison rouge",
            [(0, 0), (1, 2), (2, 1)],
            "une <b>maison</b> <i>rouge</i>",
        ),
        # one word becomes two, two become one
        ("the <b>mailbox</b>", "la boite postale", [(0, 0), (1, 1), (2, 1)], "la <b>boite postale</b>"),
        ("a <b>mail box</b> here", "ein Briefkasten hier", [(0, 0), (1, 1), (2, 3)], "ein <b>Briefkasten</b> hier"),
        # nested, and nested at an edge
        (
            "<b>one <i>two</i></b> three",
            "drei zwei eins",
            [(0, 2), (1, 1), (2, 0)],
            "drei <b><i>zwei</i> eins</b>",
        ),
        # a word without alignment joins its neighbours
        ("see <b>big red cars</b>", "siehe grosse da Autos", [(0, 0), (1, 1), (3, 3)], "siehe <b>grosse da Autos</b>"),
        # but it stays outside an element beside it
        ("<b>cars</b> here", "da Autos ja hier", [(1, 0), (3, 1)], "da <b>Autos</b> ja hier"),
        # punctuation is no part of the word beside it
        ("say <b>yes</b>.", "sag ja.", [(0, 0), (1, 1), (2, 2)], "sag <b>ja</b>."),
        # self-closing tags stay at their word
        ("big<x/> cat", "Katze gross", [(0, 1), (1, 0)], "Katze gross<x/>"),
        ("big <x/>cat", "Katze gross", [(0, 1), (1, 0)], "<x/>Katze gross"),
        ("one <x/> two", "eins zwei", [(0, 0), (1, 1)], "eins <x/> zwei"),
        ("one <i></i>two", "zwei eins", [(0, 1), (1, 0)], "<i></i>zwei eins"),
        # a self-closing tag beside an element stays outside it
        ("<x/> <b>one two</b>", "zwei eins", [(0, 1), (1, 0)], "<x/> <b>zwei eins</b>"),
        (
            "one <x/>two <b>three four five six</b>",
            "drei vier zwei fünf sechs eins",
            [(0, 2), (1, 3), (2, 1), (3, 4), (4, 5), (5, 0)],
            "<x/><b>drei vier zwei fünf sechs</b> eins",
        ),
        # an element's tag between two words without a space stays at the element's word if the target has a space there
        ("a-<b>b</b>", "A - B", [(0, 0), (1, 1), (2, 2)], "A - <b>B</b>"),
        # the matching tags are in other sentences
        ("one</b> two <i>three", "eins zwei drei", [(0, 0), (1, 1), (2, 2)], "eins</b> zwei <i>drei"),
        ("one</b> <i>two</i> three", "zwei eins drei", [(0, 1), (1, 0), (2, 2)], "</b><i>zwei</i> eins drei"),
    ],
)  # fmt: skip
def test_tags_follow_their_words(
    markup: str, target: str, pairs: list[tuple[int, int]], expected: str
) -> None:
    assert placed(markup, target, pairs) == expected


NESTED = st.recursive(
    st.sampled_from(["one", "two three", ", four", " ", "five.", ""]),
    lambda inner: st.lists(
        st.tuples(st.sampled_from(["", "b", "i", 'a href="x"', "x/", "br/"]), inner), max_size=4
    ).map(
        lambda parts: " ".join(
            f"<{name}>" if name.endswith("/") else f"<{name}>{body}</{name.split()[0]}>" if name else body
            for name, body in parts
        )
    ),
    max_leaves=12,
)
TARGETS = st.lists(
    st.sampled_from(["eins", "zwei", "drei,", "vier", "\u201efünf\u201c", "."]), max_size=8
).map(" ".join)


@st.composite
def alignments(draw: st.DrawFn, source: str, target: str) -> Alignment:
    columns, rows = len(words(source)) + 1, len(words(target))
    values = st.lists(st.sampled_from([0.0, 0.1, 0.5, 1.0]), min_size=columns, max_size=columns)
    weights = np.array(draw(st.lists(values, min_size=rows, max_size=rows))).reshape(rows, columns)
    source_spans = (*((word.start, word.end) for word in words(source)), (len(source), len(source)))
    return Alignment(source_spans, tuple((word.start, word.end) for word in words(target)), weights)


@given(st.data(), NESTED, TARGETS)
def test_every_tag_appears_once_and_well_formed_for_any_alignment(
    data: st.DataObject, markup: str, target: str
) -> None:
    source, tags = scan(markup)
    assert is_well_formed(markup)
    placement = place_tags(source, tags, target, data.draw(alignments(source, target)))
    result = with_tags(target, placement.tags)
    assert is_well_formed(result)
    assert Counter(tag.markup.strip() for tag in placement.tags) == Counter(tag.markup for tag in tags)
    bare = [replace(tag, markup=tag.markup.strip()) for tag in placement.tags]
    assert scan(with_tags(target, bare))[0] == target
    positions = [tag.position for tag in placement.tags]
    assert positions == sorted(positions)


@given(st.data(), NESTED, TARGETS)
def test_a_part_of_a_text_keeps_the_text_well_formed(data: st.DataObject, markup: str, target: str) -> None:
    """The matching tag of a tag may be in an earlier or later sentence."""
    whole, tags = scan(markup)
    first = data.draw(st.integers(0, len(tags)))
    last = data.draw(st.integers(first, len(tags)))
    inner = tags[first:last]
    placement = place_tags(whole, inner, target, data.draw(alignments(whole, target)))
    around = "".join(tag.markup for tag in tags[:first]), "".join(tag.markup for tag in tags[last:])
    assert is_well_formed(around[0] + with_tags(target, placement.tags) + around[1])


@given(st.lists(st.tuples(st.sampled_from(["b", "i", "x/"]), st.sampled_from(["one", "two three", "four."]))))
def test_a_copied_text_keeps_its_tags(parts: list[tuple[str, str]]) -> None:
    markup = " ".join(f"<{name}>{body}" + f"</{name}>" * (name != "x/") for name, body in parts)
    source, tags = scan(markup)
    pairs = [(index, index) for index in range(len(words(source)))]
    placement = place_tags(source, tags, source, aligned(source, source, pairs))
    assert with_tags(source, placement.tags) == markup


@pytest.mark.parametrize(
    "markup",
    ["a <b>bold </b>word", "one<b> <x/></b>two",
     "<b><x/>one</b> two", "one<x/> two <y/>three", "<b></b>one<i> two </i>three",
     "(<i>one</i>), <b>two</b>.", "<b><i>one</i> two</b>", "one <b>two</b><i>, three</i>"],
)  # fmt: skip
def test_spaces_beside_tags_are_unchanged(markup: str) -> None:
    source = scan(markup)[0]
    assert placed(markup, source, [(index, index) for index in range(len(words(source)))]) == markup


@pytest.mark.parametrize(
    "markup", ["one</i> <b>two</i> three</b>", "<b>one <i>two</b> three</i>", "</p>one<b> two"]
)
def test_crossing_tags_are_kept(markup: str) -> None:
    source, tags = scan(markup)
    pairs = [(index, index) for index in range(len(words(source)))]
    placement = place_tags(source, tags, source, aligned(source, source, pairs))
    assert Counter(tag.markup for tag in placement.tags) == Counter(tag.markup for tag in tags)


def test_without_an_alignment_tags_are_appended_in_order() -> None:
    source, tags = scan("one</u> <b>two</b> <x/>three <i>four")
    placement = place_tags(source, tags, "eins zwei", None)
    assert with_tags("eins zwei", placement.tags) == "eins zwei</u><b></b><x/><i>"
    assert not placement.is_sure
    assert place_tags("one", [], "eins", None).is_sure


def test_an_empty_translation_keeps_the_tags() -> None:
    source, tags = scan("<b>one</b> two")
    placement = place_tags(source, tags, "", aligned(source, "", []))
    assert [tag.markup for tag in placement.tags] == ["<b>", "</b>"]
    assert not placement.is_sure


def test_an_element_whose_word_another_element_has_is_uncertain() -> None:
    source, tags = scan("<b>mail</b><i>box</i>")
    alignment = Alignment(((0, 4), (4, 7)), ((0, 11),), np.array([[0.6, 0.4]]))
    placement = place_tags(source, tags, "Briefkasten", alignment)
    assert with_tags("Briefkasten", placement.tags) == "<b>Briefkasten</b><i></i>"
    assert not placement.is_sure


@pytest.mark.parametrize(
    ("markup", "target", "weights", "expected"),
    [
        # in the translation, the words before the closing tag come after the words that follow it
        (
            "one four</u> <b>two</b>",
            "zwei eins vier",
            [[0, 0, 1], [1, 0, 0], [0, 1, 0]],
            "zwei eins vier</u><b></b>",
        ),
        (
            "<p><b>one</b><i>two</i></p> <u>three</u>",
            "eins drei",
            [[1, 1, 0], [0, 0, 1]],
            "<p><b>eins</b><i></i></p> <u>drei</u>",
        ),
        (
            "<p><b>one</b> <i>two</i></p> <u>three</u>",
            "eins drei",
            [[1, 1, 0], [0, 0, 1]],
            "<p><i></i><b>eins</b></p> <u>drei</u>",
        ),
        (
            "<p><b>one</b> <i>two</i></p> <u>three</u>",
            "eins drei",
            [[0.6, 0.4, 0], [0, 0, 1]],
            "<p><b>eins</b> <i></i></p><u>drei</u>",
        ),
    ],
)
def test_an_element_without_words_is_empty(
    markup: str, target: str, weights: list[list[float]], expected: str
) -> None:
    source, tags = scan(markup)
    spans = [tuple((word.start, word.end) for word in words(text)) for text in (source, target)]
    if "onetwo" in source:
        spans[0] = ((0, 3), (3, 6), (7, 12))  # `words` takes "onetwo" as one word
    placement = place_tags(
        source, tags, target, Alignment(spans[0], spans[1], np.array(weights, dtype=float))
    )
    assert with_tags(target, placement.tags) == expected
    assert not placement.is_sure


@pytest.mark.seconds
def test_nesting_is_placed_up_to_the_maximum_depth() -> None:
    for depth, is_sure in ((MAX_DEPTH - 1, True), (MAX_DEPTH, False), (100_000, False)):
        source, tags = scan("<b>" * depth + "one" + "</b>" * depth + " two")
        placement = place_tags(source, tags, "eins zwei", aligned(source, "eins zwei", [(0, 0), (1, 1)]))
        assert placement.is_sure is is_sure
        assert len(placement.tags) == 2 * depth


def test_more_than_the_maximum_of_tags_are_not_placed() -> None:
    for number, is_sure in ((MAX_TAGS, True), (MAX_TAGS + 1, False)):
        source, tags = scan("one " + "<x/>" * number + "two")
        placement = place_tags(source, tags, "eins zwei", aligned(source, "eins zwei", [(0, 0), (1, 1)]))
        assert (placement.is_sure, len(placement.tags)) == (is_sure, number)


def test_the_pairs_of_partners_do_not_cross() -> None:
    names = [
        ("a", TagKind.OPEN),
        ("b", TagKind.OPEN),
        ("a", TagKind.CLOSE),
        ("b", TagKind.CLOSE),
        ("a", TagKind.CLOSE),
    ]
    assert partners([Tag(0, "", kind, name) for name, kind in names]) == {0: 2}


def test_weights_must_fit_the_subwords() -> None:
    with pytest.raises(ValueError, match=r"\(1, 2\)"):
        Alignment(((0, 1),), ((0, 1),), np.zeros((1, 2)))
