"""An untranslated list item, paragraph, option or part of a table without an end tag ends where a browser ends it."""

from __future__ import annotations

import pytest

from app.text.html_parts import html_parts
from tests.text.growth import check_near_linear


def texts(markup: str) -> list[str]:
    parts = list(html_parts(markup))
    assert "".join(part.raw for part in parts) == markup
    return [part.raw for part in parts if part.kind == "text"]


@pytest.mark.parametrize(
    ("markup", "expected"),
    [
        ("<ul><li translate=no>Brand<li>item</ul><p>after", ["item", "after"]),
        ("<ul><li translate=no>Brand</ul>after", ["after"]),
        ("<ul><li translate=no>Brand<ol><li>x<li>y</ol>z</li>w<li>item</ul>", ["w", "item"]),
        ("<ul><li translate=no>Brand<ul><li>x</ul><li>item</ul>", ["item"]),
        ("<ul><li translate=no>One<li class=notranslate>two<li>item</ul>", ["item"]),
        ("<dl><dt translate=no>Brand<dd>text<dt>term</dl>", ["text", "term"]),
        ("<dl><dd translate=no>Brand</dl>after", ["after"]),
        ("<dl><dd translate=no>Brand<dl><dt>x<dd>y</dl><dd>text</dl>", ["text"]),
        ("<table><tr><td translate=no>Brand<td>cell<tr><td>next</table>", ["cell", "next"]),
        ("<table><tr><td translate=no>Brand<tr><td>cell</table>", ["cell"]),
        ("<table><tr><td translate=no>Brand</tr></table>after", ["after"]),
        ("<table><tr><th translate=no>Brand</table>after", ["after"]),
        ("<table><tr><td translate=no><table><tr><td>x</table><td>cell</table>", ["cell"]),
        ("<table><tr translate=no><td>Brand<td>x<tr><td>cell</table>", ["cell"]),
        ("<table><thead translate=no><tr><td>Brand<tr><td>x<tbody><tr><td>cell</table>", ["cell"]),
        ("<select><option translate=no>Brand<option>choice</select>after", ["choice", "after"]),
        (
            "<select><optgroup translate=no><option>Brand<option>x<optgroup><option>choice</select>",
            ["choice"],
        ),
        ("<p translate=no>Brand<p>text", ["text"]),
        ("<p translate=no>Brand<h2>text</h2>", ["text"]),
        ("<p translate=no>Brand<hr/>text", ["text"]),
        ("<p translate=no>Brand<svg/>x<p>text", ["text"]),
        ("<p translate=no>Brand<table><tr><td>cell</table>", ["cell"]),
        ("<div><p translate=no>Brand</div>after", ["after"]),
        ("<li><p translate=no>Brand<li>item", ["item"]),
        ("<td><p translate=no>Brand<br>x<td>cell", ["cell"]),
        ("<p translate=no>Brand <select><option>x</select> y</p>after", ["after"]),
        ("<p translate=no>Brand <label>x</label> <input> y</p>after", ["after"]),
        ("<p translate=no>Brand <button><div>x</div></button> y</p>after", ["after"]),
        ("<p translate=no>Brand <svg><title>x</title><div>z</div></svg> y</p>after", ["after"]),
        ("<button><p translate=no>Brand</button>after", ["after"]),
        ("<p translate=no>Brand</p>after</p>", ["after"]),
        ("<div translate=no>Brand<div>x</div><p>y</div>after", ["after"]),
        ("<div translate=no>Brand<p>the rest", []),
        ("<span translate=no>Brand<p>the rest", []),
    ],
)
def test_an_untranslated_element_ends_without_its_end_tag(markup: str, expected: list[str]) -> None:
    assert texts(markup) == expected


def test_an_element_that_a_request_names_ends_without_its_end_tag() -> None:
    assert [part.raw for part in html_parts("<li>One<li>two</ul>three", {"li"}) if part.kind == "text"] == [
        "three"
    ]


@pytest.mark.parametrize(
    "unit", ["<li translate=no>a", "<li translate=no>a<ul>", "<p translate=no>a<svg>", "</ul>"]
)
def test_time_is_near_linear(unit: str) -> None:
    check_near_linear(lambda size: list(html_parts("<li translate=no>" + unit * (size // len(unit)))), 50_000)
