"""The bodies that the /v2 routes read, and the types of their answers.

A body is JSON or a form. A form is urlencoded, but the form of POST /v2/document is multipart. The values in a form are
strings, even where JSON has a number, a boolean or an array. A repeated urlencoded field is a list of strings.
"""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal, NotRequired, Self

from pydantic import BeforeValidator, Field, ValidationInfo, WithJsonSchema, model_validator
from pydantic_core import PydanticCustomError
from typing_extensions import TypedDict

from app.api.http.validation import (
    INVALID_BODY,
    NotOffered,
    OneOrMore,
    TolerantBody,
    as_texts,
    check_total,
)
from app.api.limits import RequestLimits
from app.stores.glossaries import EntriesFormat, GlossaryLimits

MAX_TAGS = 100
MAX_TAG_CHARACTERS = 100
_SWITCHES = {"0": False, "1": True, "false": False, "true": True}


def _to_bool(value: object) -> object:
    word = str(value) if type(value) is int else value
    return _SWITCHES.get(word.lower(), value) if isinstance(word, str) else value


def _to_string(value: object) -> object:
    return str(value) if type(value) is int else value


def _to_list(value: object) -> object:
    """Split a string, or each string of an array, at its commas. Blank parts are dropped."""
    items = value if isinstance(value, list) else [value]
    parts = [map(str.strip, item.split(",")) if isinstance(item, str) else [item] for item in items]
    return [part for each in parts for part in each if part != ""]


def _to_lower(value: object) -> object:
    return value.lower() if isinstance(value, str) else value


Switch = Annotated[bool, BeforeValidator(_to_bool)]
Tags = Annotated[
    list[Annotated[str, Field(max_length=MAX_TAG_CHARACTERS)]],
    Field(max_length=MAX_TAGS, fail_fast=True),
    BeforeValidator(_to_list),
]
Ignored = Annotated[Any, Field(description="ignored")]
Formality = Annotated[
    Literal["default", "more", "less", "prefer_more", "prefer_less"] | None,
    BeforeValidator(_to_lower),
    Field(description="more and less are refused, because no model supports them; the others change nothing"),
]
GlossaryId = Annotated[
    str | None,
    Field(description="a stored glossary's id; needs source_lang"),
]
SourceLanguage = Annotated[str, Field(description="language code; absent: detected")]
RequiredLanguage = Annotated[str, Field(min_length=1, description="language code")]
UploadedFile = Annotated[
    Any, WithJsonSchema({"type": "string", "format": "binary"}), Field(description="the file")
]


class V2Body(TolerantBody):
    """Base of the bodies. An optional field that is an empty string counts as not sent."""

    missing_message: ClassVar[str] = "{field} is required"

    @model_validator(mode="before")
    @classmethod
    def _drop_empty(cls, value: object) -> object:
        """Drop the optional fields that are empty strings. A web form sends one for each input without a value."""
        if not isinstance(value, dict):
            return value
        optional = {name for name, field in cls.model_fields.items() if not field.is_required()}
        return {key: item for key, item in value.items() if item != "" or key not in optional}


class V2TranslationBody(V2Body):
    """The fields that texts and documents have in common."""

    source_lang: SourceLanguage = ""
    target_lang: RequiredLanguage
    formality: Formality = None
    glossary_id: GlossaryId = None
    glossary_ids: Annotated[
        list[str], BeforeValidator(_to_list), Field(description="at most one id, instead of glossary_id")
    ] = Field(default_factory=list)
    translation_memory_threshold: Ignored = None
    custom_instructions: NotOffered = None
    style_id: NotOffered = None
    translation_memory_id: NotOffered = None

    @property
    def glossary(self) -> str | None:
        """The stored glossary's id, from either field."""
        return self.glossary_id if self.glossary_id is not None else next(iter(self.glossary_ids), None)

    @model_validator(mode="after")
    def _check_glossary(self) -> Self:
        """Check that there is at most one glossary, and that the source language is named with it."""
        if len(self.glossary_ids) + (self.glossary_id is not None) > 1:
            raise PydanticCustomError(
                INVALID_BODY, "at most one glossary is used in a request", {"field": "glossary_ids"}
            )
        if self.glossary is not None and not self.source_lang:
            raise PydanticCustomError(
                INVALID_BODY, "source_lang is required with a glossary", {"field": "source_lang"}
            )
        return self


class V2TranslateBody(V2TranslationBody):
    """The body of POST /v2/translate."""

    text: Annotated[
        str | list[str],
        OneOrMore("max_items", "max_item_characters"),
        Field(description="one text, or several"),
    ]
    split_sentences: Annotated[
        Literal["0", "1", "nonewlines"] | None,
        BeforeValidator(_to_string),
        Field(
            description="0: a line break ends a sentence, a full stop does not; 1: a line break also ends a sentence, "
            "except in HTML; nonewlines: a line break does not end one; absent: 1, or nonewlines with tag_handling html"
        ),
    ] = None
    preserve_formatting: Annotated[Switch, Field(description="ignored: formatting is always kept")] = True
    tag_handling: Annotated[
        Literal["xml", "html"] | None,
        Field(description="what the texts are written in; absent: plain text"),
    ] = None
    tag_handling_version: Annotated[Literal["v1", "v2"], Field(description="both mean the same")] = "v2"
    outline_detection: Annotated[
        Switch, Field(description="xml: a sentence ends at an element whose parent directly contains no text")
    ] = True
    splitting_tags: Annotated[Tags, Field(description="xml: elements at which a sentence always ends")] = (
        Field(default_factory=list)
    )
    non_splitting_tags: Annotated[Tags, Field(description="xml: elements at which no sentence ends")] = Field(
        default_factory=list
    )
    ignore_tags: Annotated[Tags, Field(description="elements whose content is not translated")] = Field(
        default_factory=list
    )
    model_type: Annotated[
        Literal["latency_optimized", "quality_optimized", "prefer_quality_optimized"] | None,
        Field(description="latency_optimized: greedy search"),
    ] = None
    context: Ignored = None
    show_billed_characters: Ignored = None

    @property
    def texts(self) -> tuple[str, ...]:
        """The texts."""
        return as_texts(self.text)

    @model_validator(mode="after")
    def _check_texts(self, info: ValidationInfo[RequestLimits]) -> Self:
        check_total({"text": self.texts}, info.context.max_request_characters)
        return self


class V2LanguagesQuery(V2Body):
    """The fields of GET /v2/languages."""

    type: Literal["source", "target"] = "source"


class V2GlossaryBody(V2Body):
    """The body of POST /v2/glossaries."""

    name: Annotated[
        str,
        Field(
            min_length=1,
            max_length=GlossaryLimits.max_name_length,
            description="the glossary's name, which only its owner sees",
        ),
    ]
    source_lang: RequiredLanguage
    target_lang: RequiredLanguage
    entries: Annotated[str, Field(description="one line for each term: the term and its translation")]
    entries_format: Annotated[
        EntriesFormat, Field(strict=False, description="what separates term and translation")
    ]


class V2DocumentBody(V2TranslationBody):
    """The form of POST /v2/document."""

    file: UploadedFile
    filename: Annotated[str, Field(description="replaces the uploaded file's own name")] = ""
    output_format: Annotated[str, Field(description="the file's own format; others are refused")] = ""


class V2DocumentKeyBody(V2Body):
    """The body or the query of the routes of one document."""

    document_key: Annotated[str, Field(description="from the answer to the upload")]


class V2Error(TypedDict):
    """Why a request failed."""

    message: str
    field: NotRequired[Annotated[str, Field(description="a misspelt field")]]


class V2TranslationRow(TypedDict):
    """The translation of one text."""

    detected_source_language: Annotated[
        str,
        Field(
            description="upper-case code of the source text's language, sent or detected, without region and script"
        ),
    ]
    text: str
    billed_characters: Annotated[int, Field(description="code points of the source text, markup included")]
    model_type_used: NotRequired[Annotated[str, Field(description="with model_type")]]


class V2TranslateAnswer(TypedDict):
    """The answer of POST /v2/translate."""

    translations: Annotated[list[V2TranslationRow], Field(description="one for each text, in order")]


class V2Language(TypedDict):
    """A language that is served."""

    language: Annotated[str, Field(description="upper-case code")]
    name: str
    supports_formality: NotRequired[Annotated[bool, Field(description="only with type=target; always false")]]


class V2Usage(TypedDict):
    """The code points counted for the caller's key in this month, or in this day if only the day has a limit.

    character_limit: the limit of the key for that month or day; 1,000,000,000,000 if it has none.
    """

    character_count: int
    character_limit: int


class V2GlossaryPair(TypedDict):
    """A pair of languages that a glossary can have."""

    source_lang: str
    target_lang: str


class V2GlossaryPairs(TypedDict):
    """The answer of GET /v2/glossary-language-pairs."""

    supported_languages: list[V2GlossaryPair]


class V2Glossary(TypedDict):
    """A stored glossary."""

    glossary_id: str
    name: str
    ready: bool
    source_lang: str
    target_lang: str
    creation_time: Annotated[str, Field(description="UTC, ISO 8601 with milliseconds")]
    entry_count: int


class V2Glossaries(TypedDict):
    """The answer of GET /v2/glossaries."""

    glossaries: list[V2Glossary]


class V2DocumentHandle(TypedDict):
    """The answer of POST /v2/document. Neither value can be guessed."""

    document_id: str
    document_key: str


class V2DocumentStatus(TypedDict):
    """The state of a document."""

    document_id: str
    status: Literal["queued", "translating", "done", "error"]
    seconds_remaining: NotRequired[
        Annotated[int, Field(description="while translating: an estimate, at least 1")]
    ]
    billed_characters: NotRequired[Annotated[int, Field(description="once done: code points translated")]]
    error_message: NotRequired[Annotated[str, Field(description="with error")]]
