"""Converts the native API's bodies to requests to the translator.

A field that a body leaves out takes the default of the model or of the server.
"""

from __future__ import annotations

import secrets
from collections.abc import Collection, Sequence
from typing import Any, NamedTuple

from app.api.http.middleware import Requester
from app.api.http.validation import validate
from app.api.languages import served_pair, target_for_detected_source
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
from app.decoding.option_changes import OptionChanges
from app.decoding.options import EXTRA_TARGET_LENGTH, MAX_BEAM_SIZE, DecodingOptions
from app.decoding.validation import Bounds
from app.errors import InvalidRequest
from app.text.glossary import Term
from app.text.parsed_text import TextFormat
from app.text.xml_reader import XmlRules
from app.translator import ScoreRequest, TranslationRequest

# The fields of bodies that set `DecodingOptions`. A body without any of them has the default options of its model.
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


class ModelOptions(NamedTuple):
    """A model's default options, and the limits of its options."""

    defaults: DecodingOptions
    bounds: Bounds


class NativeParser:
    """Checks bodies against the limits of the server, and of the models that may write the translation."""

    def __init__(
        self,
        limits: RequestLimits,
        models: Sequence[ModelOptions],
        *,
        pairs: Collection[tuple[str, str]] = (),
    ) -> None:
        """models: at least one. If there are several, the one that translates checks the options again.

        pairs: source and target of each pair that is served.
        """
        self._limits = limits
        self._models = tuple(models)
        self._context = native_limits(limits, [model.bounds for model in models])
        self._pairs = frozenset(pairs)
        self._no_changes = OptionChanges(max_beam_size=limits.max_beam_size)

    def translate(self, body: object, requester: Requester) -> TranslationRequest:
        """The request of a parsed body. Raises InvalidRequest, PayloadTooLarge."""
        fields = validate(TranslateBody, body, self._context)
        source, target = matched_languages(fields.source, fields.target, self._pairs)
        options = self._checked(self._no_changes.updated(**_options_in_body(fields)))
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
        options = self._checked(self._no_changes.updated(**_options_in_body(fields), beam_size=1))
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

    def _checked(self, options: OptionChanges) -> OptionChanges:
        """The options. Raises InvalidRequest if every model refuses them."""
        refusals: list[InvalidRequest] = []
        for model in self._models:
            try:
                options.checked(model.defaults, model.bounds)
            except InvalidRequest as error:
                refusals.append(error)
            else:
                return options
        raise refusals[0]

    def _deadline(self, timeout_ms: int | None, requester: Requester) -> float:
        """The request's deadline, in seconds of time.monotonic."""
        timeout_s = self._limits.default_timeout_s if timeout_ms is None else timeout_ms / 1000
        return requester.received_at + timeout_s


def matched_languages(source: str, target: str, pairs: Collection[tuple[str, str]]) -> tuple[str | None, str]:
    """The served languages that the codes match, or the codes themselves. The source is None if it is `auto`."""
    if source == AUTO:
        return None, target_for_detected_source(target, pairs)
    return served_pair(source, target, pairs)


def _options_in_body(fields: TranslateBody | ScoreBody) -> dict[str, Any]:
    """The options that the body sets, by the names of the fields of `DecodingOptions`."""
    options = {name: getattr(fields, name) for name in fields.model_fields_set & SEARCH_FIELDS}
    if not options:
        return options
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


def _check_attention(fields: TranslateBody | ScoreBody, options: OptionChanges) -> None:
    """Raise InvalidRequest for attention without alignment."""
    if fields.attention and not options.alignment:
        raise InvalidRequest("attention needs alignment, which is off", field="attention")
