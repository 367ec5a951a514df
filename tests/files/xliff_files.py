"""XLIFF files for tests, and their translations in which the words have the opposite order."""

from __future__ import annotations

from xml.etree import ElementTree

from app.files import FileFormat, Unit
from app.files.reading import read_file
from app.text.parsed_text import ParseOptions, TextFormat
from app.text.xml_reader import XmlRules
from benchmarks.roundtrip_models import reversed_words
from tests.text.fake_models import translate_with

# A file of each version, without the elements of its body.
V1 = (
    '<?xml version="1.0" encoding="UTF-8"?>\n'
    '<xliff version="1.2" xmlns="urn:oasis:names:tc:xliff:document:1.2">\n'
    '  <file original="a.html" source-language="en" datatype="html"><body>\n      {}\n  </body></file>\n</xliff>\n'
)
V2 = (
    '<?xml version="1.0" encoding="UTF-8"?>\n'
    '<xliff version="2.0" srcLang="en" xmlns="urn:oasis:names:tc:xliff:document:2.0">\n'
    '  <file id="f1">\n      {}\n  </file>\n</xliff>\n'
)
# The states of a new target of version 1.2.
MACHINE = 'state="needs-review-translation" state-qualifier="mt-suggestion"'
_RULES = XmlRules(splitting=frozenset({"br"}), not_splitting=frozenset({"g", "x"}))


def units_of(data: str) -> list[str]:
    """The texts to translate. Written with them, the file is the same."""
    file = read_file(data.encode(), FileFormat.XLIFF)
    texts = [unit.text for unit in file.units]
    assert file.write(texts) == data.encode()
    return texts


def reversed_file(data: str, target: str | None = None) -> str:
    """The file with translations in which the words of each sentence have the opposite order."""
    file = read_file(data.encode(), FileFormat.XLIFF, target=target)
    return file.write([_reversed(unit) for unit in file.units]).decode()


def _reversed(unit: Unit) -> str:
    options = ParseOptions("en", "de", TextFormat(unit.format), xml=_RULES)
    return translate_with(unit.text, options, reversed_words).text


def targets(data: str) -> list[str]:
    """The text of each target."""
    root = ElementTree.fromstring(data.encode())
    return ["".join(each.itertext()) for each in root.findall(".//{*}target")]


def codes_of(data: str, name: str) -> list[str]:
    """The inline elements in the first element of this name. Those that enclose text are without their content."""
    first = ElementTree.fromstring(data.encode()).find(f".//{{*}}{name}")
    assert first is not None
    found = []
    for each in list(first.iter())[1:]:
        each.tail = None
        is_pair = each.tag.rpartition("}")[2] in {"g", "mrk", "pc"}
        found.append(f"{each.tag} {each.attrib}" if is_pair else ElementTree.tostring(each, "unicode"))
    return sorted(found)
