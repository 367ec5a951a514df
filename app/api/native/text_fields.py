"""What the native API is told of the texts themselves: language, format, markup, glossary. Checked field by field."""

from __future__ import annotations

import re
from typing import TypedDict

from app.api.http.values import Body, checked_object, choice, language, texts
from app.errors import InvalidRequest, PayloadTooLarge
from app.stores.glossaries import GlossaryLimits
from app.text.glossary import Term
from app.text.parsed_text import Splitting, TextFormat
from app.text.xml_reader import XmlRules

TAG_FIELDS = ("ignore_tags", "splitting_tags", "non_splitting_tags")
TEXT_FIELDS = ("format", "splitting", *TAG_FIELDS, "glossary")
AUTO = "auto"
MAX_TAGS = 100
MAX_TAG_CHARACTERS = 64
MAX_TERMS = 1000
MAX_TERM_CHARACTERS = GlossaryLimits.max_term_length
MAX_ID_CHARACTERS = 64
_TAG_NAME = re.compile(r"[^\W\d][\w.:\-]*")


FORMATS = {each.value: each for each in TextFormat}
SPLITTINGS = {each.value: each for each in Splitting}
NO_RULES = XmlRules()


class TextFields(TypedDict):
    """Those of `TranslationRequest` that say what its texts are."""

    source: str | None
    target: str
    text_format: TextFormat
    splitting: Splitting
    xml: XmlRules
    terms: tuple[Term, ...]
    glossary_id: str | None


def parse_text_fields(body: Body) -> TextFields:
    """Raises InvalidRequest, PayloadTooLarge."""
    source = None if body.get("source") == AUTO else language(body, "source")
    text_format = FORMATS[choice(body.get("format", "text"), "format", FORMATS)]
    splitting = SPLITTINGS[choice(body.get("splitting", "sentences"), "splitting", SPLITTINGS)]
    glossary_id, terms = _glossary(body["glossary"]) if "glossary" in body else (None, ())
    if glossary_id is not None and source is None:
        raise InvalidRequest("glossary.id needs a source that is named, not auto", field="source")
    return {
        "source": source,
        "target": language(body, "target"),
        "text_format": text_format,
        "splitting": splitting,
        "xml": _xml_rules(body, text_format),
        "terms": terms,
        "glossary_id": glossary_id,
    }


def _xml_rules(body: Body, text_format: TextFormat) -> XmlRules:
    if body.keys().isdisjoint(TAG_FIELDS):
        return NO_RULES
    names = {name: _tags(body[name], name) if name in body else frozenset() for name in TAG_FIELDS}
    for name in TAG_FIELDS:
        allowed = ("html", "xml") if name == "ignore_tags" else ("xml",)
        if name in body and text_format.value not in allowed:
            raise InvalidRequest(f"{name} needs format {' or '.join(allowed)}", field=name)
    ignored, splitting, not_splitting = names.values()
    if splitting & not_splitting:
        raise InvalidRequest(
            "splitting_tags and non_splitting_tags have a name in common", field="splitting_tags"
        )
    if text_format is TextFormat.HTML:
        ignored = frozenset(name.lower() for name in ignored)
    return XmlRules(ignored, splitting, not_splitting)


def _tags(value: object, name: str) -> frozenset[str]:
    """Names of elements."""
    if not isinstance(value, list):
        raise InvalidRequest(f"{name} must be an array of strings", field=name)
    names = texts(value, name, max_items=MAX_TAGS, max_characters=MAX_TAG_CHARACTERS) if value else ()
    for index, tag in enumerate(names):
        if not _TAG_NAME.fullmatch(tag):
            raise InvalidRequest(f"{name}[{index}] is no name of an element", field=f"{name}[{index}]")
    return frozenset(names)


def _glossary(value: object) -> tuple[str | None, tuple[Term, ...]]:
    """The id of a stored one, or the terms of one that is given here."""
    fields = checked_object(value, "glossary", ("id", "terms"))
    if len(fields) != 1:
        raise InvalidRequest("glossary must have either id or terms", field="glossary")
    if "terms" in fields:
        return None, _terms(fields["terms"])
    glossary_id = fields["id"]
    if not isinstance(glossary_id, str) or not 0 < len(glossary_id) <= MAX_ID_CHARACTERS:
        raise InvalidRequest(
            f"glossary.id must be a string of 1 to {MAX_ID_CHARACTERS} characters", field="glossary.id"
        )
    return glossary_id, ()


def _terms(value: object) -> tuple[Term, ...]:
    """An object: term to translation. What is wrong is named by its place, counted from 0."""
    name = "glossary.terms"
    if not isinstance(value, dict) or not value:
        raise InvalidRequest(f"{name} must be a JSON object with a string for each term", field=name)
    if len(value) > MAX_TERMS:
        raise PayloadTooLarge(f"{name} has {len(value)} terms, the limit is {MAX_TERMS}", field=name)
    found = []
    for index, (source, target) in enumerate(value.items()):
        if not isinstance(target, str):
            raise InvalidRequest(f"{name}: the translation of term {index} must be a string", field=name)
        term = Term(source.strip(), target.strip())
        for what, text in (("term", term.source), ("translation of term", term.target)):
            if not 0 < len(text) <= MAX_TERM_CHARACTERS or not text.isprintable():
                raise InvalidRequest(
                    f"{name}: the {what} {index} must have 1 to {MAX_TERM_CHARACTERS} printable characters",
                    field=name,
                )
        found.append(term)
    return tuple(found)
