"""Translates and detects for the dialects, which are the APIs of other translation servers.

It is a layer over the translator. It returns whole texts, languages and confidences, without segments and scores.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from starlette.requests import Request

from app.api.http.disconnect import while_connected
from app.api.http.middleware import requester_of
from app.api.languages import served_languages
from app.api.limits import RequestLimits
from app.api.native.routes import record_usage
from app.api.service import Service
from app.api.spending import begin_spending
from app.decoding.option_changes import NO_CHANGES, OptionChanges
from app.errors import UnsupportedLanguages
from app.text.glossary import Glossary
from app.text.language_names import language_name
from app.text.parsed_text import Splitting, TextFormat
from app.text.xml_reader import XmlRules
from app.translator import Models, Ranked, Translation, TranslationRequest, TranslationResult


class NoSuchPair(Exception):
    """The server does not translate from `source` to `target`."""

    def __init__(self, source: str, target: str) -> None:
        named = (f"{language_name(code)} ({code})" for code in (source, target))
        super().__init__(" to ".join(named))
        self.source = source
        self.target = target


@dataclass(frozen=True)
class PlainRequest:
    """A dialect's request.

    source, target: served languages; source is None to detect it for each text.
    num_alternatives: the maximum number of other translations of each text.
    beam_size: None for the model's. With alternatives, the beam is at least as wide as the number of translations.
    timeout_s: seconds until the deadline, if that is shorter than the server's; None for the server's.
    The other fields are as in `TranslationRequest`.
    """

    source: str | None
    target: str
    num_alternatives: int = 0
    beam_size: int | None = None
    text_format: TextFormat = TextFormat.PLAIN
    splitting: Splitting = Splitting.SENTENCES
    xml: XmlRules = field(default_factory=XmlRules)
    glossary: Glossary | None = None
    timeout_s: float | None = None
    model: str | None = None


@dataclass(frozen=True)
class PlainTranslation:
    """The translation of one text.

    source: the language of that text, as sent or detected. confidence: of the detection, 0 to 1; 1 without a detection.
    alternatives: other translations, best first.
    """

    text: str
    source: str
    confidence: float
    alternatives: tuple[str, ...] = ()


class PlainTranslator:
    """Translates and detects texts for the dialects."""

    def __init__(self, service: Service, limits: RequestLimits, *, timeout_s: float) -> None:
        """timeout_s: from a request's arrival to its deadline."""
        self.service = service
        self.limits = limits
        self.timeout_s = timeout_s

    def languages(self) -> list[str]:
        """Every language served. Raises NotReady."""
        return served_languages(self.service.check_open().pairs)

    def pairs(self) -> frozenset[tuple[str, str]]:
        """Source and target of every pair. Raises NotReady."""
        return self.service.check_open().pairs

    async def detect(self, request: Request, texts: Sequence[str]) -> list[Ranked]:
        """The most probable languages of each text with probabilities, best first; empty for a text without letters.

        Raises NotReady, RequestCancelled, and the errors of `Models.detect`.
        """
        with self.service.work() as models:
            return await while_connected(request, models.detect(texts, caller=requester_of(request).share))

    async def source_of(self, text: str, target: str, *, share: str) -> str:
        """The source language of a text; `target` if the text needs no translation. Raises NoSuchPair, NotReady.

        share: the caller, as the engine's fair queueing knows it.
        """
        try:
            return await self.service.check_open().source_of(text, target, caller=share)
        except UnsupportedLanguages as error:
            raise NoSuchPair(error.source, target) from error

    async def translate(
        self, request: Request, texts: Sequence[str], plain_request: PlainRequest
    ) -> list[PlainTranslation]:
        """One translation for each text, in order.

        All texts are returned unchanged if the requested source is the target. With detection, a text is returned
        unchanged if it is in the target language, or if no language is detected in it.
        Raises NoSuchPair, NotReady, RequestCancelled, and the errors of `begin_spending` and `Models.translate`.
        """
        self.service.check_open()
        with await begin_spending(request.scope, self.service.usage, sum(map(len, texts))):
            if plain_request.source == plain_request.target:
                return [PlainTranslation(text, plain_request.target, 1.0) for text in texts]
            return await self._translate_connected(request, texts, plain_request)

    async def _translate_connected(
        self, request: Request, texts: Sequence[str], plain_request: PlainRequest
    ) -> list[PlainTranslation]:
        with self.service.work() as models:
            result = await while_connected(request, self._translate(request, models, texts, plain_request))
            record_usage(self.service, result, request.scope)
        return [to_plain(each) for each in result.translations]

    async def _translate(
        self, request: Request, models: Models, texts: Sequence[str], plain_request: PlainRequest
    ) -> TranslationResult:
        request_id, caller, received_at, share = requester_of(request)
        translation_request = TranslationRequest(
            texts=tuple(texts),
            source=plain_request.source,
            target=plain_request.target,
            request_id=request_id,
            caller=caller,
            share=share,
            deadline=received_at + min(self.timeout_s, plain_request.timeout_s or self.timeout_s),
            text_format=plain_request.text_format,
            splitting=plain_request.splitting,
            xml=plain_request.xml,
            glossary=plain_request.glossary,
            options=_options(plain_request),
            model=plain_request.model,
        )
        try:
            return await models.translate(translation_request)
        except UnsupportedLanguages as error:
            raise NoSuchPair(error.source, plain_request.target) from error


def to_plain(translation: Translation) -> PlainTranslation:
    """A translation's text, and its other hypotheses without repetitions."""
    others = dict.fromkeys(text for text in translation.hypotheses[1:] if text != translation.text)
    return PlainTranslation(translation.text, translation.source, translation.confidence, tuple(others))


def _options(plain_request: PlainRequest) -> OptionChanges:
    """The decoding options that a request sets."""
    options, num_hypotheses = NO_CHANGES, plain_request.num_alternatives + 1
    if num_hypotheses > 1:
        options = options.updated(num_hypotheses=num_hypotheses)
    if plain_request.beam_size is not None:
        options = options.updated(beam_size=max(plain_request.beam_size, num_hypotheses))
    return options
