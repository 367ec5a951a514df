"""Which series a PromQL expression reads. It knows the part of PromQL that the files of deploy/ use."""

from __future__ import annotations

import re
from typing import NamedTuple

TEXT = re.compile(r'"(?:[^"\\]|\\.)*"')
# A name, with matchers in braces or without. Names in `by (...)` and in braces are found before.
SELECTOR = re.compile(r"\b([a-z_][a-z0-9_]*)\b(?!\s*\()(?:\{([^}]*)\})?")
MATCHER = re.compile(r'(\w+)\s*(?:=~|!~|!=|=)\s*("(?:[^"\\]|\\.)*")')
GROUPING = re.compile(r"\b(?:by|without|on|ignoring)\s*\(([^)]*)\)")
OPERATORS = {"and", "or", "unless", "bool", "offset"}


class Selector(NamedTuple):
    """A metric and the labels that matchers name. text: the selector as it stands in the expression."""

    metric: str
    labels: frozenset[str]
    text: str


class Reading(NamedTuple):
    """What an expression reads. grouped_by: labels in its groupings."""

    selectors: list[Selector]
    grouped_by: set[str]


def read_expression(expression: str) -> Reading:
    """The metrics and labels of an expression."""
    grouped = {label.strip() for names in GROUPING.findall(expression) for label in names.split(",")}
    rest = re.sub(
        r"\[[^\]]*\]", " ", GROUPING.sub(" ", expression)
    )  # without ranges, whose units look like names
    selectors = []
    for match in _selectors(rest):
        if match[1] not in OPERATORS:
            labels = frozenset(label for label, _ in MATCHER.findall(match[2] or ""))
            selectors.append(Selector(match[1], labels, match[0]))
    return Reading(selectors, grouped)


def _selectors(text: str) -> list[re.Match[str]]:
    """Matches outside of strings. A regular expression in a matcher may hold a brace, so strings are masked."""
    masked = TEXT.sub(lambda match: '"' + "x" * (len(match[0]) - 2) + '"', text)
    return [
        found
        for match in SELECTOR.finditer(masked)
        if (found := SELECTOR.match(text, match.start())) is not None
    ]
