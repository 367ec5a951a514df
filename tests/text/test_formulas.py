"""A formula is copied as a whole. Of a word with a mark, such as the number of a footnote, only the mark is copied."""

from __future__ import annotations

import re

import pytest

from app.text.formulas import find_formulas, tagged_words
from app.text.glossary import Glossary, Term
from app.text.html_reader import read_html
from app.text.parsed_text import ParseOptions, TextFormat, parse_text
from benchmarks.roundtrip_models import reversed_words
from tests.text.fake_models import translate_with

HTML = ParseOptions("en", "de", TextFormat.HTML)
PLACEHOLDER = "\U000f0000"


def formulas_of(html: str) -> list[str]:
    """The formulas and marks of a text."""
    blocks = [part for part in read_html(html).parts if not isinstance(part, str)]
    return [
        span.of(block.text) for block in blocks for span in find_formulas(block.text, tagged_words(block))
    ]


@pytest.mark.parametrize(
    "word",
    [
        "H<sub>2</sub>O", "CO<sub>2</sub>", "m<sup>2</sup>", "x<sub>1</sub>", "A<b>4</b>", "21<sup>st</sup>",
        "x<sub>max</sub>", "10m<sup>2</sup>", "2<b>nd</b>", "NaCl<sub>2</sub>", "sin<sup>2</sup>x", "the2<b>nd</b>",
        "x<sub>i, j</sub>", "x<sub>i,j</sub><sup>2</sup>", "x<sub>i,j</sub>y<sup>2</sup>", "x<sub>(1)</sub>",
        "x<sub>i, j</sub><sup>2</sup>", "x<sub>the mean</sub>", "m<sup>2<sup>",
        "km<b>2</b>", "get_x<sub>1</sub>", "<sup>1<b>2</b></sup>",
    ],
)  # fmt: skip
def test_a_formula_is_found_as_a_whole(word: str) -> None:
    text = word.replace("<", "\n<").replace(">", ">\n").split("\n")
    assert formulas_of(f"<p>the {word} is</p>") == [
        "".join(part for part in text if not part.startswith("<"))
    ]


@pytest.mark.parametrize(
    ("word", "marks"),
    [
        ("price<sup>1</sup>", ["1"]),
        ("Price<sup>1</sup>", ["1"]),
        ("price<b>1</b>", ["1"]),
        ("price<sup>a</sup>", ["a"]),
        ("Brand<sup>TM</sup>", ["TM"]),
        ("don't<sup>1</sup>", ["1"]),
        ("price<sup>1,2</sup>", ["1,2"]),
        ("price<sup>1</sup>,<sup>2</sup>", ["1,2"]),
        ("price<sup>1)</sup>", ["1)"]),
        ("price<sup>1, 2</sup>", ["1, 2"]),
        ("price<sup>a,b</sup>", ["a,b"]),
        ("price<sup>1 for some</sup>", ["1 for some"]),
        ("price<sup>see note 1</sup>", ["see note 1"]),
        ("price<sup>[1]</sup>", ["[1]"]),
        ("price<sup>(1)</sup>", ["(1)"]),
        ("price<sup> 1</sup>", [" 1"]),
        ("price<sup>*</sup>", ["*"]),
        ("price<sup>[1]</sup><sup>[2]</sup>", ["[1][2]"]),
        ("price<sup>[<a>1</a>]</sup>,", ["[1]"]),
        ("price<sup>1<sub>b</sub>c</sup>", ["1bc"]),
        ("price <sup>[1]</sup>", []),
        ("price,<sup>[1]</sup>", []),
        ("price<sup>(the net one)</sup>", []),
        ("price<sup> </sup>", []),
        ("price<b>[1]</b>", []),
        ("pr<i>ic</i>e<sup>1</sup>", ["1"]),
        ("<b>3</b>words", ["3"]),
        ("<sup>1</sup>Only", ["1"]),
        ("\u0446\u0435\u043d\u0430<sup>1</sup>", ["1"]),
        ("under<b>line</b>d", []),
        ("wo<sup></sup>rds", []),
    ],
)
def test_of_a_word_only_the_mark_is_found(word: str, marks: list[str]) -> None:
    assert formulas_of(f"<p>the {word} is</p>") == marks


@pytest.mark.parametrize(
    ("html", "source", "copied"),
    [
        ("The price<sup>1</sup> rises.", f"The price{PLACEHOLDER} rises.", "<sup>1</sup>"),
        (
            'The price<sup class="n"><a href="#1">1</a></sup> rises.',
            f"The price{PLACEHOLDER} rises.",
            '<sup class="n"><a href="#1">1</a></sup>',
        ),
        ("The price<sup>[1]</sup> rises.", f"The price{PLACEHOLDER} rises.", "<sup>[1]</sup>"),
        (
            'The price<sup id="r"><a href="#1">[1]</a></sup>.',
            f"The price{PLACEHOLDER}.",
            '<sup id="r"><a href="#1">[1]</a></sup>',
        ),
        ("The price<sup>see note 1</sup> rises.", f"The price{PLACEHOLDER} rises.", "<sup>see note 1</sup>"),
        ("The <b>price</b><sup>1</sup> <i>rises</i>.", f"The price{PLACEHOLDER} rises.", "<sup>1</sup>"),
        ("The <b>price<sup>1</sup></b> rises.", f"The price{PLACEHOLDER} rises.", "<sup>1</sup>"),
        ("It has <b>3</b>new words.", f"It has {PLACEHOLDER} new words.", "<b>3</b>"),
        ("It has <b>{n}</b>new words.", f"It has {PLACEHOLDER} new words.", "<b>{n}</b>"),
        ("It is <b>{n}</b>th here.", f"It is {PLACEHOLDER}th here.", "<b>{n}</b>"),
        ("It is the <b>{n}</b>th", f"It is the {PLACEHOLDER}th", "<b>{n}</b>"),
        ("It has <b>{n}</b>items.", f"It has {PLACEHOLDER} items.", "<b>{n}</b>"),
    ],
)
def test_a_mark_is_a_placeholder_with_its_markup(html: str, source: str, copied: str) -> None:
    parsed = parse_text(html, HTML)
    (segment,) = parsed.segments(bool)
    assert segment.source == source
    words = source.split(PLACEHOLDER, maxsplit=1)[0]
    start, end = parsed.source_range(segment, len(words), len(words) + 1)
    assert html[start:end] == copied
    assert translate_with(html, HTML).text == html
    before = parsed.source_range(segment, len(words) - 1, len(words))
    assert html[slice(*before)] == words[-1]


@pytest.mark.parametrize(
    ("html", "source"),
    [
        ("Write to garden@old-tree.com<sup>1</sup> today.", "Write to PP today."),
        ("Write to a@bb.de<sup>1</sup>.", "Write to PP."),
        ("Write to me@x.org<b>2</b> today.", "Write to PP today."),
        ("Write to <a>me@x.org</a><sup>2</sup> today.", "Write to PP today."),
        ("Write to me@x.org<sup>note</sup> today.", "Write to P today."),
        ("Write to <sup>1</sup>me@x.org today.", "Write to P today."),
        ("Read x.org<sup>1</sup> and https://x.org/m<sup>2</sup>/a today.", "Read x.orgP and P today."),
    ],
)
def test_an_address_ends_at_a_mark(html: str, source: str) -> None:
    parsed = parse_text(html, HTML)
    (segment,) = parsed.segments(bool)
    assert re.sub("[\U000f0000-\U000fffff]", "P", segment.source) == source
    assert translate_with(html, HTML).text == html


@pytest.mark.parametrize(
    ("html", "surfaces"),
    [
        ("The tree<sup>1</sup> is old.", ["tree"]),
        ("The tr\u00adee<sup>1</sup> is old.", ["tr\u00adee"]),
        ("The <b>tree</b><sup>1</sup> is old.", ["tree"]),
        ("The tree<b>1</b> is old.", ["tree"]),
        ("The<sup>1</sup>tree<sup>[2]</sup> is old.", ["tree"]),
        ("The trees<sup>a</sup> of <sup>apple</sup> tree.", ["trees", "apple tree"]),
        ("The <b>t</b>ree is old.", ["tree"]),
        ("The tree<b>s</b>top is old.", []),
        ("The CO<sub>2</sub> is old.", []),
    ],
)
def test_a_term_ends_at_a_mark(html: str, surfaces: list[str]) -> None:
    terms = [Term("tree", "Baum"), Term("apple tree", "Apfel"), Term("CO", "Gas")]
    options = ParseOptions("en", "de", TextFormat.HTML, glossary=Glossary(terms, "en"))
    hits = parse_text(html, options).glossary_hits
    assert [hit.surface for hit in hits] == surfaces


def test_a_term_beside_letters_keeps_its_element() -> None:
    term = "\u624b\u673a"
    options = ParseOptions("zh", "en", TextFormat.HTML, glossary=Glossary([Term(term, term)], "zh"))
    parsed = parse_text(f"iPhone<b>{term}</b>", options)
    (segment,) = parsed.segments(bool)
    assert segment.source == "iPhone" + PLACEHOLDER
    assert translate_with(f"iPhone<b>{term}</b>", options).text == f"iPhone<b>{term}</b>"


def test_tags_keep_their_order_if_an_element_beside_a_word_overlaps_another_one() -> None:
    result = translate_with("a<b>{a}<i></b></i>b dog", HTML, reversed_words).text
    assert re.findall(r"<[^<>]*>", result) == ["<b>", "<i>", "</b>", "</i>"]
