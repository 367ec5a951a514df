"""`transduce translate` on files of every format, through a server process with the bundled model."""

from __future__ import annotations

import re
from collections.abc import Iterator
from io import BytesIO
from pathlib import Path
from zipfile import ZipFile

import polib
import pytest

from app.files import FileFormat
from app.files.reading import read_file
from tests.api.server_process import ROOT, ServerProcess
from tests.e2e.conftest import SERVE_BY_FORK
from tests.files.samples import SAMPLES, docx
from transduce.cli import main


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    settings: dict[str, object] = {"bundle": ROOT / "bundles" / "en-de", "device": "cpu", "precision": "int8"}
    with ServerProcess(SERVE_BY_FORK, settings) as process:
        yield process.ready().url


def translated(url: str, folder: Path, name: str, data: bytes, source: str = "en") -> bytes:
    path, out = folder / name, folder / f"out-{name}"
    path.write_bytes(data)
    arguments = ["translate", "--url", url, "--source", source, "--target", "de", str(path), "-o", str(out)]
    assert main(arguments) == 0
    return out.read_bytes()


@pytest.mark.parametrize("file_format", FileFormat)
def test_every_format_keeps_its_structure(url: str, tmp_path: Path, file_format: FileFormat) -> None:
    """The output differs from the input, and has as many units or, in HTML, the same tags.

    In PO, a translated entry is no unit, so the output has fewer units.
    """
    data = SAMPLES[file_format]
    out = translated(url, tmp_path, f"a.{file_format}", data)
    before, after = read_file(data, file_format), read_file(out, file_format)
    assert out != data
    if file_format is FileFormat.HTML:
        assert sorted(re.findall(rb"<[^<>]*>", out)) == sorted(re.findall(rb"<[^<>]*>", data))
    elif file_format is FileFormat.PO:
        assert len(after.units) < len(before.units)
    else:
        assert len(after.units) == len(before.units)


def test_markdown_keeps_its_markup(url: str, tmp_path: Path) -> None:
    text = "# The garden\n\nThe **water** is cold.\n\n- Where is the [station](https://example.org)?\n\n`no code`\n"
    expected = "# Der Garten\n\nDas **Wasser** ist kalt.\n\n- Wo ist der [Bahnhof](https://example.org)?\n\n`no code`\n"
    assert translated(url, tmp_path, "a.md", text.encode()).decode() == expected
    assert translated(url, tmp_path, "b.md", text.encode(), source="auto").decode() == expected


def test_a_gettext_entry_keeps_its_placeholder(url: str, tmp_path: Path) -> None:
    text = 'msgid ""\nmsgstr "Language: de\\n"\n\n'
    text += 'msgid "The water is cold."\nmsgstr ""\n\nmsgid "%(name)s is late."\nmsgstr ""\n'
    catalogue = polib.pofile(translated(url, tmp_path, "a.po", text.encode()).decode())
    assert catalogue[0].msgstr == "Das Wasser ist kalt."
    assert "%(name)s" in catalogue[1].msgstr


def test_a_word_document_keeps_its_formatting(url: str, tmp_path: Path) -> None:
    name = "http://schemas.openxmlformats.org/wordprocessingml/2006/main"
    bold = "<w:r><w:rPr><w:b/></w:rPr><w:t>water</w:t></w:r>"
    before, after = (f'<w:r><w:t xml:space="preserve">{text}</w:t></w:r>' for text in ("The ", " is cold."))
    document = f'<w:document xmlns:w="{name}"><w:body><w:p>{before}{bold}{after}</w:p></w:body></w:document>'
    out = translated(url, tmp_path, "a.docx", docx(document))
    written = ZipFile(BytesIO(out)).read("word/document.xml").decode()
    runs = re.findall(r"<w:r>(<w:rPr>.*?</w:rPr>)?<w:t[^>]*>(.*?)</w:t></w:r>", written)
    assert runs == [("", "Das "), ("<w:rPr><w:b/></w:rPr>", "Wasser"), ("", " ist kalt.")]
