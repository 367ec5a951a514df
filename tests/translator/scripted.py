"""A translator with a scripted engine. A function gives the translation of each sentence at once."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future
from dataclasses import replace
from typing import Any, cast

from app.decoding.options import DecodingOptions, FinishReason, Hypothesis
from app.engine.engine import Engine
from app.engine.limits import checked_options
from app.engine.sequence import SequenceResult
from app.engine.speed import Cost
from app.engine.token_deltas import OnTokens
from app.errors import Overloaded
from app.stores.glossaries import GlossaryStore
from app.text.detection import LanguageDetector, LazyDetector
from app.text.tokenizer import PLACEHOLDER_SYMBOLS, Tokenizer
from app.translator import (
    AnswerLimits,
    Extras,
    Observer,
    TextSpan,
    Translation,
    TranslationRequest,
    TranslationResult,
    Translator,
)
from app.translator.text_threads import TextThreads
from tests.api.echo import Behaviour, echo_model

# A fake model: it returns the translation of a source, with one line for each hypothesis. A line that ends with NO_END
# reaches the length limit.
FakeModel = Callable[[str], str]
NO_END = "..."


class ScriptedEngine:
    """Records every sentence as text, with its options. Verbatim spans are placeholder symbols in the text.

    prioritized: the sentences of `prioritize_retries`. costs: the arguments of each `resize`. is_full: whether `resize`
    refuses when it checks the bounds of the queue.
    """

    def __init__(self, tokenizer: Tokenizer, limits: Any, translate: FakeModel) -> None:
        self.limits = limits
        self.submitted: list[tuple[str, DecodingOptions]] = []
        self.prioritized: list[str] = []
        self.costs: list[tuple[Cost, int]] = []
        self.is_full = False
        self._sources: dict[asyncio.Future[SequenceResult], str] = {}
        self._tokenizer = tokenizer
        self._translate = translate

    def reserve(self, *_: object, **__: object) -> ScriptedEngine:
        return self

    def __enter__(self) -> ScriptedEngine:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def resize(self, cost: Cost, *, longest: int, checks_bounds: bool = True) -> None:
        if self.is_full and checks_bounds:
            raise Overloaded("too much work is waiting", retry_after_s=1.0)
        self.costs.append((cost, longest))

    def join(self, *_: object, **__: object) -> None:
        """This has no effect, because every sentence is answered at once."""

    def prioritize_retries(self, futures: Iterable[asyncio.Future[SequenceResult]]) -> None:
        self.prioritized += [self._sources[future] for future in futures]

    def submit(
        self,
        source_ids: Sequence[int],
        options: DecodingOptions,
        *,
        on_tokens: OnTokens | None = None,
        **_: object,
    ) -> asyncio.Future[SequenceResult]:
        checked_options(source_ids, options, self.limits)  # as in `Engine.submit`
        source = self._tokenizer.offsets(list(source_ids[:-1]))[0]
        self.submitted.append((source, options))
        hypotheses = [
            self._hypothesis(line, len(source_ids), options) for line in self._translate(source).split("\n")
        ]
        hypotheses += hypotheses[-1:] * (options.num_hypotheses - len(hypotheses))
        future: asyncio.Future[SequenceResult] = asyncio.get_running_loop().create_future()
        best = hypotheses[0]
        result = SequenceResult(hypotheses, 0.0, 0.0, 0.001, len(best.token_log_probabilities))

        def answer() -> None:
            if not future.done():
                if on_tokens is not None:
                    on_tokens(0, best.ids)
                future.set_result(result)

        asyncio.get_running_loop().call_soon(answer)
        self._sources[future] = source
        return future

    def _hypothesis(self, text: str, num_source_tokens: int, options: DecodingOptions) -> Hypothesis:
        reason = FinishReason.LENGTH if text.endswith(NO_END) else FinishReason.STOP
        ids = self._tokenizer.encode_target(text.removesuffix(NO_END), PLACEHOLDER_SYMBOLS)[:-1]
        num_tokens = len(ids) + (reason is FinishReason.STOP)
        alignment = tuple(
            tuple(float(column == min(row, num_source_tokens - 1)) for column in range(num_source_tokens))
            for row in range(num_tokens)
        )
        return Hypothesis(
            ids,
            log_probability=-float(num_tokens),
            score=-1.0,
            finish_reason=reason,
            token_log_probabilities=(-1.0,) * num_tokens,
            alignment=alignment if options.alignment else (),
        )


class CountingThreads(TextThreads):
    """Text threads that count the calls of `submit` in num_submits."""

    num_submits = 0

    def submit(self, *args: Any, **kwargs: Any) -> Future[Any]:
        self.num_submits += 1
        return super().submit(*args, **kwargs)


class ScriptedTranslator:
    """A translator with a scripted engine."""

    def __init__(
        self,
        tokenizer: Tokenizer,
        translate: FakeModel,
        *,
        has_alignment: bool = False,
        detector: LanguageDetector | LazyDetector | None = None,
        glossaries: GlossaryStore | None = None,
        behaviour: Behaviour | None = None,
        answer_limits: AnswerLimits | None = None,
    ) -> None:
        model = echo_model(tokenizer, behaviour or Behaviour(), num_rows=16)
        limits = replace(model.limits, has_alignment=has_alignment, num_shortlists=2)
        self.engine = ScriptedEngine(tokenizer, limits, translate)
        self.text_threads = CountingThreads(1)
        self.translator = Translator(
            model.manifest,
            cast("Engine", self.engine),
            source_tokenizer=tokenizer,
            target_tokenizer=tokenizer,
            text_threads=self.text_threads,
            extras=Extras(
                detector=LazyDetector(lambda: detector)
                if isinstance(detector, LanguageDetector)
                else detector,
                glossaries=glossaries,
                limits=answer_limits or AnswerLimits(max_sentences=1000, max_token_lists=1000),
            ),
        )

    @property
    def sources(self) -> list[str]:
        """The submitted sources."""
        return [source for source, _ in self.engine.submitted]

    def result(
        self, texts: Sequence[str], observer: Observer | None = None, **changes: Any
    ) -> TranslationResult:
        return asyncio.run(self.translator.translate(request(texts, **changes), observer))

    def __call__(self, text: str, observer: Observer | None = None, **changes: Any) -> Translation:
        (translation,) = self.result([text], observer, **changes).translations
        return translation


def request(texts: Sequence[str], **changes: Any) -> TranslationRequest:
    fields: dict[str, Any] = {
        "texts": tuple(texts),
        "source": "en",
        "target": "de",
        "request_id": "r",
        "caller": "",
        "deadline": time.monotonic() + 20,
    }
    return TranslationRequest(**{**fields, **changes})


class RecordingObserver:
    """An observer that records the events.

    shown: the text so far, by text index and segment index.
    ended: the final texts, by text index and segment index.
    replacements: both indexes and the new text of each replacement, in order.
    """

    def __init__(self) -> None:
        self.spans: list[list[tuple[int, int]]] = []
        self.shown: dict[tuple[int, int], str] = {}
        self.ended: dict[tuple[int, int], str] = {}
        self.replacements: list[tuple[tuple[int, int], str]] = []

    def on_segments(self, texts: Sequence[Sequence[TextSpan]]) -> None:
        assert self.spans == []
        self.spans = [[(span.start, span.end) for span in spans] for spans in texts]

    def on_delta(self, text_index: int, segment_index: int, text: str) -> None:
        place = (text_index, segment_index)
        self.shown[place] = self.shown.get(place, "") + text

    def on_replacement(self, text_index: int, segment_index: int, text: str) -> None:
        self.shown[text_index, segment_index] = text
        self.replacements.append(((text_index, segment_index), text))

    def on_final(self, text_index: int, segment_index: int, text: str, finish_reason: FinishReason) -> None:
        assert (text_index, segment_index) not in self.ended
        assert finish_reason is FinishReason.STOP
        self.ended[text_index, segment_index] = text
