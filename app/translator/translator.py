"""A request's texts become translations: split, tokenise, engine, detokenise, join.

Knows nothing of HTTP. Everything that costs time in proportion to the text runs off the event loop; the
engine's place is reserved before that work begins and given back however the request ends.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from dataclasses import replace
from typing import TypeVar

from app.bundle import LanguagePair, Manifest
from app.decoding.options import DecodingOptions, FinishReason
from app.decoding.validation import MAX_SUPPRESSED_TOKENS, check_options, check_range
from app.engine.engine import Engine
from app.engine.limits import option_bounds
from app.engine.sequence import SequenceResult
from app.errors import (
    DeadlineExceeded,
    InvalidRequest,
    PayloadTooLarge,
    SourceTooLong,
    UnsupportedLanguages,
)
from app.text.tokenizer import Encoded, Tokenizer, TokenizerError
from app.translator.detokeniser import Detokeniser
from app.translator.pieces import Cutter, SourcePiece, stripped
from app.translator.request import (
    AnswerLimits,
    ScoreRequest,
    ScoreResult,
    Timings,
    TranslationRequest,
    TranslationResult,
)

T = TypeVar("T")
Request = TranslationRequest | ScoreRequest
# English and German subwords are about four characters long; only an estimate, put right after tokenising.
CHARACTERS_PER_TOKEN = 4
MAX_LISTED_PAIRS = 20


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
        limits: AnswerLimits,
    ) -> None:
        """Nothing is loaded or started here."""
        self.manifest = manifest
        self.engine = engine
        self._cutter = Cutter(source_tokenizer, engine.limits.max_source_length)
        self._target_tokenizer = target_tokenizer
        self._detokeniser = Detokeniser(target_tokenizer, self._cutter)
        self._executor = executor
        self._limits = limits
        self._pairs = {(pair.source, pair.target): pair for pair in manifest.language_pairs}

    @property
    def default_options(self) -> DecodingOptions:
        """The model's own; max_target_length is the longest that it can be asked for."""
        defaults = self.manifest.decoding
        return DecodingOptions(
            beam_size=defaults.beam_size,
            length_penalty=defaults.length_penalty,
            alpha=defaults.alpha,
            max_target_length=self.engine.limits.max_target_length - 1,
        )

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
        return self._cutter.encode(part, pair)

    async def translate(self, request: TranslationRequest) -> TranslationResult:
        """Translate every text.

        Cancelling frees the rows of all its sentences. Raises UnsupportedLanguages, PayloadTooLarge (more
        sentences than a request may have, or more tokens to tell), SourceTooLong, Overloaded, NotReady,
        DeadlineExceeded, EngineFailure, and InvalidRequest for options that contradict each other or that the model
        cannot serve.
        """
        pair = self.check_languages(request.source or "", request.target)
        check_options(request.options or self.default_options, option_bounds(self.engine.limits))
        estimate = sum(len(text) // CHARACTERS_PER_TOKEN + 1 for text in request.texts)
        with self.engine.reserve(len(request.texts), estimate) as place:
            started = time.monotonic()
            texts, options = await self.off_loop(lambda: self._prepare(request, pair))
            tokenised = time.monotonic()
            pieces = [piece for text in texts for piece in text]
            num_tokens = sum(len(piece.encoded.ids) for piece in pieces)
            place.resize(len(pieces), num_tokens)
            results = await self._run(request, pieces, options)
            decoded = time.monotonic()
            translations = await self.off_loop(
                lambda: self._detokeniser.translations(request, pair, texts, results)
            )
        return TranslationResult(
            source_tokens=num_tokens,
            target_tokens=sum(_num_tokens(result) for result in results),
            num_sentences=len(pieces),
            timings=_timings(results, tokenised - started, time.monotonic() - decoded),
            translations=translations,
        )

    async def score(self, request: ScoreRequest) -> ScoreResult:
        """Score every pair as it stands: a text is not split.

        Raises as `translate` does; InvalidRequest names the pair with a blank side or a translation that the model
        cannot have said, SourceTooLong the one whose text is too long.
        """
        pair = self.check_languages(request.source, request.target)
        defaults = replace(request.options or self.default_options, beam_size=1)
        check_options(defaults, option_bounds(self.engine.limits))
        estimate = sum(len(text) // CHARACTERS_PER_TOKEN + 1 for text in request.texts)
        with self.engine.reserve(len(request.texts), estimate) as place:
            started = time.monotonic()
            pieces, forced = await self.off_loop(lambda: self._prepare_pairs(request, pair))
            tokenised = time.monotonic()
            num_tokens = sum(len(piece.encoded.ids) for piece in pieces)
            place.resize(len(pieces), num_tokens)
            options = [replace(defaults, forced_target=target) for target in forced]
            results = await self._run(request, pieces, options)
            decoded = time.monotonic()
            scores = await self.off_loop(lambda: self._detokeniser.scores(request, pair, pieces, results))
        return ScoreResult(
            source_tokens=num_tokens,
            target_tokens=sum(_num_tokens(result) for result in results),
            num_sentences=len(pieces),
            timings=_timings(results, tokenised - started, time.monotonic() - decoded),
            scores=scores,
        )

    async def off_loop(self, work: Callable[[], T]) -> T:
        """What takes time in proportion to a text, on the threads for that; work must touch no engine."""
        return await asyncio.get_running_loop().run_in_executor(self._executor, work)

    async def _run(
        self, request: Request, pieces: Sequence[SourcePiece], options: Sequence[DecodingOptions]
    ) -> list[SequenceResult]:
        """Submit all pieces at once and wait for all; the first failure, and a cancel, frees the others.

        Raises DeadlineExceeded also where the last result came too late.
        """
        futures: list[asyncio.Future[SequenceResult]] = []
        try:
            for piece, own_options in zip(pieces, options, strict=True):
                future = self.engine.submit(
                    piece.encoded.ids,
                    own_options,
                    request_id=request.request_id,
                    caller=request.caller,
                    deadline=request.deadline,
                )
                futures.append(future)
            results = await asyncio.gather(*futures)
        finally:
            for future in futures:
                future.cancel()
        if time.monotonic() >= request.deadline:
            raise DeadlineExceeded("the request's time ran out")
        return results

    # ---- on the executor's threads: no engine, no event loop

    def _prepare(
        self, request: TranslationRequest, pair: LanguagePair
    ) -> tuple[list[list[SourcePiece]], list[DecodingOptions]]:
        """Split and tokenise: the pieces of each text, and the options of every piece in turn.

        Raises PayloadTooLarge, SourceTooLong, InvalidRequest.
        """
        suppressed = self._suppressed(request.suppress)
        prepared: list[list[SourcePiece]] = []
        options: list[DecodingOptions] = []
        for index, text in enumerate(request.texts):
            pieces: list[SourcePiece] = []
            for piece in self._cutter.pieces(text, pair):
                if len(options) == self._limits.max_sentences:
                    raise PayloadTooLarge(
                        f"the texts have more than {self._limits.max_sentences} sentences; send fewer at once",
                        field="text",
                    )
                prefix = self._target_prefix(request, index, piece) if not pieces else ()
                own_options = replace(
                    self.options(request, num_source_tokens=len(piece.encoded.ids), num_forced=len(prefix)),
                    suppress_sequences=suppressed,
                    target_prefix=prefix,
                )
                pieces.append(piece)
                options.append(own_options)
            prepared.append(pieces)
        self._check_told(request, len(options))
        return prepared, options

    def options(
        self, request: TranslationRequest, *, num_source_tokens: int, num_forced: int = 0
    ) -> DecodingOptions:
        """The search's options for one sentence: the request's, else the model's defaults.

        num_source_tokens: its subwords, the end token counted. num_forced: of its target prefix. Neither a prefix nor
        a shortest length that was asked for is cut by the length that nobody asked for.
        """
        options = request.options or self.default_options
        if request.extra_target_length is None:
            return options
        needed = max(num_forced, options.min_target_length)
        needed = max(needed, math.ceil(options.min_target_ratio * (num_source_tokens - 1)))
        longest = max(needed, num_source_tokens + request.extra_target_length)
        return replace(options, max_target_length=min(options.max_target_length, longest))

    def _suppressed(self, phrases: Sequence[str]) -> tuple[tuple[int, ...], ...]:
        """The phrases as runs of subwords. Raises InvalidRequest."""
        runs = tuple(self._forced(phrase, (), f"suppress[{index}]") for index, phrase in enumerate(phrases))
        check_range("suppress", sum(map(len, runs)), (0, MAX_SUPPRESSED_TOKENS), unit=" subwords in all")
        return runs

    def _target_prefix(self, request: TranslationRequest, index: int, first: SourcePiece) -> tuple[int, ...]:
        """What the translation of a text begins with, as subwords; first: its first piece. Raises InvalidRequest."""
        prefix = request.target_prefixes[index].strip() if request.target_prefixes else ""
        return self._forced(prefix, first.encoded.carried, "target_prefix") if prefix else ()

    def _forced(self, text: str, carried: Sequence[str], field: str) -> tuple[int, ...]:
        """A target's subwords, the end token left out. Raises InvalidRequest where no target can be this."""
        try:
            return self._target_tokenizer.encode_target(text, carried)[:-1]
        except TokenizerError as error:
            raise InvalidRequest(
                f"{field} has characters that no translation can hold", field=field
            ) from error

    def _check_told(self, request: Request, num_sentences: int) -> None:
        """Raises PayloadTooLarge where the tokens of so many sentences would be too long an answer."""
        if not request.tells_tokens:
            return
        options = request.options or self.default_options
        num_lists = num_sentences * options.num_hypotheses * (1 + options.num_alternatives)
        if num_lists > self._limits.max_token_lists:
            raise PayloadTooLarge(
                f"telling tokens of {num_sentences} sentences, {options.num_hypotheses} hypotheses each, with "
                f"{options.num_alternatives} alternatives makes {num_lists} lists, the limit is "
                f"{self._limits.max_token_lists}; send fewer sentences, or lower num_hypotheses or num_alternatives",
                field="num_alternatives" if options.num_alternatives else "text",
            )

    def _prepare_pairs(
        self, request: ScoreRequest, pair: LanguagePair
    ) -> tuple[list[SourcePiece], list[tuple[int, ...]]]:
        """Tokenise: the sources, and the subwords of their translations. Raises InvalidRequest, SourceTooLong."""
        self._check_told(request, len(request.texts))
        pieces, forced = [], []
        for index, (text, translation) in enumerate(zip(request.texts, request.translations, strict=True)):
            span, target = stripped("text", index, text), stripped("translation", index, translation)
            encoded = self._cutter.encode(span.of(text), pair)
            if encoded is None:
                limit = self.engine.limits.max_source_length
                raise SourceTooLong(
                    f"text[{index}] is more than one piece for the model, of at most {limit} subwords",
                    field=f"text[{index}]",
                )
            ids = self._forced(target.of(translation), encoded.carried, f"translation[{index}]")
            longest = self.default_options.max_target_length
            check_range(f"translation[{index}]", len(ids), (1, longest), unit=" subwords")
            pieces.append(SourcePiece(span, span.of(text), encoded))
            forced.append(ids)
        return pieces, forced


def _num_tokens(result: SequenceResult) -> int:
    """Subwords of the best translation, its end token counted where it has one."""
    best = result.hypotheses[0]
    return len(best.ids) + (best.finish_reason is FinishReason.STOP)


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
