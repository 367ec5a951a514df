"""The request bodies of the native API. `app.api.native.requests` turns them into the translator's requests.

Here the defaults of a search's options (`SEARCH_FIELDS` of that module) only describe the API. An option that the body
does not set has the default of the model or of `DecodingOptions`. Pydantic's `model_fields_set` names the set fields.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Self

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Discriminator,
    Field,
    Tag,
    ValidationInfo,
    model_validator,
)
from pydantic_core import PydanticCustomError

from app.api.http.validation import (
    INVALID,
    INVALID_BODY,
    AtMost,
    MaxCharacters,
    MaxItems,
    OneOrMore,
    RequestBody,
    as_texts,
    check_total,
)
from app.api.limits import RequestLimits
from app.decoding.options import MAX_ALTERNATIVES, EarlyStop, LengthPenalty
from app.decoding.validation import MAX_ALPHA, MAX_PENALTY, MAX_RATIO, MAX_SEED, MAX_SUPPRESSED_TOKENS, Bounds
from app.stores.glossaries import GlossaryLimits, term_problem
from app.text.parsed_text import Splitting, TextFormat

AUTO = "auto"
MAX_LANGUAGE_CHARACTERS = 35
MAX_TAGS = 100
MAX_TAG_CHARACTERS = 64
MAX_TERMS = 1000
MAX_TERM_CHARACTERS = GlossaryLimits.max_term_length
MAX_ID_CHARACTERS = 64
TAG_FIELDS = ("ignore_tags", "splitting_tags", "non_splitting_tags")
_TAG_NAME = re.compile(r"[^\W\d][\w.:\-]*")


@dataclass(frozen=True)
class NativeLimits:
    """The validation context: the limits of the server, and of each limit of some models the largest value.

    max_target_length: the maximum subwords of a sentence's translation.
    """

    max_items: int
    max_item_characters: int
    max_request_characters: int
    max_beam_size: int
    max_num_hypotheses: int
    max_timeout_ms: int
    max_target_length: int
    vocab_size: int


def native_limits(limits: RequestLimits, bounds: Sequence[Bounds]) -> NativeLimits:
    """The context for the server's settings and the bounds of some models."""
    return NativeLimits(
        max_items=limits.max_items,
        max_item_characters=limits.max_item_characters,
        max_request_characters=limits.max_request_characters,
        max_beam_size=limits.max_beam_size,
        max_num_hypotheses=limits.max_num_hypotheses,
        max_timeout_ms=limits.max_timeout_ms,
        max_target_length=max(each.max_target_length for each in bounds),
        vocab_size=max(each.vocab_size for each in bounds),
    )


def _check_tags(names: list[str]) -> list[str]:
    for index, name in enumerate(names):
        if not _TAG_NAME.fullmatch(name):
            raise PydanticCustomError(INVALID, "is not a valid name of an element", {"at": index})
    return names


def _check_phrases(value: str | list[str]) -> str | list[str]:
    for index, phrase in enumerate(as_texts(value)):
        if not phrase.strip():
            raise PydanticCustomError(INVALID, "must not be blank", {"at": index})
    return value


def _check_translations(terms: object) -> object:
    if isinstance(terms, dict) and not all(isinstance(translation, str) for translation in terms.values()):
        raise PydanticCustomError(INVALID, "must have a string for each term")
    return terms


def _check_terms(terms: dict[str, str] | None) -> dict[str, str] | None:
    if terms is None:
        return None
    if not terms:
        raise PydanticCustomError(INVALID, "must have at least one term")
    for number, pair in enumerate(terms.items(), 1):
        for what, text in zip(("term", "translation of term"), pair, strict=True):
            problem = term_problem(text.strip(), MAX_TERM_CHARACTERS)
            if problem is not None:
                raise PydanticCustomError(
                    INVALID,
                    "is not valid: the {what} {number} {problem}",
                    {"what": what, "number": number, "problem": problem},
                )
    return terms


def _check_not_auto(source: str) -> str:
    if source == AUTO:
        raise PydanticCustomError(INVALID, "must be a language code: this route does not detect languages")
    return source


def _doc(description: str, **options: Any) -> Any:
    return Field(description=description, **options)


Texts = Annotated[str | list[str], OneOrMore("max_items", "max_item_characters")]
Language = Annotated[str, Field(min_length=1, max_length=MAX_LANGUAGE_CHARACTERS)]
# Accepts a string as the value of an enumeration, although the types of a body are strict.
_CHOICE = Field(strict=False)
Tags = Annotated[
    list[Annotated[str, MaxCharacters(MAX_TAG_CHARACTERS)]],
    Field(fail_fast=True),
    MaxItems(MAX_TAGS),
    AfterValidator(_check_tags),
]
Phrases = Annotated[
    str | list[str], OneOrMore(MAX_SUPPRESSED_TOKENS, "max_item_characters"), AfterValidator(_check_phrases)
]
Alpha = Annotated[float, Field(ge=0, le=MAX_ALPHA)]
Length = Annotated[int, Field(ge=0), AtMost("max_target_length")]


class Sampling(RequestBody):
    """Draw each token by its probability, the end token too, instead of searching for the best."""

    temperature: Annotated[float, _doc("divides the log-probabilities; 1: off", ge=0.01, le=100)] = 1.0
    top_k: Annotated[
        int, _doc("draw from the k most probable tokens only; 0: off", ge=0), AtMost("vocab_size")
    ] = 0
    top_p: Annotated[
        float, _doc("draw from the most probable tokens, as few as reach this sum; 1: off", ge=0.001, le=1)
    ] = 1.0
    seed: Annotated[
        int | None,
        _doc("the same seed draws the same translations; absent: a random seed", ge=0, le=MAX_SEED),
    ] = None


class LengthPenaltyFormula(RequestBody):
    """`wu` divides by ((5 + n) / 6)^alpha, `power` by n^alpha. n counts the subwords and the end token."""

    formula: Annotated[LengthPenalty, _CHOICE]
    alpha: Alpha


AlphaOrFormula = Annotated[
    Annotated[Alpha, Tag("a number")] | Annotated[LengthPenaltyFormula, Tag("an object")],
    Discriminator(lambda value: "an object" if isinstance(value, dict) else "a number"),
]


class GlossaryChoice(RequestBody):
    """The glossary of a request: the id of a stored one, or terms. Exactly one of the two is set."""

    id: Annotated[
        str | None,
        _doc("of a stored glossary; source must not be auto", min_length=1, max_length=MAX_ID_CHARACTERS),
    ] = None
    terms: Annotated[
        dict[str, str] | None,
        _doc(f"each term with its translation, both of at most {MAX_TERM_CHARACTERS} characters"),
        BeforeValidator(_check_translations),
        MaxItems(MAX_TERMS, "terms"),
        AfterValidator(_check_terms),
    ] = None

    @model_validator(mode="after")
    def _check(self) -> Self:
        if (self.id is None) == (self.terms is None):
            raise PydanticCustomError(INVALID, "must have either id or terms")
        return self


class DetectBody(RequestBody):
    """The body of POST /v1/detect."""

    text: Annotated[Texts, _doc("one text, or several")]

    @property
    def texts(self) -> tuple[str, ...]:
        """The texts, as a tuple even if the body has a single string."""
        return as_texts(self.text)

    def text_groups(self) -> dict[str, Sequence[str]]:
        """The strings that count towards the limit of a request's characters, by field."""
        return {"text": self.texts}

    @model_validator(mode="after")
    def _check_total(self, info: ValidationInfo[NativeLimits]) -> Self:
        check_total(self.text_groups(), info.context.max_request_characters)
        return self


class _ModelBody(DetectBody):
    """The fields that /v1/translate and /v1/score share."""

    source: Annotated[Language, _doc("language code of the texts; auto: detected, text by text")]
    target: Annotated[Language, _doc("language code of the translations")]
    model: Annotated[
        str | None,
        _doc(
            "name of the model, as in /v1/models; absent: the first that serves the languages", max_length=200
        ),
    ] = None
    length_penalty: Annotated[
        AlphaOrFormula | None,
        _doc("exponent of the model's formula, or a formula with its exponent; absent: the model's"),
    ] = None
    coverage_penalty: Annotated[
        float, _doc("weight of the coverage term of the score; 0: off", ge=0, le=MAX_PENALTY)
    ] = 0.0
    num_alternatives: Annotated[
        int,
        _doc(
            "adds tokens to the response, each with this many of the most probable tokens at its position",
            ge=0,
            le=MAX_ALTERNATIVES,
        ),
    ] = 0
    alignment: Annotated[bool, _doc("adds tokens to the response, each with its part of the source")] = False
    attention: Annotated[
        bool, _doc("with alignment: each token's weight for every subword of the source")
    ] = False
    token_scores: Annotated[bool, _doc("adds tokens to the response, each with its log-probability")] = False
    timeout_ms: Annotated[
        int | None,
        _doc("milliseconds until the response is 504; absent: the server's", ge=1),
        AtMost("max_timeout_ms"),
    ] = None


class ScoreBody(_ModelBody):
    """The body of POST /v1/score."""

    source: Annotated[Language, AfterValidator(_check_not_auto), _doc("language code of the texts")]
    translation: Annotated[Texts, _doc("one translation for each text")]

    @property
    def translations(self) -> tuple[str, ...]:
        """One translation for each text."""
        return as_texts(self.translation)

    def text_groups(self) -> dict[str, Sequence[str]]:
        """See `DetectBody.text_groups`."""
        return {"text": self.texts, "translation": self.translations}

    @model_validator(mode="after")
    def _check_pairs(self) -> Self:
        _check_one_each("translation", self.translations, self.texts)
        return self


class TranslateBody(_ModelBody):
    """The body of POST /v1/translate and of POST /v1/translate/stream."""

    format: Annotated[TextFormat, _CHOICE, _doc("what the texts are written in")] = TextFormat.PLAIN
    splitting: Annotated[
        Splitting,
        _CHOICE,
        _doc(
            "sentences: a line break also ends a sentence, except in HTML; no_newlines: a line break does not end one; "
            "lines: a line break ends one, a full stop does not"
        ),
    ] = Splitting.SENTENCES
    ignore_tags: Annotated[Tags | None, _doc("html and xml: elements whose content is not translated")] = None
    splitting_tags: Annotated[Tags | None, _doc("xml: elements at which a sentence always ends")] = None
    non_splitting_tags: Annotated[Tags | None, _doc("xml: elements at which no sentence ends")] = None
    glossary: Annotated[GlossaryChoice | None, _doc("terms and their translations")] = None
    pivot: Annotated[
        bool,
        _doc(
            "whether a pair without a model may be translated through another language, if the server does that"
        ),
    ] = True
    beam_size: Annotated[
        int | None,
        _doc(
            "hypotheses kept alive; 1 is greedy; absent: the model's, but at least num_hypotheses, and 1 with sampling",
            ge=1,
        ),
        AtMost("max_beam_size"),
    ] = None
    num_hypotheses: Annotated[
        int,
        _doc("number of translations in the response; with sampling: number of samples", ge=1),
        AtMost("max_num_hypotheses"),
    ] = 1
    patience: Annotated[
        float, _doc("beam_size × patience complete hypotheses end the search", ge=0.01, le=10)
    ] = 1.0
    early_stop: Annotated[
        EarlyStop,
        _CHOICE,
        _doc(
            "first: the search ends as soon as enough hypotheses are complete; "
            "bound: it ends when no better hypothesis can follow"
        ),
    ] = EarlyStop.FIRST
    sampling: Annotated[Sampling | None, _doc("draw each subword; needs beam_size 1")] = None
    min_target_length: Annotated[Length, _doc("minimum subwords of a sentence's translation")] = 0
    max_target_length: Annotated[
        int | None,
        _doc(
            "maximum subwords of a translated sentence; absent and without max_target_ratio: 50 more than the source "
            "with tag and end token, but at least the minimum length and target_prefix, and at most the model's limit",
            ge=1,
        ),
        AtMost("max_target_length"),
    ] = None
    min_target_ratio: Annotated[
        float, _doc("minimum subwords per subword of the source; 0: off", ge=0, le=MAX_RATIO)
    ] = 0.0
    max_target_ratio: Annotated[
        float | None, _doc("maximum subwords per subword of the source; absent: off", ge=0.01, le=MAX_RATIO)
    ] = None
    no_repeat_ngram_size: Annotated[
        Length, _doc("no sequence of this many subwords occurs twice; 0: off")
    ] = 0
    repetition_penalty: Annotated[
        float, _doc("factor of the log-probability of a repeated subword; 1: off", ge=0.1, le=MAX_PENALTY)
    ] = 1.0
    loop_guard: Annotated[
        bool, _doc("stop a translation that repeats itself, and decode it again without repetitions")
    ] = False
    suppress: Annotated[
        Phrases | None,
        _doc("words or phrases that the model does not write, in this case and these subwords"),
    ] = None
    target_prefix: Annotated[
        Texts | None, _doc('plain text, with which the translation of each text begins; "" sets none')
    ] = None

    @property
    def prefixes(self) -> tuple[str, ...]:
        """One prefix for each text; empty if the body sets none."""
        return as_texts(self.target_prefix)

    @property
    def phrases(self) -> tuple[str, ...]:
        """The phrases to suppress."""
        return as_texts(self.suppress)

    def text_groups(self) -> dict[str, Sequence[str]]:
        """See `DetectBody.text_groups`."""
        return {"text": self.texts, "suppress": self.phrases, "target_prefix": self.prefixes}

    @model_validator(mode="after")
    def _check_together(self) -> Self:
        if self.target_prefix is not None:
            _check_one_each("target_prefix", self.prefixes, self.texts)
        if self.glossary is not None and self.glossary.id is not None and self.source == AUTO:
            raise _refusal("source", "glossary.id needs a language code as the source, not auto")
        if not self.model_fields_set.isdisjoint(TAG_FIELDS):
            self._check_tag_fields()
        return self

    def _check_tag_fields(self) -> None:
        for name in TAG_FIELDS:
            allowed = ("html", "xml") if name == "ignore_tags" else ("xml",)
            if name in self.model_fields_set and self.format.value not in allowed:
                raise _refusal(name, f"{name} needs format {' or '.join(allowed)}")
        if set(self.splitting_tags or ()) & set(self.non_splitting_tags or ()):
            raise _refusal("splitting_tags", "splitting_tags and non_splitting_tags have a name in common")


def _check_one_each(name: str, values: Sequence[str], texts: Sequence[str]) -> None:
    if len(values) != len(texts):
        raise _refusal(
            name, f"{name} has {len(values)} items, and text has {len(texts)}: the numbers must be equal"
        )


def _refusal(field: str, message: str) -> PydanticCustomError:
    """The error of fields that do not fit together."""
    return PydanticCustomError(INVALID_BODY, message, {"field": field})
