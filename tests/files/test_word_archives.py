"""The entries that relationships name are read. Without them, the usual names count. Unreadable archives are errors."""

from __future__ import annotations

from collections.abc import Mapping
from io import BytesIO
from zipfile import ZipFile

import pytest

from app.files import FileError, FileFormat, FileLimits
from app.files.reading import read_file
from tests.files.samples import FOOTNOTES, HEADER, docx
from tests.files.test_limits import PARAGRAPH, WORD

OFFICE = "http://schemas.openxmlformats.org/officeDocument/2006/relationships"
STRICT = "http://purl.oclc.org/ooxml/officeDocument/relationships"
BODY = WORD.format(PARAGRAPH.format("The body"))


def relationships(body: str) -> str:
    """The relationships of a document. body: the attributes of the body's relationship."""
    properties = f'<Relationship Id="a" Type="{OFFICE}/extended-properties" Target="docProps/app.xml"/>'
    return f"<Relationships>{properties}<Relationship {body}/></Relationships>"


def archive(**entries: str) -> bytes:
    """A document. entries: by name, with `__` for a slash; `rels` has the relationships."""
    return packed(
        {
            "_rels/.rels" if name == "rels" else name.replace("__", "/") + ".xml": content
            for name, content in entries.items()
        }
    )


def packed(entries: Mapping[str, str]) -> bytes:
    """An archive of these entries."""
    made = BytesIO()
    with ZipFile(made, "w") as new:
        for name, content in entries.items():
            new.writestr(name, content)
    return made.getvalue()


@pytest.mark.parametrize(
    "body",
    [
        f'Id="b" Type="{OFFICE}/officeDocument" Target="word/document2.xml"',
        f"Target = '/word/document2.xml' Id='b' Type = '{STRICT}/officeDocument'",
        f'TargetMode="Internal" Target="./word/document&#50;.xml" Type="{OFFICE}/officeDocument"',
    ],
)
def test_the_body_has_the_name_of_its_relationship(body: str) -> None:
    """Word on the web names the body and its notes so."""
    data = archive(
        rels=relationships(body),
        word__document=WORD.format(PARAGRAPH.format("Not a part of it")),
        word__document2=BODY,
        word__endnotes2=FOOTNOTES,
        word__header=HEADER,
    )
    file = read_file(data, FileFormat.DOCX)
    assert [unit.text for unit in file.units] == ["The body", "A footnote.", "The header"]
    with ZipFile(BytesIO(file.write(["Der Text", "Eine Note.", "Oben"]))) as written:
        assert "Der Text" in written.read("word/document2.xml").decode()
        assert "Eine Note." in written.read("word/endnotes2.xml").decode()
        assert "Not a part of it" in written.read("word/document.xml").decode()


def test_a_relationship_to_a_missing_body_is_an_error() -> None:
    body = f'Type="{OFFICE}/officeDocument" Target="word/document2.xml"'
    with pytest.raises(FileError, match=r"it lacks the body that _rels/\.rels names"):
        read_file(archive(rels=relationships(body), word__document=BODY), FileFormat.DOCX)


def relationships_of(body: str, *targets: str) -> dict[str, str]:
    """The entry with the relationships of the body. targets: the type and the target of each relationship."""
    pairs = (target.split(" ", 1) for target in targets)
    inner = "".join(f'<Relationship Id="r" Type="{OFFICE}/{kind}" Target={at}/>' for kind, at in pairs)
    folder, _, name = body.rpartition("/")
    return {f"{folder}/_rels/{name}.rels".lstrip("/"): f"<Relationships>{inner}</Relationships>"}


def test_headers_and_notes_have_the_names_of_their_relationships() -> None:
    header = HEADER.replace("The header", "The {}")
    named = relationships_of(
        "word/document.xml",
        'header "headerA.xml"', 'header "headerA.xml"', 'footer "./headers/f&#49;.xml"', 'header "/top/h.xml"',
        'footnotes "notes.xml"', 'comments "comments.xml"', 'header "missing.xml"', 'styles "styles.xml"',
        'header "http://a.example/header9.xml" TargetMode="External"',
    )  # fmt: skip
    data = packed(
        {
            "word/document.xml": BODY,
            "word/headerA.xml": header.format("header A"),
            "word/headers/f1.xml": header.format("footer").replace("w:hdr", "w:ftr"),
            "word/header1.xml": header.format("unused header"),
            "top/h.xml": header.format("top"),
            "word/notes.xml": FOOTNOTES,
            "word/comments.xml": "<w:comments/>",
            "word/styles.xml": "<w:styles/>",
            **named,
        }
    )
    file = read_file(data, FileFormat.DOCX)
    texts = ["The body", "The top", "The header A", "The footer", "A footnote."]
    assert [unit.text for unit in file.units] == texts
    with ZipFile(BytesIO(file.write([text.upper() for text in texts]))) as written:
        assert "THE FOOTER" in written.read("word/headers/f1.xml").decode()
        assert "The unused header" in written.read("word/header1.xml").decode()


def test_an_unnamed_header_is_not_read() -> None:
    named = relationships_of("word/document.xml", 'styles "styles.xml"')
    data = packed({"word/document.xml": BODY, "word/header1.xml": HEADER, **named})
    assert [unit.text for unit in read_file(data, FileFormat.DOCX).units] == ["The body"]


def test_a_body_in_the_root_has_its_relationships_there() -> None:
    entries = {
        "_rels/.rels": relationships(f'Type="{OFFICE}/officeDocument" Target="body.xml"'),
        "body.xml": BODY,
        "h.xml": HEADER,
        **relationships_of("body.xml", 'header "h.xml"'),
    }
    units = read_file(packed(entries), FileFormat.DOCX).units
    assert [unit.text for unit in units] == ["The body", "The header"]


def test_the_limits_hold_for_the_relationships_of_the_body() -> None:
    named = relationships_of("word/document.xml", *['header "h.xml"'] * 20)
    data = packed({"word/document.xml": BODY, **named})
    assert len(read_file(data, FileFormat.DOCX).units) == 1
    for limits in (FileLimits(max_part_bytes=len(BODY) + 1), FileLimits(max_elements=20)):
        with pytest.raises(FileError, match=r"exceeds? the limit"):
            read_file(data, FileFormat.DOCX, limits)


def test_without_a_relationship_the_body_has_its_usual_name() -> None:
    for data in (archive(word__document=BODY), archive(rels=relationships('Id="b"'), word__document=BODY)):
        assert [unit.text for unit in read_file(data, FileFormat.DOCX).units] == ["The body"]


def test_the_limits_hold_for_the_relationships_and_for_any_body() -> None:
    body = relationships(f'Type="{OFFICE}/officeDocument" Target="x.xml"')
    long = archive(rels=body, x=WORD.format(PARAGRAPH.format("The body" * 100)))
    with pytest.raises(FileError, match="the entries with text exceed the limit of 900 unpacked bytes"):
        read_file(long, FileFormat.DOCX, FileLimits(max_part_bytes=900))
    body += " " * len(BODY)
    body = body.replace("<Relationships>", "<Relationships>" + "<a/>" * 9)
    for limits in (FileLimits(max_part_bytes=len(body) - 1), FileLimits(max_elements=9)):
        with pytest.raises(FileError, match=r"exceeds? the limit"):
            read_file(archive(rels=body, x=BODY), FileFormat.DOCX, limits)


@pytest.mark.parametrize("name", ["document", "header1", "footnotes"])
def test_an_xml_prefix_that_word_does_not_write_is_refused(name: str) -> None:
    """The paragraphs of such an entry would stay untranslated."""
    entries = {"word__document": BODY, "word__header1": HEADER, "word__footnotes": FOOTNOTES}
    key = f"word__{name}"
    entries[key] = entries[key].replace("<w:", "<ns0:").replace("</w:", "</ns0:").replace(":w=", ":ns0=")
    with pytest.raises(FileError, match=rf"^word/{name}\.xml: its root element is not w:document"):
        read_file(archive(**entries), FileFormat.DOCX)


def test_a_spreadsheet_is_refused() -> None:
    body = relationships(f'Type="{OFFICE}/officeDocument" Target="xl/workbook.xml"')
    with pytest.raises(FileError, match=r"^xl/workbook\.xml: its root element"):
        read_file(archive(rels=body, xl__workbook="<workbook/>"), FileFormat.DOCX)


def test_an_archive_without_a_body_is_refused() -> None:
    with pytest.raises(FileError, match=r"it has no word/document\.xml"):
        read_file(archive(word__header=HEADER), FileFormat.DOCX)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "the file is empty"),
        (bytes.fromhex("d0cf11e0a1b11ae1") + bytes(99), "encrypted with a password, or an old .doc; save it as .docx"),
        (b"Plain words.", "the file is not a Word document, because it is not a ZIP archive"),
        (docx()[:-40], "the file is damaged"),
    ],
)  # fmt: skip
def test_a_file_that_is_not_an_archive_is_an_error(data: bytes, message: str) -> None:
    with pytest.raises(FileError) as raised:
        read_file(data, FileFormat.DOCX)
    assert message in str(raised.value)


@pytest.mark.parametrize("name", ["word/document.xml", "word/media/image1.png"])
def test_an_entry_with_a_wrong_checksum_is_an_error(name: str) -> None:
    data = docx()
    with ZipFile(BytesIO(data)) as archive:
        right = archive.getinfo(name).CRC.to_bytes(4, "little")
    damaged = data.replace(right, bytes([right[0] ^ 1]) + right[1:])
    with pytest.raises(FileError, match="the file is damaged"):
        read_file(damaged, FileFormat.DOCX)


def test_an_entry_with_a_wrong_byte_is_an_error() -> None:
    data = bytearray(docx())
    data[data.find(b"word/document.xml") + len("word/document.xml")] ^= 0xFF
    with pytest.raises(FileError, match="the file is damaged"):
        read_file(bytes(data), FileFormat.DOCX)


def test_an_encrypted_entry_is_an_error() -> None:
    data = bytearray(docx())
    # The flags of the entry, in its own header and in the archive's directory.
    for start, offset in ((b"PK\3\4", 6), (b"PK\1\2", 8)):
        data[data.find(start) + offset] |= 1
    with pytest.raises(FileError, match="the archive is encrypted; save the document without a password"):
        read_file(bytes(data), FileFormat.DOCX)
