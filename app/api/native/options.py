"""The decoding options of the native API: names and meanings are those of `app.decoding.options`.

Left to JSON are only the forms: `length_penalty` holds formula and exponent, `sampling` is an object, `suppress` and
`target_prefix` are texts.
"""

from __future__ import annotations

import functools
import secrets
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from app.api.http.values import Body, checked_object, choice, number, switch, whole_number
from app.decoding.options import (
    MAX_ALTERNATIVES,
    MAX_BEAM_SIZE,
    DecodingOptions,
    EarlyStop,
    LengthPenalty,
    Sampling,
)
from app.decoding.validation import (
    MAX_ALPHA,
    MAX_PENALTY,
    MAX_RATIO,
    MAX_SEED,
    Bounds,
    check_options,
)

NUMBERS = {
    "patience": (0.01, 10.0),
    "coverage_penalty": (0.0, MAX_PENALTY),
    "min_target_ratio": (0.0, MAX_RATIO),
    "max_target_ratio": (0.01, MAX_RATIO),
    "repetition_penalty": (0.1, MAX_PENALTY),
}
SWITCHES = ("loop_guard", "alignment")
SAMPLING = ("temperature", "top_k", "top_p", "seed")
SEARCH_FIELDS = (
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
)
SCORE_FIELDS = ("length_penalty", "coverage_penalty", "num_alternatives", "alignment")
# Seeds of requests that name none: whole numbers that every JSON reader keeps exact, their samples' seeds too.
NUM_RANDOM_SEEDS = 2**53 - MAX_BEAM_SIZE


@dataclass(frozen=True)
class SearchBounds:
    """What the search's options may ask for: of the model, and of the server's settings."""

    model: Bounds
    max_beam_size: int
    max_num_hypotheses: int

    @functools.cached_property
    def whole_numbers(self) -> dict[str, tuple[int, int]]:
        """Lowest and highest value by field."""
        longest = self.model.max_target_length
        return {
            "beam_size": (1, self.max_beam_size),
            "num_hypotheses": (1, self.max_num_hypotheses),
            "min_target_length": (0, longest),
            "max_target_length": (1, longest),
            "no_repeat_ngram_size": (0, longest),
            "num_alternatives": (0, MAX_ALTERNATIVES),
        }


def parse_options(body: Body, bounds: SearchBounds, defaults: DecodingOptions) -> DecodingOptions:
    """The search's options that `body` has, else the defaults. Raises InvalidRequest.

    A beam that nobody asked for is as wide as num_hypotheses needs it, and 1 where subwords are drawn.
    """
    given: dict[str, Any] = {
        name: whole_number(body[name], name, *allowed)
        for name, allowed in bounds.whole_numbers.items()
        if name in body
    }
    given |= {name: number(body[name], name, *NUMBERS[name]) for name in NUMBERS if name in body}
    given |= {name: switch(body[name], name) for name in SWITCHES if name in body}
    forms: dict[str, Callable[[object], dict[str, Any]]] = {
        "early_stop": _early_stop,
        "length_penalty": _length_penalty,
        "sampling": lambda value: {"sampling": _sampling(value, bounds.model.vocab_size)},
    }
    for name, parse in forms.items():
        if name in body:
            given |= parse(body[name])
    if "beam_size" not in given:
        widest = max(defaults.beam_size, given.get("num_hypotheses", 1))
        given["beam_size"] = 1 if "sampling" in given else min(widest, bounds.max_beam_size)
    if "sampling" in given:
        return _made(defaults, given, bounds.model)
    return _made_before(defaults, tuple(given.items()), bounds.model)


def _made(defaults: DecodingOptions, given: Mapping[str, Any], bounds: Bounds) -> DecodingOptions:
    options = replace(defaults, **given)
    check_options(options, bounds)
    return options


@functools.lru_cache(maxsize=256)
def _made_before(
    defaults: DecodingOptions, given: tuple[tuple[str, Any], ...], bounds: Bounds
) -> DecodingOptions:
    """Requests of one caller ask for the same, as a rule; those that draw have a seed each."""
    return _made(defaults, dict(given), bounds)


def _early_stop(value: object) -> dict[str, Any]:
    return {"early_stop": EarlyStop(choice(value, "early_stop", [str(rule) for rule in EarlyStop]))}


def _length_penalty(value: object) -> dict[str, Any]:
    """A number (the exponent of the model's own formula) or an object with `formula` and `alpha`."""
    if not isinstance(value, dict):
        return {"alpha": number(value, "length_penalty", 0.0, MAX_ALPHA)}
    checked_object(value, "length_penalty", ("formula", "alpha"))
    formula = choice(value.get("formula"), "length_penalty.formula", [str(known) for known in LengthPenalty])
    alpha = number(value.get("alpha"), "length_penalty.alpha", 0.0, MAX_ALPHA)
    return {"length_penalty": LengthPenalty(formula), "alpha": alpha}


def _sampling(value: object, vocab_size: int) -> Sampling:
    """An object with any of its fields. Without a seed every request draws anew."""
    fields = checked_object(value, "sampling", SAMPLING)
    given: dict[str, Any] = {}
    for name, allowed in (("temperature", (0.01, 100.0)), ("top_p", (0.001, 1.0))):
        if name in fields:
            given[name] = number(fields[name], f"sampling.{name}", *allowed)
    for name, high in (("top_k", vocab_size), ("seed", MAX_SEED)):
        if name in fields:
            given[name] = whole_number(fields[name], f"sampling.{name}", 0, high)
    drawn = {"seed": secrets.randbelow(NUM_RANDOM_SEEDS), "is_seeded": "seed" in given}
    return Sampling(**{**drawn, **given})
