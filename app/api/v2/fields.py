"""The fields of POST /v2/translate: strings where the body is a form, JSON's own types where it is JSON."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from app.api.http.form_body import Fields
from app.api.http.values import check_misspelt, check_total, choice, texts
from app.api.languages import served_language
from app.api.native.schema import RequestLimits
from app.errors import InvalidRequest
from app.text.parsed_text import Splitting, TextFormat
from app.text.xml_reader import XmlRules

FORMATS = {"xml": TextFormat.XML, "html": TextFormat.HTML}
SPLITTINGS = {"0": Splitting.LINES, "1": Splitting.SENTENCES, "nonewlines": Splitting.NO_NEWLINES}
FORMALITIES = ("default", "more", "less", "prefer_more", "prefer_less")
MODEL_TYPES = {
    "latency_optimized": "latency_optimized",
    "quality_optimized": "quality_optimized",
    "prefer_quality_optimized": "quality_optimized",
}
SWITCHES = {"0": False, "1": True, "false": False, "true": True}
MAX_TAGS = 100
MAX_TAG_CHARACTERS = 100
# Ignoring these would give an answer that is not what was asked for.
NOT_OFFERED = ("custom_instructions", "style_id", "translation_memory_id")


# What POST /v2/translate reads, and what its clients send besides.
KNOWN = (
    "text",
    "source_lang",
    "target_lang",
    "split_sentences",
    "preserve_formatting",
    "formality",
    "glossary_id",
    "glossary_ids",
    "tag_handling",
    "tag_handling_version",
    "outline_detection",
    "splitting_tags",
    "non_splitting_tags",
    "ignore_tags",
    "model_type",
    "context",
    "show_billed_characters",
    "translation_memory_threshold",
    *NOT_OFFERED,
)


@dataclass(frozen=True)
class V2Request:
    """A request, checked. Languages are served ones; source None: to be detected.

    glossary_id: not yet looked up. model_type: as it is told in the answer; None: not asked for.
    """

    texts: tuple[str, ...]
    source: str | None
    target: str
    text_format: TextFormat
    splitting: Splitting
    xml: XmlRules
    glossary_id: str | None
    model_type: str | None


def read_request(fields: Fields, limits: RequestLimits, pairs: Collection[tuple[str, str]]) -> V2Request:
    """Check a body. pairs: source and target that are served. Raises InvalidRequest, PayloadTooLarge."""
    check_misspelt(fields, KNOWN)
    given = {name: value for name, value in fields.items() if value is not None}
    found = texts(
        given.get("text"), "text", max_items=limits.max_items, max_characters=limits.max_item_characters
    )
    check_total({"text": found}, limits.max_request_characters)
    source, target = _languages(given, pairs)
    _check_formality(given, target)
    for name in NOT_OFFERED:
        if given.get(name):
            raise InvalidRequest(f"{name} is not offered here", field=name)
    if "tag_handling_version" in given:
        choice(given["tag_handling_version"], "tag_handling_version", ("v1", "v2"))
    if "preserve_formatting" in given:
        _switch(given, "preserve_formatting")  # formatting is kept in any case
    tag_handling = given.get("tag_handling") or None
    text_format = TextFormat.PLAIN
    if tag_handling is not None:
        text_format = FORMATS[choice(tag_handling, "tag_handling", tuple(FORMATS))]
    model_type = given.get("model_type")
    return V2Request(
        texts=found,
        source=source,
        target=target,
        text_format=text_format,
        splitting=_splitting(given, text_format),
        xml=XmlRules(
            ignored=_tags(given, "ignore_tags"),
            splitting=_tags(given, "splitting_tags"),
            not_splitting=_tags(given, "non_splitting_tags"),
            is_outlined=_switch(given, "outline_detection") if "outline_detection" in given else True,
        ),
        glossary_id=_glossary_id(given, source),
        model_type=None
        if model_type is None
        else MODEL_TYPES[choice(model_type, "model_type", tuple(MODEL_TYPES))],
    )


def read_pair(fields: Mapping[str, object], pairs: Collection[tuple[str, str]]) -> tuple[str, str]:
    """A pair that is served, of a glossary. Raises InvalidRequest."""
    source, target = _languages(fields, pairs)
    if source is None:
        raise InvalidRequest("source_lang must be given", field="source_lang")
    if (source, target) not in pairs:
        raise InvalidRequest("target_lang is not supported with this source_lang", field="target_lang")
    return source, target


def _languages(fields: Mapping[str, object], pairs: Collection[tuple[str, str]]) -> tuple[str | None, str]:
    targets = sorted({target for _, target in pairs})
    target = _language(fields.get("target_lang"), "target_lang", targets)
    if not fields.get("source_lang"):
        return None, target
    served = sorted({source for source, _ in pairs} | set(targets))
    return _language(fields["source_lang"], "source_lang", served), target


def _language(code: object, name: str, served: Collection[str]) -> str:
    if not code:
        raise InvalidRequest(f"{name} must be given", field=name)
    found = served_language(code, served) if isinstance(code, str) else None
    if found is None:
        listed = ", ".join(known.upper() for known in served)
        raise InvalidRequest(f"this value of {name} is not supported; there are {listed}", field=name)
    return found


def _check_formality(fields: Mapping[str, object], target: str) -> None:
    """`prefer_more` and `prefer_less` are wishes, the other two demands."""
    value = fields.get("formality") or "default"
    wanted = choice(value.lower() if isinstance(value, str) else value, "formality", FORMALITIES)
    if wanted in {"more", "less"}:
        raise InvalidRequest(
            f"Target language {target.upper()} has no formality to choose here; prefer_{wanted} is a wish",
            field="formality",
        )


def _splitting(fields: Mapping[str, object], text_format: TextFormat) -> Splitting:
    value = fields.get("split_sentences")
    if value is None:
        return Splitting.NO_NEWLINES if text_format is TextFormat.HTML else Splitting.SENTENCES
    word = str(value) if type(value) is int else value
    return SPLITTINGS[choice(word, "split_sentences", tuple(SPLITTINGS))]


def _switch(fields: Mapping[str, object], name: str) -> bool:
    value = fields[name]
    if isinstance(value, bool):
        return value
    word = str(value) if type(value) is int else value
    if not isinstance(word, str) or word.lower() not in SWITCHES:
        raise InvalidRequest(f"{name} must be true or false, 1 or 0", field=name)
    return SWITCHES[word.lower()]


def _tags(fields: Mapping[str, object], name: str) -> frozenset[str]:
    """Names of elements: an array, or parted by commas."""
    value = fields.get(name, [])
    items = value if isinstance(value, list) else [value]
    lists = [item for item in items if isinstance(item, str)]
    if len(lists) < len(items):
        raise InvalidRequest(f"{name} must be an array of strings", field=name)
    names = {part.strip() for each in lists for part in each.split(",")} - {""}
    if len(names) > MAX_TAGS or any(len(each) > MAX_TAG_CHARACTERS for each in names):
        raise InvalidRequest(
            f"{name} takes at most {MAX_TAGS} names of at most {MAX_TAG_CHARACTERS} characters", field=name
        )
    return frozenset(names)


def _glossary_id(fields: Mapping[str, object], source: str | None) -> str | None:
    """One glossary, under either name."""
    several = fields.get("glossary_ids", [])
    ids = several.split(",") if isinstance(several, str) else several
    one = fields.get("glossary_id")
    if not isinstance(ids, list) or len(ids) + (one is not None) > 1:
        raise InvalidRequest("at most one glossary is used in a request", field="glossary_ids")
    found = one if one is not None else next(iter(ids), None)
    if found is None:
        return None
    if not isinstance(found, str):
        raise InvalidRequest("glossary_id must be a string", field="glossary_id")
    if source is None:
        raise InvalidRequest("source_lang must be given where a glossary is", field="source_lang")
    return found
