"""Divides runs and tracked changes of a Word paragraph so that each field character is in a run of its own."""

from __future__ import annotations

import re
from collections.abc import Set
from itertools import groupby

from app.files.xml_tree import Node

# Wrappers of tracked changes. Word divides a field among several of them.
TRACKED = frozenset({"w:ins", "w:moveTo"})
_FIELD_CHARACTER = re.compile(r"""\sw:fldCharType\s*=\s*["'](begin|separate|end)["']""")


def divided_at_fields(node: Node) -> list[Node]:
    """The child of a paragraph, divided at its field characters.

    A run is divided into runs with the same properties. A tracked change is divided if a field continues beyond it.
    """
    if node.name == "w:r" or (node.name in TRACKED and not _has_whole_fields(node)):
        return _divided(node)
    return [node]


def _has_whole_fields(node: Node) -> bool:
    """Whether each field in the runs of a tracked change begins and ends there."""
    depth = 0
    for kind in (_kind(child) for run in node.nodes if run.name == "w:r" for child in run.nodes):
        if kind == "begin":
            depth += 1
        elif kind is not None and depth == 0:
            return False
        elif kind == "end":
            depth -= 1
    return depth == 0


def _divided(node: Node) -> list[Node]:
    """Elements like this one, with its properties. Each contains one field character, or only other content."""
    properties = [child for child in node.nodes if child.name == "w:rPr"]
    contents = [child for child in node.nodes if child.name != "w:rPr"]
    is_outer = node.name in TRACKED
    divided = [
        part
        for child in contents
        for part in (_divided(child) if is_outer and child.name == "w:r" else [child])
    ]
    groups: list[list[Node]] = []
    for kind, group in groupby(divided, field_character):
        members = list(group)
        groups += [members] if kind is None else [[part] for part in members]
    if len(groups) < 2:
        return [node]
    return [Node(node.name, node.opening, node.closing, [*properties, *group]) for group in groups]


def field_character(node: Node) -> str | None:
    """The kind of the field character that is the node's only content: begin, separate or end. None for other nodes."""
    return _kind(_only_content(_only_content(node, TRACKED), {"w:r"}))


def _only_content(node: Node, names: Set[str]) -> Node:
    """The only content of an element with one of these names. The node itself if it has more, or another name."""
    contents = [child for child in node.nodes if child.name != "w:rPr"] if node.name in names else []
    return contents[0] if len(contents) == 1 else node


def _kind(node: Node) -> str | None:
    """The kind of a field character; None for another node."""
    match = _FIELD_CHARACTER.search(node.opening) if node.name == "w:fldChar" else None
    return match[1] if match else None
