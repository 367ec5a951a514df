"""The first letter of a paragraph that Word draws as a drop cap is translated with the paragraph."""

from __future__ import annotations

from io import BytesIO
from zipfile import ZipFile

import pytest

from app.files import FileFormat
from app.files.reading import read_file
from tests.files.samples import BOLD, docx
from tests.files.test_limits import WORD
from tests.files.test_word_marks import INNER, text

# The last texts of every archive of `docx`.
OTHERS = ["A footnote.", "The header"]
LARGE = '<w:rPr><w:sz w:val="96"/></w:rPr>'


def drop_cap(letter: str, kind: str = "drop") -> str:
    """The paragraph with a drop cap."""
    frame = f'<w:pPr><w:framePr w:lines="3" w:dropCap="{kind}"/></w:pPr>'
    return f"<w:p>{frame}{text(letter, LARGE)}</w:p>"


def paragraph(inner: str) -> str:
    """A paragraph of these runs."""
    return f"<w:p>{inner}</w:p>"


def texts(body: str) -> list[str]:
    """The texts of the body."""
    return [unit.text for unit in read_file(docx(WORD.format(body)), FileFormat.DOCX).units][: -len(OTHERS)]


def written(body: str, *translations: str) -> str:
    """The body's XML with these translations."""
    file = read_file(docx(WORD.format(body)), FileFormat.DOCX)
    with ZipFile(BytesIO(file.write([*translations, *OTHERS]))) as archive:
        return archive.read("word/document.xml").decode()


@pytest.mark.parametrize("kind", ["drop", "margin"])
@pytest.mark.parametrize(
    ("letter", "source", "translation", "first", "rest"),
    [
        ("W", "We bake bread.", "Wir backen Brot.", "W", "ir backen Brot."),
        ("A", "A loaf of bread.", "Ein Laib Brot.", "E", "in Laib Brot."),
        ("\u201cI", "\u201cI bake.\u201d", "\u201eIch backe.\u201c", "\u201eI", "ch backe.\u201c"),
        ("F", "Five loaves.", "5 Brote.", "5", " Brote."),
        ("F", "Five loaves.", "E\u0301", "E\u0301", ""),
        ("F", "Five loaves.", "...", "...", ""),
        ("F", "Five loaves.", "", "", ""),
    ],
)
def test_the_first_letter_of_the_translation_is_the_drop_cap(
    kind: str, letter: str, source: str, translation: str, first: str, rest: str
) -> None:
    body = drop_cap(letter, kind) + paragraph(text(source.removeprefix(letter)))
    assert texts(body) == [source]
    expected = drop_cap(first, kind) + paragraph(text(rest))
    # An empty text has no run.
    expected = expected.replace(text("", LARGE), "").replace(text(""), "")
    assert expected in written(body, translation)
    assert body in written(body, source)


def test_marks_stay_in_the_paragraph_after_the_drop_cap() -> None:
    body = drop_cap("T") + paragraph(INNER + text("he loaf", BOLD) + text(" is quite fresh today."))
    source = 'T<x id="1"/><g id="2">he loaf</g> is quite fresh today.'
    assert texts(body) == [source]
    translation = '<x id="1"/><g id="2">Das Brot</g> ist heute ganz frisch.'
    expected = drop_cap("D") + paragraph(INNER + text("as Brot", BOLD) + text(" ist heute ganz frisch."))
    assert expected in written(body, translation)


def test_a_translation_without_words_keeps_all_marks() -> None:
    body = drop_cap("T") + paragraph(INNER + text("he loaf"))
    assert paragraph(INNER) in written(body, '<x id="1"/>')


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        (drop_cap("Once") + paragraph(text(" upon a time")), ["Once", " upon a time"]),
        (drop_cap("W", "none") + paragraph(text("e bake")), ["W", "e bake"]),
        (paragraph(text("W")) + paragraph(text("e bake")), ["W", "e bake"]),
        (drop_cap("W") + paragraph("") + paragraph(text("e bake")), ["W", "e bake"]),
        (drop_cap("W") + drop_cap("A") + paragraph(text("nd so")), ["W", "And so"]),
        (drop_cap("W"), ["W"]),
        (
            f"<w:tbl><w:tr><w:tc>{drop_cap('W')}</w:tc><w:tc>{paragraph(text('e bake'))}</w:tc></w:tr></w:tbl>",
            ["W", "e bake"],
        ),
    ],
)
def test_other_paragraphs_are_texts_of_their_own(body: str, expected: list[str]) -> None:
    assert texts(body) == expected
