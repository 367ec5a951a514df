"""The text of Markdown: escapes, character references, HTML and emphasis. A parser renders what is written."""

from __future__ import annotations

from html import escape

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from app.files import FileFormat
from app.files.reading import read_file
from app.files.unit import SlottedText, UnitFormat
from tests.files.test_long_files import MAX_GROWTH
from tests.text.growth import check_near_linear

RENDERER = MarkdownIt("commonmark").enable(["table", "strikethrough"])
TOKENS = (
    "word ", "a", "\u00e9", "**", "*", "_", "__", "`", "[", "]", "](u)", "![", "<b>", "</b>", "<code>", "</code>",
    "<br>", "> ", "- ", "1. ", "# ", "|", "\\", "&amp;", "&lt;", "&nbsp;", "&#42;", "&eacute;", "\\*", "\\_", "\\[",
    "\\&", "\\|", "\\\\", "\\#", "\\>", "1\\.", "~~", "***", "---", "<", ">", "<!--", "<?", "<pre ", "&", "==", "!",
    "\\!", "\u201c", "\u3002", "[a]: u", "|-|-|", "#", " ",
)  # fmt: skip
LINES = st.lists(st.sampled_from(TOKENS), min_size=1, max_size=9).map("".join)
DOCUMENTS = st.lists(LINES, min_size=1, max_size=3).map("\n".join)
LONG_RUNS = (
    "[a](", "<a ", "&#1;", "<http:", "<", "&", "<!--", "_a_", "*a ", "[", "![", "[a]: b\n", "<b>", "[a](<",
)  # fmt: skip


def slotted(text: str) -> SlottedText:
    file = read_file(text.encode(), FileFormat.MARKDOWN)
    assert isinstance(file, SlottedText)
    return file


def texts_of(text: str) -> list[str]:
    return [unit.text for unit in slotted(text).units]


def written(text: str, *translations: str) -> str:
    return slotted(text).write(translations).decode()


def placeholder(index: int) -> str:
    return f'<x id="{index}" translate="no"/>'


@pytest.mark.parametrize(
    ("text", "units"),
    [
        ("The caf&eacute;s don&#39;t open: R&amp;D.", ["The caf\u00e9s don't open: R&D."]),
        (r"Set snake\_case for 5\$ at AT\&T.", ["Set snake_case for 5$ at AT&T."]),
        ("One&nbsp;word&#10;here", ['One\u00a0word<x id="1"/>here']),
        ("|a\\\\|b|b|\n|-|-|\n", ["a|b", "b"]),
        ("Run <code>make *all*</code> now", [f"Run {placeholder(1)} now"]),
        ("<kbd>A</kbd> or <samp>B</samp> or <var>C</var>", [" or ".join(map(placeholder, (0, 2, 4)))]),
        ('By <span translate="no">A<span>B</span></span>.', [f"By {placeholder(1)}."]),
        (
            "By <b class='x notranslate'>Brand</b>, <b>word</b>",
            [f'By {placeholder(1)}, <g id="3">word</g>'],
        ),
        ("By <code>make all", ['By <br id="1"/>']),
        (
            "By ``a ` b`` and <ab:c> or <c@d.e>.",
            [f"By {placeholder(1)} and {placeholder(3)} or {placeholder(5)}."],
        ),
        ("By a ` or b", ["By a ` or b"]),
        ("> <p>One\n> two</p>", ["One\ntwo"]),
        ("- <p>One\n  two</p>\n- > <p>Three", ["One\ntwo", "Three"]),
    ],
)
def test_units_have_decoded_characters_and_marks_for_what_stays(text: str, units: list[str]) -> None:
    assert texts_of(text) == units


@pytest.mark.parametrize(
    ("text", "translation", "expected"),
    [
        ("R&amp;D and caf&eacute;s", "Caf\u00e9s und R&D", "Caf&eacute;s und R&amp;D"),
        (r"Set \_x\_ for 2 * 3", "F\u00fcr 2 * 3 setze _x_", "F\u00fcr 2 * 3 setze \\_x\\_"),
        (r"A \* or * b", "A * * or *b*", r"A * * or \*b\*"),
        ("&lt;b", "<b <i>", "&lt;b &lt;i>"),
        ("One", "&lt; <b> [c] `d` \\* snake_case ~ !", r"\&lt; \<b> \[c\] \`d\` \\\* snake_case ~ !"),
        ("One", "[a]: b", r"\[a]: b"),
        ("One", "<div a", r"\<div a"),
        ("One\ntwo", "a\n***", "a\n\\***"),
        ("# One", "C #", r"# C \#"),
        ("|One|\n|-|", "a\\", "|a\\ |\n|-|"),
        ("> <p>One\n> two</p>", "a\nb", "> <p>a\n> b</p>"),
        ("> <p>One\n> two</p>", "a b", "> <p>a b</p>"),
        ("- > <p>One\n  > two</p>", "a\nb\nc", "- > <p>a\n  > b\n  > c</p>"),
        ("> <p>One</p>", "a\nb", "> <p>a b</p>"),
        ("**a:** b", '<g id="0">\u6ce8\uff1a</g>\u8bf7', "**\u6ce8**\uff1a\u8bf7"),
        ("**a:** b", '<g id="0">\u6ce8\uff1a</g> \u8bf7', "**\u6ce8\uff1a** \u8bf7"),
        ('***"a"*** b', '\u6309<g id="0"><g id="1">\u201cb\u201d</g></g>c', "\u6309\u201c***b***\u201dc"),
        ("_a_ b", '\u6309<g id="0">b</g>c', "\u6309*b*c"),
        ("**[a](u)** b", '\u6309<g id="0"><g id="1">b</g></g>c', "\u6309 **[b](u)** c"),
        ("**a** b", '\u6309<g id="0">:</g>c', "\u6309:c"),
        ("`a` ``b`` c", f"c{placeholder(2)}{placeholder(0)}", "c``b`` `a`"),
        ("Use ```a\nb``` now", f"{placeholder(1)} now", "```a b``` now"),
        ("> One.\n> Use ```a\n> b``` now", f"Eins.\n{placeholder(1)} now", "> Eins.\n> ```a b``` now"),
        ("Use <!-- c --> now", '<x id="1"/> Jetzt so', "Jetzt<!-- c --> so"),
        ("One.\nUse <!-- c --> **it**", 'Eins.\n<x id="1"/><g id="3">Es</g> a', "Eins.\n**Es<!-- c -->** a"),
        ("A ` b", "b ` a", "b ` a"),
        ("A ` b", "b ` a ` c", r"b \` a \` c"),
        ("[a] b\n\n[a]: u", '<g id="0">a</g> c', "[a] c\n\n[a]: u"),
        ("[a] b\n\n[a]: u\n[c]: v", '<g id="0">c</g> c', "[c][a] c\n\n[a]: u\n[c]: v"),
    ],
)
def test_a_translation_is_escaped_and_marked_up_as_needed(text: str, translation: str, expected: str) -> None:
    translations = [translation, *texts_of(text)[1:]]
    assert written(text, *translations) == expected


def test_a_cell_with_a_pipe_keeps_its_place() -> None:
    row = "| x \\\\| two | two |\n|---|---|\n"
    assert written(row, "A | b", "zwei") == "| A \\\\| b | zwei |\n|---|---|\n"


@pytest.mark.seconds
@settings(max_examples=300, suppress_health_check=[HealthCheck.too_slow], deadline=None)
@given(DOCUMENTS)
@example("~~> &nbsp;~~\\*|a\\_")
@example("\\# a\n1\\. b\n\\***\n\\> c")
def test_a_text_written_as_it_was_read_is_rendered_as_before(text: str) -> None:
    file = slotted(text)
    parts, done = [], 0
    for slot in file.slots:  # `SlottedText.write` copies a slot whose text is unchanged
        parts += [file.text[done : slot.start], slot.write(slot.unit.text) or ""]
        done = slot.end
    assert RENDERER.render("".join([*parts, file.text[done:]])) == RENDERER.render(text)


@pytest.mark.seconds
@settings(max_examples=200, suppress_health_check=[HealthCheck.too_slow], deadline=None)
@given(LINES.map(str.strip).filter(bool))
def test_any_translation_is_rendered_as_text(translation: str) -> None:
    for text, rendered in {
        "Word": "<p>{}</p>\n",
        "Word\\!": "<p>{}</p>\n",
        "# Word": "<h1>{}</h1>\n",
        "> Word": "<blockquote>\n<p>{}</p>\n</blockquote>\n",
        "[Word](u)": '<p><a href="u">{}</a></p>\n',
        "**Word**": "<p><strong>{}</strong></p>\n",
        "|a|\n|-|\n|Word|": "<td>{}</td>",
    }.items():
        *others, unit = slotted(text).units
        replaced = translation
        if unit.format is UnitFormat.XML:
            replaced = unit.text.replace("Word", escape(translation, quote=False))
        output = RENDERER.render(written(text, *[other.text for other in others], replaced))
        assert rendered.format(escape(translation)) in output


@pytest.mark.seconds
@pytest.mark.parametrize("seed", LONG_RUNS)
def test_a_long_run_of_markup_is_read_and_written_in_linear_time(seed: str) -> None:
    def change(size: int) -> None:
        file = slotted("The house. " + seed * (size // len(seed)))
        file.write([f"{unit.text} * [ &lt;" for unit in file.units])

    check_near_linear(change, 10_000, max_growth=MAX_GROWTH)
