"""Protected spans that enclose words get their places as tags do, and a word next to a placeholder is translated."""

from __future__ import annotations

from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.text.enclosing_spans import enclosing_pairs
from app.text.parsed_text import ParseOptions, TextFormat, parse_text
from app.text.protected_spans import protected_spans
from benchmarks.roundtrip_models import MODELS, copied, reversed_words
from tests.text.fake_models import translate_with
from tests.text.growth import check_near_linear

PLAIN = ParseOptions("en", "de")
HTML = ParseOptions("en", "de", TextFormat.HTML)
PLACEHOLDER = "\U000f0000"
PARTS = [
    "{a}", "{b}", "%d", "%1$s", "<0>", "</0>", "[x y=1]", "[/x]", "bread", "is", "a", " ", " ", ", ", ".", "(", ")",
]  # fmt: skip


def pairs_of(text: str) -> list[str]:
    return [text[first.start : last.end] for first, last in enclosing_pairs(text, protected_spans(text))]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Click %1$shere%2$s to go on.", ["%1$shere%2$s"]),
        ("%sSend%s, (%sor leave%s)", ["%sSend%s", "%sor leave%s"]),
        ("The {linkStart}privacy policy{linkEnd}", ["{linkStart}privacy policy{linkEnd}"]),
        ("The <0>rules</0> and [url]the page[/url]!", ["<0>rules</0>", "[url]the page[/url]"]),
        ("{link}Read me{/link}", ["{link}Read me{/link}"]),
        ("{a}{b}Read {name} now?{c}{d}", ["{b}Read {name} now?{c}", "{a}{b}Read {name} now?{c}{d}"]),
        ("<b>bold</b>er than", ["<b>bold</b>"]),
        ("{a}Write to {name}{b} soon", ["{a}Write to {name}{b}"]),
        ("{count}items in %syour cart%s", ["%syour cart%s"]),
    ],
)
def test_a_pair_touches_the_words_that_it_encloses(text: str, expected: list[str]) -> None:
    assert sorted(pairs_of(text)) == sorted(expected)


@pytest.mark.parametrize(
    "text",
    [
        "{count} items of {name}",
        "{width}px by {height}px",
        "{n}px{m}",
        "{first}, {last}",
        "a{n}items{m}b",
        "bread{n}items{m} now",
        "<b>The rules<i> now",
        "{n}\u4e2a\u6587\u4ef6\u5939{m}",
        "{n}items in {m}",
        "%sRead {name}",
        "</0>the rules<0>",
        "Line one<br>line two<br>line three",
        "%sSee:https://example.org",
        "\u8bf7{a}\u70b9\u51fb\u8fd9\u91cc{b}\u7ee7\u7eed",
    ],
)
def test_other_protected_spans_are_no_pair(text: str) -> None:
    assert pairs_of(text) == []


@pytest.mark.seconds
@pytest.mark.parametrize("unit", ["%sa ", "%saa%s ", "{a}b", "%sbread", "bread%s ", "{a}", "<0>it", "it</0>"])
def test_time_is_linear(unit: str) -> None:
    def find(size: int) -> None:
        text = unit * (size // len(unit)) + "bread%s" * (size // 7)
        list(enclosing_pairs(text, protected_spans(text)))

    check_near_linear(find, 50_000)


def test_a_pair_encloses_the_translation_of_its_words() -> None:
    parsed = parse_text("Click %1$shere now%2$s to go on.", PLAIN)
    (segment,) = parsed.segments(lambda _source: True)
    assert segment.source == "Click here now to go on."
    assert parsed.source_range(segment, 6, 10) == (10, 14)
    finished = translate_with("Click %1$shere now%2$s to go", PLAIN, reversed_words)
    assert finished.text == "go to %1$snow here%2$s Click"
    assert finished.segments[0].source == (0, 28)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("<b>Click {a}here{b}</b> &amp; read {c&amp;d}", "{c&amp;d} read &amp; <b>{a}here{b} Click</b>"),
        ("<b>{a}Click</b> here{b} now", "now here <b>{a}Click</b>{b}"),
    ],
)
def test_a_pair_and_an_element_may_overlap(text: str, expected: str) -> None:
    assert translate_with(text, HTML, reversed_words).text == expected


@given(st.lists(st.sampled_from(PARTS), max_size=12).map("".join), st.sampled_from([*MODELS.values()]))
def test_every_protected_span_is_in_every_translation_once(text: str, model: object) -> None:
    assert translate_with(text, PLAIN, copied).text == text
    found = translate_with(text, PLAIN, model).text  # type: ignore[arg-type]
    for span in ("{a}", "{b}", "%d", "%1$s", "<0>", "</0>", "[x y=1]", "[/x]"):
        assert found.count(span) == text.count(span)


@pytest.mark.parametrize(
    ("text", "source", "translation"),
    [
        ("It has {n}items now", f"It has {PLACEHOLDER} items now", "now items {n}has It"),
        ("It has {n}px now", f"It has {PLACEHOLDER}px now", "now px {n} has It"),
        (
            "{name}\uc5d0\uc11c\ub294 now",
            f"{PLACEHOLDER}\uc5d0\uc11c\ub294 now",
            "now \uc5d0\uc11c\ub294 {name}",
        ),
    ],
)
def test_the_model_reads_a_space_between_a_placeholder_and_a_word(
    text: str, source: str, translation: str
) -> None:
    parsed = parse_text(text, PLAIN)
    (segment,) = parsed.segments(lambda _source: True)
    assert segment.source == source
    assert translate_with(text, PLAIN, reversed_words).text == translation
    assert translate_with(text, PLAIN, copied).text == text


@pytest.mark.parametrize(
    "text",
    [
        "{a}Click <i>here{b} or {c}there</i> now{d}",
        "%1$sRead <b>our rules%2$s and %3$sour terms</b> today%4$s please",
    ],
)
def test_pairs_that_cross_an_element_leave_it_well_formed(text: str) -> None:
    result = translate_with(text, ParseOptions("en", "de", TextFormat.XML), reversed_words).text
    ElementTree.fromstring(f"<text>{result}</text>")


@pytest.mark.parametrize(
    ("text", "target", "expected"),
    [
        ("{n}items now", "@ Artikel jetzt", "{n}Artikel jetzt"),
        ("{n}items (new)", "@ (neue) Artikel", "{n} (neue) Artikel"),
        ("{n}items now", "", ""),
    ],
)
def test_the_space_that_only_the_model_reads_is_dropped_before_a_word(
    text: str, target: str, expected: str
) -> None:
    parsed = parse_text(text, PLAIN)
    (segment,) = parsed.segments(lambda _source: True)
    assert parsed.preview(segment, target.replace("@", PLACEHOLDER)) == expected
