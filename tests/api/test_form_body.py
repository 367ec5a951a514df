"""Urlencoded forms are parsed as urllib parses them."""

from __future__ import annotations

import random
from urllib.parse import parse_qsl

import pytest

from app.api.http.form_body import MAX_FORM_FIELDS, MAX_STRAY_PERCENTS, Fields, parse_form
from app.errors import MalformedRequest, PayloadTooLarge

PIECES = [
    *"abN+=&;?\\%0",
    *("%41", "%e4%BD%a0", "%F0%9F%98%80", "%25", "%26", "%3D", "%2B", "%5C", "%0A", "%00"),
    *("ü", "你", "\\x41", "\\u0041", "\\N{DASH}", "\\\n", "\x85", "\u2028"),
]
NOT_UTF8 = ["%ff", "%C3", "%A4", "%ED%A0%80"]
NUM_FORMS = 20_000


def pairs_of(fields: Fields) -> list[tuple[str, str]]:
    return [
        (name, str(text))
        for name, value in fields.items()
        for text in (value if isinstance(value, list) else [value])
    ]


def test_random_forms_are_parsed_as_urllib_parses_them() -> None:
    rng = random.Random(0)
    num_broken = 0
    for _ in range(NUM_FORMS):
        form = "".join(rng.choices(PIECES, k=rng.randrange(12))) + rng.choice(["", "", "", *NOT_UTF8])
        is_broken = False
        try:
            expected = parse_qsl(form, keep_blank_values=True, errors="strict")
        except UnicodeDecodeError:
            is_broken = True
        if is_broken:
            num_broken += 1
            with pytest.raises(MalformedRequest):
                parse_form(form.encode())
        else:
            order = list(dict(expected))
            grouped = sorted(expected, key=lambda pair: order.index(pair[0]))
            assert pairs_of(parse_form(form.encode())) == grouped, form
    assert 0.1 < num_broken / NUM_FORMS < 0.9


def test_line_ends_are_newlines_and_repeated_fields_are_lists() -> None:
    assert parse_form(b"a=1%0D%0A2%0D3\r4&b&a=") == {"a": ["1\n2\n3\n4", ""], "b": ""}


def test_the_number_of_fields_is_limited() -> None:
    assert len(pairs_of(parse_form(b"&".join([b"a=b"] * MAX_FORM_FIELDS)))) == MAX_FORM_FIELDS
    with pytest.raises(PayloadTooLarge, match="the query string has more than 1000 fields"):
        parse_form(b"&" * MAX_FORM_FIELDS, name="query string")


def test_a_percent_sign_that_escapes_nothing_stands_for_itself_up_to_a_limit() -> None:
    assert parse_form(b"q=50% off&100%=%4&c=%") == {"q": "50% off", "100%": "%4", "c": "%"}
    assert parse_form(b"q=" + b"%" * MAX_STRAY_PERCENTS) == {"q": "%" * MAX_STRAY_PERCENTS}
    with pytest.raises(MalformedRequest, match="the form has more than 10000 percent signs"):
        parse_form(b"q=" + b"%" * (MAX_STRAY_PERCENTS + 1))
