"""What is fuzzed: the parsers of texts, files, request bodies and bundles, each as a function of bytes.

A target's function raises if it finds a fault. Errors that the parser documents are not faults.
"""

from __future__ import annotations

import contextlib
import json
import re
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from html import unescape
from itertools import pairwise
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

from app.api.http.form_body import parse_form, parse_object
from app.api.inference.tensors import read_infer
from app.bundle import load_bundle
from app.errors import BundleError, RequestError
from app.files import FileError, FileFormat, FileLimits, TranslatableFile
from app.files.reading import read_file
from app.files.unit import SlottedText
from app.files.xliff import XliffFile
from app.graph_file import GraphFileError, read_graph
from app.stores.glossaries import EntriesError, EntriesFormat, GlossaryLimits, parse_entries
from app.text.blocks import MarkupError
from app.text.parsed_text import ParseOptions, Splitting, TextFormat
from app.text.segmentation import fitting_pieces, join, sentence_spans
from benchmarks.roundtrip import read_texts, run_text_layer
from benchmarks.roundtrip_models import copied, dropping, shuffled, without_alignment
from tests.files.opendocuments import CONTENT, odf
from tests.files.presentations import SLIDE, pptx
from tests.files.samples import DOCUMENT, SAMPLES, XLIFF_2, docx
from tests.house_rules.project import ROOT

# The longest input that the fuzzer makes, in bytes.
MAX_BYTES = 4096
# What a changed text ends with. It cannot complete a tag, emphasis or the name of an encoding.
ADDED = " , x"
# The server's default limit of a body.
MAX_BODY_BYTES = 1_000_000
# The CPU time that an input may take, in seconds. A server that parses it on its event loop stalls for as long.
LIMIT_S = 0.25
FILE_LIMITS = FileLimits(max_unpacked_bytes=1 << 20, max_part_bytes=1 << 20)
BUNDLE = ROOT / "bundles" / "en-de"
LANGUAGES = ("en", "de", "el", "zh", "th", "hi")


class TooSlow(AssertionError):
    """An input took more than LIMIT_S of CPU time."""


@dataclass(frozen=True)
class Target:
    """One parser. seeds: returns valid inputs to begin with. tokens: parts that random inputs are made of."""

    check: Callable[[bytes], None]
    seeds: Callable[[], Sequence[bytes]]
    tokens: tuple[str, ...]

    def check_in_time(self, data: bytes) -> None:
        """Check an input of at most MAX_BYTES. Raises what `check` raises; TooSlow if each of three runs is slow."""
        taken = []
        for _ in range(3):
            started = time.thread_time()
            self.check(data)
            taken.append(time.thread_time() - started)
            if taken[-1] < LIMIT_S:
                return
        raise TooSlow(f"{len(data)} bytes took {min(taken):.2f} s")


def text_of(data: bytes) -> str:
    """The text of any bytes. Surrogates cannot be in a request, so the text has none."""
    return data.decode("utf-8", errors="replace")


def check_markup(data: bytes) -> None:
    """A model that copies its input keeps all characters (`characters_of`).

    Other models' translations of well-formed XML are well formed.
    """
    choice, text = data[0] if data else 0, text_of(data[1:])
    text_format = tuple(TextFormat)[choice % 3]
    splitting = tuple(Splitting)[choice // 3 % 3]
    options = ParseOptions("en", "en", text_format, splitting)
    try:
        same = run_text_layer(text, options, copied)
    except MarkupError:
        return
    assert characters_of(same.text) == characters_of(text)
    for model in (shuffled, without_alignment(dropping)):
        other = run_text_layer(text, options, model)
        if text_format is TextFormat.XML and is_xml(text):
            assert is_xml(other.text)


def characters_of(text: str) -> list[str]:
    """The decoded text's characters without case and spaces, sorted.

    The text layer may change case, spaces, references and order: it lower-cases titles, joins spaces in markup, writes
    a lone `<` as a reference, and moves a tag inside a word to the word's end.
    """
    return sorted("".join(unescape(text).split()).casefold())


def is_xml(text: str) -> bool:
    """Whether the text is the content of an XML element or a document."""
    for whole in (f"<r>{text}</r>", text):
        # The declaration of the XML may name an unknown encoding (LookupError), or a multi-byte one (ValueError).
        with contextlib.suppress(ElementTree.ParseError, LookupError, ValueError):
            ElementTree.fromstring(whole.encode())
            return True
    return False


def check_segmentation(data: bytes) -> None:
    """Joined sentences are the text, and so are joined pieces of at most 20 characters."""
    choice, text = data[0] if data else 0, text_of(data[1:])
    spans = list(sentence_spans(text, LANGUAGES[choice % len(LANGUAGES)]))
    assert join(text, spans, [span.of(text) for span in spans]).text == text
    pieces = [
        piece.span for span in spans for piece in fitting_pieces(text, span, lambda part: len(part) <= 20)
    ]
    assert join(text, pieces, [span.of(text) for span in pieces]).text == text
    assert all(span.end - span.start <= 20 for span in pieces)


def check_file(file_format: FileFormat) -> Callable[[bytes], None]:
    """The check of a format: writing a file with its own texts gives the same bytes.

    A copy that is written with other texts has these texts (`has_texts`). Writing the copy with its own texts gives the
    same bytes, too.
    """

    def check(data: bytes) -> None:
        try:
            file = read_file(data, file_format, FILE_LIMITS)
        except FileError:
            return
        texts = [unit.text for unit in file.units]
        assert file.write(texts) == data
        others = [f"{text}{ADDED}" for text in texts]
        changed = file.write(others)
        if file_format in {FileFormat.HTML, FileFormat.PO} and encodings_of(changed) - encodings_of(data):
            return  # a text declares another encoding
        again = read_file(changed, file_format)  # the copy is longer, and may be beyond FILE_LIMITS
        assert again.write([unit.text for unit in again.units]) == changed
        assert has_texts(again, file, others, file_format)

    return check


def encodings_of(data: bytes) -> set[bytes]:
    """The names of encodings in a file, each after `charset=`."""
    return set(re.findall(rb"charset\s*=\s*[\"']?\s*([\w.:-]+)", data, re.IGNORECASE))


def has_texts(
    again: TranslatableFile, file: TranslatableFile, others: Sequence[str], file_format: FileFormat
) -> bool:
    """Whether a copy of a file has the texts `others`.

    again: the copy as it is read. others: the texts of the file, each with ADDED at its end.
    """
    found = [unit.text for unit in again.units]
    if file_format in {FileFormat.SRT, FileFormat.VTT}:  # line breaks change
        return list(map(str.split, found)) == list(map(str.split, others))
    if file_format is FileFormat.XLIFF:  # an entry that has a translation has no text to translate
        assert isinstance(file, XliffFile)
        assert isinstance(again, XliffFile)
        texts = (text for entry in file.entries for text in entry.texts)
        written = [text.written(other) for text, other in zip(texts, others, strict=True)]
        raw = unescape(again.root.raw)
        return not found and all(each is not None and unescape(each) in raw for each in written)
    if file_format not in {FileFormat.PO, FileFormat.MARKDOWN}:
        return found == others
    assert isinstance(file, SlottedText)
    assert isinstance(again, SlottedText)
    if file_format is FileFormat.PO:  # a message that has a translation is no text to translate
        return not found and all(
            (slot.write(text) or "") in again.text for slot, text in zip(file.slots, others, strict=True)
        )
    # The texts of the copy may differ: after a `|` at the end of a line, ADDED is a further cell, and so the line may
    # become the header of a table. The copy may also escape characters. So only the letters and digits of the whole
    # file are compared.
    ends = [0, *(slot.end for slot in file.slots)]
    expected = (
        "".join(f"{file.text[start:end]}{ADDED}" for start, end in pairwise(ends)) + file.text[ends[-1] :]
    )
    return list(filter(str.isalnum, with_characters(again.text))) == list(
        filter(str.isalnum, with_characters(expected))
    )


def with_characters(markdown: str) -> str:
    """Markdown with characters in place of their references, which a copy may have or not."""
    return unescape(markdown.replace("\\&", "&amp;"))


def check_archive(file_format: FileFormat, packed: Callable[[str], bytes]) -> Callable[[bytes], None]:
    """The check of a format of archives. Bytes that begin like no archive become an entry of one.

    packed: returns an archive with this entry.
    """
    check = check_file(file_format)
    return lambda data: check(data if data.startswith(b"PK") else packed(text_of(data)))


def check_bundle(data: bytes) -> None:
    """The bytes are fields of the bundled model's manifest if they are a JSON object, else a graph."""
    with tempfile.TemporaryDirectory() as folder:
        if data.lstrip()[:1] == b"{":
            with contextlib.suppress(ValueError, RecursionError):
                data = json.dumps({**manifest(), **json.loads(data)}).encode()
            (Path(folder) / "manifest.json").write_bytes(data)
            with contextlib.suppress(BundleError):
                load_bundle(Path(folder))
        else:
            (graph := Path(folder) / "encoder.onnx").write_bytes(data)
            with contextlib.suppress(GraphFileError):
                read_graph(graph)


def check_bodies(data: bytes) -> None:
    """The bytes are parsed as a form, as JSON, and as an inference request whose first line is its header's length."""
    with contextlib.suppress(RequestError):
        parse_form(data)
    with contextlib.suppress(RequestError):
        parse_object(data, max_bytes=MAX_BODY_BYTES)
    length, _, body = data.partition(b"\n")
    for header_length in (None, text_of(length)):
        with contextlib.suppress(RequestError):
            found = read_infer(body, header_length, max_items=16, max_bytes=MAX_BODY_BYTES)
            assert len(found.texts) <= 16


def check_glossary(data: bytes) -> None:
    """The entries of a glossary in both formats."""
    for entries_format in EntriesFormat:
        with contextlib.suppress(EntriesError):
            terms = parse_entries(text_of(data), entries_format, ("en", "de"), GlossaryLimits())
            assert len({term.source for term in terms}) == len(terms) > 0


def markup_seeds() -> list[bytes]:
    """The round trip's texts, each in its own format."""
    formats = tuple(TextFormat)
    return [bytes([formats.index(each.text_format)]) + each.text.encode() for each in read_texts()]


def text_seeds() -> list[bytes]:
    """The round trip's texts."""
    return [b"\0" + each.text.encode() for each in read_texts()]


@cache
def manifest() -> dict[str, Any]:
    """The bundled model's manifest."""
    found: dict[str, Any] = json.loads((BUNDLE / "manifest.json").read_text("utf-8"))
    return found


def bundle_seeds() -> list[bytes]:
    """Each field of the bundled model's manifest, and the beginning of a graph.

    All variants together are longer than MAX_BYTES, and so is a variant with its gpu_decoder. So each variant is a seed
    without its gpu_decoder, and its gpu_decoder is another seed.
    """
    fields = [{name: value} for name, value in manifest().items() if name != "variants"]
    for precision, variant in manifest()["variants"].items():
        fields.append({"variants": {precision: {**variant, "gpu_decoder": None}}})
        fields.append({"variants": {precision: {"gpu_decoder": variant["gpu_decoder"]}}})
    graph = (BUNDLE / "int8" / "native_encoder.onnx").read_bytes()
    return [*(json.dumps(each, separators=(",", ":")).encode() for each in fields), graph[:MAX_BYTES]]


@cache
def body_seeds() -> list[bytes]:
    """A form, and inference requests whose tensor is in JSON or in binary."""
    tensor: dict[str, object] = {"name": "text", "datatype": "BYTES", "shape": [2]}
    header = json.dumps({"inputs": [{**tensor, "parameters": {"binary_data_size": 10}}]}).encode()
    in_json = json.dumps({"id": "1", "inputs": [{**tensor, "data": ["Anna.", "No."]}]}).encode()
    return [
        b"text=Anna%20sees.&text=No.&target_lang=DE",
        in_json,
        b"\n" + in_json,
        b"%d\n%b\1\0\0\0a\1\0\0\0b" % (len(header), header),
    ]


MARKUP = (
    "a", "Anna sees 42 cats. ", "<b>", "</b>", "<i>", "</i>", "<br>", "<br/>", "<p>", "<sub>", "<code>", "</code>",
    "<a href='x'>", "<!--", "-->", "<![CDATA[", "]]>", "<script>", "&amp;", "&#x41;", "&lt", "<", ">", '"', "'", "=",
    "{", "}", "{x}", "%s", "$x", "\n", "\t", "\r\n", "\u2028", "\xa0", "\ue000", "\u0301", "http://a.b/c", "1,000.5",
    "<pre>", "<textarea>", "<svg>", "translate='no'", "</", "<?x?>", "<!DOCTYPE a>", "@", ".", "H", "2",
)  # fmt: skip
TEXT = (
    "Hello", "Mr.", "B\xa0.", "! ", "? ", ". ", "\u3002", ";", ": ", "1. ", "(a) ", "- ", "\u2022 ", "...", '"', ")",
    "\u200d", "\u200b", "\u0301", "\U0001f600", "\U0001f1e9", "\U0001f3fd", "\u4f60", "\u0e01", "\n", "\t", "\x85",
    "e.g. ", "U.S. ", " ", ",", "word ", "\ufeff",
)  # fmt: skip
LINES = ("1\n", "00:00:01,000 --> 00:00:02,500\n", "00:01.000 --> 00:02.000\n", "WEBVTT", "NOTE\n", "STYLE\n",
    "{\\an8}", "<v Ann>", "<c.loud>", "</c>", "<00:01.500>")  # fmt: skip
MARKDOWN = ("**", "*", "_", "`", "[", "](u)", "![", "> ", "- ", "1. ", "# ", "|", "\\", "~~", "    ", "```\n",
    "---\n", "==\n", "[r]: u\n", "|-|-|\n", "- [ ] ")  # fmt: skip
PO = ('msgid "', 'msgstr "', 'msgid_plural "', 'msgstr[0] "', 'msgctxt "', '"\n', "#, fuzzy\n", "#~ ", "#| ", "\\n",
    '\\"', "\\", "Content-Type: text/plain; charset=", "latin-1", "utf-16")  # fmt: skip
JSON = ("{", "}", "[", "]", '"', ":", ",", "\\u00e9", "\\ud800", "\\", "1e400", "NaN", "null", "true", '"a":',
    "-1", "0.5")  # fmt: skip
WORD = ("<w:p>", "</w:p>", "<w:r>", "</w:r>", "<w:t>", "</w:t>", "<w:br/>", "<w:rPr>", "</w:rPr>", "<w:b/>",
    '<w:fldChar w:fldCharType="begin"/>', '<w:fldChar w:fldCharType="end"/>', "<w:hyperlink>", "</w:hyperlink>",
    '<w:document xmlns:w="w">', "</w:document>", "<w:txbxContent>", "</w:txbxContent>")  # fmt: skip
XLIFF = ("<trans-unit>", "</trans-unit>", "<source>", "</source>", "<seg-source>", "</seg-source>", "<target>",
    "</target>", "<target/>", '<mrk mtype="seg" mid="1">', "</mrk>", '<g id="1">', "</g>", '<x id="1"/>',
    '<bpt id="1">', "</bpt>", '<ept id="1">', "</ept>", '<ph id="1">', "</ph>", '<sc id="1"/>', '<ec startRef="1"/>',
    "<unit>", "</unit>", "<segment>", "</segment>", '<pc id="1">', "</pc>", '<sm id="1" translate="no"/>',
    '<em startRef="1"/>', ' translate="no"', ' xml:space="preserve"', ' state="new"', ' canReorder="no"',
    'version="2.0"', 'encoding="ISO-8859-1"')  # fmt: skip


SLIDES = ("<a:p>", "</a:p>", "<a:r>", "</a:r>", "<a:t>", "</a:t>", "<a:br/>", '<a:rPr b="1"/>', "<a:rPr>", "</a:rPr>",
    '<a:hlinkClick r:id="rId1"/>', '<a:fld type="slidenum">', "</a:fld>", "\t", "_x000B_", ' err="1"',
    "<a:endParaRPr/>", "<p:sld>", "</p:sld>", "<m:oMath/>")  # fmt: skip
SPANS = ("<text:p>", "</text:p>", '<text:span text:style-name="T1">', "<text:span>", "</text:span>", "<text:s/>", "  ",
    '<text:s text:c="3"/>', "<text:tab/>", "<text:line-break/>", '<text:a xlink:href="b">', "</text:a>",
    "<text:page-number>", "</text:page-number>", '<text:bookmark-start text:name="a"/>',
    '<text:bookmark-end text:name="a"/>', "<office:annotation>", "</office:annotation>", "<text:note>", "</text:note>",
    "<text:ruby>", "</text:ruby>", "<text:tracked-changes>", "</text:tracked-changes>", "<text:h>",
    "</text:h>")  # fmt: skip


def _file_target(file_format: FileFormat, *tokens: str) -> Target:
    return Target(check_file(file_format), lambda: [SAMPLES[file_format]], (*tokens, *MARKUP))


def _archive_target(
    file_format: FileFormat, packed: Callable[[str], bytes], xml: str, *tokens: str
) -> Target:
    """The target of a format of archives. packed: an archive of an entry. xml: an entry."""
    return Target(check_archive(file_format, packed), lambda: [packed(xml), xml.encode()], (*tokens, *MARKUP))


TARGETS: dict[str, Target] = {
    "markup": Target(check_markup, markup_seeds, MARKUP),
    "segmentation": Target(check_segmentation, text_seeds, TEXT),
    "txt": _file_target(FileFormat.TXT),
    "srt": _file_target(FileFormat.SRT, *LINES),
    "vtt": _file_target(FileFormat.VTT, *LINES),
    "html": _file_target(FileFormat.HTML),
    "markdown": _file_target(FileFormat.MARKDOWN, *MARKDOWN),
    "po": _file_target(FileFormat.PO, *PO),
    "json": _file_target(FileFormat.JSON, *JSON),
    "xliff": Target(
        check_file(FileFormat.XLIFF), lambda: [SAMPLES[FileFormat.XLIFF], XLIFF_2], (*XLIFF, *MARKUP)
    ),
    "docx": _archive_target(FileFormat.DOCX, docx, DOCUMENT, *WORD),
    "pptx": _archive_target(FileFormat.PPTX, pptx, SLIDE, *SLIDES),
    "odf": _archive_target(FileFormat.ODT, odf, CONTENT, *SPANS),
    "bundle": Target(
        check_bundle, bundle_seeds, (*JSON, '"files"', '"variants"', '"languages"', "\x0a\x80\x01")
    ),
    "bodies": Target(
        check_bodies, body_seeds, (*JSON, "&", "=", "%41", "%", "text", '"inputs"', '"shape"', '"data"')
    ),
    "glossary": Target(
        check_glossary,
        lambda: [b"old house\taltes Haus\n", b'"a, b",c,en,de\r\n'],
        ("\t", ",", '"', "\n", "a", "\r", "\x0b"),
    ),
}
