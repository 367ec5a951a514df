"""XLIFF 1.2, 2.0 and 2.1 (.xlf, .xliff): gives a target to each trans-unit or segment that has none.

A target that has text or codes stays, unless it is a copy of the source and its `state` is `initial`, `new` or
`needs-translation`. Alternative translations, notes and binary units stay. So does a unit that must not be translated
or has a final state.

An entry gets no target if its translations equal its texts. It also gets none if a translation changes the order of
arguments of printf, and one of them is a code without a number.

A new target of XLIFF 1.2 has the state `needs-review-translation` and the qualifier `mt-suggestion`. In XLIFF 2, its
segment has the state `translated`. If `seg-source` divides a source into segments, the target has the same segments.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice

from app.files.encoding import decode, last_line
from app.files.unit import FileError, FileLimits, Unit, check_count
from app.files.xliff_entries import Entries, Entry, read_entries
from app.files.xliff_inline import InlineReader
from app.files.xml_tree import Node, read_text, with_attribute
from app.text.language_codes import base_language

# The encoding in the XML declaration, which is among the first bytes.
_ENCODING = re.compile(rb"<\?xml\s[^>]*?\sencoding\s*=\s*[\"']([A-Za-z][\w.-]*)[\"']")
_HEAD_BYTES = 200
_VERSION = re.compile(r"\d{1,3}\.\d{1,3}")
_VERSIONS = ("1.2", "2.0", "2.1")
_LANGUAGE = re.compile(r"[A-Za-z]{2,8}(?:-[A-Za-z0-9]{1,8})*")


@dataclass(frozen=True)
class XliffFile:
    """A parsed file.

    root: a node without a name. owners: by the id() of each `Entry.owner` that names no target language or another one,
    a copy that names the language of the translations. encode: converts the XML to bytes.
    """

    data: bytes
    root: Node
    entries: tuple[Entry, ...]
    owners: Mapping[int, Node]
    encode: Callable[[str], bytes]

    @property
    def units(self) -> tuple[Unit, ...]:
        """The texts without a translation, in reading order."""
        return tuple(text.unit for entry in self.entries for text in entry.texts)

    def write(self, translations: Sequence[str]) -> bytes:
        """The file with the translations in its targets.

        An entry stays unchanged if its translations equal its texts, or if `Entry.written` cannot write them. Raises
        ValueError for another number of translations or lost marks, and FileError for a character that XML cannot
        contain.
        """
        check_count(translations, len(self.units))
        remaining = iter(translations)
        replaced: dict[int, list[Node]] = {}
        for entry in self.entries:
            own = list(islice(remaining, len(entry.texts)))
            if own == [text.unit.text for text in entry.texts] or (written := entry.written(own)) is None:
                continue
            replaced[id(entry.node)] = [written]
            if id(entry.owner) in self.owners:
                replaced[id(entry.owner)] = [self.owners[id(entry.owner)]]
        return self.encode(self.root.written(replaced)) if replaced else self.data


def read_xliff(data: bytes, limits: FileLimits, target: str | None = None) -> XliffFile:
    """Parse XLIFF. target: the language that the file will be translated into, if it is known.

    Raises FileError if the file has a syntax error, exceeds a limit, has another version, or has translations into
    another language than `target`.
    """
    if len(data) > limits.max_part_bytes:
        raise FileError(f"the file exceeds the limit of {limits.max_part_bytes} bytes")
    declared = _ENCODING.search(data[:_HEAD_BYTES])
    decoded = decode(data, declared[1].decode() if declared else None)
    root = read_text(decoded.text, max_elements=limits.max_elements)
    top = root.nodes[0]
    version = _version(root, top)
    reader = InlineReader(
        prefix=top.name.removesuffix("xliff"),
        line_end="\r\n" if "\r\n" in decoded.text else "\n",
        may_write_cdata=decoded.encoding.startswith("utf"),
    )
    entries = read_entries(top, reader, limits, is_version_2=version != "1.2")
    language = target.replace("_", "-") if target else ""
    owners = _with_language(root, entries, language) if _LANGUAGE.fullmatch(language) else {}
    return XliffFile(data, root, entries.open, owners, decoded.encoder("xmlcharrefreplace"))


def _version(root: Node, top: Node) -> str:
    """The version of the file. Raises FileError if it is not XLIFF, or has a version that is not supported."""
    line = _line_of(root, top)
    if top.name.rpartition(":")[2] != "xliff":
        raise FileError(f"line {line}: the root element is not xliff")
    version = top.attributes.get("version", "").strip()
    if version not in _VERSIONS:
        shown = f"version {version}" if _VERSION.fullmatch(version) else "without a known version"
        raise FileError(f"line {line}: XLIFF {shown} is not supported; supported are 1.2, 2.0 and 2.1")
    return version


def _with_language(root: Node, entries: Entries, language: str) -> dict[int, Node]:
    """Copies of the owners whose target language must change, by the id() of each owner. The copies name `language`.

    Raises FileError for an owner that names another language and has translations.
    """
    found: dict[int, Node] = {}
    for owner, name in {
        id(entry.owner): (entry.owner, entry.language_name) for entry in entries.open
    }.values():
        named = owner.attributes.get(name, "").strip()
        if named and not _is_other(named, language):
            continue
        if named and id(owner) in entries.translated:
            shown = f' "{named}"' if _LANGUAGE.fullmatch(named) else ""
            raise FileError(
                f"line {_line_of(root, owner)}: the file has translations into the {name}{shown}, "
                f'so it cannot be translated into "{language}"'
            )
        opening = with_attribute(owner.opening, name, language)
        found[id(owner)] = Node(owner.name, opening, owner.closing, owner.children)
    return found


def _is_other(found: str, language: str) -> bool:
    """Whether two languages differ, regardless of their regions."""
    return base_language(found.replace("_", "-")) != base_language(language)


def _line_of(root: Node, node: Node) -> int:
    """The number of the line in which an element begins."""
    before: list[str] = []
    stack: list[Node | str] = [root]
    while (item := stack.pop()) is not node:
        if isinstance(item, str):
            before.append(item)
        else:
            before.append(item.opening)
            stack += [item.closing, *reversed(item.children)]
    return last_line("".join(before))
