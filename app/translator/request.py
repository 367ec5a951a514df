"""The types of the translator's requests and results."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from app.decoding.option_changes import GREEDY, NO_CHANGES, OptionChanges
from app.decoding.options import EXTRA_TARGET_LENGTH, FinishReason
from app.text.glossary import Glossary, GlossaryHit, Term
from app.text.number_check import ChangedNumbers
from app.text.parsed_text import Splitting, TextFormat
from app.text.segments import Fallback
from app.text.xml_reader import XmlRules
from app.translator.languages import ResolvedLanguage


@dataclass(frozen=True)
class AnswerLimits:
    """Limits of one request; each is a setting.

    max_sentences: the maximum number of sentences after splitting. A sentence with several samples counts once for each
    sample.
    max_token_lists: the maximum number of lists in a response with tokens. Each hypothesis of each sentence counts as
    1 + num_alternatives lists, and with attention as one more list for every 32 subwords of its source, rounded up.
    """

    max_sentences: int = 1024
    max_token_lists: int = 512


class AnswerCount:
    """Counts the sentences and token lists of one request, as in `AnswerLimits`, over all models that translate it.

    Any thread may use it.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._num_sentences = self._num_token_lists = 0

    def add_sentences(self, num: int) -> int:
        """Count more sentences. Returns how many there are now."""
        with self._lock:
            self._num_sentences += num
            return self._num_sentences

    def add_token_lists(self, num: int) -> int:
        """Count more token lists. Returns how many there are now."""
        with self._lock:
            self._num_token_lists += num
            return self._num_token_lists


class TextSpan(NamedTuple):
    """Code points start..end-1 of a text."""

    start: int
    end: int

    def moved(self, distance: int) -> TextSpan:
        """Return the span in a text that has `distance` more characters before it."""
        return TextSpan(self.start + distance, self.end + distance)


class TranslationRequest(NamedTuple):
    """Texts to translate, checked against the server's limits.

    source: None to detect it for each text. A text that is certainly in the target language is then returned unchanged.
    text_format, splitting, xml: the format of the texts, and where their sentences end.
    glossary, glossary_id, terms: a compiled glossary, the id of a stored glossary, or terms; at most one of the three.
    deadline: seconds of time.monotonic. caller: owner of the stored glossaries.
    share: the caller as the engine's fair queueing knows it; empty to use `caller`.
    options: the decoding options that the request sets. The others have the defaults of the model that translates. The
        translator sets suppress_sequences and target_prefix from `suppress` and `target_prefixes`.
    extra_target_length: how many subwords more than its source a translation may have. If None, only
        options.max_target_length limits it.
    suppress: words and phrases. The model does not write the run of subwords that each is usually split into.
    target_prefixes: forced beginning of the translation of each text's first sentence, in plain text, "" for none; an
        empty tuple if no text has one.
    token_scores: whether tokens are returned. options.num_alternatives and options.alignment return them too.
    attention: whether each token has its weight for every source subword. It needs options.alignment.
    model: the name of the model that translates; None for the first one of the language pair.
    pivot: whether a pair without a model may be translated through a pivot language of the server.
    languages: of each text, if they are detected already; else empty.
    answer_count: if several models translate the texts, each model gets a request for its own texts, and these requests
        share this count; None if one model translates all texts.
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
    options: OptionChanges = NO_CHANGES
    extra_target_length: int | None = EXTRA_TARGET_LENGTH
    suppress: tuple[str, ...] = ()
    target_prefixes: tuple[str, ...] = ()
    token_scores: bool = False
    attention: bool = False
    model: str | None = None
    pivot: bool = True
    languages: tuple[ResolvedLanguage, ...] = ()
    answer_count: AnswerCount | None = None

    @property
    def num_characters(self) -> int:
        """The code points of all texts."""
        return sum(map(len, self.texts))

    @property
    def returns_tokens(self) -> bool:
        """Whether the result has the tokens of every hypothesis."""
        options = self.options
        return self.token_scores or options.alignment or options.num_alternatives > 0


@dataclass(frozen=True)
class ScoreRequest:
    """Pairs to score. Translation k belongs to text k. Other fields are as in `TranslationRequest`.

    options: beam_size must be 1.
    """

    texts: tuple[str, ...]
    translations: tuple[str, ...]
    source: str
    target: str
    request_id: str
    caller: str
    deadline: float
    share: str = ""
    options: OptionChanges = GREEDY
    token_scores: bool = False
    attention: bool = False
    model: str | None = None

    @property
    def num_characters(self) -> int:
        """The code points of all texts and translations."""
        return sum(map(len, (*self.texts, *self.translations)))

    @property
    def returns_tokens(self) -> bool:
        """Whether the result has the tokens of every pair."""
        options = self.options
        return self.token_scores or options.alignment or options.num_alternatives > 0


class Alternative(NamedTuple):
    """A probable subword at a token's position. `text` is None for the end token."""

    text: str | None
    log_probability: float


@dataclass(frozen=True)
class Token:
    """One subword of a translation.

    text: its characters; None for the end token.
    target: the span of the characters in the translation; empty for the end token. If a character is spelled in bytes,
        the last byte has its span, and the spans of the other bytes are empty.
    log_probability: natural logarithm. alternatives: best first; empty if not requested.
    source: the span in the caller's text of the source subword with the largest attention weight.
    attention: that weight, 0 to 1. Both `source` and `attention` are None for the end token, if not requested, and if
        no source subword has characters.
    weights: the weight of each of the segment's source subwords, rounded to 4 digits; empty for the end token, and if
        not requested.
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

    score: log_probability over the length penalty, with the coverage penalty if requested. tokens: empty if not
    requested. Their `target` counts from the start of `text`.
    """

    text: str
    log_probability: float
    score: float
    finish_reason: FinishReason
    tokens: tuple[Token, ...] = ()


class TranslatedSegment(NamedTuple):
    """A sentence, or a part of a sentence that is too long for the model.

    source, target: its spans in the text and in the translation. hypotheses: best first.
    has_looped: whether the loop guard repeated its decoding. is_part: whether it is a part of a sentence.
    fallbacks: repairs that its translation needed. changed_numbers: numbers that the translation lacks or adds.
    source_tokens: the spans of the source subwords in the caller's text, in the order of the tokens' weights; empty if
        not requested. An end token has an empty span. If a character is spelled in bytes, one byte has its span, and
        the spans of the other bytes are empty.
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

    hypotheses: whole texts, best first. Hypothesis k joins hypothesis k of each segment.
    source: the requested or detected language. For a text in which no language is detected, it is the first language
        that is translated into the target, or the target if there is none.
    confidence: confidence of the detection, 0 to 1; 1 for a requested source, 0 if no language is detected or the
        detector does not know the source.
    glossary_hits: terms of the glossary, with spans in the caller's text.
    pivot: the language through which the text was translated; None if one model translated it, or it is unchanged.
    """

    text: str
    hypotheses: tuple[str, ...]
    segments: tuple[TranslatedSegment, ...]
    source: str
    confidence: float = 1.0
    glossary_hits: tuple[GlossaryHit, ...] = ()
    pivot: str | None = None


class Timings(NamedTuple):
    """Milliseconds in each phase. Of sentences that were decoded in parallel, the slowest one counts.

    load: the request's wait for the loading of its model; 0 if the model was loaded already.
    """

    tokenise: float
    queue: float
    encode: float
    decode: float
    detokenise: float
    load: float = 0.0

    def phases(self) -> dict[str, float]:
        """Return each phase's milliseconds by its name; `load` only if the request waited for its model."""
        phases = self._asdict()
        if not self.load:
            del phases["load"]
        return phases


class ModelVersion(NamedTuple):
    """Name and version of a model, from its manifest."""

    name: str
    version: str


@dataclass(frozen=True)
class Usage:
    """Work done for a request. Tokens are subwords, end tokens included. Only best hypotheses count.

    num_cached: sentences, or parts of sentences, that were decoded for an earlier request.
    model: the model that translated or scored the texts. With a pivot, it is the second model. If the texts needed
        several models, it is the model of the first text that was translated.
    num_rows: the sum of the cache rows of all decodings that gave the results. num_steps: decoder steps of the sentence
        that took the most steps.
    """

    source_tokens: int
    target_tokens: int
    num_sentences: int
    timings: Timings
    num_cached: int = field(default=0, kw_only=True)
    model: ModelVersion = field(kw_only=True)
    num_rows: int = field(default=0, kw_only=True)
    num_steps: int = field(default=0, kw_only=True)

    @property
    def sentences_by_model(self) -> Mapping[str, int]:
        """The sentences that each model worked on, by the model's name."""
        return {self.model.name: self.num_sentences}


@dataclass(frozen=True)
class TranslationResult(Usage):
    """One translation for each text, in order.

    models: with a pivot, all models that translated a text; else empty.
    shares: `sentences_by_model` of a request whose texts needed several models; else empty.
    """

    translations: tuple[Translation, ...] = field(kw_only=True)
    models: tuple[ModelVersion, ...] = field(default=(), kw_only=True)
    shares: Mapping[str, int] = field(default_factory=dict, kw_only=True)

    @property
    def sentences_by_model(self) -> Mapping[str, int]:
        """As `Usage.sentences_by_model`. With a pivot, both models work on a sentence."""
        models = self.models or (self.model,)
        return self.shares or {model.name: self.num_sentences for model in models}


@dataclass(frozen=True)
class PairScore:
    """The model's probability of a translation.

    log_probability: natural logarithm, summed over `num_tokens` subwords, end token included.
    score: as in `SegmentHypothesis`. tokens, source_tokens: empty if not requested.
    """

    log_probability: float
    score: float
    num_tokens: int
    tokens: tuple[Token, ...] = ()
    source_tokens: tuple[TextSpan, ...] = ()


@dataclass(frozen=True)
class ScoreResult(Usage):
    """One score for each pair, in order."""

    scores: tuple[PairScore, ...] = field(kw_only=True)
