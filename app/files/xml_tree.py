"""XML as a tree whose nodes hold the very characters of their tags, so that a part of it can be written anew and the
rest comes out as it came in. Document types are refused, and with them every entity; depth and size are bounded.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import pairwise
from xml.parsers import expat

from app.files.unit import FileError

MAX_DEPTH = 500


@dataclass
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


def read_tree(content: bytes, part: str) -> tuple[Node, str]:
    """A node without a name around everything, and the encoding. part: its name in messages. Raises FileError."""
    encoding = "utf-16" if content[:2] in {b"\xff\xfe", b"\xfe\xff"} else "utf-8"
    try:
        text = content.decode(encoding)
    except UnicodeDecodeError as error:
        raise FileError(f"{part}: not {encoding.upper()} (byte {error.start + 1})") from error
    body = text.encode()
    recorder = _Recorder(part)
    recorder.run(body)
    root = Node("", "")
    opened = [root]
    offsets = [offset for offset, _, _ in recorder.events]
    if offsets and offsets[0]:
        root.children.append(body[: offsets[0]].decode())
    for (_, kind, name), (start, end) in zip(recorder.events, pairwise([*offsets, len(body)]), strict=True):
        raw = body[start:end].decode()
        if kind == "open":
            node = Node(name, raw)
            opened[-1].children.append(node)
            opened.append(node)
        elif kind == "close":
            opened.pop().closing = raw
        else:
            opened[-1].children.append(raw)
    return root, encoding


class _Recorder:
    """Offset in bytes, kind and name of every event of expat."""

    def __init__(self, part: str) -> None:
        self.events: list[tuple[int, str, str]] = []
        self._part = part
        self._depth = 0

    def run(self, body: bytes) -> None:
        """Raises FileError."""
        parser = self._parser = expat.ParserCreate("utf-8")
        parser.StartElementHandler = self._start
        parser.EndElementHandler = self._end
        parser.StartDoctypeDeclHandler = self._refuse
        for handler in (
            "CharacterDataHandler",
            "CommentHandler",
            "ProcessingInstructionHandler",
            "XmlDeclHandler",
            "StartCdataSectionHandler",
        ):
            setattr(parser, handler, lambda *_: self._add("other", ""))
        try:
            parser.Parse(body, True)
        except expat.ExpatError as error:
            reason = expat.errors.messages[error.code]
            raise FileError(f"{self._part}, line {error.lineno}: malformed XML: {reason}") from None

    def _add(self, kind: str, name: str) -> None:
        self.events.append((self._parser.CurrentByteIndex, kind, name))

    def _start(self, name: str, _attributes: object) -> None:
        self._depth += 1
        if self._depth > MAX_DEPTH:
            raise FileError(f"{self._part}: elements are nested more than {MAX_DEPTH} deep")
        self._add("open", name)

    def _end(self, name: str) -> None:
        self._depth -= 1
        self._add("close", name)

    def _refuse(self, *_: object) -> None:
        raise FileError(f"{self._part}: XML with a document type is not read")
