"""A sentence ends at a check box of a Word document."""

from __future__ import annotations

import pytest

from tests.files.test_word_marks import END, SEPARATE, run, text, translated


def symbol(font: str, number: str) -> str:
    return run(f'<w:sym w:font="{font}" w:char="{number}"/>')


FORM_BOX = run('<w:fldChar w:fldCharType="begin"><w:ffData><w:checkBox/></w:ffData></w:fldChar>') + run(
    "<w:instrText>FORMCHECKBOX</w:instrText>"
)


@pytest.mark.parametrize(
    ("box", "name"),
    [
        (symbol("Wingdings", "F0A8"), "br"),
        (symbol("Wingdings", "f0fe"), "br"),
        (symbol("Wingdings 2", "00A3"), "br"),
        (symbol("Wingdings", "F04A"), "x"),
        (symbol("Symbol", "F0A8"), "x"),
        (run('<w:sym w:char="F0A8"/>'), "x"),
        (FORM_BOX + run(SEPARATE) + run(END), "br"),
        (FORM_BOX + run(END), "br"),
    ],
)
def test_a_sentence_ends_at_a_check_box(box: str, name: str) -> None:
    paragraph = text("Bread: ") + box + text(" white ") + box + text(" brown")
    source = f'Bread: <{name} id="1"/> white <{name} id="3"/> brown'
    assert translated(paragraph, source, source.replace("Bread", "Brot")) == paragraph.replace(
        "Bread", "Brot"
    )
