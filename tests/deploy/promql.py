"""Which series a PromQL expression reads, in the part of PromQL that the files of deploy/ use."""

from __future__ import annotations

import re
from typing import NamedTuple

TEXT = re.compile(r'"(?:[^"\\]|\\.)*"')
# A name, with matchers in braces or without. A name before a parenthesis is a function.
SELECTOR = re.compile(r"\b([a-z_][a-z0-9_]*)\b(?!\s*\()(?:\{([^}]*)\})?")
MATCHER = re.compile(r'(\w+)\s*(?:=~|!~|!=|=)\s*"')
GROUPING = re.compile(r"\b(?:by|without|on|ignoring)\s*\(([^)]*)\)")
RANGE = re.compile(r"\[[^\]]*\]")  # its units look like names
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
    # A string may hold a brace, a bracket or a word. Every mask is as long as what it replaces.
    masked = TEXT.sub(lambda match: '"' + "x" * (len(match[0]) - 2) + '"', expression)
    grouped = {label.strip() for names in GROUPING.findall(masked) for label in names.split(",")}
    for pattern in (GROUPING, RANGE):
        masked = pattern.sub(lambda match: " " * len(match[0]), masked)
    selectors = []
    for match in SELECTOR.finditer(masked):
        if match[1] not in OPERATORS:
            labels = frozenset(MATCHER.findall(match[2] or ""))
            selectors.append(Selector(match[1], labels, expression[match.start() : match.end()]))
    return Reading(selectors, grouped)
