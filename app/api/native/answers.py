"""The types of the native API's answers; `app.api.native.results` fills them.

They are TypedDicts. The server builds plain dictionaries, mypy checks them, and Pydantic makes the OpenAPI document
from the types. If an optional field's description begins with "with", the response has the field only if the request
sets the option that the description names.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Literal, NotRequired

from pydantic import Field
from typing_extensions import TypedDict

from app.text.segments import Fallback


class SpanAnswer(TypedDict):
    """Unicode code points from `start` up to `end`, which is exclusive."""

    start: int
    end: int


LogProbability = Annotated[float, Field(description="natural logarithm")]
Share = Annotated[float, Field(ge=0, le=1)]
FinishReasonName = Annotated[
    Literal["stop", "length", "constraint", "source", "repetition"],
    Field(
        description="stop: the end token; length: the limit on the length; constraint: the options forbid every "
        "subword that could follow; source: the model's output has no words, so the source replaces it; "
        "repetition: a part of the source repeats itself, and the translation has fewer than half as many subwords as "
        "that part"
    ),
]
Subword = Annotated[str | None, Field(description="null: the end of the sentence")]
Score = Annotated[float, Field(description="log_probability / length_penalty + coverage_penalty × coverage")]


class AlternativeAnswer(TypedDict):
    """A subword that is probable at a token's position. Constraints do not apply to it."""

    text: Subword
    log_probability: LogProbability


class TokenAnswer(TypedDict):
    """One subword of a translation."""

    text: Subword
    target: Annotated[SpanAnswer, Field(description="its span in the translation")]
    log_probability: LogProbability
    source: NotRequired[
        Annotated[
            SpanAnswer,
            Field(
                description="with alignment: of the source subwords with characters, the one with the most attention"
            ),
        ]
    ]
    attention: NotRequired[
        Annotated[float, Field(description="with alignment: the attention to `source`, 0 to 1")]
    ]
    weights: NotRequired[
        Annotated[
            Sequence[float],
            Field(description="with attention: the attention to each of source_tokens, 0 to 1"),
        ]
    ]
    alternatives: NotRequired[
        Annotated[list[AlternativeAnswer], Field(description="with num_alternatives: best first")]
    ]


Tokens = Annotated[list[TokenAnswer], Field(description="with token_scores, num_alternatives or alignment")]
SummedLogProbability = Annotated[float, Field(description="summed over `tokens`; present if they are")]
SourceTokens = Annotated[
    list[SpanAnswer],
    Field(
        description="with attention: spans of the text's subwords; empty for language tags, end tokens and parts of "
        "characters"
    ),
]


class HypothesisAnswer(TypedDict):
    """One translation of a segment."""

    text: str
    score: Score
    finish_reason: FinishReasonName
    log_probability: NotRequired[SummedLogProbability]
    tokens: NotRequired[Tokens]


class ChangedNumbersAnswer(TypedDict):
    """The numbers in which a translation differs from its source."""

    missing: Annotated[list[str], Field(description="numbers that the translation lacks")]
    added: Annotated[list[str], Field(description="numbers that only the translation has")]


class SegmentAnswer(TypedDict):
    """One sentence, or a part of a sentence that is too long for the model."""

    source: SpanAnswer
    target: SpanAnswer
    score: Score
    finish_reason: FinishReasonName
    has_looped: NotRequired[
        Annotated[
            bool, Field(description="with loop_guard: whether it was decoded again without repetitions")
        ]
    ]
    is_part: NotRequired[Annotated[bool, Field(description="present if the segment is a part of a sentence")]]
    fallbacks: NotRequired[
        Annotated[list[Fallback], Field(description="the repairs and retries that the translation needed")]
    ]
    changed_numbers: NotRequired[ChangedNumbersAnswer]
    log_probability: NotRequired[SummedLogProbability]
    tokens: NotRequired[Tokens]
    source_tokens: NotRequired[SourceTokens]
    hypotheses: NotRequired[
        Annotated[
            list[HypothesisAnswer],
            Field(description="with num_hypotheses: best first; with sampling, in the order of seeds"),
        ]
    ]


class GlossaryHitAnswer(TypedDict):
    """A glossary term in the text, with the translation that it should have."""

    source: SpanAnswer
    term: str
    translation: str


class TextAnswer(TypedDict):
    """A translation as a text."""

    text: str


class TranslationAnswer(TypedDict):
    """The translation of one text."""

    text: str
    source: Annotated[str, Field(description="the text's language, as sent or detected")]
    segments: list[SegmentAnswer]
    confidence: NotRequired[Annotated[Share, Field(description="with source auto: of the detection")]]
    glossary_hits: NotRequired[
        Annotated[list[GlossaryHitAnswer], Field(description="with glossary: its terms in the text")]
    ]
    hypotheses: NotRequired[
        Annotated[
            list[TextAnswer],
            Field(description="with num_hypotheses: best first; with sampling, in the order of seeds"),
        ]
    ]
    pivot: NotRequired[
        Annotated[str, Field(description="present if the text was translated through this language")]
    ]


class ModelName(TypedDict):
    """A model by its name and version."""

    name: str
    version: str


class UsageAnswer(TypedDict):
    """The number of subwords and sentences of a request. Tokens are subwords, with language tags and end tokens."""

    source_tokens: int
    target_tokens: int
    sentences: int


class TranslateAnswer(TypedDict):
    """The answer of POST /v1/translate."""

    translations: Annotated[list[TranslationAnswer], Field(description="one for each text, in order")]
    model: Annotated[
        ModelName,
        Field(description="the model that translated; if several, the model of the first translated text"),
    ]
    models: NotRequired[
        Annotated[
            list[ModelName], Field(description="present if a text has `pivot`: all models that translated")
        ]
    ]
    usage: UsageAnswer
    seed: NotRequired[
        Annotated[int, Field(description="with sampling: the same seed draws the same translations")]
    ]


class PairScoreAnswer(TypedDict):
    """The score of one translation."""

    log_probability: LogProbability
    score: Score
    num_tokens: Annotated[int, Field(description="subwords, the end token included")]
    tokens: NotRequired[Tokens]
    source_tokens: NotRequired[SourceTokens]


class ScoreAnswer(TypedDict):
    """The answer of POST /v1/score."""

    scores: Annotated[list[PairScoreAnswer], Field(description="one for each pair, in order")]
    model: ModelName
    usage: UsageAnswer


class CandidateAnswer(TypedDict):
    """A language that a text may be in."""

    language: str
    confidence: Share


class DetectionAnswer(TypedDict):
    """The language of one text."""

    language: Annotated[str | None, Field(description="null: the text has no letters")]
    confidence: Share
    candidates: Annotated[list[CandidateAnswer], Field(description="the likeliest first")]


class DetectAnswer(TypedDict):
    """The answer of POST /v1/detect."""

    detections: Annotated[list[DetectionAnswer], Field(description="one for each text, in order")]


class PairAnswer(TypedDict):
    """A pair of languages that is served."""

    source: str
    target: str


class LengthPenaltyAnswer(TypedDict):
    """The model's length penalty."""

    formula: str
    alpha: float


class DefaultsAnswer(TypedDict):
    """The values of options that a request does not set."""

    beam_size: int
    length_penalty: LengthPenaltyAnswer


class ModelAnswer(TypedDict):
    """A model that is served. Lengths are subwords."""

    name: str
    version: str
    precision: str
    language_pairs: list[PairAnswer]
    max_source_length: int
    max_target_length: int
    alignment: Annotated[
        bool, Field(description="whether the options alignment and coverage_penalty are served")
    ]
    loaded: Annotated[
        bool,
        Field(
            description="whether it is in memory; if not, the first request for it waits until it is loaded"
        ),
    ]
    defaults: DefaultsAnswer
    licence: str


class PivotedPairAnswer(TypedDict):
    """A pair of languages that is translated through another one."""

    source: str
    target: str
    pivot: str
    models: Annotated[
        list[str],
        Field(
            description="names of the models into the pivot and out of it; one name if one model does both"
        ),
    ]


class ModelsAnswer(TypedDict):
    """The answer of GET /v1/models."""

    models: list[ModelAnswer]
    pivoted_pairs: NotRequired[
        Annotated[list[PivotedPairAnswer], Field(description="present if there are any")]
    ]


class ErrorDetail(TypedDict):
    """Why a request failed."""

    code: Annotated[str, Field(description="for programs")]
    message: Annotated[str, Field(description="for people; never a part of a text")]
    request_id: str
    field: NotRequired[Annotated[str, Field(description="the field that is refused, such as text[3]")]]
    source: NotRequired[Annotated[str, Field(description="unsupported_languages: the detected language")]]
    target: NotRequired[Annotated[str, Field(description="unsupported_languages: with source")]]


class ErrorAnswer(TypedDict):
    """The answer to a request that failed, in at most 1,024 bytes."""

    error: ErrorDetail
