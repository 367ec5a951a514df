"""The text of a JSON string, a PO message or an XLIFF source, and its unit.

A string with a tag of HTML, a whole element or a character reference is HTML. The unit's text differs from the string:

- The arguments of printf are numbered, `%s` as `%1$s`. So the translation shows whether their order has changed.
- In HTML, an element with a number as its name gets a name: `<0>...</0>` becomes `<n0>...</n0>`.
- In HTML without block elements, `<br>` follows each line break, because HTML reads a line break as a space.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from html import unescape
from itertools import count

from app.files.references import has_reference
from app.files.unit import Unit, UnitFormat
from app.text.html_parts import BLOCKS
from app.text.html_scanner import scan_html
from app.text.protected_spans import printf_conversions
from app.text.segmentation import Span

_TAG = re.compile(
    r"<(?P<close>/?)(?:(?P<name>[A-Za-z][A-Za-z0-9-]*)(?P<attributes>\s[^<>]*)?/?|(?P<number>\d{1,3}))>"
)
# An attribute with a value. If attributes without a value precede it, the value must be in quotes, because
# `<your value for x=1>` is text.
_ATTRIBUTE = re.compile(r"(?:\s++[A-Za-z][\w:.-]*+)*?\s++[A-Za-z][\w:.-]*+=[\"']|\s++[A-Za-z][\w:.-]*+=")
# Elements of HTML whose tag alone is markup. Other names may be variables, as in `Usage: tool <file> <output>`.
_NAMES_OF_HTML = """
    a b big blockquote br dd del div dl dt em font h1 h2 h3 h4 h5 h6 hr i img ins kbd li ol p pre s small span strike
    strong sub sup tbody td tfoot th thead tr tt u ul wbr
"""
_HTML_NAMES = frozenset(_NAMES_OF_HTML.split())
_NUMBERED_TAG = re.compile(r"(</?)(\d{1,3}>)")
_NAMED_TAG = re.compile(r"(</?)n(\d{1,3}>)")
_LINE_BREAKS = re.compile(r"[\t\n\r\x85\u2028\u2029]+")
_BOUNDARY = "<br>"
# How the text layer writes `&`, `<` and `>`. A `<` that would begin a tag must stay a reference.
_ESCAPED = re.compile(r"&(?:amp|gt|lt(?!;[A-Za-z/!?]));")
# A conversion of printf that chooses its argument by name or number.
_CHOSEN = re.compile(r"%(?:\(|\d+\$)")
# Whatever a program may read as a conversion, also with a letter directly after it, as in `%.2fs`.
_POSSIBLE = re.compile(
    r"%(?:[-+#0']|(?<!\d%) )*(?:\d+|\*)?(?:\.(?:\d+|\*)?)?(?:hh?|ll?|[Lqzjt])?(?:[diouxXeEfFgGaAcsp@]|<PRI)"
)
# A conversion takes up to three arguments, and a number of three digits would not be a placeholder.
_MAX_CONVERSIONS = 33


@dataclass(frozen=True, slots=True)
class StringText:
    """A string and its unit.

    value: the string, without the escapes of JSON or PO. conversions: those of printf that take the next argument, each
    with its numbered form; empty if there are fewer than two, or if any cannot be numbered or is no placeholder.
    """

    value: str
    unit: Unit
    conversions: tuple[tuple[Span, str], ...]

    @classmethod
    def of(cls, value: str) -> StringText:
        """Return the text of a string."""
        is_html = _is_html(value)
        conversions = tuple(_conversions(value, is_html=is_html))
        text = _with_numbers(value, conversions)
        if not is_html:
            return cls(value, Unit(text), conversions)
        if _NAMED_TAG.search(value) is None:
            text = _with_names(text)
        return cls(value, Unit(_with_boundaries(text), UnitFormat.HTML), conversions)

    @classmethod
    def of_xml(cls, text: str, plain: str) -> StringText:
        """Return the text of a string that has marks.

        text: of a unit in the format XML. plain: the string without marks. A mark in or beside a conversion may make
        it another one, and then no conversion gets a number.
        """
        conversions = tuple(_conversions(text, is_html=True))
        if [span.of(text) for span, _ in conversions] != [
            span.of(plain) for span in printf_conversions(plain)
        ]:
            conversions = ()
        return cls(text, Unit(_with_numbers(text, conversions), UnitFormat.XML), conversions)

    def translated(self, translation: str) -> str:
        """The translated string. translation: that of the unit.

        The conversions of printf stay numbered if their order has changed.
        """
        text = self._as_in_value(translation) if self.unit.format is UnitFormat.HTML else translation
        if not self.conversions or self.is_reordered(translation):
            return text
        spans = (span for span, _ in self.conversions)
        return self._numbered.sub(lambda _: next(spans).of(self.value), text)

    def is_reordered(self, translation: str) -> bool:
        """Whether the unit's translation has the conversions of printf in another order, or not all of them."""
        return bool(self.conversions) and (
            self._numbered.findall(translation) != [form for _, form in self.conversions]
        )

    @property
    def _numbered(self) -> re.Pattern[str]:
        """Matches the numbered forms of the conversions."""
        return re.compile("|".join(re.escape(form) for _, form in self.conversions))

    def _as_in_value(self, translation: str) -> str:
        """A translation in HTML with the line breaks, the names and the spelling of `&`, `<` and `>` of the string."""
        if not _has_blocks(self.value):
            translation = translation.replace(_BOUNDARY, "")
        if _NAMED_TAG.search(self.value) is None:
            translation = _NAMED_TAG.sub(r"\1\2", translation)
        if has_reference(self.value):
            return translation
        return _ESCAPED.sub(lambda match: unescape(match.group()), translation)


def takes_next_argument(text: str) -> bool:
    """Whether the text is a conversion of printf that takes the next argument, such as `%s`."""
    return printf_conversions(text) == [Span(0, len(text))] and not _CHOSEN.match(text)


def _is_html(text: str) -> bool:
    """Whether the text has a character reference, or a tag with a name of HTML, with an attribute or with an end.

    Examples: `&amp;`, `<b>`, `<x y="z">`, `<x/>`, `<x>...</x>` and `<0>...</0>`.
    """
    if has_reference(text):
        return True
    names: dict[str, set[str]] = {"": set(), "/": set()}
    for tag in _TAG.finditer(text):
        name = (tag["name"] or tag["number"]).lower()
        names[tag["close"]].add(name)
        if name in _HTML_NAMES or tag.group().endswith("/>") or _ATTRIBUTE.match(tag["attributes"] or ""):
            return True
    return not names[""].isdisjoint(names["/"])


def _has_blocks(text: str) -> bool:
    """Whether the text has a block element or `<br>`, so that its line breaks count as spaces."""
    return any((tag["name"] or "").lower() in BLOCKS for tag in _TAG.finditer(text))


def _conversions(value: str, *, is_html: bool) -> Iterator[tuple[Span, str]]:
    """Yield the conversions of printf with their numbered forms, as in `StringText`."""
    spans = printf_conversions(value)
    if not 2 <= len(spans) <= _MAX_CONVERSIONS or any(_CHOSEN.match(value, span.start) for span in spans):
        return
    if is_html and any("<" in span.of(value) for span in spans):
        return  # HTML reads `<PRIu64>` as a tag
    if len(_POSSIBLE.findall(value.replace("%%", ""))) != len(spans):
        return  # numbered and unnumbered conversions must not be in one string
    numbers = count(1)
    for span in spans:
        # Each `*` takes an argument before that of the conversion.
        options = re.sub(r"\*", lambda _: f"*{next(numbers)}$", value[span.start + 1 : span.end])
        yield span, f"%{next(numbers)}${options}"


def _with_numbers(value: str, conversions: Iterable[tuple[Span, str]]) -> str:
    parts: list[str] = []
    done = 0
    for span, numbered in conversions:
        parts += (value[done : span.start], numbered)
        done = span.end
    return "".join([*parts, value[done:]])


def _with_names(text: str) -> str:
    """The text with a name for each element that has a number. A tag without a partner keeps its number."""
    tags = {
        close: {tag["number"] for tag in _TAG.finditer(text) if tag["close"] == close} for close in ("", "/")
    }
    numbers = tags[""] & tags["/"]
    return _NUMBERED_TAG.sub(
        lambda tag: f"{tag[1]}n{tag[2]}" if tag[2][:-1] in numbers else tag.group(), text
    )


def _with_boundaries(text: str) -> str:
    """The text with `<br>` after its line breaks, except in tags and comments; unchanged if it has block elements."""
    if _has_blocks(text) or not _LINE_BREAKS.search(text):
        return text
    return "".join(
        _LINE_BREAKS.sub(rf"\g<0>{_BOUNDARY}", raw) if event.kind == "text" else raw
        for event in scan_html(text)
        for raw in (text[event.start : event.end],)
    )
