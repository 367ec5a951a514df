"""XML as a tree with the exact characters of every tag, so that unchanged parts are written character for character.

Document types are rejected, and with them all declared entities. Depth, elements, attributes and tag length are bounded
and are checked while the XML is read.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from html import escape, unescape
from xml.parsers import expat

from app.files.unit import FileError

# The maximum depth of nested elements. Deeper nesting could exhaust the stack of recursive writers.
MAX_DEPTH = 500
# The maximum number of attributes of one element. If larger, one tag takes more memory.
MAX_ATTRIBUTES = 1_000
# Bytes of the longest tag or comment. An attribute can be a picture's outline, which is long. The parser may read two
# more chunks before the length is known.
MAX_TAG_BYTES = 1_000_000
# Bytes per call of the parser.
_CHUNK_BYTES = 1 << 16
# Tags and texts shorter than this are interned, because many repeat.
_SHARED_CHARACTERS = 200
# Markup inside a text: a section whose characters are literal, a comment or a processing instruction.
_NOT_TEXT = re.compile(r"<!\[CDATA\[(.*?)\]\]>|<!--.*?-->|<\?.*?\?>", re.DOTALL)
_LINE_END = re.compile(r"\r\n?")
# The attribute that says whether all white space in an element counts.
_SPACE = re.compile(r"""\sxml:space\s*=\s*["'](\w+)["']""")
# An attribute of a tag: its name, and its value in either kind of quotes.
_ATTRIBUTE = re.compile(r"\s([^\s=]+)\s*=\s*(?:\"([^\"]*)\"|'([^']*)')")


@dataclass(slots=True)
class Node:
    """An element. opening, closing: its tags as written; an empty element has no closing tag.

    children: elements, and everything between them as raw text.
    """

    name: str
    opening: str
    closing: str = ""
    children: list[Node | str] = field(default_factory=list)

    @property
    def nodes(self) -> list[Node]:
        """The child elements."""
        return [child for child in self.children if isinstance(child, Node)]

    @property
    def text(self) -> str:
        """The text in the element, without that of its child elements."""
        return plain_text("".join(child for child in self.children if isinstance(child, str)))

    @property
    def raw(self) -> str:
        """The element's XML as written."""
        return self.written({})

    @property
    def attributes(self) -> dict[str, str]:
        """The values of the attributes by their names as written, without references."""
        return {match[1]: unescape(match[2] or match[3] or "") for match in _ATTRIBUTE.finditer(self.opening)}

    def written(self, replaced: Mapping[int, Sequence[Node | str]]) -> str:
        """The element's XML with other content in the place of some elements, also of elements in that content.

        replaced: the content by the id() of the element.
        """
        parts: list[str] = []
        stack: list[Node | str] = [self]
        while stack:
            item = stack.pop()
            if isinstance(item, str):
                parts.append(item)
            elif (content := replaced.get(id(item))) is not None:
                stack += reversed(content)
            else:
                parts.append(item.opening)
                stack.append(item.closing)
                stack += reversed(item.children)
        return "".join(parts)


def plain_text(raw: str) -> str:
    """The text that XML without elements stands for, without comments. Line ends are those of a parser."""
    if "<" not in raw and "&" not in raw and "\r" not in raw:
        return raw
    parts: list[str] = []
    done = 0
    for match in _NOT_TEXT.finditer(raw):
        parts += (_unescaped(raw[done : match.start()]), _LINE_END.sub("\n", match[1] or ""))
        done = match.end()
    return "".join([*parts, _unescaped(raw[done:])])


def _unescaped(raw: str) -> str:
    return unescape(_LINE_END.sub("\n", raw))


def with_attribute(opening: str, name: str, value: str | None) -> str:
    """A tag with another value of an attribute, or without it. value: without references; None for no attribute."""
    written = "" if value is None else f' {name}="{escape(value)}"'
    for match in _ATTRIBUTE.finditer(opening):
        if match[1] == name:
            return opening[: match.start()] + written + opening[match.end() :]
    end = len(opening.removesuffix(">").removesuffix("/").rstrip())
    return opening[:end] + written + opening[end:]


def preserves_space(node: Node, *, default: bool) -> bool:
    """Whether all white space in an element counts. default: the answer without `xml:space`."""
    match = _SPACE.search(node.opening)
    return match[1] == "preserve" if match else default


def read_text(text: str, *, max_elements: int) -> Node:
    """Parse decoded XML, whatever encoding it declares. Returns a root node without a name.

    max_elements: the maximum number of elements. Raises FileError with the line of a syntax error.
    """
    return _Reader("", text.encode(), max_elements, 0).read()


def elements(root: Node, is_skipped: Callable[[Node], bool] | None = None) -> Iterator[Node]:
    """Yield all elements in reading order. is_skipped: whether an element is left out, with all elements in it."""
    stack = root.nodes[::-1]
    while stack:
        node = stack.pop()
        if is_skipped is None or not is_skipped(node):
            yield node
            stack += reversed(node.nodes)


def read_tree(content: bytes, part: str, *, max_elements: int, num_before: int) -> tuple[Node, str, int]:
    """Parse XML. Returns a root node without a name, the encoding, and the number of elements with `num_before`.

    part: the name of the archive's entry, for messages. max_elements: the maximum number of elements in all entries
        together. num_before: the number of elements in the entries before this one. Raises FileError.
    """
    encoding = "utf-16" if content[:2] in {b"\xff\xfe", b"\xfe\xff"} else "utf-8"
    try:
        text = content.decode(encoding)
    except UnicodeDecodeError as error:
        raise FileError(f"{part}: not {encoding.upper()} (byte {error.start + 1})") from error
    if "\0" in text:  # UTF-16 without a byte order mark, which the parser would recognise
        raise FileError(f"{part}: it has a NUL, which XML cannot contain")
    body = content if encoding == "utf-8" else text.encode()
    del text
    reader = _Reader(part, body, max_elements, num_before)
    return reader.read(), encoding, reader.num_elements


class _Reader:
    """Builds nodes from expat's events. An event's characters end where the next event begins."""

    def __init__(self, part: str, body: bytes, max_elements: int, num_before: int) -> None:
        """part: the name of the archive's entry; empty for a file that is XML, in whatever encoding.

        num_before: the elements that count before the first one.
        """
        self._part = part
        self._place = f"{part}: " if part else ""
        self._body = body
        self.num_elements, self._max_elements = num_before, max_elements
        self._root = Node("", "")
        self._opened = [self._root]
        # The current event: where it begins, its kind, and its element's name.
        self._start, self._kind, self._name = 0, "other", ""

    def read(self) -> Node:
        """Parse the XML. Returns the root node. Raises FileError."""
        parser = self._parser = expat.ParserCreate("utf-8")
        parser.StartElementHandler = self._open
        parser.EndElementHandler = lambda _name: self._begin("close", "")
        parser.StartDoctypeDeclHandler = self._refuse
        for handler in (
            "CharacterDataHandler",
            "CommentHandler",
            "ProcessingInstructionHandler",
            "StartCdataSectionHandler",
        ):
            setattr(parser, handler, lambda *_: self._begin("other", ""))
        parser.XmlDeclHandler = self._check_declaration
        unfinished = 0  # where the tag or comment begins whose end is not read yet
        try:
            for offset in range(0, len(self._body), _CHUNK_BYTES):
                parser.Parse(self._body[offset : offset + _CHUNK_BYTES], False)
                # CurrentByteIndex is -1 while a newer version of expat waits for more bytes before it parses them.
                unfinished = max(unfinished, parser.CurrentByteIndex)
                if offset - unfinished > MAX_TAG_BYTES:
                    raise FileError(f"{self._place}a tag of more than {MAX_TAG_BYTES} bytes")
            parser.Parse(b"", True)
        except expat.ExpatError as error:
            reason = expat.errors.messages[error.code]
            line = f"{self._part}, line" if self._part else "line"
            raise FileError(f"{line} {error.lineno}: malformed XML: {reason}") from None
        finally:
            # The parser's handlers refer to this object. Without the cycle, the body is freed at once.
            del self._parser
        self._end(len(self._body))
        return self._root

    def _begin(self, kind: str, name: str) -> None:
        """End the current event, and begin one of this kind."""
        start = self._parser.CurrentByteIndex
        self._end(start)
        self._start, self._kind, self._name = start, kind, name

    def _end(self, end: int) -> None:
        """End the current event at this offset, and add its characters to the tree."""
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

    def _check_declaration(self, _version: str, encoding: str | None, _standalone: int) -> None:
        if self._part and encoding is not None and encoding.lower() not in {"utf-8", "utf-16"}:
            raise FileError(f"{self._place}its encoding is declared as another one than UTF-8 or UTF-16")
        self._begin("other", "")

    def _open(self, name: str, attributes: dict[str, str]) -> None:
        self.num_elements += 1
        if self.num_elements > self._max_elements:
            raise FileError(f"the file exceeds the limit of {self._max_elements} XML elements")
        self._begin("open", name)
        if len(self._opened) > MAX_DEPTH:
            raise FileError(f"{self._place}elements are nested more than {MAX_DEPTH} deep")
        if len(attributes) > MAX_ATTRIBUTES:
            raise FileError(f"{self._place}an element has more than {MAX_ATTRIBUTES} attributes")

    def _refuse(self, *_: object) -> None:
        raise FileError(f"{self._place}XML with a document type is not supported")
