"""The relationships between the entries of a document of Microsoft Office: which entries belong to an entry."""

from __future__ import annotations

import posixpath
import re
from dataclasses import dataclass
from html import unescape

from app.files.office_archive import DocumentKind
from app.files.unit import FileError
from app.files.xml_tree import Node, elements

# The entry that names the body.
BODY_RELATIONSHIPS = "_rels/.rels"
_ID = re.compile(r"""\sId\s*=\s*["']([^"']+)["']""")
_KIND = re.compile(r"""\sType\s*=\s*["'][^"']*/(\w+)["']""")
_TARGET = re.compile(r"""\sTarget\s*=\s*["']([^"']+)["']""")


@dataclass(frozen=True, slots=True)
class Relationship:
    """One entry that belongs to another one.

    id: what the other entry calls it; may be empty. kind: the end of its type, such as `header`. target: its name in
    the archive. An external target is not in the archive.
    """

    id: str
    kind: str
    target: str


def relationships_entry(name: str) -> str:
    """The name of the entry with the relationships of an entry."""
    folder, end = posixpath.split(name)
    return posixpath.join(folder, "_rels", f"{end}.rels")


def read_relationships(root: Node, name: str) -> list[Relationship]:
    """The relationships of an entry, in the order of the file. root: the XML that has them; name: the entry's name."""
    found = []
    for node in elements(root):
        kind, target = _KIND.search(node.opening), _TARGET.search(node.opening)
        if kind is not None and target is not None:
            path = posixpath.join("/", posixpath.dirname(name), unescape(target[1]))
            number = _ID.search(node.opening)
            identifier = unescape(number[1]) if number else ""
            found.append(Relationship(identifier, kind[1], posixpath.normpath(path).lstrip("/")))
    return found


def missing_body(kind: DocumentKind, body: str, usual: str) -> FileError:
    """The error for an archive without its body. usual: the body's name without a relationship."""
    return FileError(
        f"not {kind.name}: "
        + (f"it has no {usual}" if body == usual else f"it lacks the body that {BODY_RELATIONSHIPS} names")
    )
