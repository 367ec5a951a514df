"""The request options as keyword arguments of the client; docs/http-api.md describes them.

An argument that is omitted has the server's default. The client checks the names, the server the values.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal, TypedDict

from transduce.client.errors import RequestRefused


class LengthPenalty(TypedDict):
    """Formula and exponent of the length penalty."""

    formula: Literal["wu", "power"]
    alpha: float


class Sampling(TypedDict, total=False):
    """How subwords are sampled."""

    temperature: float
    top_k: int
    top_p: float
    seed: int


class GlossaryById(TypedDict):
    """A glossary stored on the server."""

    id: str


class GlossaryOfTerms(TypedDict):
    """Terms for this request only: source term -> target term."""

    terms: Mapping[str, str]


class SharedOptions(TypedDict, total=False):
    """The options of POST /v1/translate and of POST /v1/score: model, deadline, scores, details in the response."""

    model: str
    timeout_ms: int
    length_penalty: float | LengthPenalty
    coverage_penalty: float
    token_scores: bool
    alignment: bool
    attention: bool
    num_alternatives: int


class TranslateOptions(SharedOptions, total=False):
    """All options of POST /v1/translate."""

    beam_size: int
    num_hypotheses: int
    patience: float
    early_stop: Literal["first", "bound"]
    sampling: Sampling
    min_target_length: int
    max_target_length: int
    min_target_ratio: float
    max_target_ratio: float
    no_repeat_ngram_size: int
    repetition_penalty: float
    loop_guard: bool
    suppress: str | Sequence[str]
    target_prefix: str | Sequence[str]
    format: Literal["text", "html", "xml"]
    splitting: Literal["sentences", "no_newlines", "lines"]
    ignore_tags: Sequence[str]
    splitting_tags: Sequence[str]
    non_splitting_tags: Sequence[str]
    glossary: GlossaryById | GlossaryOfTerms
    pivot: bool


class ScoreOptions(SharedOptions, total=False):
    """All options of POST /v1/score."""


def request_fields(
    options: Mapping[str, Any], known: type[TranslateOptions | ScoreOptions]
) -> dict[str, Any]:
    """The options as fields of a request body.

    Raises TypeError for an unknown name, and RequestRefused for a value that is nested too deep or contains itself.
    """
    unknown = sorted(options.keys() - known.__annotations__.keys())
    if unknown:
        raise TypeError(f"unexpected keyword argument {unknown[0]!r}")
    try:
        return {name: _json(value) for name, value in options.items() if value is not None}
    except RecursionError as error:
        raise RequestRefused("the request cannot be sent as JSON: an option is nested too deep") from error


def _json(value: object) -> object:
    """Convert mappings and sequences to the dicts and lists of JSON."""
    if isinstance(value, Mapping):
        return {name: _json(each) for name, each in value.items()}
    if isinstance(value, Sequence) and not isinstance(value, str):
        return [_json(each) for each in value]
    return value
