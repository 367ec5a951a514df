"""Turns a request into sentences for the engine: languages, parsed texts, segments, subwords and options.

The time of planning grows with the texts, so `Translator` calls these functions off the event loop, unless the texts
are short.
"""

from __future__ import annotations

import copy
import functools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from app.bundle import Manifest
from app.bundle_shortlist import shortlists_of
from app.decoding.options import DecodingOptions
from app.decoding.validation import MAX_SUPPRESSED_TOKENS, bounded_by_source, check_range
from app.errors import InvalidRequest, NotReady, PayloadTooLarge, SourceTooLong
from app.language_pairs import LanguagePair
from app.runtime.interface import Limits
from app.stores.glossaries import GlossaryNotFound, GlossaryStore, GlossaryStoreError
from app.text.blocks import MarkupError
from app.text.glossary import Glossary
from app.text.parsed_text import ParsedText, ParseOptions, parse_text
from app.text.segmentation import Span
from app.text.tokenizer import Encoded
from app.translator.jobs import Part, SegmentJob, TextPlan
from app.translator.languages import Languages, ResolvedLanguage
from app.translator.prefixes import as_model_text
from app.translator.request import AnswerCount, AnswerLimits, ScoreRequest, TranslationRequest
from app.translator.samples import num_samples
from app.translator.subwords import ScoredSource, SubwordEncoder, stripped_span

# Source subwords whose attention weights take as many bytes of a response as one token. If larger, a request with
# `attention` may get a response larger than `max_token_lists` should allow. If smaller, it is refused needlessly.
WEIGHTS_PER_LIST = 32
# A part of a halved segment may always get a translation of this many times its source's subwords. If larger, an
# endless output is decoded for longer. If smaller, translations of parts are cut off.
LIKELY_RATIO = 2


class PreparedRequest(NamedTuple):
    """A request. options: with the model's defaults. suppressed: the `suppress` phrases as runs of subwords."""

    request: TranslationRequest
    options: DecodingOptions
    suppressed: tuple[tuple[int, ...], ...]


class RequestPlan(NamedTuple):
    """The segments to decode for a request.

    jobs: the jobs of all texts, in order. num_source_tokens: the subwords of their sources, end tokens included.
    """

    prepared: PreparedRequest
    texts: tuple[TextPlan, ...]
    jobs: tuple[SegmentJob, ...]
    num_source_tokens: int


class ModelAbilities(NamedTuple):
    """Optional abilities of a model.

    has_alignment: whether it returns attention. shortlists: for each pair with a shortlist, the index of its table.
    """

    has_alignment: bool
    shortlists: Mapping[LanguagePair, int]

    @classmethod
    def of(cls, manifest: Manifest, limits: Limits) -> ModelAbilities:
        """Return a model's abilities. No pair has a shortlist if the kernels cannot use it."""
        entry = manifest.shortlist if limits.num_shortlists else None
        return cls(limits.has_alignment, shortlists_of(entry, manifest.language_pairs))


class Planner:
    """Plans requests for one model. Immutable, so any thread may use it."""

    def __init__(
        self,
        languages: Languages,
        encoder: SubwordEncoder,
        *,
        default_options: DecodingOptions,
        abilities: ModelAbilities,
        limits: AnswerLimits,
        glossaries: GlossaryStore | None,
    ) -> None:
        """glossaries: None if the server stores no glossaries."""
        self._languages = languages
        self._encoder = encoder
        self._default_options = default_options
        self.has_alignment = abilities.has_alignment
        self._limits = limits
        self._glossaries = glossaries
        self._shortlists = abilities.shortlists

    def for_pair(self, pair: LanguagePair, own: LanguagePair, languages: Languages) -> Planner:
        """Return a planner of the same model for `pair`, which the model translates as its own pair `own`.

        The new planner uses the shortlist of `own`. languages: resolves the source language; its only pair is `pair`.
        """
        other = copy.copy(self)
        other._languages = languages
        other._shortlists = {pair: self._shortlists[own]} if own in self._shortlists else {}
        return other

    def prepare(self, request: TranslationRequest) -> PreparedRequest:
        """Return a request with the model's default options and its `suppress` phrases in subwords.

        Raises InvalidRequest.
        """
        options = request.options.merged(self._default_options)
        return PreparedRequest(
            request, options, self._suppressed(request.suppress) if request.suppress else ()
        )

    def plan(self, request: TranslationRequest, whole: TranslationRequest | None = None) -> RequestPlan:
        """Parse, split and tokenise the texts of a request.

        whole: the caller's request, whose samples and token lists count towards the limits; None if it is `request`.
        Raises PayloadTooLarge, SourceTooLong, UnsupportedLanguages, NotReady, and InvalidRequest (malformed XML, a
        glossary that is unknown or for other languages, forced or suppressed text that `SubwordEncoder.encode_forced`
        refuses, too much suppressed text).
        """
        prepared = self.prepare(request)
        glossary = self._glossary(request)
        whole, count = whole or request, request.answer_count or AnswerCount()
        texts: list[TextPlan] = []
        num_drawn_samples = num_samples(whole.options)
        for index in range(len(request.texts)):
            parsed_text, language = self._parse(request, index, glossary)
            text_jobs = self._jobs(prepared, index, parsed_text, language)
            if count.add_sentences(len(text_jobs) * num_drawn_samples) > self._limits.max_sentences:
                counted = ", each counted once a sample" if num_drawn_samples > 1 else ""
                raise PayloadTooLarge(
                    f"the texts have more than {self._limits.max_sentences} sentences{counted}; send fewer at once",
                    field="text",
                )
            texts.append(TextPlan(language, parsed_text, text_jobs))
        jobs = tuple(job for text in texts for job in text.jobs)
        lengths = [len(job.parts[0].encoded.ids) for job in jobs]
        self.check_token_lists(whole, lengths, count)
        return RequestPlan(prepared, tuple(texts), jobs, num_source_tokens=sum(lengths))

    def part(
        self,
        prepared: PreparedRequest,
        job: SegmentJob,
        span: Span,
        encoded: Encoded,
        *,
        prefix: str = "",
        num_splits: int = 0,
    ) -> Part:
        """Return a part of a job's segment, with options that force its translation to begin with `prefix`.

        num_splits: how often the segment was halved to get the part. The options have lengths in the place of ratios.
        They ask for attention if the request does. They also ask for it if the segment has tags, or if only attention
        can tell its unknown tokens apart. For a placeholder, `RetryPolicy` asks for attention after the model loses it.
        Raises InvalidRequest as `bounded_by_source`, `as_model_text` and `SubwordEncoder.encode_forced` do.
        """
        ids: tuple[int, ...] = ()
        if prefix:
            written = as_model_text(prefix, job, encoded)
            ids = self._encoder.encode_forced(written, encoded.verbatim_spans, "target_prefix")
            ids = self._encoder.as_written(ids)
        options = self.options(
            prepared, num_source_tokens=len(encoded.ids), num_forced=len(ids), num_splits=num_splits
        )
        pair = job.language.pair
        if pair is not None and (pair.target_start is not None or pair in self._shortlists):
            options = _with_pair(options, self._encoder.start_id(pair), self._shortlists.get(pair))
        needs_alignment = self.has_alignment and (
            bool(job.segment.tags) or self._encoder.needs_matching(encoded)
        )
        if prepared.suppressed or ids or needs_alignment:
            options = replace(
                options,
                suppress_sequences=prepared.suppressed,
                target_prefix=ids,
                alignment=options.alignment or needs_alignment,
            )
        options = bounded_by_source(options, len(encoded.ids) - self._encoder.ends_source)
        return Part(span, encoded, options)

    def encode(self, source: str, language: ResolvedLanguage) -> Encoded | None:
        """Return the subwords of a part as `SubwordEncoder.encode` does, or None if its language has no pair."""
        return None if language.pair is None else self._encoder.encode(source, language.pair)

    def options(
        self,
        prepared: PreparedRequest,
        *,
        num_source_tokens: int,
        num_forced: int = 0,
        num_splits: int = 0,
    ) -> DecodingOptions:
        """Return the decoding options of one sentence: the request's, with the sentence's length limit.

        num_source_tokens: subwords of its source, with any end token. num_forced: subwords of its target prefix.
        num_splits: how often its segment was halved. If the request sets no length limit, the limit is the length of
        the source plus an extra length. It is at least the prefix's length and the minimum length. Each halving
        halves the extra length, but a part may always have LIKELY_RATIO times the length of its source. The limit never
        exceeds `max_target_length` of the options.
        """
        options, extra_target_length = prepared.options, prepared.request.extra_target_length
        if extra_target_length is None:
            return options
        needed = max(num_forced, options.min_target_length)
        num_subwords = num_source_tokens - self._encoder.ends_source
        needed = max(needed, math.ceil(options.min_target_ratio * num_subwords))
        longest = max(needed, num_source_tokens + (extra_target_length >> num_splits))
        if num_splits:
            longest = max(longest, LIKELY_RATIO * num_source_tokens)
        return _with_limit(options, min(options.max_target_length, longest))

    def scored_pairs(
        self, request: ScoreRequest, pair: LanguagePair
    ) -> tuple[list[ScoredSource], list[tuple[int, ...]]]:
        """Return the sources to score and the subwords of their translations.

        Raises InvalidRequest, SourceTooLong, PayloadTooLarge.
        """
        sources, targets = [], []
        for index, (text, translation) in enumerate(zip(request.texts, request.translations, strict=True)):
            span = stripped_span("text", index, text)
            target = stripped_span("translation", index, translation)
            encoded = self._encoder.encode(span.of(text), pair)
            if encoded is None:
                raise SourceTooLong(
                    f"text[{index}] does not fit into one segment of the model, which has at most "
                    f"{self._encoder.max_source_length} subwords",
                    field=f"text[{index}]",
                )
            field = f"translation[{index}]"
            ids = self._encoder.encode_forced(target.of(translation), encoded.verbatim_spans, field)
            check_range(field, len(ids), (1, self._default_options.max_target_length), unit=" subwords")
            sources.append(ScoredSource(span, span.of(text), encoded))
            targets.append(ids)
        self.check_token_lists(request, [len(source.encoded.ids) for source in sources], AnswerCount())
        return sources, targets

    def check_token_lists(
        self, request: TranslationRequest | ScoreRequest, source_lengths: Sequence[int], count: AnswerCount
    ) -> None:
        """Raise PayloadTooLarge if the tokens of all sentences would make the response too large.

        source_lengths: subwords of each sentence, end token included. count: receives the number of lists.
        """
        if not request.returns_tokens:
            return
        options = request.options
        num_lists = len(source_lengths) * (1 + options.num_alternatives)
        if request.attention:
            num_lists += sum(math.ceil(length / WEIGHTS_PER_LIST) for length in source_lengths)
        num_lists *= options.num_hypotheses
        num_all = count.add_token_lists(num_lists)
        if num_all > self._limits.max_token_lists:
            others = f", {num_all} with the other texts" if num_all > num_lists else ""
            also = " and attention" if request.attention else ""
            ways = ["send fewer sentences"] + ["lower num_hypotheses"] * (options.num_hypotheses > 1)
            ways += ["lower num_alternatives"] * (options.num_alternatives > 0)
            ways += ["leave out attention"] * request.attention
            field = "num_alternatives" if options.num_alternatives else "text"
            raise PayloadTooLarge(
                f"returning the tokens of {len(source_lengths)} sentences, {options.num_hypotheses} hypotheses each, "
                f"with {options.num_alternatives} alternatives{also} makes {num_lists} lists{others}, the limit is "
                f"{self._limits.max_token_lists}; {', or '.join(ways)}",
                field="attention" if request.attention else field,
            )

    def _glossary(self, request: TranslationRequest) -> Glossary | None:
        """Return the request's own glossary, or the stored one that it names. Raises InvalidRequest, NotReady."""
        if request.terms:
            return Glossary(request.terms, request.source or "")
        if request.glossary_id is None:
            return request.glossary
        try:
            if self._glossaries is None:
                raise GlossaryNotFound
            stored, glossary = self._glossaries.load(request.caller, request.glossary_id)
        except GlossaryNotFound as error:
            raise InvalidRequest("glossary.id: there is no such glossary", field="glossary.id") from error
        except GlossaryStoreError as error:
            raise NotReady("the glossaries cannot be read now") from error
        if (stored.source_language, stored.target_language) != (request.source, request.target):
            raise InvalidRequest(
                f"glossary.id: that glossary is for {stored.source_language} to {stored.target_language}; "
                "name these as source and target",
                field="glossary.id",
            )
        return glossary

    def _parse(
        self, request: TranslationRequest, index: int, glossary: Glossary | None
    ) -> tuple[ParsedText, ResolvedLanguage]:
        """Parse a text and resolve its language. Raises InvalidRequest, UnsupportedLanguages.

        The endings of a glossary's terms depend on the source language. So if the language is detected, the text
        is first parsed without the glossary, and then again with it.
        """
        parsed_text = parse_source(request, index, None if request.source is None else glossary)
        options = parsed_text.options
        if request.source is not None:
            pair = self._languages.pair(request.source, request.target)
            return parsed_text, ResolvedLanguage(pair, request.source, 1.0)
        if request.languages:
            language = request.languages[index]
        else:
            language = self._languages.resolve(parsed_text.prose, request.target, field=f"text[{index}]")
        options = options._replace(
            source_language=language.source,
            glossary=None if glossary is None else glossary.of_language(language.source),
        )
        if options.glossary is not None and language.pair is not None:
            return parse_text(request.texts[index], options), language
        return replace(parsed_text, options=options), language

    def _jobs(
        self, prepared: PreparedRequest, index: int, parsed_text: ParsedText, language: ResolvedLanguage
    ) -> tuple[SegmentJob, ...]:
        """Return one job for each segment of a text. Raises SourceTooLong, InvalidRequest."""
        prefixes = prepared.request.target_prefixes
        if language.pair is None:
            return ()
        encoded: dict[str, Encoded] = {}
        jobs: list[SegmentJob] = []
        for segment in parsed_text.segments(self.fits(language.pair, encoded), self._encoder.is_word):
            tokens = self.subwords_of(segment.source, language, encoded)
            prefix = prefixes[index].strip() if prefixes and not jobs else ""
            job = SegmentJob(parsed_text, language, segment, prefix)
            self.reset(prepared, job, tokens)
            jobs.append(job)
        return tuple(jobs)

    def reset(self, prepared: PreparedRequest, job: SegmentJob, encoded: Encoded) -> None:
        """Reset a job to its whole segment as its only part. Raises InvalidRequest."""
        whole = Span(0, len(job.segment.source))
        job.parts = [self.part(prepared, job, whole, encoded, prefix=job.prefix)]
        job.part_fallbacks, job.num_splits = (), 0

    def fits(self, pair: LanguagePair, encoded: dict[str, Encoded]) -> Callable[[str], bool]:
        """Return a function that tells whether the model takes a source. It stores the subwords in `encoded`."""

        def fits(source: str) -> bool:
            tokens = self._encoder.encode(source, pair)
            if tokens is not None:
                encoded[source] = tokens
            return tokens is not None

        return fits

    def subwords_of(self, source: str, language: ResolvedLanguage, stored: Mapping[str, Encoded]) -> Encoded:
        """Return a source's subwords: those that `fits` has stored, or else new ones. Raises SourceTooLong."""
        tokens = stored.get(source) or self.encode(source, language)
        if tokens is None:
            raise SourceTooLong("a single character is longer than the model takes", field="text")
        return tokens

    def _suppressed(self, phrases: Sequence[str]) -> tuple[tuple[int, ...], ...]:
        """Return the phrases as runs of subwords. Raises InvalidRequest."""
        runs = tuple(
            self._encoder.encode_forced(phrase, (), f"suppress[{index}]")
            for index, phrase in enumerate(phrases)
        )
        check_range("suppress", sum(map(len, runs)), (0, MAX_SUPPRESSED_TOKENS), unit=" subwords in all")
        return runs


def parse_source(request: TranslationRequest, index: int, glossary: Glossary | None = None) -> ParsedText:
    """Parse the text at this index of a request. Raises InvalidRequest for malformed XML."""
    options = ParseOptions(
        source_language=request.source or "",
        target_language=request.target,
        text_format=request.text_format,
        splitting=request.splitting,
        xml=request.xml,
        glossary=glossary,
    )
    try:
        return parse_text(request.texts[index], options)
    except MarkupError as error:
        raise InvalidRequest(f"text[{index}]: {error}", field=f"text[{index}]") from error


@functools.lru_cache(maxsize=512)
def _with_limit(options: DecodingOptions, longest: int) -> DecodingOptions:
    """Return the options with a shorter limit. Cached, because options and lengths recur."""
    return replace(options, max_target_length=longest)


@functools.lru_cache(maxsize=512)
def _with_pair(options: DecodingOptions, start_id: int | None, shortlist: int | None) -> DecodingOptions:
    """Return the options with the start token and the shortlist of a language pair."""
    return replace(options, start_id=start_id, shortlist=shortlist)
