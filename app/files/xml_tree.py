"""XML as a tree whose nodes hold the very characters of their tags, so that a part of it can be written anew and the
rest comes out as it came in. Document types are refused, and with them every entity. Depth, elements, attributes and
the length of a tag are bounded, and are checked while the XML is read.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass, field
from xml.parsers import expat

from app.files.unit import FileError

MAX_DEPTH = 500
MAX_ATTRIBUTES = 1_000
# Of a tag or comment: a picture's outline can stand in an attribute. As much is read before it is known where one ends.
MAX_TAG_BYTES = 1_000_000
# The parser is given so much at once.
_CHUNK_BYTES = 1 << 16
# Shorter tags are kept once, however often they come.
_SHARED_CHARACTERS = 200


@dataclass(slots=True)
class Node:
    """An element. opening, closing: its tags as they stand; an empty element has no closing one.

    children: elements, and whatever stands between them, raw.
    """

    name: str
    opening: str
    closing: str = ""
    children: list[Node | str] = field(default_factory=list)

    @property
    def nodes(self) -> list[Node]:
        """The elements in it."""
        return [child for child in self.children if isinstance(child, Node)]

    @property
    def raw(self) -> str:
        """All of it as it stands."""
        parts: list[str] = []
        waiting: list[Node | str] = [self]
        while waiting:
            item = waiting.pop()
            if isinstance(item, str):
                parts.append(item)
            else:
                parts.append(item.opening)
                waiting.append(item.closing)
                waiting += reversed(item.children)
        return "".join(parts)


def read_tree(content: bytes, part: str, *, max_elements: int) -> tuple[Node, str]:
    """A node without a name around everything, and the encoding. part: its name in messages. Raises FileError."""
    encoding = "utf-16" if content[:2] in {b"\xff\xfe", b"\xfe\xff"} else "utf-8"
    try:
        text = content.decode(encoding)
    except UnicodeDecodeError as error:
        raise FileError(f"{part}: not {encoding.upper()} (byte {error.start + 1})") from error
    body = content if encoding == "utf-8" else text.encode()
    del text
    return _Reader(part, body, max_elements).read(), encoding


class _Reader:
    """Makes nodes as expat goes: what stands between one event and the next is known when the next one comes."""

    def __init__(self, part: str, body: bytes, max_elements: int) -> None:
        self._part = part
        self._body = body
        self._num_left = max_elements
        self._max_elements = max_elements
        self._root = Node("", "")
        self._opened = [self._root]
        # The event whose end is not known yet: where it begins, what it is, and its element's name.
        self._start, self._kind, self._name = 0, "other", ""

    def read(self) -> Node:
        """Raises FileError."""
        parser = self._parser = expat.ParserCreate("utf-8")
        parser.StartElementHandler = self._open
        parser.EndElementHandler = lambda _name: self._begin("close", "")
        parser.StartDoctypeDeclHandler = self._refuse
        for handler in (
            "CharacterDataHandler",
            "CommentHandler",
            "ProcessingInstructionHandler",
            "XmlDeclHandler",
            "StartCdataSectionHandler",
        ):
            setattr(parser, handler, lambda *_: self._begin("other", ""))
        try:
            for place in range(0, len(self._body), _CHUNK_BYTES):
                parser.Parse(self._body[place : place + _CHUNK_BYTES], False)
                if place - self._start > MAX_TAG_BYTES:
                    raise FileError(f"{self._part}: a tag of more than {MAX_TAG_BYTES} bytes")
            parser.Parse(b"", True)
        except expat.ExpatError as error:
            reason = expat.errors.messages[error.code]
            raise FileError(f"{self._part}, line {error.lineno}: malformed XML: {reason}") from None
        self._end(len(self._body))
        return self._root

    def _begin(self, kind: str, name: str) -> None:
        start = self._parser.CurrentByteIndex
        self._end(start)
        self._start, self._kind, self._name = start, kind, name

    def _end(self, end: int) -> None:
        """The event that has begun ends here."""
        raw = self._body[self._start : end].decode()
        if len(raw) < _SHARED_CHARACTERS:
            raw = sys.intern(raw)
        if self._kind == "open":
            node = Node(self._name, raw)
            self._opened[-1].children.append(node)
            self._opened.append(node)
        elif self._kind == "close":
            self._opened.pop().closing = raw
        elif raw:
            self._opened[-1].children.append(raw)

    def _open(self, name: str, attributes: dict[str, str]) -> None:
        self._num_left -= 1
        if self._num_left < 0:
            raise FileError(f"the file has more than the {self._max_elements} elements of XML allowed")
        self._begin("open", name)
        if len(self._opened) > MAX_DEPTH:
            raise FileError(f"{self._part}: elements are nested more than {MAX_DEPTH} deep")
        if len(attributes) > MAX_ATTRIBUTES:
            raise FileError(f"{self._part}: an element has more than {MAX_ATTRIBUTES} attributes")

    def _refuse(self, *_: object) -> None:
        raise FileError(f"{self._part}: XML with a document type is not read")
