"""A request's texts become translations: split, tokenise, engine, detokenise, join.

Knows nothing of HTTP. Everything that costs time in proportion to the text runs off the event loop; the
engine's place is reserved before that work begins and given back however the request ends.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass
from typing import TypeVar

from app.bundle import LanguagePair, Manifest
from app.decoding.options import EXTRA_TARGET_LENGTH, DecodingOptions, FinishReason, Hypothesis, LengthPenalty
from app.engine.engine import Engine
from app.engine.sequence import SequenceResult
from app.errors import DeadlineExceeded, PayloadTooLarge, SourceTooLong, UnsupportedLanguages
from app.text.segmentation import Joined, Span, fitting_spans, join, sentence_spans
from app.text.tokenizer import Encoded, Tokenizer, TokenizerError

T = TypeVar("T")
# English and German subwords are about four characters long; only an estimate, put right after tokenising.
CHARACTERS_PER_TOKEN = 4
# A piece is cut at this many characters a subword before it is tokenised at all: normalising is quadratic in
# runs of combining marks.
MAX_CHARACTERS_PER_TOKEN = 16
MAX_LISTED_PAIRS = 20


@dataclass(frozen=True)
class TranslationRequest:
    """What a caller asks for, checked against the server's limits.

    Fields that are None are left to the model's defaults.
    deadline: seconds of time.monotonic. caller: whose turn it takes in the queue.
    """

    texts: tuple[str, ...]
    source: str
    target: str
    request_id: str
    caller: str
    deadline: float
    beam_size: int | None = None
    num_hypotheses: int = 1
    length_penalty: LengthPenalty | None = None
    alpha: float | None = None
    max_target_length: int | None = None


@dataclass(frozen=True)
class SegmentHypothesis:
    """One translation of one segment. `score`: log-probability over the length penalty."""

    text: str
    score: float
    finish_reason: FinishReason


@dataclass(frozen=True)
class Segment:
    """A sentence, or a part of an over-long one. Spans are start and end in code points."""

    source: tuple[int, int]
    target: tuple[int, int]
    hypotheses: tuple[SegmentHypothesis, ...]


@dataclass(frozen=True)
class Translation:
    """A text's translation. `hypotheses`: whole texts, best first; the k-th joins the k-th of each segment."""

    text: str
    hypotheses: tuple[str, ...]
    segments: tuple[Segment, ...]


@dataclass(frozen=True)
class Timings:
    """Milliseconds of each phase; of the slowest sentence where they ran side by side."""

    tokenise: float
    queue: float
    encode: float
    decode: float
    detokenise: float


@dataclass(frozen=True)
class TranslationResult:
    """One translation a text, in order. Tokens count subwords, end tokens included."""

    translations: tuple[Translation, ...]
    source_tokens: int
    target_tokens: int
    num_sentences: int
    timings: Timings


@dataclass(frozen=True)
class _Piece:
    """One thing to translate: where it stands in its text, and its subwords."""

    span: Span
    encoded: Encoded


class Translator:
    """The texts' way through one bundle's engine. Called on the event loop."""

    def __init__(
        self,
        manifest: Manifest,
        engine: Engine,
        *,
        source_tokenizer: Tokenizer,
        target_tokenizer: Tokenizer,
        executor: Executor,
        max_sentences: int,
    ) -> None:
        """max_sentences: of one request, after splitting."""
        self.manifest = manifest
        self.engine = engine
        self._source_tokenizer = source_tokenizer
        self._target_tokenizer = target_tokenizer
        self._executor = executor
        self._max_sentences = max_sentences
        self._pairs = {(pair.source, pair.target): pair for pair in manifest.language_pairs}

    def check_languages(self, source: str, target: str) -> LanguagePair:
        """The pair, or UnsupportedLanguages that lists those that there are."""
        pair = self._pairs.get((source, target))
        if pair is None:
            listed = ", ".join(
                f"{known} to {other}" for known, other in sorted(self._pairs)[:MAX_LISTED_PAIRS]
            )
            raise UnsupportedLanguages(
                f"this pair is not translated here; supported: {listed}", field="target"
            )
        return pair

    def encode(self, part: str, pair: LanguagePair) -> Encoded | None:
        """The subwords of a part of a text, or None where the model cannot take it at once."""
        limit = self.engine.limits.max_source_length
        if len(part) > limit * MAX_CHARACTERS_PER_TOKEN:
            return None
        try:
            encoded = self._source_tokenizer.encode(part)
        except TokenizerError:
            return None
        if pair.source_prefix is not None:
            prefix = self._source_tokenizer.id_of(pair.source_prefix)
            encoded = Encoded(ids=(prefix, *encoded.ids), carried=encoded.carried)
        return encoded if len(encoded.ids) <= limit else None

    async def translate(self, request: TranslationRequest) -> TranslationResult:
        """Translate every text.

        Cancelling frees the rows of all its sentences. Raises UnsupportedLanguages, PayloadTooLarge (more
        sentences than a request may have), SourceTooLong, Overloaded, NotReady, DeadlineExceeded, EngineFailure,
        and InvalidRequest for options that the model cannot serve.
        """
        pair = self.check_languages(request.source, request.target)
        estimate = sum(len(text) // CHARACTERS_PER_TOKEN + 1 for text in request.texts)
        with self.engine.reserve(len(request.texts), estimate) as place:
            started = time.monotonic()
            texts = await self._off_loop(lambda: self._prepare(request.texts, pair))
            tokenised = time.monotonic()
            pieces = [piece for text in texts for piece in text]
            num_tokens = sum(len(piece.encoded.ids) for piece in pieces)
            place.resize(len(pieces), num_tokens)
            results = await self._run(request, pieces)
            decoded = time.monotonic()
            if decoded >= request.deadline:
                raise DeadlineExceeded("the request's time ran out")
            translations = await self._off_loop(lambda: self._finish(request, texts, results))
        return TranslationResult(
            translations=translations,
            source_tokens=num_tokens,
            target_tokens=sum(_num_tokens(result.hypotheses[0]) for result in results),
            num_sentences=len(pieces),
            timings=_timings(results, tokenised - started, time.monotonic() - decoded),
        )

    async def _off_loop(self, work: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._executor, work)

    async def _run(self, request: TranslationRequest, pieces: Sequence[_Piece]) -> list[SequenceResult]:
        """Submit all pieces at once and wait for all; the first failure, and a cancel, frees the others."""
        futures: list[asyncio.Future[SequenceResult]] = []
        try:
            for piece in pieces:
                options = self.options(request, num_source_tokens=len(piece.encoded.ids))
                future = self.engine.submit(
                    piece.encoded.ids,
                    options,
                    request_id=request.request_id,
                    caller=request.caller,
                    deadline=request.deadline,
                )
                futures.append(future)
            return await asyncio.gather(*futures)
        finally:
            for future in futures:
                future.cancel()

    def options(self, request: TranslationRequest, *, num_source_tokens: int) -> DecodingOptions:
        """The search's options for one sentence: the request's, else the model's defaults."""
        defaults = self.manifest.decoding
        longest = self.engine.limits.max_target_length - 1
        if request.max_target_length is None:
            longest = min(longest, num_source_tokens + EXTRA_TARGET_LENGTH)
        else:
            longest = min(longest, request.max_target_length)
        beam_size = defaults.beam_size if request.beam_size is None else request.beam_size
        return DecodingOptions(
            beam_size=max(beam_size, request.num_hypotheses) if request.beam_size is None else beam_size,
            num_hypotheses=request.num_hypotheses,
            length_penalty=defaults.length_penalty
            if request.length_penalty is None
            else request.length_penalty,
            alpha=defaults.alpha if request.alpha is None else request.alpha,
            max_target_length=longest,
        )

    # ---- on the executor's threads: no engine, no event loop

    def _prepare(self, texts: Sequence[str], pair: LanguagePair) -> list[list[_Piece]]:
        """Split and tokenise. Raises PayloadTooLarge, SourceTooLong."""
        prepared = []
        num_left = self._max_sentences
        for text in texts:
            pieces: list[_Piece] = []
            for sentence in sentence_spans(text, pair.source):
                pieces += self._pieces(text, sentence, pair)
                if len(pieces) > num_left:
                    raise PayloadTooLarge(
                        f"the texts have more than {self._max_sentences} sentences; send fewer at once",
                        field="text",
                    )
            num_left -= len(pieces)
            prepared.append(pieces)
        return prepared

    def _pieces(self, text: str, sentence: Span, pair: LanguagePair) -> list[_Piece]:
        """One sentence, in as many pieces as the model needs."""
        encoded: dict[str, Encoded] = {}

        def fits(part: str) -> bool:
            tokens = self.encode(part, pair)
            if tokens is not None:
                encoded[part] = tokens
            return tokens is not None

        pieces = []
        for span in fitting_spans(text, sentence, fits):
            part = span.of(text)
            tokens = encoded.get(part) or self.encode(part, pair)
            if tokens is None:
                raise SourceTooLong("a single character is longer than the model takes", field="text")
            pieces.append(_Piece(span, tokens))
        return pieces

    def _finish(
        self,
        request: TranslationRequest,
        texts: Sequence[Sequence[_Piece]],
        results: Sequence[SequenceResult],
    ) -> tuple[Translation, ...]:
        """Detokenise and join. `results`: one a piece, texts in order."""
        remaining = iter(results)
        translations = []
        for text, pieces in zip(request.texts, texts, strict=True):
            found = [self._hypotheses(piece, next(remaining)) for piece in pieces]
            spans = [piece.span for piece in pieces]
            joined = [
                join(text, spans, [ranked[min(rank, len(ranked) - 1)].text for ranked in found])
                for rank in range(request.num_hypotheses)
            ]
            translations.append(_translation(joined, spans, found))
        return tuple(translations)

    def _hypotheses(self, piece: _Piece, result: SequenceResult) -> tuple[SegmentHypothesis, ...]:
        return tuple(
            SegmentHypothesis(
                text=self._target_tokenizer.decode(hypothesis.ids, piece.encoded.carried).text,
                score=hypothesis.score,
                finish_reason=hypothesis.finish_reason,
            )
            for hypothesis in result.hypotheses
        )


def _translation(
    joined: Sequence[Joined], spans: Sequence[Span], found: Sequence[tuple[SegmentHypothesis, ...]]
) -> Translation:
    """joined: the whole text by rank, the best first."""
    segments = tuple(
        Segment(source=(span.start, span.end), target=target, hypotheses=hypotheses)
        for span, target, hypotheses in zip(spans, joined[0].spans, found, strict=True)
    )
    return Translation(joined[0].text, tuple(whole.text for whole in joined), segments)


def _num_tokens(hypothesis: Hypothesis) -> int:
    """Subwords of a translation, its end token counted where it has one."""
    return len(hypothesis.ids) + (hypothesis.finish_reason is FinishReason.STOP)


def _timings(results: Sequence[SequenceResult], tokenise_s: float, detokenise_s: float) -> Timings:
    """Milliseconds; the engine's phases are those of the slowest sentence."""

    def slowest_ms(seconds: Callable[[SequenceResult], float]) -> float:
        return max((seconds(result) for result in results), default=0.0) * 1000

    return Timings(
        tokenise=tokenise_s * 1000,
        queue=slowest_ms(lambda result: result.queue_time_s),
        encode=slowest_ms(lambda result: result.encode_time_s),
        decode=slowest_ms(lambda result: result.decode_time_s),
        detokenise=detokenise_s * 1000,
    )
