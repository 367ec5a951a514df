"""Finds spans of a text that must be in its translation unchanged: variables, tags, URLs and addresses.

Protected spans are `{{name}}`, `{% if x %}`, `{# x #}`, `{!! x !!}`, `${x}`, `%{x}`, `#{x}`, `@{x}`, `{0}`, `{name}`,
ICU messages (`{count, plural, ...}`, nested ones included), printf's `%s` `%1$s` `%(x)d` `%-5.2f` `%.*s` `%<PRIu64>`
`%@` `%%`, tags such as `<x id="1"/>` and `<0>`, the shortcodes `[name a="b"]`, `[/name]` and, if the text has
`[/name]`, `[name]`, the code `<% x %>`, `<?php x ?>` and `<#if x>`, the merge fields `*|NAME|*`, `%%Name%%`, `%name%`,
`$NAME$` and `%#@name@`, URLs, e-mail addresses, the options of commands `--all` and `-a, --all`, ISO 8601 times
`2024-01-02T10:00Z`, UUIDs, colours such as `#ff0000`, and those of `app.text.symbol_spans`. Every search takes time
linear in the length of the text.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Collection, Iterable, Iterator, Sequence
from itertools import pairwise
from unicodedata import category

from app.text.scripts import UNSPACED
from app.text.segmentation import Span
from app.text.symbol_spans import symbol_spans
from app.text.template_code import ANGLE_CODE

# Code points of placeholders. They are from the supplementary private use areas, which no vocabulary has.
PLACEHOLDER_CODE_POINTS = range(0xF0000, 0x10FFFE)
_CONVERSION = "diouxXeEfFgGaAcspn@"
# A width or precision; `*` is the value of an argument. The flag `'` groups the digits of a number.
_NUMBER = r"(?:\d{1,4}+|\*(?:\d{1,2}+\$)?)"
_OPTIONS = rf"(?>(?:[-+0#]|'(?=[-+0#\d.*$hlLqzjt]*+[diufFgG]))*){_NUMBER}?+(?:\.{_NUMBER})?"
_LENGTH = "(?:[hlLqzjt]{0,2}|I(?:32|64))"
# A letter may follow a conversion only if it has a precision (`%.2fs`), or is `%s` or `%d`.
# After a digit, `%-a` is not a conversion: `20%-a` is Hungarian for "20% of". This loses no real conversion, because
# `-` without a width has no effect.
_PRINTF = re.compile(
    r"%(?:"
    rf"\([\w.\- ]{{1,64}}+\){_OPTIONS}[{_CONVERSION}]"
    rf"|\d{{1,2}}+\${_OPTIONS}{_LENGTH}[{_CONVERSION}]"
    rf"|(?:\d{{1,2}}+\$)?{_OPTIONS}<PRI[diouxX][A-Z0-9]{{1,8}}+>"
    r"|(?:(?<!\d%)(?<!\d\s%)|(?![-'*][A-Za-z]))"
    rf"{_OPTIONS}{_LENGTH}[{_CONVERSION}](?![^\W\d_])"
    r"|(?<!\d%)(?<!\d\s%)[-+0#]{0,4}\d{0,3}\.\d{1,3}[aAeEfFgG]"
    r"|(?<!\d%)[sd]|%"
    r")"
)
# A conversion with a precision and a unit of up to three letters. The model does not copy a unit that touches a
# placeholder.
_WITH_UNIT = re.compile(
    r"(?<!\d)(?<!\d\s)%(?:\d{1,2}\$)?[-+0#]{0,4}\d{0,3}\.\d{1,3}[aAeEfFgG][^\W\d_]{1,3}(?![^\W_])"
)
# In a URL or a tag, this is a percent-encoded byte.
_PERCENT_ENCODED = re.compile("%[0-9A-Fa-f]{2}")
_TAG = re.compile(r"</?(?:[A-Za-z][\w:.\-]*+(?:\s[^<>]*+|/)?|\d{1,3}/?)>")
# `[sic]` is text, so a shortcode has an attribute or is a closing one.
_SHORTCODE = re.compile(
    r"\[(?:"
    r"/[A-Za-z][\w\-]{0,63}+"
    r"|[A-Za-z][\w\-]{0,63}+"
    r"(?>(?:\s++[A-Za-z][\w:\-]*+=(?:\"[^\"\[\]]*+\"|'[^'\[\]]*+'|[^\s\"'\[\]]++))+)\s*+/?"
    r")\]"
)
_OPENING_SHORTCODE = re.compile(r"\[([A-Za-z][\w\-]{0,63}+)\]")
_CLOSING_SHORTCODE = re.compile(r"\[/([A-Za-z][\w\-]{0,63}+)\]")
# None of these contains its own beginning, or its name is bounded. So a text with many beginnings takes linear time.
# `%s%` is a conversion, so the name in `%name%` has two characters or more.
_MERGE_FIELD = re.compile(
    rf"{ANGLE_CODE}|\*\|[A-Za-z][^*|\n]*+\|\*|%%[A-Za-z_][\w.:\-]{{0,63}}+%%"
    r"|(?<![\w%])%[A-Za-z_][\w.\-]{1,63}+%(?![\w%])|(?<!\$)\$[A-Za-z_][\w@]{0,63}+\$(?!\$)"
    r"|%(?:\d{1,2}+\$)?#@[A-Za-z_]\w{0,63}+@"
)
# White space, quotes, marks that no URL has, private-use characters, and the punctuation of scripts without spaces.
_NOT_IN_URL = (
    r"\s<>\"`\\^|\u2018-\u201f\u00ab\u00bb\u3000-\u303f\uff01-\uff0f\uff1a-\uff20\uff3b-\uff40\uff5b-\uff65"
    r"\ue000-\uf8ff\U000f0000-\U0010ffff"
)
# A browser percent-encodes the path of a URL that a user copies. So a letter of a script without spaces normally ends
# the URL. If a label of the host begins with such a letter, the rest of the URL may contain these letters.
_URL = re.compile(
    r"(?<![A-Za-z0-9_])(?i:(?:https?|ftps?|sftp|ssh|git|file|wss?|irc|magnet)://|www\.|(?:mailto|tel):(?=[\w+]))"
    rf"(?:(?=(?>(?:[A-Za-z0-9\-]++\.)*)[{UNSPACED}])[^{_NOT_IN_URL}]++|[^{_NOT_IN_URL}{UNSPACED}]++)"
)
# Latin letters and accents. Chinese, Japanese, Thai and Korean text may have no space before and after an address.
# Therefore an address has no other letters before its `@`. Each label of its domain has only Latin letters or only
# other letters. The last label is ASCII.
_LATIN = r"A-Za-z\u00c0-\u00d6\u00d8-\u00f6\u00f8-\u024f\u0300-\u036f\u1e00-\u1eff"
_EMAIL = re.compile(
    rf"(?<![{_LATIN}0-9_.%+\-])[{_LATIN}0-9_][{_LATIN}0-9_.%+\-]{{0,63}}+@"
    rf"(?>(?:[{_LATIN}0-9][{_LATIN}0-9\-]{{0,62}}+|[^\W_{_LATIN}](?:[^\W_{_LATIN}]|-){{0,62}}+)\.)+"
    rf"(?>[Xx][Nn]-(?:-[A-Za-z0-9]++)+|[A-Za-z]{{2,24}}+)(?![{_LATIN}0-9_@])"
)
# A long option with its value, and the short option before it.
_OPTION = re.compile(
    r"(?<![^\s\[(\"'`|/,=\u2018\u201c\u201e\u00ab])(?:-[A-Za-z0-9](?: [A-Z][A-Z_]{0,30}+)?(?:, ?|[ /|]))?"
    r"--[a-z](?>(?:-?[A-Za-z0-9_])+)(?:\[=\w++\]|=(?:[\w./:%+@\-]*[\w/])?)?"
)
# In a text with such a dash, `--word` is no option. `xn--` begins a label of a domain.
_DASH = re.compile(r"[\w.!?][\"')\u201d]?(?<![Xx][Nn])--|\s--\s")
_ISO_TIME = re.compile(
    r"(?<![\w\-])\d{4}-\d\d-\d\dT\d\d:\d\d(?::\d\d(?:[.,]\d{1,9})?)?(?:Z|[+\-]\d\d:?\d\d)?(?!\w)", re.ASCII
)
_UUID = re.compile(
    r"(?<![\w\-])[0-9A-Fa-f]{8}-(?:[0-9A-Fa-f]{4}-){3}[0-9A-Fa-f]{12}(?![\w\-])",
)
# Without a digit, it is a hashtag such as `#facade`, unless it is in quotation marks.
_COLOUR = re.compile(
    r"(?<![\w&#/])(?:#(?=[A-Fa-f]*[0-9])|(?<=[\"'`])#(?=[A-Fa-f]{6,8}[\"'`]))(?:[0-9A-Fa-f]{6}|[0-9A-Fa-f]{8})(?!\w)"
)
# Every protected span has one of these, except those of `app.text.symbol_spans`. Most texts have none of these, and are
# scanned only once.
_HINT = re.compile(r"[%<{@:\[|#$]|www\.|--|-[0-9a-f]{4}-", re.IGNORECASE)
_OPENING_BRACKET_OF = {")": "(", "]": "[", "}": "{"}
_NAME = re.compile(r"[^\s{}]*+")
_ARGUMENT = re.compile(r"\s*+[\w.\-]++\s*+,\s*+[a-zA-Z]++\s*+[,}]")
_BRACES = re.compile(r"[{}]")
_SIGILS = frozenset("$%#@")


def closed_shortcodes(text: str) -> frozenset[str]:
    """Return the name of each `[/name]` in a text."""
    return frozenset(match[1] for match in _CLOSING_SHORTCODE.finditer(text))


def protected_spans(text: str, closed: Collection[str] | None = None) -> list[Span]:
    """Return all protected spans, in order. Overlapping and nested spans are merged.

    closed: the names for which `[name]` is a shortcode; None for the `closed_shortcodes` of the text.
    """
    spans = list(symbol_spans(text))
    if not _HINT.search(text):
        return spans
    spans += (Span(*match.span()) for each in (_PRINTF, _WITH_UNIT, _TAG) for match in each.finditer(text))
    spans += (Span(*match.span()) for match in _MERGE_FIELD.finditer(text))
    spans += _shortcodes(text, closed_shortcodes(text) if closed is None else closed)
    spans += _brace_spans(text)
    spans += (_without_closing_punctuation(text, *match.span()) for match in _URL.finditer(text))
    spans += (Span(*match.span()) for match in _EMAIL.finditer(text))
    if not _DASH.search(text):
        spans += (Span(*match.span()) for match in _OPTION.finditer(text))
    spans += (Span(*match.span()) for each in (_ISO_TIME, _UUID, _COLOUR) for match in each.finditer(text))
    return [_with_angles(text, span) for span in merged(spans)]


def protected_spans_between(text: str, borders: Sequence[int], closed: Collection[str]) -> list[Span]:
    """Return the protected spans of a text, with those that are found only if words end at the borders.

    borders: positions in the text, in order. closed: as in `protected_spans`.
    """
    spans = protected_spans(text, closed)
    if not borders:
        return spans
    for start, end in pairwise([0, *borders, len(text)]):
        found = protected_spans(text[start:end], closed)
        spans += (Span(start + span.start, start + span.end) for span in found)
    return list(merged(spans))


def printf_conversions(text: str) -> list[Span]:
    """Return the conversions of printf that take an argument, in order."""
    found = [Span(*match.span()) for match in _PRINTF.finditer(text) if match.group() != "%%"]
    if not found:
        return []
    encoded = list(merged(Span(*match.span()) for each in (_URL, _TAG) for match in each.finditer(text)))
    return [
        span for span in found if not (_PERCENT_ENCODED.match(text, span.start) and overlaps(span, encoded))
    ]


def _with_angles(text: str, span: Span) -> Span:
    """Return the span with angle brackets around it, if it has them."""
    if span.start > 0 and text[span.start - 1] == "<" and text[span.end : span.end + 1] == ">":
        return Span(span.start - 1, span.end + 1)
    return span


def merged(spans: Iterable[Span]) -> Iterator[Span]:
    """Yield the spans in order. Spans that share a character are joined."""
    current: Span | None = None
    for span in sorted(spans):
        if current is None or span.start >= current.end:
            if current is not None:
                yield current
            current = span
        else:
            current = Span(current.start, max(current.end, span.end))
    if current is not None:
        yield current


def overlaps(span: Span, others: Sequence[Span]) -> bool:
    """Whether a span shares a character with one of `others`, which are in order and do not overlap."""
    last = bisect_left(others, span.end, key=lambda other: other.start) - 1
    return last >= 0 and span.start < others[last].end


def _shortcodes(text: str, closed: Collection[str]) -> Iterator[Span]:
    """Yield the shortcodes. closed: the names for which `[name]` is a shortcode."""
    yield from (Span(*match.span()) for match in _SHORTCODE.finditer(text))
    if closed:
        yield from (Span(*match.span()) for match in _OPENING_SHORTCODE.finditer(text) if match[1] in closed)


def _brace_spans(text: str) -> Iterator[Span]:
    """Yield braces around a variable and double braces around anything, each with the sigil before it."""
    opened: list[int] = []
    last_pair = Span(0, 0)
    for brace in _BRACES.finditer(text):
        if brace.group() == "{":
            opened.append(brace.start())
        elif opened:
            start, end = pair = Span(opened.pop(), brace.end())
            is_double = last_pair == Span(start + 1, end - 1)
            if is_double or _is_variable(text, start, end):
                has_sigil = start > 0 and text[start - 1] in _SIGILS
                yield Span(start - has_sigil, end)
            last_pair = pair


def _is_variable(text: str, start: int, end: int) -> bool:
    """Whether the pair of single braces text[start:end] is a variable and not prose in braces.

    A variable is a name without spaces, an ICU argument with its type, or anything after `{%` or `{#`, between `{!!`
    and `!!}`, or in braces after one of `$%#@`.
    """
    if text[start + 1] in "%#" or (start > 0 and text[start - 1] in _SIGILS):
        return True
    if text.startswith("!!", start + 1) and text.endswith("!!", start + 3, end - 1):
        return True
    name = _NAME.match(text, start + 1)
    if name is not None and name.end() == end - 1:
        return True
    return _ARGUMENT.match(text, start + 1, end) is not None


def _without_closing_punctuation(text: str, start: int, end: int) -> Span:
    """Return a URL without the sentence's punctuation, Markdown's `*_~`, and unmatched closing brackets at its end.

    If such a mark is really the last character of the URL, it is left out as well.
    """
    counts = {mark: text.count(mark, start, end) for mark in "()[]{}"}
    while end > start:
        last = text[end - 1]
        opening = _OPENING_BRACKET_OF.get(last)
        if opening is not None:
            if counts[opening] >= counts[last]:
                break
            counts[last] -= 1
        elif last not in ".,;:!?'*_~" and (last.isascii() or not category(last).startswith("P")):
            break
        end -= 1
    return Span(start, max(end, start + 1))
