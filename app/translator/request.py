"""What a caller asks of the translator, and what comes back. No text is looked at here."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from app.decoding.options import EXTRA_TARGET_LENGTH, DecodingOptions, FinishReason
from app.text.glossary import Glossary, GlossaryHit, Term
from app.text.number_check import ChangedNumbers
from app.text.parsed_text import Splitting, TextFormat
from app.text.segments import Fallback
from app.text.xml_reader import XmlRules


@dataclass(frozen=True)
class AnswerLimits:
    """What one request may make the translator do; each is a setting.

    max_sentences: after splitting, each counted once a sample.
    max_token_lists: where tokens are told, sentences times num_hypotheses times 1 + num_alternatives; with attention
    one more for every 32 source subwords of a sentence, begun ones counted.
    """

    max_sentences: int = 1024
    max_token_lists: int = 512


class TextSpan(NamedTuple):
    """Code points start..end-1 of a text."""

    start: int
    end: int

    def moved(self, distance: int) -> TextSpan:
        """The same characters of a text that begins so much earlier."""
        return TextSpan(self.start + distance, self.end + distance)


class TranslationRequest(NamedTuple):
    """Texts to translate, checked against the server's limits.

    source: None: detected, text by text; a text that is surely in the target language then comes back as it is.
    text_format, splitting, xml: what the texts are written in, and where their sentences end.
    glossary: terms that stand in the translation as it says; or glossary_id: of a stored one, or terms: of one that is
    made for this request. At most one of the three.
    deadline: seconds of time.monotonic. caller: whose stored glossaries it can name. share: whose share of the engine
        it takes; empty: the caller's.
    options: the search's; None: the model's defaults. Its target_prefix and suppress_sequences are made of the
        texts below. extra_target_length: a translation has at most so many subwords more than its source, None:
        only options.max_target_length counts.
    suppress: words and phrases that no translation contains, as subwords that they are usually cut into.
    target_prefixes: what each text's translation begins with, "" where it is free; empty: all are.
    token_scores: whether the answer tells tokens; with options.num_alternatives and options.alignment it does anyway.
    attention: with options.alignment, whether each token tells its weight for every source subword.
    """

    texts: tuple[str, ...]
    source: str | None
    target: str
    request_id: str
    caller: str
    deadline: float
    share: str = ""
    text_format: TextFormat = TextFormat.PLAIN
    splitting: Splitting = Splitting.SENTENCES
    xml: XmlRules = XmlRules()
    glossary: Glossary | None = None
    glossary_id: str | None = None
    terms: tuple[Term, ...] = ()
    options: DecodingOptions | None = None
    extra_target_length: int | None = EXTRA_TARGET_LENGTH
    suppress: tuple[str, ...] = ()
    target_prefixes: tuple[str, ...] = ()
    token_scores: bool = False
    attention: bool = False

    @property
    def returns_tokens(self) -> bool:
        """Whether the answer tells the tokens of every hypothesis."""
        options = self.options
        told = options is not None and (options.num_alternatives > 0 or options.alignment)
        return told or self.token_scores


@dataclass(frozen=True)
class ScoreRequest:
    """Pairs to score: the k-th translation is that of the k-th text. The rest as in `TranslationRequest`."""

    texts: tuple[str, ...]
    translations: tuple[str, ...]
    source: str
    target: str
    request_id: str
    caller: str
    deadline: float
    share: str = ""
    options: DecodingOptions | None = None
    token_scores: bool = False
    attention: bool = False

    @property
    def returns_tokens(self) -> bool:
        """Whether the answer tells the tokens of every hypothesis."""
        options = self.options
        told = options is not None and (options.num_alternatives > 0 or options.alignment)
        return told or self.token_scores


class Alternative(NamedTuple):
    """What could have stood in a token's place; `text` None: the end."""

    text: str | None
    log_probability: float


@dataclass(frozen=True)
class Token:
    """One subword of a translation.

    text: its characters, None for the end token. target: where they stand in the translation; empty for the end
    token and for all bytes but the last of a character that is spelled in bytes.
    log_probability: natural logarithm. alternatives: best first; empty where not asked for.
    source: the source's subword that it pays most attention to, in the caller's text, and attention: how much, 0 to
    1; None for the end token, and where not asked for. weights: how much it pays to each of the segment's source
    subwords, to 4 digits; empty for the end token, and where not asked for.
    """

    text: str | None
    target: TextSpan
    log_probability: float
    alternatives: tuple[Alternative, ...] = ()
    source: TextSpan | None = None
    attention: float | None = None
    weights: tuple[float, ...] = ()


class SegmentHypothesis(NamedTuple):
    """One translation of one segment. tokens: their `target` counts from the start of `text`; empty where not told.

    score: log_probability over the length penalty, and the coverage penalty where it is asked for.
    """

    text: str
    log_probability: float
    score: float
    finish_reason: FinishReason
    tokens: tuple[Token, ...] = ()


class TranslatedSegment(NamedTuple):
    """A sentence, or a part of an over-long one.

    source, target: in the text and in its translation. has_looped: the loop guard had it decoded once more.
    is_part: of a sentence that is too long for the model. fallbacks: what its translation needed beyond the model's own
    doing. changed_numbers: those that its translation lacks or added.
    source_tokens: of the tokens' weights, in the caller's text; () where not asked for. An end token's span is
    empty, as are those of all bytes but one of a character that is spelled in bytes.
    """

    source: TextSpan
    target: TextSpan
    hypotheses: tuple[SegmentHypothesis, ...]
    has_looped: bool = False
    is_part: bool = False
    fallbacks: tuple[Fallback, ...] = ()
    changed_numbers: ChangedNumbers = ChangedNumbers((), ())
    source_tokens: tuple[TextSpan, ...] = ()


class Translation(NamedTuple):
    """A text's translation.

    hypotheses: whole texts, best first; the k-th joins the k-th of each segment. source: its language, as given or
    detected; the target's where it was left as it is. confidence: of the detection, 0 to 1; 1 where it was given.
    glossary_hits: the terms that stand in the translation; their spans count in the caller's text.
    """

    text: str
    hypotheses: tuple[str, ...]
    segments: tuple[TranslatedSegment, ...]
    source: str
    confidence: float = 1.0
    glossary_hits: tuple[GlossaryHit, ...] = ()


class Timings(NamedTuple):
    """Milliseconds of each phase; of the slowest sentence where they ran side by side."""

    tokenise: float
    queue: float
    encode: float
    decode: float
    detokenise: float


@dataclass(frozen=True)
class Usage:
    """What was done. Tokens count subwords, end tokens included; of a translation's hypotheses the best one's.

    num_cached: sentences, or parts of them, that were decoded for an earlier request.
    """

    source_tokens: int
    target_tokens: int
    num_sentences: int
    timings: Timings
    num_cached: int = field(default=0, kw_only=True)


@dataclass(frozen=True)
class TranslationResult(Usage):
    """One translation a text, in order."""

    translations: tuple[Translation, ...] = field(kw_only=True)


@dataclass(frozen=True)
class PairScore:
    """How probable a translation is, in the model's eyes.

    log_probability: natural logarithm, summed over `num_tokens` subwords, the end token counted. score: as a
    hypothesis'. tokens, source_tokens: empty where not told.
    """

    log_probability: float
    score: float
    num_tokens: int
    tokens: tuple[Token, ...] = ()
    source_tokens: tuple[TextSpan, ...] = ()


@dataclass(frozen=True)
class ScoreResult(Usage):
    """One score a pair, in order."""

    scores: tuple[PairScore, ...] = field(kw_only=True)
