"""The server's results as frozen values. Spans count Unicode code points; `end` is exclusive."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeVar

from transduce.client.errors import InvalidAnswer

Json = Mapping[str, Any]
T = TypeVar("T")


class Span(NamedTuple):
    """The characters start..end-1 of a text."""

    start: int
    end: int


class Alternative(NamedTuple):
    """A probable subword at a token's position; `text` is None for the end token."""

    text: str | None
    log_probability: float


@dataclass(frozen=True)
class Token:
    """One subword of a translation. text: None for the end token.

    The option `alignment` fills the fields source and attention: the source subword with the largest attention weight,
    and that weight. Source subwords without characters, such as the end token, do not count.
    The option `attention` fills the field weights: an attention weight for each of the `source_tokens` of the `Segment`
    or `PairScore` that has this token.
    """

    text: str | None
    target: Span
    log_probability: float
    source: Span | None = None
    attention: float | None = None
    alternatives: tuple[Alternative, ...] = ()
    weights: tuple[float, ...] = ()


@dataclass(frozen=True)
class Hypothesis:
    """One candidate translation of a segment."""

    text: str
    score: float
    finish_reason: str
    log_probability: float | None = None
    tokens: tuple[Token, ...] = ()


class ChangedNumbers(NamedTuple):
    """The segment's numbers that its translation lacks, and the translation's numbers that the segment lacks."""

    missing: tuple[str, ...]
    added: tuple[str, ...]


@dataclass(frozen=True)
class GlossaryHit:
    """A glossary term at `source` in the text, and its translation."""

    source: Span
    term: str
    translation: str


@dataclass(frozen=True)
class Segment:
    """A sentence, or a part of an over-long one. Fields that the request does not enable are None or empty.

    fallbacks: repairs and retries of its translation. changed_numbers: None if all numbers agree.
    source_tokens: with `attention`, the segment's subwords; the end token and a language tag have empty spans.
    """

    source: Span
    target: Span
    score: float
    finish_reason: str
    is_part: bool = False
    has_looped: bool | None = None
    log_probability: float | None = None
    tokens: tuple[Token, ...] = ()
    hypotheses: tuple[Hypothesis, ...] = ()
    fallbacks: tuple[str, ...] = ()
    changed_numbers: ChangedNumbers | None = None
    source_tokens: tuple[Span, ...] = ()


@dataclass(frozen=True)
class Translation:
    """The translation of one text.

    source: the language of the text, as requested or detected. confidence: 0 to 1, only if detected. hypotheses: whole
    texts, best first, or with `sampling` in the order of their seeds; empty unless `num_hypotheses` is above 1.
    glossary_hits: only with a glossary. pivot: the language through which the server translated, if it has no model of
    the pair. raw: the server's JSON object.
    """

    text: str
    source: str
    segments: tuple[Segment, ...] = ()
    hypotheses: tuple[str, ...] = ()
    confidence: float | None = None
    glossary_hits: tuple[GlossaryHit, ...] = ()
    pivot: str | None = None
    raw: Json = field(default_factory=dict, repr=False, compare=False)


@dataclass(frozen=True)
class Usage:
    """Numbers of a request's subwords, including end tokens, and of its sentences."""

    source_tokens: int = 0
    target_tokens: int = 0
    sentences: int = 0


@dataclass(frozen=True)
class ModelName:
    """A model by its name and version."""

    name: str = ""
    version: str = ""


@dataclass(frozen=True)
class TranslationResult:
    """One translation per text, in order.

    model: the model that translated; with a pivot, the second of the two models. If the texts needed several models,
    `model` is the model of the first text that was translated. A text that is returned unchanged does not count. seed:
    the seed of the sampling, only with `sampling`. models: all models that translated, in order; empty if no text was
    translated through a pivot.
    """

    translations: tuple[Translation, ...]
    model: ModelName = ModelName()
    usage: Usage = Usage()
    seed: int | None = None
    models: tuple[ModelName, ...] = ()

    @property
    def text(self) -> str:
        """The translation of the only text. Raises ValueError unless there is exactly one."""
        (only,) = self.translations
        return only.text

    @property
    def texts(self) -> tuple[str, ...]:
        """The translated texts."""
        return tuple(each.text for each in self.translations)


@dataclass(frozen=True)
class PairScore:
    """The model's log-probability of one translation. score: the same with length penalty and coverage penalty.

    num_tokens: subwords of the translation, the end token included.
    """

    log_probability: float
    score: float
    num_tokens: int
    tokens: tuple[Token, ...] = ()
    source_tokens: tuple[Span, ...] = ()


@dataclass(frozen=True)
class ScoreResult:
    """One score per pair, in order."""

    scores: tuple[PairScore, ...]
    model: ModelName = ModelName()
    usage: Usage = Usage()


class Candidate(NamedTuple):
    """A language and its probability, 0 to 1."""

    language: str
    confidence: float


@dataclass(frozen=True)
class Detection:
    """The detected language of a text; None if the text has no letters. candidates: the most probable first."""

    language: str | None
    confidence: float
    candidates: tuple[Candidate, ...] = ()


@dataclass(frozen=True)
class LanguagePair:
    """A source and a target language."""

    source: str
    target: str


@dataclass(frozen=True)
class Model:
    """A served model. raw: the server's JSON object."""

    name: str
    version: str
    language_pairs: tuple[LanguagePair, ...]
    max_source_length: int
    max_target_length: int
    raw: Json = field(default_factory=dict, repr=False, compare=False)


def parsed(read: Callable[[Json], T], answer: object, what: str) -> T:
    """The result of `read(answer)`. Raises InvalidAnswer if that fails, such as for a missing field."""
    try:
        if not isinstance(answer, Mapping):
            raise TypeError(f"{type(answer).__name__} instead of an object")
        return read(answer)
    except (LookupError, TypeError, ValueError, AttributeError) as error:
        raise InvalidAnswer(f"the response is not {what} ({type(error).__name__})") from error


def read_translations(answer: Json) -> TranslationResult:
    """Parse the response of POST /v1/translate."""
    return TranslationResult(
        translations=tuple(_translation(each) for each in answer["translations"]),
        model=ModelName(**_chosen(answer.get("model", {}), "name", "version")),
        usage=Usage(**_chosen(answer.get("usage", {}), "source_tokens", "target_tokens", "sentences")),
        seed=answer.get("seed"),
        models=tuple(ModelName(**_chosen(each, "name", "version")) for each in answer.get("models", ())),
    )


def read_scores(answer: Json) -> ScoreResult:
    """Parse the response of POST /v1/score."""
    return ScoreResult(
        scores=tuple(
            PairScore(
                each["log_probability"],
                each["score"],
                each["num_tokens"],
                _tokens(each),
                _source_tokens(each),
            )
            for each in answer["scores"]
        ),
        model=ModelName(**_chosen(answer.get("model", {}), "name", "version")),
        usage=Usage(**_chosen(answer.get("usage", {}), "source_tokens", "target_tokens", "sentences")),
    )


def read_detections(answer: Json) -> tuple[Detection, ...]:
    """Parse the response of POST /v1/detect."""
    return tuple(
        Detection(
            each["language"],
            each["confidence"],
            tuple(Candidate(other["language"], other["confidence"]) for other in each.get("candidates", ())),
        )
        for each in answer["detections"]
    )


def read_models(answer: Json) -> tuple[Model, ...]:
    """Parse the response of GET /v1/models."""
    return tuple(
        Model(
            name=each["name"],
            version=each["version"],
            language_pairs=tuple(
                LanguagePair(pair["source"], pair["target"]) for pair in each["language_pairs"]
            ),
            max_source_length=each["max_source_length"],
            max_target_length=each["max_target_length"],
            raw=each,
        )
        for each in answer["models"]
    )


def read_span(value: Json) -> Span:
    """Parse a span."""
    return Span(value["start"], value["end"])


def _translation(each: Json) -> Translation:
    text = each["text"]
    if not isinstance(text, str):
        raise TypeError("text is not a string")
    return Translation(
        text=text,
        source=each.get("source", ""),
        segments=tuple(_segment(segment) for segment in each.get("segments", ())),
        hypotheses=tuple(other["text"] for other in each.get("hypotheses", ())),
        confidence=each.get("confidence"),
        glossary_hits=tuple(
            GlossaryHit(read_span(hit["source"]), hit["term"], hit["translation"])
            for hit in each.get("glossary_hits", ())
        ),
        pivot=each.get("pivot"),
        raw=each,
    )


def _segment(each: Json) -> Segment:
    return Segment(
        source=read_span(each["source"]),
        target=read_span(each["target"]),
        score=each["score"],
        finish_reason=each["finish_reason"],
        is_part=each.get("is_part", False),
        has_looped=each.get("has_looped"),
        log_probability=each.get("log_probability"),
        tokens=_tokens(each),
        hypotheses=tuple(
            Hypothesis(
                text=other["text"],
                score=other["score"],
                finish_reason=other["finish_reason"],
                log_probability=other.get("log_probability"),
                tokens=_tokens(other),
            )
            for other in each.get("hypotheses", ())
        ),
        fallbacks=tuple(each.get("fallbacks", ())),
        changed_numbers=_changed_numbers(each["changed_numbers"]) if "changed_numbers" in each else None,
        source_tokens=_source_tokens(each),
    )


def _changed_numbers(each: Json) -> ChangedNumbers:
    return ChangedNumbers(tuple(each["missing"]), tuple(each["added"]))


def _source_tokens(owner: Json) -> tuple[Span, ...]:
    return tuple(read_span(each) for each in owner.get("source_tokens", ()))


def _tokens(owner: Json) -> tuple[Token, ...]:
    return tuple(
        Token(
            text=each["text"],
            target=read_span(each["target"]),
            log_probability=each["log_probability"],
            source=read_span(each["source"]) if "source" in each else None,
            attention=each.get("attention"),
            alternatives=tuple(
                Alternative(other["text"], other["log_probability"]) for other in each.get("alternatives", ())
            ),
            weights=tuple(each.get("weights", ())),
        )
        for each in owner.get("tokens", ())
    )


def _chosen(value: Json, *names: str) -> dict[str, Any]:
    """Select the known fields; a later server may add others."""
    return {name: value[name] for name in names if name in value}
