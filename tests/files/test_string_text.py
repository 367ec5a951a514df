"""The strings of JSON and catalogues, written with translations whose words are in the opposite order."""

from __future__ import annotations

import json

import polib
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from app.files import FileFormat, Unit, UnitFormat
from app.files.reading import read_file
from app.files.string_text import StringText
from app.text.parsed_text import ParseOptions, TextFormat
from benchmarks.roundtrip_models import reversed_words
from tests.text.fake_models import translate_with

PIECES = [
    "word ", "%s", "%*d ", "%1$s", "%%", "%n", "%<PRIu64>", "<0>", "</0>", "<n0>", "</n0>", "<b>", "</b>", "<br>",
    "<p>", "\n", "\t", "\r\n", "&", "&amp;", "<", ">", "<!--", "-->", '<a href="%20d">', "</a>", "<code>",
    "http://x.org/%2f",
]  # fmt: skip


def translation_of(unit: Unit) -> str:
    options = ParseOptions("en", "de", TextFormat(unit.format))
    return translate_with(unit.text, options, reversed_words).text


def in_json(value: str) -> str:
    """The translation of a JSON string."""
    file = read_file(json.dumps([value]).encode(), FileFormat.JSON)
    [written] = json.loads(file.write([translation_of(unit) for unit in file.units]))
    return str(written)


def in_catalogue(message: str, flags: str = "") -> str:
    """The `msgstr` of a message. flags: the lines before it."""
    entry = polib.POEntry(msgid=message, msgstr="")
    file = read_file(f"{flags}{entry}".encode(), FileFormat.PO)
    [written] = polib.pofile(file.write([translation_of(unit) for unit in file.units]).decode())
    return str(written.msgstr)


@given(st.lists(st.sampled_from(PIECES), max_size=12).map("".join))
@example("%s <b>%d</b>\n<0>a</0> & b")
@example('<a title="<br>">\nword</a>')
def test_the_unit_of_a_string_stands_for_the_string(value: str) -> None:
    string = StringText.of(value)
    assert string.translated(string.unit.text) == value


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("<b>the old house</b>\n\nis empty now\n", "<b>house old the</b>\n\nnow empty is\n"),
        ("salt &amp; pepper\noil\r\nred vinegar", "pepper &amp; salt\noil\r\nvinegar red"),
        ("the <b>old house\nis empty</b> now", "<b>house old the\nnow empty is</b>"),
        ("a <b>cold day</b>\n\n\n\twarm water", "<b>day cold</b> a\n\n\n\twater warm"),
        ('one <a\ntitle="x\ny">cold day</a>\ntwo', '<a\ntitle="x\ny">day cold</a> one\ntwo'),
        ("run <code>a\nb</code> now<!-- a\nb -->\ntwo", "now <code>a\nb</code> run<!-- a\nb -->\ntwo"),
    ],
)
def test_the_line_breaks_of_a_string_without_blocks_stay(value: str, expected: str) -> None:
    assert in_json(value) == expected
    if "\r" not in value:
        assert in_catalogue(value) == expected


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("<p>the old\nhouse</p>\n<p>is <b>empty</b></p>", "<p>house old the</p>\n<p><b>empty</b> is</p>"),
        ("the <i>old</i>\nhouse<br>\nis empty", "house <i>old</i> the<br>\nempty is"),
    ],
)
def test_the_line_breaks_of_a_string_with_blocks_are_spaces(value: str, expected: str) -> None:
    assert in_json(value) == in_catalogue(value) == expected


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("please <1>log in</1> now", "now <1>in log</1> please"),
        ("<0>all <1>old</1> houses</0>", "<0>houses <1>old</1> all</0>"),
        ("<0>salt</0> & pepper", "pepper & <0>salt</0>"),
        ("<0>salt</0> or <12> or <b>oil</b>", "<b>oil</b> or <12> or <0>salt</0>"),
        ("press <0> or <1/>", "<1/> or <0> press"),
    ],
)
def test_an_element_with_a_number_as_its_name_encloses_its_words(value: str, expected: str) -> None:
    assert in_json(value) == in_catalogue(value) == expected


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("<b>salt</b> & pepper > 3 < 4", "4 < 3 > pepper & <b>salt</b>"),
        ("<b>salt</b> &amp; pepper & oil", "oil &amp; pepper &amp; <b>salt</b>"),
    ],
)
def test_a_string_without_references_is_translated_without_references(value: str, expected: str) -> None:
    assert in_json(value) == in_catalogue(value) == expected


def test_a_sign_that_would_begin_a_tag_stays_a_reference() -> None:
    assert (
        StringText.of("<b>one</b> day").translated("<b>ein</b> Tag &lt;n &lt; 3")
        == "<b>ein</b> Tag &lt;n < 3"
    )


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("from %s in %d days", "days %2$d in %1$s from"),
        ("from %s to %s", "%2$s to %1$s from"),
        ("from %@ to %lld", "%2$lld to %1$@ from"),
        ("from %s by %-*.*f to %d", "%5$d to %4$-*2$.*3$f by %1$s from"),
        ("<b>%s</b> has %d files", "files %2$d has <b>%1$s</b>"),
        ("%s has %<PRIu64> files", "files %2$<PRIu64> has %1$s"),
        ("%s took %.2fs or %5.1fMB", "%3$5.1fMB or %2$.2fs took %1$s"),
        ('see <a href="/%s">this page</a> of %s', '%2$s of <a href="/%1$s">page this</a> see'),
        # There is one argument, or it is chosen already.
        ("from %s in 3 days", "days 3 in %s from"),
        ("from %2$s in %1$d days", "days %1$d in %2$s from"),
        ("from %(a)s in %(b)d days", "days %(b)d in %(a)s from"),
        # In a URL, `%20d` is a space and a letter.
        (
            "from https://x.org/a%20d to https://x.org/b%20d",
            "https://x.org/b%20d to https://x.org/a%20d from",
        ),
    ],
)
def test_arguments_of_printf_are_numbered_if_their_order_has_changed(value: str, expected: str) -> None:
    assert in_json(value) == in_catalogue(value, "#, c-format\n") == expected


def test_arguments_of_printf_in_their_order_have_no_numbers() -> None:
    string = StringText.of("from %s in %d days")
    assert string.unit == Unit("from %1$s in %2$d days", UnitFormat.TEXT)
    assert string.translated("seit %1$s in %2$d Tagen") == "seit %s in %d Tagen"


@pytest.mark.parametrize("value", ["<b>%s</b> has %<PRIu64> files", "%d " * 34])
def test_arguments_that_could_not_be_placeholders_get_no_numbers(value: str) -> None:
    assert StringText.of(value).unit.text == value


@pytest.mark.parametrize("flag", ["python-format", "lua-format", "go-format", "object-pascal-format"])
def test_a_message_that_cannot_number_its_arguments_stays_empty(flag: str) -> None:
    flags = f"#: main.c:1\n#, fuzzy, {flag}\n# a note\n"
    assert in_catalogue("from %s in %d days", flags) == ""
    assert in_catalogue("from %s in 3 days", flags) == "days 3 in %s from"
    kept = f'{flags}msgid "%s days"\nmsgid_plural "from %s in %d days"\nmsgstr[0] ""\nmsgstr[1] ""\n'
    file = read_file(kept.encode(), FileFormat.PO)
    assert file.write([translation_of(unit) for unit in file.units]) == kept.encode()
    in_order = file.write(["%s Tage", "seit %1$s in %2$d Tagen"]).decode()
    assert in_order.endswith('msgstr[0] "%s Tage"\nmsgstr[1] "seit %s in %d Tagen"\n')


@pytest.mark.parametrize(
    "before",
    ['#, python-format\nmsgid "a"\nmsgstr "b"\n\n', '#, python-format\n#~ msgid "a"\n#~ msgstr "b"\n\n'],
)
def test_flags_are_those_of_the_next_message(before: str) -> None:
    data = f'{before}msgid "from %s in %d days"\nmsgstr ""\n'
    written = read_file(data.encode(), FileFormat.PO).write(["Tage %2$d seit %1$s"]).decode()
    assert written == f'{before}msgid "from %s in %d days"\nmsgstr "Tage %2$d seit %1$s"\n'


@pytest.mark.parametrize("value", ["Copied %s to %s in %ims", "%s: %ub of %d files"])
def test_no_argument_is_numbered_beside_one_that_is_no_placeholder(value: str) -> None:
    assert StringText.of(value).unit.text == value
