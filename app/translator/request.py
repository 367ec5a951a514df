"""The requests that the translator takes, and the results that it returns. No text is read here."""

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
    """Limits of one request; each is a setting.

    max_sentences: after splitting; a sentence with several samples counts once a sample.
    max_token_lists: if tokens are returned: sentences times num_hypotheses times 1 + num_alternatives. Attention adds
    one list for every 32 source subwords of a sentence or part of 32.
    """

    max_sentences: int = 1024
    max_token_lists: int = 512


class TextSpan(NamedTuple):
    """Code points start..end-1 of a text."""

    start: int
    end: int

    def moved(self, distance: int) -> TextSpan:
        """Return the span in a text that has `distance` more characters before it."""
        return TextSpan(self.start + distance, self.end + distance)


class TranslationRequest(NamedTuple):
    """Texts to translate, checked against the server's limits.

    source: None: detected for each text; a text that is certainly in the target language is returned unchanged.
    text_format, splitting, xml: the format of the texts, and where their sentences end.
    glossary: a compiled glossary; or glossary_id: a stored one; or terms: those of this request. At most one of these.
    deadline: seconds of time.monotonic. caller: owner of the stored glossaries. share: key of the caller's fair share
        of the engine; empty: the caller.
    options: decoding options; None: the model's defaults. The texts below set its target_prefix and
        suppress_sequences. extra_target_length: subwords that a translation may have more than its source; None: only
        options.max_target_length limits it.
    suppress: words and phrases that no translation contains, in the subwords that they are usually split into.
    target_prefixes: forced beginning of each text's translation, "" for none; empty: none for all.
    token_scores: whether tokens are returned; options.num_alternatives and options.alignment return them too.
    attention: whether each token has its weight for every source subword; needs options.alignment.
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
        """Whether the result has the tokens of every hypothesis."""
        options = self.options
        needs_tokens = options is not None and (options.num_alternatives > 0 or options.alignment)
        return needs_tokens or self.token_scores


@dataclass(frozen=True)
class ScoreRequest:
    """Pairs to score: translation k is that of text k. Other fields as in `TranslationRequest`."""

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
        """Whether the result has the tokens of every pair."""
        options = self.options
        needs_tokens = options is not None and (options.num_alternatives > 0 or options.alignment)
        return needs_tokens or self.token_scores


class Alternative(NamedTuple):
    """Another candidate for a token; `text` None: the end token."""

    text: str | None
    log_probability: float


@dataclass(frozen=True)
class Token:
    """One subword of a translation.

    text: its characters; None for the end token. target: where they stand in the translation; empty for the end token,
    and for all bytes but the last of a character that is spelled in bytes.
    log_probability: natural logarithm. alternatives: best first; empty if not requested.
    source: the source subword with the largest attention weight, in the caller's text. attention: that weight, 0 to 1.
    Both are None for the end token, and if not requested. weights: the weight of each of the segment's source
    subwords, rounded to 4 digits; empty for the end token, and if not requested.
    """

    text: str | None
    target: TextSpan
    log_probability: float
    alternatives: tuple[Alternative, ...] = ()
    source: TextSpan | None = None
    attention: float | None = None
    weights: tuple[float, ...] = ()


class SegmentHypothesis(NamedTuple):
    """One translation of one segment.

    score: log_probability over the length penalty, with the coverage penalty if requested. tokens: their `target`
    counts from the start of `text`; empty if not requested.
    """

    text: str
    log_probability: float
    score: float
    finish_reason: FinishReason
    tokens: tuple[Token, ...] = ()


class TranslatedSegment(NamedTuple):
    """A sentence, or a part of one that is too long for the model.

    source, target: in the text and in its translation. has_looped: the loop guard had it decoded again. is_part: part
    of a sentence that is too long. fallbacks: repairs that its translation needed. changed_numbers: numbers that the
    translation lacks or adds.
    source_tokens: spans of the source subwords that the tokens' weights are of, in the caller's text; empty if not
    requested. The span of an end token is empty, as are those of all bytes but one of a character spelled in bytes.
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

    hypotheses: whole texts, best first; number k joins number k of each segment. source: the language, requested or
    detected; the target's if the text was returned unchanged. confidence: of the detection, 0 to 1; 1 for a requested
    source. glossary_hits: terms of the glossary, with spans in the caller's text.
    """

    text: str
    hypotheses: tuple[str, ...]
    segments: tuple[TranslatedSegment, ...]
    source: str
    confidence: float = 1.0
    glossary_hits: tuple[GlossaryHit, ...] = ()


class Timings(NamedTuple):
    """Milliseconds in each phase; of the slowest sentence where sentences were decoded in parallel."""

    tokenise: float
    queue: float
    encode: float
    decode: float
    detokenise: float


@dataclass(frozen=True)
class Usage:
    """Work done for a request. Tokens are subwords, end tokens included; of the best hypothesis for a translation.

    num_cached: sentences, or parts of sentences, that were decoded for an earlier request.
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
    """The model's probability of a translation.

    log_probability: natural logarithm, summed over `num_tokens` subwords, end token included. score: as of a
    hypothesis. tokens, source_tokens: empty if not requested.
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
