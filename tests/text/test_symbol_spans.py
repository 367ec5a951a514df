"""Symbols and code are found whole, and similar prose is not."""

from __future__ import annotations

import pytest

from app.text.parsed_text import ParseOptions, parse_text
from app.text.protected_spans import protected_spans
from app.text.symbol_spans import symbol_spans
from tests.text.growth import check_near_linear


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Name: ____ Date: __/__/____", ["____", "__/__/____"]),
        ("Soup ..... and tea . . . . 2", [".....", ". . . ."]),
        ("Milk....2, ham ...... 3 and eggs.......", ["......."]),
        ("Wait... or wait.... I wait\u2026\u2026", []),
        ("-----Title----- and Title ---- or word----word", ["-----", "-----", "----"]),
        (
            "==== Note ====, ++++ or *** News *** or +++ a---b +++",
            ["====", "====", "++++", "***", "***", "+++", "+++"],
        ),
        ("if a && b != c -> d", ["&&", "!=", "->"]),
        ("yes -- no --- maybe !! Oui", []),
        ("Thanks :) I am sad :-( and <3 you xD.", [":)", ":-(", "<3", "xD"]),
        ("Well done :D", [":D"]),
        ("note (see below:) and 8) and a:b", []),
        ("@anna_b. thank @tom, not a@b.org or @ home or @5", ["@anna_b", "@tom", "a@b.org"]),
        ("12,\u2013 \u20ac, 5,- and so on, not 5,-3 or 7.\u2013 or a,-", [",\u2013", ",-"]),
        ("bug #45, the #1 of a#2 and #3rd", ["#45", "#1"]),
        ("**Bold** and *thin*, price* of 5*3 or 10%*x", ["**", "**", "*", "*", "*"]),
        ("***New*** and _this_ or __that__, ~~old~~", ["***", "***", "_", "_", "__", "__", "~~", "~~"]),
        ("*Run!* and _so?_ or __Run!__", ["*", "*", "_", "_", "__", "__"]),
        ("Teil*nehmer and * item", []),
        ("Run `npm start` and ``a b``, it`s so`", ["`npm start`", "``a b``"]),
        ("Call user.name() in max_len or x_y, not f(x)", ["user.name()", "max_len", "x_y"]),
        ("Lehrer_innen, Freund_in, Nutzer_innendaten, Log_info", ["Log_info"]),
    ],
)
def test_what_is_protected(text: str, expected: list[str]) -> None:
    assert [span.of(text) for span in protected_spans(text)] == expected


@pytest.mark.parametrize("mark", ["*", "**", "***", "_", "__", "~~"])
def test_bold_words_are_translated(mark: str) -> None:
    parsed = parse_text(f"The {mark}red door{mark} opens.", ParseOptions("en", "de"))
    (segment,) = parsed.segments(lambda _source: True)
    assert segment.source == "The red door opens."
    assert len(segment.tags) == 2


@pytest.mark.parametrize(
    "unit",
    [
        "_",
        "*",
        "`a ",
        "@a.",
        "a_",
        ". ",
        "a.",
        ":-(",
        "<3",
        "& ",
        "`",
        "a()",
        "__/",
        "-",
        "a----",
        "-=",
        "+++ ",
    ],
)
def test_the_time_is_linear(unit: str) -> None:
    check_near_linear(lambda size: list(symbol_spans("@" + unit * (size // len(unit)))), 100_000)
