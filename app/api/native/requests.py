"""Converts the native API's bodies to requests to the translator.

A field that a body leaves out takes the default of the model or of the server.
"""

from __future__ import annotations

import functools
import secrets
from collections.abc import Collection
from dataclasses import replace
from typing import Any

from app.api.http.middleware import Requester
from app.api.http.validation import validate
from app.api.languages import served_pair, target_of_detected
from app.api.limits import RequestLimits
from app.api.native.models import (
    AUTO,
    TAG_FIELDS,
    DetectBody,
    LengthPenaltyFormula,
    Sampling,
    ScoreBody,
    TranslateBody,
    native_limits,
)
from app.decoding import options as decoding
from app.decoding.options import EXTRA_TARGET_LENGTH, MAX_BEAM_SIZE, DecodingOptions
from app.decoding.validation import Bounds, check_options
from app.errors import InvalidRequest
from app.text.glossary import Term
from app.text.parsed_text import TextFormat
from app.text.xml_reader import XmlRules
from app.translator import ScoreRequest, TranslationRequest

# The fields of bodies that set `DecodingOptions`. A body without any of them has the model's default options.
SEARCH_FIELDS = frozenset({
    "beam_size",
    "num_hypotheses",
    "patience",
    "early_stop",
    "sampling",
    "length_penalty",
    "coverage_penalty",
    "min_target_length",
    "max_target_length",
    "min_target_ratio",
    "max_target_ratio",
    "no_repeat_ngram_size",
    "repetition_penalty",
    "loop_guard",
    "num_alternatives",
    "alignment",
})  # fmt: skip
# The server draws a seed below this number for a request without a seed. So the seeds of all samples, which are
# consecutive, are exact for a client that reads JSON numbers as doubles.
NUM_RANDOM_SEEDS = 2**53 - MAX_BEAM_SIZE
_NO_RULES = XmlRules()


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
        """bounds: the limits of the model's options. defaults: the values of options that a body leaves out.

        pairs: source and target of each pair that is served.
        """
        self._limits = limits
        self._context = native_limits(limits, bounds)
        self._pairs = frozenset(pairs)
        self._bounds = bounds
        self._defaults = defaults

    @functools.cached_property
    def _model_options(self) -> DecodingOptions:
        """The decoding options of a body that sets none."""
        return self._with_defaults({})

    def translate(self, body: object, requester: Requester) -> TranslationRequest:
        """The request of a parsed body. Raises InvalidRequest, PayloadTooLarge."""
        fields = validate(TranslateBody, body, self._context)
        source, target = self._languages(fields.source, fields.target)
        options = self._options(fields)
        _check_attention(fields, options)
        glossary = fields.glossary
        has_own_length = fields.max_target_length is not None or fields.max_target_ratio is not None
        return TranslationRequest(
            texts=fields.texts,
            source=source,
            target=target,
            text_format=fields.format,
            splitting=fields.splitting,
            xml=_xml_rules(fields),
            terms=_terms(glossary.terms) if glossary is not None and glossary.terms else (),
            glossary_id=None if glossary is None else glossary.id,
            request_id=requester.request_id,
            caller=requester.caller,
            share=requester.share,
            deadline=self._deadline(fields.timeout_ms, requester),
            options=options,
            extra_target_length=None if has_own_length else EXTRA_TARGET_LENGTH,
            suppress=fields.phrases,
            target_prefixes=fields.prefixes,
            token_scores=fields.token_scores,
            attention=fields.attention,
            model=fields.model,
            pivot=fields.pivot,
        )

    def detect(self, body: object) -> tuple[str, ...]:
        """The texts of a parsed body. Raises InvalidRequest, PayloadTooLarge."""
        return validate(DetectBody, body, self._context).texts

    def score(self, body: object, requester: Requester) -> ScoreRequest:
        """The request of a parsed body. Raises InvalidRequest, PayloadTooLarge."""
        fields = validate(ScoreBody, body, self._context)
        options = self._with_defaults({**_options_in_body(fields), "beam_size": 1})
        _check_attention(fields, options)
        source, target = served_pair(fields.source, fields.target, self._pairs)
        return ScoreRequest(
            texts=fields.texts,
            translations=fields.translations,
            source=source,
            target=target,
            request_id=requester.request_id,
            caller=requester.caller,
            share=requester.share,
            deadline=self._deadline(fields.timeout_ms, requester),
            options=options,
            token_scores=fields.token_scores,
            attention=fields.attention,
            model=fields.model,
        )

    def _options(self, fields: TranslateBody) -> DecodingOptions:
        """The decoding options of a body."""
        if SEARCH_FIELDS.isdisjoint(fields.model_fields_set):
            return self._model_options
        return self._with_defaults(_options_in_body(fields))

    def _with_defaults(self, options: dict[str, Any]) -> DecodingOptions:
        """The defaults, overridden by these options.

        If beam_size is not set, it is 1 with sampling, else the larger of the default and num_hypotheses, within the
        server's limit.
        """
        if "beam_size" not in options:
            widest = max(self._defaults.beam_size, options.get("num_hypotheses", 1))
            options["beam_size"] = 1 if "sampling" in options else min(widest, self._limits.max_beam_size)
        if "sampling" in options:  # each request has its own seed, so these options are not cached
            return _decoding_options.__wrapped__(self._defaults, tuple(options.items()), self._bounds)
        return _decoding_options(self._defaults, tuple(options.items()), self._bounds)

    def _languages(self, source: str, target: str) -> tuple[str | None, str]:
        """The served languages that the codes match, or the codes themselves. The source is None if it is `auto`."""
        if source == AUTO:
            return None, target_of_detected(target, self._pairs)
        return served_pair(source, target, self._pairs)

    def _deadline(self, timeout_ms: int | None, requester: Requester) -> float:
        """The request's deadline, in seconds of time.monotonic."""
        timeout_s = self._limits.default_timeout_s if timeout_ms is None else timeout_ms / 1000
        return requester.received_at + timeout_s


@functools.lru_cache(maxsize=256)
def _decoding_options(
    defaults: DecodingOptions, options: tuple[tuple[str, Any], ...], bounds: Bounds
) -> DecodingOptions:
    """The defaults, overridden by these options and checked. Cached, because most requests have the same options."""
    merged = replace(defaults, **dict(options))
    check_options(merged, bounds)
    return merged


def _options_in_body(fields: TranslateBody | ScoreBody) -> dict[str, Any]:
    """The options that the body sets, by the names of the fields of `DecodingOptions`."""
    options = {name: getattr(fields, name) for name in fields.model_fields_set & SEARCH_FIELDS}
    penalty = options.pop("length_penalty", None)
    if isinstance(penalty, LengthPenaltyFormula):
        options |= {"length_penalty": penalty.formula, "alpha": penalty.alpha}
    elif penalty is not None:
        options["alpha"] = penalty
    if "sampling" in options:
        options["sampling"] = _sampling(options["sampling"])
    return options


def _sampling(fields: Sampling) -> decoding.Sampling:
    """The sampling options of a body. Without a seed, each request gets a random one."""
    is_seeded = fields.seed is not None
    return decoding.Sampling(
        temperature=fields.temperature,
        top_k=fields.top_k,
        top_p=fields.top_p,
        seed=fields.seed if fields.seed is not None else secrets.randbelow(NUM_RANDOM_SEEDS),
        is_seeded=is_seeded,
    )


def _xml_rules(fields: TranslateBody) -> XmlRules:
    if fields.model_fields_set.isdisjoint(TAG_FIELDS):
        return _NO_RULES
    ignored = fields.ignore_tags or []
    if fields.format is TextFormat.HTML:
        ignored = [name.lower() for name in ignored]
    splitting, not_splitting = fields.splitting_tags or [], fields.non_splitting_tags or []
    return XmlRules(frozenset(ignored), frozenset(splitting), frozenset(not_splitting))


def _terms(terms: dict[str, str]) -> tuple[Term, ...]:
    return tuple(Term(source.strip(), target.strip()) for source, target in terms.items())


def _check_attention(fields: TranslateBody | ScoreBody, options: DecodingOptions) -> None:
    """Raise InvalidRequest for attention without alignment."""
    if fields.attention and not options.alignment:
        raise InvalidRequest("attention needs alignment, which is off", field="attention")
