"""Elements that a page shows apart are translated apart, also without white space between them."""

from __future__ import annotations

import pytest

from app.text.html_parts import html_parts
from app.text.parsed_text import ParseOptions, TextFormat, parse_text
from app.text.segments import SegmentTranslation
from tests.text.growth import check_near_linear


def blocks(markup: str) -> list[str]:
    """The text of each block."""
    found = [""]
    for part in html_parts(markup):
        if part.kind == "boundary":
            found.append("")
        elif part.kind == "text":
            found[-1] += part.raw
    return [each for each in found if each]


@pytest.mark.parametrize(
    ("markup", "expected"),
    [
        ("<button>Buy now</button><button>add to cart</button>", ["Buy now", "add to cart"]),
        (
            "<label>Name</label><input><label>street</label><input/><button>Send</button>",
            ["Name", "street", "Send"],
        ),
        ("Name: <input name=a> Street: <select><option>one</select>", ["Name: ", " Street: ", "one"]),
        ("<label><input type=checkbox> I agree</label>", [" I agree"]),
        ("Name <textarea>x</textarea>street", ["Name ", "street"]),
        ("One <svg/>two</iframe>three", ["One ", "two", "three"]),
        ("One <input type=Hidden name=a>two", ["One two"]),
        ("<a>Home</a><a>About us</a><a>Contact</a>", ["Home", "About us", "Contact"]),
        ("<a><span>Home</span></a><a><span>About</span></a>", ["Home", "About"]),
        ("<a>Home</a><!-- x --><a>About</a>", ["Home", "About"]),
        ("<a>FAQ</a><a>Contact</a><a>HELP</a>", ["FAQ", "Contact", "HELP"]),
        ("<a>FAQ</a><a>HELP</a>", ["FAQ", "HELP"]),
        ("<a>Plan A</a><a>Plan B</a>", ["Plan A", "Plan B"]),
        ("<a>Menu (new)</a><a>About</a>", ["Menu (new)", "About"]),
        ("<a>Caf&eacute;</a><a>&Uuml;bersicht</a>", ["Caf&eacute;", "&Uuml;bersicht"]),
        ("<a>\u9996\u9875</a><a>\u5173\u4e8e</a>", ["\u9996\u9875", "\u5173\u4e8e"]),
        ("<span>Cart</span><span>3</span>", ["Cart", "3"]),
        ("<span>It is late.</span><span>We go.</span>", ["It is late.", "We go."]),
        ("<my-item>Red shoes</my-item><my-item>Blue shirts</my-item>", ["Red shoes", "Blue shirts"]),
        ("<a>C++</a><a>Java</a><a>C#</a><a>Go</a>", ["C++", "Java", "C#", "Go"]),
        ("<span>50%</span><span>Sale</span>", ["50%", "Sale"]),
        ("<span>50&nbsp;%</span><span>SALE</span>", ["50&nbsp;%", "SALE"]),
        ("<a>More\u2026</a><a>About</a>", ["More\u2026", "About"]),
        ("<a>More&hellip;</a><a>About</a>", ["More&hellip;", "About"]),
        ("<a>\u201chi\u201d</a><a>About</a>", ["\u201chi\u201d", "About"]),
        ('<a>"hi."</a><a>About</a>', ['"hi."', "About"]),
        ("<a>Pr\u00eat ?</a><a>Suite</a>", ["Pr\u00eat ?", "Suite"]),
        ("<a>Terms</a><a>(PDF)</a>", ["Terms", "(PDF)"]),
        ("<a>Inicio</a><a>\u00bfQu\u00e9 es?</a>", ["Inicio", "\u00bfQu\u00e9 es?"]),
        ("<span>\u91cd\u70b9:</span><span>\u5185\u5bb9</span>", ["\u91cd\u70b9:", "\u5185\u5bb9"]),
        ("<span>Price</span><span>$5</span>", ["Price", "$5"]),
        ("<a>Home</a> <a>About</a><a>Help</a>", ["Home About", "Help"]),
        ("Go to <a>Home</a><a>About</a><a>Help</a> now", ["Go to Home", "About", "Help now"]),
        ("<b><a>Home</a><a>About</a></b> !", ["Home", "About !"]),
        ("<a>Home<br>page</a><a>About</a>", ["Home", "page", "About"]),
        ("<a>Home</a><a>About", ["Home", "About"]),
        ("Price<img src=a.png>house", ["Price", "house"]),
        ("<a>Price</a><b><img></b><a>House</a>", ["Price", "House"]),
    ],
)
def test_elements_that_are_shown_apart_are_blocks(markup: str, expected: list[str]) -> None:
    assert blocks(markup) == expected
    assert "".join(part.raw for part in html_parts(markup)) == markup


@pytest.mark.parametrize(
    "markup",
    [
        "<span>un</span><span>likely</span>",
        "<a>foot</a><a>note</a>",
        "<span>O</span><span>nce</span>",
        "<span>S</span><span>A</span><span>L</span><span>E</span>",
        "<span>S</span><span>ALE</span>",
        "<span>H</span><span>2</span><span>O</span>",
        "<span>MP</span><span>3</span>",
        "<span>21</span><span>st</span>",
        "<span>1</span><span>9</span>",
        "<span>19.</span><span>99</span>",
        "<span>word</span><span>, then</span>",
        "<span>e-</span><span>Mail</span>",
        "<span>@</span><span>Anna</span>",
        "<span>\u8fd9\u662f</span><span>\u91cd\u70b9</span>",
        "We use <span>Git</span><span>Hub</span> for it",
        "<span>We use <span>Git</span><span>Hub</span> for it</span>",
        "<b>Look</b> at <span>You</span><span>Tube</span>",
        "<span>Mc</span><span>Donald</span> runs",
        "<code>x</code> <span>Git</span><span>Hub</span>",
        "See <a>Smith</a><a>1</a> for",
        "<span>Look</span> at <span>You</span><span>Tube</span>",
        "<span>No.</span><span>5</span>",
        "<span>item</span><span>(s)</span>",
        "<span>#</span><span>Trending</span>",
        "<span>L\u2019</span><span>Avion</span>",
        "<span>U.</span><span>S.</span>",
        "<span>He said \u201c</span><span>Hello\u201d</span>",
        "<span>19</span><span>$5</span>",
        "<a>Home</a> <a>About</a>",
        "<a>Home&nbsp;</a><a>About</a>",
        "<a>Home</a><a>&nbsp;About</a>",
        "<b>One</b><b>Two</b>",
        "<a>One</a><span>Two</span>",
        "One <img>two",
        "One<img> two",
        "\u4f60<img>\u597d",
        "(<img>One)",
        "Super<wbr>Man",
        "One<!-- -->Two",
    ],
)
def test_elements_that_may_share_a_word_or_sentence_are_not_divided(markup: str) -> None:
    assert all(part.kind != "boundary" for part in html_parts(markup))


def test_each_link_keeps_its_text() -> None:
    markup = '<nav><a href="/">Home</a><a href="/about">About us</a></nav><b>Price<img src=a.png>House</b>'
    parsed = parse_text(markup, ParseOptions("en", "de", TextFormat.HTML))
    segments = parsed.segments(lambda _: True)
    assert [segment.source for segment in segments] == ["Home", "About us", "Price", "House"]
    finished = parsed.finish(segments, [SegmentTranslation(segment.source.upper()) for segment in segments])
    assert finished.text == (
        '<nav><a href="/">HOME</a><a href="/about">ABOUT US</a></nav><b>PRICE<img src=a.png>HOUSE</b>'
    )


@pytest.mark.seconds
@pytest.mark.parametrize(
    "unit",
    [
        "<a>One</a>",
        "<a></a>",
        "<img>",
        "</a><a>",
        "One<img>",
        "<a>One",
        "One</a>",
        "<a><b>",
        "One<b></a>",
        "&a",
        "<!---->",
    ],
)
def test_time_is_near_linear(unit: str) -> None:
    check_near_linear(lambda size: list(html_parts("One" + unit * (size // len(unit)) + "Two")), 50_000)
