"""`transduce translate` on files of every format, through a server process with the bundled model."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from io import BytesIO
from pathlib import Path
from zipfile import ZipFile

import httpx
import polib
import pytest

from app.files import FileFormat
from app.files.reading import read_file
from tests.api.server_process import HANG_TIMEOUT_S, ROOT, ServerProcess
from tests.e2e.conftest import SERVE_BY_FORK
from tests.files.opendocuments import content, odf, span
from tests.files.opendocuments import paragraph as odf_paragraph
from tests.files.presentations import BOLD, paragraph, pptx, run, slide
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

    In PO and XLIFF, a translated entry is no unit, so the output has fewer units.
    """
    data = SAMPLES[file_format]
    out = translated(url, tmp_path, f"a.{file_format}", data)
    before, after = read_file(data, file_format), read_file(out, file_format)
    assert out != data
    if file_format is FileFormat.HTML:
        assert sorted(re.findall(rb"<[^<>]*>", out)) == sorted(re.findall(rb"<[^<>]*>", data))
    elif file_format in {FileFormat.PO, FileFormat.XLIFF}:
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


def by_form(http: httpx.Client, data: bytes) -> bytes:
    form = {"source": "en", "target": "de"}
    answer = http.post("/translate_file", files={"file": ("a.xliff", data)}, data=form)
    return http.get(answer.json()["translatedFileUrl"]).content


def by_document(http: httpx.Client, data: bytes) -> bytes:
    form = {"source_lang": "EN", "target_lang": "DE"}
    handle = http.post("/v2/document", files={"file": ("a.xlf", data)}, data=form).json()
    path, key = f"/v2/document/{handle['document_id']}", {"document_key": handle["document_key"]}
    until = time.monotonic() + HANG_TIMEOUT_S
    while (status := http.post(path, json=key).json()["status"]) != "done" and time.monotonic() < until:
        assert status != "error"
        time.sleep(0.05)
    return http.post(f"{path}/result", json=key).content


@pytest.mark.parametrize("route", ["command", "form", "document"])
def test_an_xliff_file_gets_targets_in_its_language(url: str, tmp_path: Path, route: str) -> None:
    source = 'The <g id="1">water</g> is cold.'
    unit = f'<trans-unit id="1"><source>{source}</source></trans-unit>'
    data = f'<xliff version="1.2"><file source-language="en"><body>{unit}</body></file></xliff>'
    with httpx.Client(base_url=url, timeout=HANG_TIMEOUT_S) as http:
        if route == "command":
            out = translated(url, tmp_path, "a.xlf", data.encode())
        else:
            out = by_form(http, data.encode()) if route == "form" else by_document(http, data.encode())
    states = 'state="needs-review-translation" state-qualifier="mt-suggestion"'
    target = f'<target {states}>Das <g id="1">Wasser</g> ist kalt.</target>'
    expected = data.replace("</source>", f"</source>{target}").replace('="en"', '="en" target-language="de"')
    assert out.decode() == expected


def test_an_xliff_file_in_another_language_is_refused_before_it_is_translated(url: str) -> None:
    """Only the reading can refuse the upload to /v2/document. A later error would be the document's state."""
    done = '<trans-unit id="1"><source>The water is cold.</source><target>x</target></trans-unit>'
    body = f'<body>{done}<trans-unit id="2"><source>The house</source></trans-unit></body>'
    data = f'<xliff version="1.2"><file target-language="fr">{body}</file></xliff>'
    form = {"source_lang": "EN", "target_lang": "DE"}
    answer = httpx.post(f"{url}/v2/document", files={"file": ("a.xlf", data.encode())}, data=form)
    assert answer.status_code == 400
    assert 'translations into the target-language \\"fr\\"' in answer.text


def test_a_word_document_keeps_its_formatting(url: str, tmp_path: Path) -> None:
    name = "http://schemas.openxmlformats.org/wordprocessingml/2006/main"
    bold = "<w:r><w:rPr><w:b/></w:rPr><w:t>water</w:t></w:r>"
    before, after = (f'<w:r><w:t xml:space="preserve">{text}</w:t></w:r>' for text in ("The ", " is cold."))
    document = f'<w:document xmlns:w="{name}"><w:body><w:p>{before}{bold}{after}</w:p></w:body></w:document>'
    out = translated(url, tmp_path, "a.docx", docx(document))
    written = ZipFile(BytesIO(out)).read("word/document.xml").decode()
    runs = re.findall(r"<w:r>(<w:rPr>.*?</w:rPr>)?<w:t[^>]*>(.*?)</w:t></w:r>", written)
    assert runs == [("", "Das "), ("<w:rPr><w:b/></w:rPr>", "Wasser"), ("", " ist kalt.")]


def test_a_presentation_keeps_its_formatting(url: str, tmp_path: Path) -> None:
    sentence = paragraph(run("The ") + run("water", BOLD) + run(" is cold."))
    out = translated(url, tmp_path, "a.pptx", pptx(slide(sentence)))
    written = ZipFile(BytesIO(out)).read("ppt/slides/slide1.xml").decode()
    runs = re.findall(r'<a:r><a:rPr lang="en-US"( b="1")?/><a:t>(.*?)</a:t></a:r>', written)
    assert runs == [("", "Das "), (' b="1"', "Wasser"), ("", " ist kalt.")]


@pytest.mark.parametrize("suffix", ["odt", "odp"])
def test_an_opendocument_file_keeps_its_formatting(url: str, tmp_path: Path, suffix: str) -> None:
    body = content(odf_paragraph(f"The {span('water', 'T1')} is cold."))
    out = translated(url, tmp_path, f"a.{suffix}", odf(body))
    written = ZipFile(BytesIO(out)).read("content.xml").decode()
    assert odf_paragraph(f"Das {span('Wasser', 'T1')} ist kalt.") in written
