"""The trans-units and segments of XLIFF that need a target, and how a target is written."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

from app.files.unit import FileLimits
from app.files.xliff_inline import InlineReader, InlineText, UnpairedRange
from app.files.xml_tree import Node, plain_text, preserves_space, with_attribute

# Elements that contain trans-units or units, of all versions.
_CONTAINERS = frozenset({"xliff", "file", "body", "group"})
# The states of a finished translation. It stays, even if it is empty.
_FINAL = frozenset({"final", "reviewed", "signed-off"})
# The states of a target that may be a copy of the source instead of a translation.
_OPEN = frozenset({"initial", "new", "needs-translation"})
# A trans-unit that holds the header of a gettext catalogue.
_HEADER = "x-gettext-domain-header"
_SPACE = "xml:space"
# The attributes that name the target language, in version 1.2 and in version 2.
_LANGUAGE_1, _LANGUAGE_2 = "target-language", "trgLang"


@dataclass(frozen=True, slots=True)
class Entry:
    """A trans-unit or a segment that needs a target.

    content: the element that the new target copies: `source`, `seg-source`, or a target in which only some segments
    have translations. texts: the texts in it that get a translation. target: the existing target, if any. owner: the
    element whose attribute `language_name` names the target language.
    """

    node: Node
    content: Node
    texts: tuple[InlineText, ...]
    target: Node | None
    owner: Node
    language_name: str

    def written(self, translations: Sequence[str]) -> Node | None:
        """The node with the new target; None if `InlineText.written` returns None for a translation.

        Raises ValueError and FileError as `InlineText.written` does.
        """
        replaced = {}
        for text, translation in zip(self.texts, translations, strict=True):
            inner = text.written(translation)
            if inner is None:
                return None
            own_name = text.node.name
            replaced[id(text.node)] = [Node(own_name, _opened(text.node), f"</{own_name}>", [inner])]
        (content,) = replaced.get(id(self.content), [self.content])
        prefix, colon, _ = self.node.name.rpartition(":")
        name = f"{prefix}{colon}target"
        opening, target = self._openings(name)
        new = Node(name, target, f"</{name}>", [Node("", "", "", content.children).written(replaced)])
        return Node(self.node.name, opening, self.node.closing, list(self._children(new)))

    def _openings(self, name: str) -> tuple[str, str]:
        """The opening tags of the node and of its target, with their states. name: of the target."""
        target = f"<{name}>" if self.target is None else _opened(self.target)
        if self.target is None and _SPACE in (own := self.content.attributes):
            target = with_attribute(target, _SPACE, own[_SPACE])
        if self.language_name == _LANGUAGE_2:
            opening = with_attribute(self.node.opening, "subState", None)
            return with_attribute(opening, "state", "translated"), target
        target = with_attribute(target, "state", "needs-review-translation")
        return self.node.opening, with_attribute(target, "state-qualifier", "mt-suggestion")

    def _children(self, new: Node) -> Iterator[Node | str]:
        """Yield the children of the node and the new target. It replaces the existing one, or follows the content."""
        space: list[str] = []  # what precedes the content
        for child in self.node.children:
            yield new if child is self.target else child
            if isinstance(child, str):
                space.append(child)
            elif child is self.content and self.target is None:
                yield "" if "".join(space).strip() else "".join(space)
                yield new
            else:
                space.clear()


@dataclass(frozen=True, slots=True)
class Entries:
    """The entries of a file. translated: the id() of each `owner` in which a translation stays."""

    open: tuple[Entry, ...]
    translated: frozenset[int]


def read_entries(top: Node, reader: InlineReader, limits: FileLimits, *, is_version_2: bool) -> Entries:
    """Read the entries of a file. top: its element `xliff`. Raises FileError at the first entry above a limit."""
    walk = _Reader(reader, is_version_2=is_version_2)
    entries: list[Entry] = []
    num_texts = num_characters = 0
    for entry in walk.entries(top):
        entries.append(entry)
        num_texts += len(entry.texts)
        num_characters += sum(len(text.unit.text) for text in entry.texts)
        limits.check(num_texts, num_characters)
    return Entries(tuple(entries), frozenset(walk.translated))


@dataclass(frozen=True, slots=True)
class _Scope:
    """What an element inherits: whether it is translated, whether all white space counts, and `Entry.owner`."""

    is_translated: bool
    is_preserved: bool
    owner: Node

    def inside(self, node: Node, *, owns: bool) -> _Scope:
        """The scope in an element. owns: whether it has the attribute that names the target language."""
        attributes = node.attributes
        return _Scope(
            attributes.get("translate", "yes" if self.is_translated else "no") != "no",
            preserves_space(node, default=self.is_preserved),
            node if owns else self.owner,
        )


class _Reader:
    """Walks over a file. translated: as in `Entries`, for the part that was read."""

    def __init__(self, inline: InlineReader, *, is_version_2: bool) -> None:
        self.translated: set[int] = set()
        self._inline = inline
        self._is_version_2 = is_version_2

    def entries(self, top: Node) -> Iterator[Entry]:
        """Yield the entries in reading order."""
        owner = "xliff" if self._is_version_2 else "file"
        unit = "unit" if self._is_version_2 else "trans-unit"
        stack = [(top, _Scope(is_translated=True, is_preserved=False, owner=top))]
        while stack:
            node, scope = stack.pop()
            local = self._inline.local(node)
            if local in _CONTAINERS:
                scope = scope.inside(node, owns=local == owner)
                stack += ((child, scope) for child in reversed(node.nodes))
            elif local == unit:
                scope = scope.inside(node, owns=False)
                found = self._segments(node, scope) if self._is_version_2 else self._unit(node, scope)
                with suppress(UnpairedRange):
                    yield from list(found)

    def _unit(self, node: Node, scope: _Scope) -> Iterator[Entry]:
        """Yield the entry of a trans-unit of version 1.2. Raises UnpairedRange."""
        attributes = node.attributes
        is_kept = attributes.get("approved") == "yes" or attributes.get("restype") == _HEADER
        source, target = self._child(node, "source"), self._child(node, "target")
        if source is None:
            return
        state = "" if target is None else target.attributes.get("state", "")
        content = self._child(node, "seg-source") or source
        segments = list(self._marked_segments(content))
        is_empty = self._needs_target(source, target, state, scope)
        if is_kept or state in _FINAL or not scope.is_translated:
            return
        texts = self._texts(segments or [content], {}, scope)
        if not is_empty and target is not None:
            content = target
            places = self._empty_segments(target)
            found = ((text, places.get(text.node.attributes.get("mid", ""))) for text in texts)
            texts = tuple(replace(text, node=place) for text, place in found if place is not None)
        if texts:
            yield Entry(node, content, texts, target, scope.owner, _LANGUAGE_1)

    def _empty_segments(self, target: Node) -> dict[str, Node]:
        """The marked segments of a target that have no translation, by their `mid`."""
        segments = {each.attributes.get("mid", ""): each for each in self._marked_segments(target)}
        return {number: each for number, each in segments.items() if number and not _has_content(each)}

    def _segments(self, node: Node, scope: _Scope) -> Iterator[Entry]:
        """Yield the entries of a unit of version 2. Raises UnpairedRange."""
        originals = self._child(node, "originalData")
        codes = [] if originals is None else originals.nodes
        data = {code.attributes.get("id", ""): code.text for code in codes}
        for segment in node.nodes:
            source, target = self._child(segment, "source"), self._child(segment, "target")
            if self._inline.local(segment) != "segment" or source is None:
                continue
            state = segment.attributes.get("state", "")
            is_empty = self._needs_target(source, target, state, scope)
            if is_empty and scope.is_translated and state not in _FINAL:
                texts = self._texts([source], data, scope)
                if texts:
                    yield Entry(segment, source, texts, target, scope.owner, _LANGUAGE_2)

    def _texts(self, nodes: Iterable[Node], data: Mapping[str, str], scope: _Scope) -> tuple[InlineText, ...]:
        default = scope.is_preserved
        texts = (
            self._inline.read(node, data, is_preserved=preserves_space(node, default=default))
            for node in nodes
        )
        return tuple(text for text in texts if text is not None)

    def _needs_target(self, source: Node, target: Node | None, state: str, scope: _Scope) -> bool:
        """Whether an entry has no translation, or only a copy of the source. If not, adds its owner to `translated`."""
        if (
            target is None
            or not _has_content(target)
            or (state in _OPEN and _inner(target) == _inner(source))
        ):
            return True
        self.translated.add(id(scope.owner))
        return False

    def _child(self, node: Node, local: str) -> Node | None:
        return next((child for child in node.nodes if self._inline.local(child) == local), None)

    def _marked_segments(self, content: Node) -> Iterator[Node]:
        """Yield the segments of a source that is divided into segments."""
        stack = content.nodes[::-1]
        while stack:
            node = stack.pop()
            if self._inline.local(node) == "mrk" and node.attributes.get("mtype") == "seg":
                yield node
            else:
                stack += reversed(node.nodes)


def _opened(node: Node) -> str:
    """The opening tag of an element that gets content."""
    return node.opening if node.closing else f"{node.opening.removesuffix('/>').rstrip()}>"


def _inner(node: Node) -> str:
    """The XML in an element, without white space at both ends."""
    return Node("", "", "", node.children).raw.strip()


def _has_content(target: Node) -> bool:
    """Whether a target has text, or a code other than the marks of segments."""
    stack: list[Node | str] = [*target.children]
    texts: list[str] = []
    while stack:
        item = stack.pop()
        if isinstance(item, str):
            texts.append(item)
        elif item.name.rpartition(":")[2] == "mrk":
            stack += item.children
        else:
            return True
    return plain_text("".join(reversed(texts))).strip() != ""
