"""Which entries of an OpenDocument file are read, and which archives and files above a limit are refused."""

from __future__ import annotations

import re
from io import BytesIO
from zipfile import ZIP_STORED, ZipFile

import pytest

from app.files import FileError, FileFormat, FileLimits, odf_styles, office_file
from app.files.reading import read_file
from tests.files.opendocuments import ODP, ODT, TEXT, content, manifest, master_styles, odf, paragraph, span
from tests.files.samples import docx
from tests.files.test_formats import changed


def texts(data: bytes, limits: FileLimits | None = None) -> list[str]:
    return [unit.text for unit in read_file(data, FileFormat.ODT, limits).units]


@pytest.mark.parametrize("data", [ODT, ODP])
def test_the_type_is_the_first_entry_and_is_not_compressed(data: bytes) -> None:
    written = changed(data, FileFormat.ODT)
    assert written[:38] == data[:38]
    assert written[30:38] == b"mimetype"
    with ZipFile(BytesIO(written)) as archive:
        assert archive.infolist()[0].compress_type == ZIP_STORED
        assert archive.infolist()[0].extra == b""
        assert archive.read("META-INF/manifest.xml").decode() == manifest()


OTHER_PREFIX = re.sub(r'(</?|xmlns:)text(?=:\w+[ />]|=")', r"\1t", content(paragraph("One")))
ENCRYPTED = manifest('<manifest:encryption-data manifest:checksum="a"/>')


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "the file is empty"),
        (b"Plain words.", "the file is not an OpenDocument text or presentation, because it is not a ZIP archive"),
        (bytes.fromhex("d0cf11e0a1b11ae1") + bytes(99), "an old .doc or .ppt; save it as .odt or .odp"),
        (ODT[:-40], "the file is damaged"),
        (docx(), "it has no content.xml"),
        (odf(content(""), kind=TEXT.replace("text", "spreadsheet")), "its mimetype is another one"),
        (odf(content(""), kind=TEXT + " " * 2_000), "its mimetype is another one"),
        (odf(content("", "spreadsheet")), "content.xml has neither office:text nor office:presentation"),
        (odf(content(""), listed=ENCRYPTED), "the document is encrypted; save it without a password"),
        (odf(content(""), listed=ENCRYPTED.replace("manifest:", "m:")), "the document is encrypted"),
        (odf(content("").replace("office:", "ns0:")), "content.xml: its root element is not office:document-content"),
        (odf(OTHER_PREFIX), "or its paragraphs are not text:p; save the document with LibreOffice"),
        (odf(content(""), "<Types/>"), "styles.xml: its root element is not"),
        (odf("<!DOCTYPE a>" + content("").partition("?>")[2]), "content.xml: XML with a document type"),
        (odf(content("<text:p>")), "content.xml, line 2: malformed XML"),
    ],
)  # fmt: skip
def test_what_is_no_text_or_presentation_is_an_error(data: bytes, message: str) -> None:
    with pytest.raises(FileError) as raised:
        read_file(data, FileFormat.ODT)
    assert message in str(raised.value)


@pytest.mark.parametrize("name", ["content.xml", "Pictures/image1.png"])
def test_an_entry_with_a_wrong_checksum_is_an_error(name: str) -> None:
    with ZipFile(BytesIO(ODT)) as archive:
        right = archive.getinfo(name).CRC.to_bytes(4, "little")
    with pytest.raises(FileError, match="the file is damaged"):
        read_file(ODT.replace(right, bytes([right[0] ^ 1]) + right[1:]), FileFormat.ODT)


def test_an_archive_without_a_type_and_a_manifest_is_read() -> None:
    made = BytesIO()
    with ZipFile(made, "w") as new:
        new.writestr("content.xml", content(paragraph("One")))
    assert texts(made.getvalue()) == ["One"]


def test_nested_spans_with_long_tags_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """The tags of the outer span are repeated with each inner one."""
    inner = span("b", "T1") * 3
    monkeypatch.setattr(
        odf_styles, "MAX_TAG_CHARACTERS", 4 * len(span("", "n" * 99)) + 3 * len(span("", "T1")) - 84
    )
    assert texts(odf(content(paragraph(span(inner, "n" * 99)))))
    with pytest.raises(
        FileError, match=r"^content\.xml: nested spans exceed the limit of \d+ characters of tags"
    ):
        texts(odf(content(paragraph(span(inner, "n" * 100)))))


def test_a_translation_that_repeats_too_much_formatting_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    file = read_file(odf(content(paragraph(span("One<text:tab/>two", "n" * 99)))), FileFormat.ODT)
    translation = file.units[0].text.replace("One", "Eins")
    size = len(paragraph("")) + 3 * len(span("", "n" * 99)) + len("Einstwo")
    monkeypatch.setattr(office_file, "MAX_WRITTEN_CHARACTERS", size)
    assert file.write([translation])
    monkeypatch.setattr(office_file, "MAX_WRITTEN_CHARACTERS", size - 1)
    with pytest.raises(
        FileError, match=rf"the translated paragraphs exceed the limit of {size - 1} characters"
    ):
        file.write([translation])


def test_the_limits_hold_for_all_entries_together() -> None:
    body, pages = content(paragraph("One") + paragraph("two")), master_styles("<x><text:p>Three</text:p></x>")
    data = odf(body, pages)
    xml = [body, pages, manifest()]
    used = {
        "max_units": 3,
        "max_characters": 11,
        "max_part_bytes": sum(map(len, xml)),
        "max_elements": sum(each.count("<") - each.count("</") - each.count("<?") for each in xml),
    }
    for name, value in used.items():
        assert texts(data, FileLimits(**{name: value})) == ["One", "two", "Three"]
        with pytest.raises(FileError, match=rf"limit of {value - 1}\b"):
            texts(data, FileLimits(**{name: value - 1}))
