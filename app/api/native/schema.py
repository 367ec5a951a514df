"""What the routes of the native API take, checked field by field before anything else is done."""

from __future__ import annotations

import functools
import math
from collections.abc import Collection
from dataclasses import dataclass
from typing import NamedTuple

from app.api.http.values import Body, check_total, checked_object, language, switch, texts, whole_number
from app.api.languages import served_pair, served_target
from app.api.native.options import SCORE_FIELDS, SEARCH_FIELDS, SearchBounds, parse_options
from app.api.native.text_fields import TEXT_FIELDS, TextFields, parse_text_fields
from app.decoding.options import EXTRA_TARGET_LENGTH, DecodingOptions
from app.decoding.validation import MAX_SUPPRESSED_TOKENS, Bounds
from app.errors import InvalidRequest
from app.translator import ScoreRequest, TranslationRequest

TRANSLATE_FIELDS = (
    "text",
    "source",
    "target",
    *TEXT_FIELDS,
    *SEARCH_FIELDS,
    "suppress",
    "target_prefix",
    "token_scores",
    "attention",
    "timeout_ms",
)
DETECT_FIELDS = ("text",)
SCORED_FIELDS = (
    "text",
    "translation",
    "source",
    "target",
    *SCORE_FIELDS,
    "token_scores",
    "attention",
    "timeout_ms",
)


@dataclass(frozen=True)
class RequestLimits:
    """The server's limits on one request; `app.settings` has their meaning and defaults."""

    max_body_bytes: int
    max_items: int
    max_item_characters: int
    max_request_characters: int
    max_beam_size: int
    max_num_hypotheses: int
    default_timeout_s: float
    max_timeout_s: float


class Requester(NamedTuple):
    """Whose request it is, when it came, in seconds of time.monotonic, and whose share of the engine it takes."""

    request_id: str
    caller: str
    received_at: float
    share: str = ""


class NativeParser:
    """Checks bodies against the limits of the server and of one model."""

    def __init__(
        self,
        limits: RequestLimits,
        *,
        bounds: Bounds,
        defaults: DecodingOptions,
        pairs: Collection[tuple[str, str]] = (),
    ) -> None:
        """bounds: what the model's options may be. defaults: what they are where a body does not say.

        pairs: source and target that are served.
        """
        self._limits = limits
        self._pairs = frozenset(pairs)
        self._bounds = SearchBounds(bounds, limits.max_beam_size, limits.max_num_hypotheses)
        self._defaults = defaults

    @functools.cached_property
    def _usual(self) -> DecodingOptions:
        """Of bodies that say nothing of the search."""
        return parse_options({}, self._bounds, self._defaults)

    def translate(self, body: object, requester: Requester) -> TranslationRequest:
        """Raises InvalidRequest, PayloadTooLarge."""
        fields = checked_object(body, "", TRANSLATE_FIELDS)
        is_usual = fields.keys().isdisjoint(SEARCH_FIELDS)
        options = self._usual if is_usual else parse_options(fields, self._bounds, self._defaults)
        given = self._texts(fields, "text")
        suppress = self._suppress(fields)
        prefixes = self._target_prefixes(fields, len(given))
        groups = {"text": given, "suppress": suppress, "target_prefix": prefixes}
        check_total(groups, self._limits.max_request_characters)
        text_fields = parse_text_fields(fields)
        self._settle(text_fields)
        has_own_length = "max_target_length" in fields or "max_target_ratio" in fields
        return TranslationRequest(
            texts=given,
            **text_fields,
            request_id=requester.request_id,
            caller=requester.caller,
            share=requester.share,
            deadline=self._deadline(fields, requester),
            options=options,
            extra_target_length=None if has_own_length else EXTRA_TARGET_LENGTH,
            suppress=suppress,
            target_prefixes=prefixes,
            token_scores=_switch(fields, "token_scores"),
            attention=_attention(fields, options),
        )

    def detect(self, body: object) -> tuple[str, ...]:
        """The texts. Raises InvalidRequest, PayloadTooLarge."""
        given = self._texts(checked_object(body, "", DETECT_FIELDS), "text")
        check_total({"text": given}, self._limits.max_request_characters)
        return given

    def score(self, body: object, requester: Requester) -> ScoreRequest:
        """Raises InvalidRequest, PayloadTooLarge."""
        fields = checked_object(body, "", SCORED_FIELDS)
        options = parse_options({**fields, "beam_size": 1}, self._bounds, self._defaults)
        given, translations = self._texts(fields, "text"), self._texts(fields, "translation")
        if len(given) != len(translations):
            raise InvalidRequest(
                f"translation has {len(translations)} items, and text has {len(given)}: one each is needed",
                field="translation",
            )
        check_total({"text": given, "translation": translations}, self._limits.max_request_characters)
        source, target = served_pair(language(fields, "source"), language(fields, "target"), self._pairs)
        return ScoreRequest(
            texts=given,
            translations=translations,
            source=source,
            target=target,
            request_id=requester.request_id,
            caller=requester.caller,
            share=requester.share,
            deadline=self._deadline(fields, requester),
            options=options,
            token_scores=_switch(fields, "token_scores"),
            attention=_attention(fields, options),
        )

    def _settle(self, fields: TextFields) -> None:
        """Put the served languages in the place of the codes that mean them; a code that means none stays."""
        source, target = fields["source"], fields["target"]
        if source is None:
            fields["target"] = served_target(target, {each for _, each in self._pairs})
        else:
            fields["source"], fields["target"] = served_pair(source, target, self._pairs)

    def _texts(self, body: Body, name: str) -> tuple[str, ...]:
        limits = self._limits
        return texts(
            body.get(name), name, max_items=limits.max_items, max_characters=limits.max_item_characters
        )

    def _suppress(self, body: Body) -> tuple[str, ...]:
        if "suppress" not in body:
            return ()
        phrases = texts(
            body["suppress"],
            "suppress",
            max_items=MAX_SUPPRESSED_TOKENS,
            max_characters=self._limits.max_item_characters,
        )
        for index, phrase in enumerate(phrases):
            if not phrase.strip():
                raise InvalidRequest(f"suppress[{index}] must not be blank", field=f"suppress[{index}]")
        return phrases

    def _target_prefixes(self, body: Body, num_texts: int) -> tuple[str, ...]:
        """One a text, "" where it is free; empty where the body has none."""
        if "target_prefix" not in body:
            return ()
        prefixes = self._texts(body, "target_prefix")
        if len(prefixes) != num_texts:
            raise InvalidRequest(
                f"target_prefix has {len(prefixes)} items, and text has {num_texts}: one each is needed",
                field="target_prefix",
            )
        return prefixes

    def _deadline(self, body: Body, requester: Requester) -> float:
        """Seconds of time.monotonic."""
        timeout_s = self._limits.default_timeout_s
        if "timeout_ms" in body:
            longest = math.floor(self._limits.max_timeout_s * 1000)
            timeout_s = whole_number(body["timeout_ms"], "timeout_ms", 1, longest) / 1000
        return requester.received_at + timeout_s


def _switch(body: Body, name: str) -> bool:
    return name in body and switch(body[name], name)


def _attention(body: Body, options: DecodingOptions) -> bool:
    """Raises InvalidRequest where there is nothing that it could be added to."""
    is_asked = _switch(body, "attention")
    if is_asked and not options.alignment:
        raise InvalidRequest("attention needs alignment, which is off", field="attention")
    return is_asked
