"""Texts to plain translations for the dialects: languages detected, what needs no model left as it is."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from starlette.requests import Request

from app.api.disconnect import while_connected
from app.api.languages import served_languages
from app.api.middleware import requester_of
from app.api.native import count
from app.api.native_schema import RequestLimits
from app.api.service import Service
from app.decoding.options import DecodingOptions
from app.text.detection import LanguageDetector, is_in_target
from app.text.glossary import Glossary
from app.text.passage import Splitting, TextFormat
from app.text.xml_reader import XmlRules
from app.translator import TranslationRequest, Translator

Ranked = list[tuple[str, float]]


class NoSuchPair(Exception):
    """The server does not translate from `source` to `target`."""

    def __init__(self, source: str, target: str) -> None:
        super().__init__(f"{source} to {target}")
        self.source = source
        self.target = target


@dataclass(frozen=True)
class Wanted:
    """Languages served; source None: detected, text by text. num_alternatives: other translations of each text.

    beam_size: None: the model's own. timeout_s: only ever shortens the server's own. The rest as in
    `TranslationRequest`.
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


@dataclass(frozen=True)
class PlainTranslation:
    """source: as it was given or detected. confidence: of the detection, 0 to 1. alternatives: others, best first."""

    text: str
    source: str
    confidence: float
    alternatives: tuple[str, ...] = ()


class PlainTranslator:
    """The dialects' way to the translator."""

    def __init__(self, service: Service, limits: RequestLimits, *, timeout_s: float) -> None:
        """timeout_s: from a request's arrival to its answer, at most."""
        self.service = service
        self.limits = limits
        self._timeout_s = timeout_s
        self._detector: LanguageDetector | None = None
        self._loading = asyncio.Lock()

    def languages(self) -> list[str]:
        """Every language served. Raises NotReady."""
        return served_languages(self.service.check_open().manifest.language_pairs)

    def pairs(self) -> frozenset[tuple[str, str]]:
        """Source and target of every pair. Raises NotReady."""
        pairs = self.service.check_open().manifest.language_pairs
        return frozenset((pair.source, pair.target) for pair in pairs)

    async def detect(self, texts: Sequence[str]) -> list[Ranked]:
        """The served languages of each text with probabilities, the likeliest first; empty for a text of no words."""
        served = self.languages()
        async with self._loading:
            if self._detector is None:
                self._detector = await asyncio.to_thread(LanguageDetector, served)
        detector, translator = self._detector, self.service.check_open()
        return await translator.off_loop(lambda: [detector.detect(text, served) for text in texts])

    async def translate(
        self, request: Request, texts: Sequence[str], wanted: Wanted
    ) -> list[PlainTranslation]:
        """One translation a text, in order.

        A text in the target language, or without a letter or digit, comes back as it is. Raises NoSuchPair, and what
        `Translator.translate` does.
        """
        with self.service.work() as translator:
            return await while_connected(request, self._translate(request, translator, texts, wanted))

    async def _translate(
        self, request: Request, translator: Translator, texts: Sequence[str], wanted: Wanted
    ) -> list[PlainTranslation]:
        source, target = wanted.source, wanted.target
        if source is None:
            ranked = await self.detect(texts)
            found = [self._settled(text, target, each) for text, each in zip(texts, ranked, strict=True)]
        else:
            if source != target and (source, target) not in self.pairs():
                raise NoSuchPair(source, target)
            found = [PlainTranslation(text, source, 1.0) for text in texts]
        for language in dict.fromkeys(each.source for each in found):
            places = [
                place
                for place, each in enumerate(found)
                if each.source == language and language != target and any(map(str.isalnum, each.text))
            ]
            if places:
                asked = self._request(request, [texts[place] for place in places], language, wanted)
                asked = replace(asked, options=_options(translator, wanted))
                result = await translator.translate(asked)
                count(self.service, result)
                for place, translation in zip(places, result.translations, strict=True):
                    others = [text for text in translation.hypotheses[1:] if text != translation.text]
                    found[place] = replace(
                        found[place], text=translation.text, alternatives=tuple(dict.fromkeys(others))
                    )
        return found

    def _settled(self, text: str, target: str, ranked: Ranked) -> PlainTranslation:
        """The text, not yet translated, with the language that it will be translated from. Raises NoSuchPair."""
        pairs = self.pairs()
        if not ranked:
            known = sorted(source for source, other in pairs if other == target)
            return PlainTranslation(text, "en" if "en" in known or not known else known[0], 0.0)
        if not is_in_target(text, target, ranked):
            for language, confidence in ranked:
                if (language, target) in pairs:
                    return PlainTranslation(text, language, confidence)
        if ranked[0][0] != target:
            raise NoSuchPair(ranked[0][0], target)
        return PlainTranslation(text, *ranked[0])

    def _request(
        self, request: Request, texts: Sequence[str], source: str, wanted: Wanted
    ) -> TranslationRequest:
        request_id, caller, received_at = requester_of(request)
        return TranslationRequest(
            texts=tuple(texts),
            source=source,
            target=wanted.target,
            request_id=request_id,
            caller=caller,
            deadline=received_at + min(self._timeout_s, wanted.timeout_s or self._timeout_s),
            text_format=wanted.text_format,
            splitting=wanted.splitting,
            xml=wanted.xml,
            glossary=wanted.glossary,
        )


def _options(translator: Translator, wanted: Wanted) -> DecodingOptions | None:
    """None: the model's own."""
    if not wanted.num_alternatives and wanted.beam_size is None:
        return None
    options, num_hypotheses = translator.default_options, wanted.num_alternatives + 1
    beam_size = max(wanted.beam_size or options.beam_size, num_hypotheses)
    return replace(options, beam_size=beam_size, num_hypotheses=num_hypotheses)
