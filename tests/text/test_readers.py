"""HTML and XML become blocks, from which the markup can be written again unchanged."""

from __future__ import annotations

import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.text.blocks import Block, Document, MarkupError, read_references, references_of
from app.text.glossary import Glossary, Term
from app.text.html_reader import read_html
from app.text.parsed_text import ParseOptions, TextFormat, parse_text
from app.text.protection import Replacement, protect
from app.text.segmentation import Span
from app.text.segments import SegmentTranslation
from app.text.tags import TagKind
from app.text.xml_reader import XmlRules, read_xml
from tests.text.growth import check_near_linear


def written(document: Document) -> str:
    """Return the document's markup."""
    parts = []
    for part in document.parts:
        if isinstance(part, str):
            parts.append(part)
            continue
        done = 0
        for tag in part.tags:
            parts += (part.raw(done, tag.position), tag.markup)
            done = tag.position
        parts.append(part.raw(done, len(part.text)))
    return "".join(parts)


def texts(document: Document) -> list[str]:
    return [part.text for part in document.parts if isinstance(part, Block)]


MARKUP = st.lists(
    st.sampled_from(
        [
            "<p>", "</p>", "<b>", "</b>", "<x/>", "<br>", "<img src='>'>", "<!-- c", "-->", "<script>", "</script>",
            "<pre>", "</pre>", "<span translate=no>", "</span>", "&amp;", "&", "&nope;", "&copy", "&#65;", "&#x110000;",
            "<", ">", "word", " ", "\n", "\u00e9", "<![CDATA[", "<![", "]]>", "<?pi", "?>", "<a href=\"",
            "<!DOCTYPE html>", "\"", "</", "</>", "<textarea>", "</textarea>", "\U000f0000", "<a>", "</a>", "</a><a>",
            "Word", "<img>", "<title>", "</title>", "<iframe>", "</iframe>", "<button>", "<input>", "[/b]", "<% x %>",
        ]
    ), max_size=25
).map("".join)  # fmt: skip


@given(MARKUP)
def test_any_html_is_read_without_loss(markup: str) -> None:
    assert written(read_html(markup)) == markup


@given(MARKUP)
def test_any_xml_is_read_without_loss_or_refused(markup: str) -> None:
    place = None
    try:
        assert written(read_xml(markup)) == markup
    except MarkupError as error:
        place = error.line, error.column
    if place is not None:
        line, column = place
        assert 1 <= column <= len(markup.split("\n")[line - 1]) + 1


@given(MARKUP)
def test_offsets_are_positions_in_the_markup(markup: str) -> None:
    for part in read_html(markup).parts:
        if isinstance(part, Block):
            assert len(part.text) == len(part.raws) == len(part.offsets) - 1
            for raw, offset in zip(part.raws, part.offsets, strict=False):
                assert markup.startswith(raw, offset)


@pytest.mark.parametrize(
    ("markup", "expected"),
    [
        ("<p>One</p><p>two</p>", ["One", "two"]),
        ("One<br>two<hr/>three", ["One", "two", "three"]),
        ("<ul><li>One<li>two</ul>", ["One", "two"]),
        ("<b>One</b> two", ["One two"]),
        ("One <x-y>two</x-y>", ["One two"]),
        ("One <code>two</code>", ["One \U000f0000"]),
        ("One <svg><text>two</text></svg> Three", ["One ", " Three"]),
        ("<svg><text>one</text></svg> two <b>three</b> <svg></svg> 4 beds", [" two three ", " 4 beds"]),
        ("One <svg><text>two</text></svg><svg></svg> three<svg></svg>, four", ["One  three, four"]),
        ("One <a><svg></svg> two</a> <a><svg></svg> three</a>", ["One ", " two ", " three"]),
        ("- <svg></svg> one<p>Two</p><svg></svg> three", [" one", "Two", " three"]),
        ("One <math><mi>a</mi></math> two", ["One \U000f0000 two"]),
        ("One <math display=block><mi>a</mi></math> two", ["One ", " two"]),
        ("<ruby>One<rp>(</rp><rt>two</rt><rp>)</rp></ruby> three", ["One three"]),
        ("<ruby>One<rt>two<rp>x</ruby>three<rt>four<p>five", ["Onethree", "five"]),
        ("<pre>One</pre><script>if (a < b) '<p>'</script><style>p {}</style><textarea>x</textarea>", []),
        ("<div translate='no'>One <div>two</div></div>three", ["three"]),
        ("<p translate=YES>One</p>", ["One"]),
        ("<i class='a notranslate'>One</i> two", ["\U000f0000 two"]),
        ("<b translate=no>One <b>two</b> four</b> three", ["\U000f0000 three"]),
        ("<b translate=no>One two", []),
        ("<img translate=no alt=x>One", ["One"]),
        ("<p title='One'>12</p>", []),
        ("One &amp; two &lt;b&gt; &eacute; &#8212;", ["One & two <b> \u00e9 \u2014"]),
        ("One &nope; AT&T &copy 1", ["One \U000f0000 AT&T \u00a9 1"]),
        ("One <!-- two --> three", ["One  three"]),
        ("One <a href='x", ["One "]),
        ("One <![if IE]>two<![endif]>", ["One two"]),
        ("One <![;", ["One "]),
        ("One <![CDATA[two]]> three", ["One ", " three"]),
        ("1 < 2 and a<3", ["1 < 2 and a<3"]),
        ("One</b> two</p></i> three", ["One two", " three"]),
        ("<title>One &amp; two</title>", ["One & two"]),
        ("<title>The <script> tag</title><p>One</p>", ["The <script> tag", "One"]),
        ("<textarea><!-- code</textarea><p>One</p>", ["One"]),
        ("<textarea><textarea></textarea><p>One</p>", ["One"]),
        ("<iframe><p>old <!-- </iframe>One", ["One"]),
        ("<noembed><p>old</noembed><noframes><!-- </noframes><xmp></p><xmp></xmp>One", ["One"]),
        ("<b translate=no>One <i translate=yes>two</i></b> three", ["\U000f0000 three"]),
    ],
)  # fmt: skip
def test_the_texts_of_the_blocks_of_html(markup: str, expected: list[str]) -> None:
    assert texts(read_html(markup)) == expected


def test_tags_have_kind_and_position() -> None:
    (block,) = (
        part for part in read_html("One <b>two</b><img> <X id=1 /></i>").parts if isinstance(part, Block)
    )
    assert [(tag.position, tag.markup, tag.kind) for tag in block.tags] == [
        (4, "<b>", TagKind.OPEN),
        (7, "</b>", TagKind.CLOSE),
        (7, "<img>", TagKind.POINT),
        (8, "<X id=1 />", TagKind.POINT),
        (8, "</i>", TagKind.CLOSE),
    ]


def test_ignored_tags_are_not_translated() -> None:
    assert texts(read_html("One <X>two</X> <p>three</p>", {"x", "p"})) == ["One \U000f0000 "]


@pytest.mark.parametrize(
    ("markup", "rules", "expected"),
    [
        ('One <x id="1"/> two', XmlRules(), ["One  two"]),
        ("<a>One</a>", XmlRules(), ["One"]),
        ("<a><b>One</b><b>two</b></a>", XmlRules(), ["One", "two"]),
        ("<a>One <b>two</b><c><d>three</d></c></a>", XmlRules(), ["One two", "three"]),
        ("<a><b>One</b><b>two</b></a>", XmlRules(is_outlined=False), ["Onetwo"]),
        ("<a><b>One</b><b>two</b></a>", XmlRules(not_splitting=frozenset({"b"})), ["Onetwo"]),
        ("One <b>two</b> three", XmlRules(splitting=frozenset({"b"})), ["One ", "two", " three"]),
        ("One <b>two <b>three</b></b>", XmlRules(ignored=frozenset({"b"})), ["One \U000f0000"]),
        ("<a>One <b translate='no'>two</b></a>", XmlRules(), ["One \U000f0000"]),
        ("<a>One <b its:translate='no'>two</b></a>", XmlRules(), ["One \U000f0000"]),
        ("One <![CDATA[<two> & ]]> three", XmlRules(), ["One  three"]),
        ("One &amp; &#x2014; &lt;", XmlRules(), ["One & \u2014 <"]),
        ('<?xml version="1.0" encoding="latin-1"?>\n<!DOCTYPE a>\n<a>\u00c9ne</a>', XmlRules(), ["\u00c9ne"]),
        ("<!DOCTYPE a [<!ELEMENT a ANY>]> <a>One</a>", XmlRules(), ["One"]),
        ("<p>One <?pi x?>two<!-- three --></p>", XmlRules(), ["One two"]),
        ("", XmlRules(), []),
    ],
)  # fmt: skip
def test_the_texts_of_the_blocks_of_xml(markup: str, rules: XmlRules, expected: list[str]) -> None:
    document = read_xml(markup, rules)
    assert texts(document) == expected
    assert written(document) == markup


def test_a_cdata_section_stays_in_one_piece() -> None:
    (block,) = (part for part in read_xml("One <![CDATA[<two> & ]]>three").parts if isinstance(part, Block))
    assert [tag.markup for tag in block.tags] == ["<![CDATA[<two> & ]]>"]


@pytest.mark.parametrize(
    ("markup", "message"),
    [
        ("One <b>two", "line 1, column 11: mismatched tag"),
        ("One\n</b>two", "line 2, column 3: mismatched tag"),
        ("\u00e9\u4f60 < two", "line 1, column 5: not well-formed"),
        ("One &nbsp; two", "line 1, column 5: undefined entity"),
        ("One & two", "line 1, column 6: not well-formed"),
        ("<a x='1' x='2'/>", "line 1, column 10: duplicate attribute"),
        ("One</fragment><fragment>two", "line 1, column 15: junk after document element"),
        ("<?xml version='1.0'?><a>One", "line 1, column 28: no element found"),
        (
            "<!DOCTYPE a [\n<!ENTITY x 'One'>]><a>&x;</a>",
            "line 2, column 12: entity declarations are not read",
        ),
        ("One\x00", "line 1, column 4: not well-formed"),
        ("One\r\ntwo\rthree & four", "line 3, column 8: not well-formed"),
    ],
)
def test_the_error_for_malformed_xml_names_line_and_column(markup: str, message: str) -> None:
    with pytest.raises(MarkupError) as caught:
        read_xml(markup)
    assert str(caught.value).startswith(f"malformed XML at {message}")
    assert "One" not in str(caught.value)


@pytest.mark.seconds
@pytest.mark.parametrize(
    "unit", ["<b>", "</b>", "&amp;", "&a", "<p>One", "<x/>", "<i>a</i> ", "{a}", "<a b=c> "]
)
def test_time_is_near_linear(unit: str) -> None:
    check_near_linear(lambda size: read_html(unit * (size // len(unit))), 50_000)
    if unit in {"&amp;", "<x/>", "<i>a</i> "}:
        check_near_linear(lambda size: read_xml(unit * (size // len(unit))), 50_000)


def test_deep_elements_need_no_recursion() -> None:
    depth = sys.getrecursionlimit() * 2
    markup = "<b>" * depth + "One" + "</b>" * depth
    assert written(read_html(markup)) == markup
    assert written(read_xml(markup)) == markup


@pytest.mark.parametrize(
    ("raw", "expected"),
    [
        ("a&b", [("a", "a"), ("&", "&"), ("b", "b")]),
        ("&amp;x", [("&amp;", "&"), ("x", "x")]),
        ("&copy;", [("&copy;", "\u00a9")]),
        ("&copy", [("&copy", "\u00a9")]),
        ("&nope;", [("&nope;", None)]),
        ("&nothing;", [("&nothing;", None)]),
        ("&bne;", [("&bne;", "=\u20e5")]),
        ("&lt3;", [("&lt3;", None)]),
        ("&lt3", [("&lt", "<"), ("3", "3")]),
        ("a&T", [("a", "a"), ("&", "&"), ("T", "T")]),
        ("&#0;", [("&#0;", "\ufffd")]),
    ],
)
def test_references_are_read_with_their_characters(raw: str, expected: list[tuple[str, str | None]]) -> None:
    assert list(read_references(raw)) == expected


def test_a_block_lists_the_reference_of_each_character() -> None:
    (block,) = (
        part
        for part in read_html("&mdash;\u2014 &#65;B &copy 1 &bne; &quot;").parts
        if isinstance(part, Block)
    )
    assert references_of(block) == {"\u2014": "&mdash;", "\u00a9": "&copy;", '"': "&quot;"}


def test_a_span_is_protected_with_its_whole_elements_or_not_at_all() -> None:
    markup = "<i><u>ab</u><u>cd</u></i> e<b>fg</b> hi"
    (block,) = (part for part in read_html(markup).parts if isinstance(part, Block))
    assert block.text == "abcd efg hi"
    replacements = [Replacement(Span(0, 4)), Replacement(Span(5, 7)), Replacement(Span(9, 11), "&lt;")]
    protected = protect(block, replacements)
    assert protected.text == "\U000f0000 efg \U000f0001"
    assert protected.raws[0] == "<u>ab</u><u>cd</u>"
    assert protected.raws[6] == "&lt;"
    assert [(tag.position, tag.markup) for tag in protected.tags] == [
        (0, "<i>"),
        (1, "</i>"),
        (3, "<b>"),
        (5, "</b>"),
    ]
    assert list(protected.offsets)[:2] == [markup.index("<u>"), block.offsets[4]]
    assert [protected.tag_offset(index) for index in range(4)] == [
        markup.index(tag) for tag in ("<i>", "</i>", "<b>", "</b>")
    ]


def test_a_placeholder_is_a_character_that_is_not_in_the_text() -> None:
    block = protect(Block.of("\U000f0000 {a}"), [Replacement(Span(2, 5))])
    assert block.text == "\U000f0000 \U000f0001"
    assert block.placeholders == {"\U000f0001"}


@pytest.mark.parametrize(
    ("markup", "text_format"),
    [
        ("The \ufb01rst o\ufb03ce {\ufb02} \ufb06ops", TextFormat.PLAIN),
        ("The \ufb01rst <b>o&ffilig;ce</b> {\ufb02} &#xFB06;ops", TextFormat.HTML),
        ("<a>The \ufb01rst o\ufb03ce {\ufb02} &#xFB06;ops</a>", TextFormat.XML),
    ],
)
def test_a_ligature_is_read_as_its_letters(markup: str, text_format: TextFormat) -> None:
    parsed = parse_text(markup, ParseOptions("en", "de", text_format))
    (segment,) = parsed.segments(lambda _source: True)
    assert segment.source == "The first office \U000f0000 stops"
    first, office, stops = (
        markup[slice(*parsed.source_range(segment, *span))] for span in ((4, 9), (10, 16), (19, 24))
    )
    assert first == "\ufb01rst"
    assert office in ("o\ufb03ce", "o&ffilig;ce")
    assert stops in ("\ufb06ops", "&#xFB06;ops")
    assert "{\ufb02}" in parsed.finish([segment], [SegmentTranslation("Es \U000f0000")]).text
    assert written(parsed.document) == markup


def test_a_ligature_counts_as_its_letters_for_a_glossary() -> None:
    glossary = Glossary([Term("office", "Amt")], "en")
    parsed = parse_text("The o\ufb03ce is open", ParseOptions("en", "de", glossary=glossary))
    (hit,) = parsed.glossary_hits
    assert (hit.span, hit.replacement) == (Span(4, 8), "Amt")
