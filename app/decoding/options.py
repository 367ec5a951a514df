"""Options of a search, and its result. `app.decoding.validation` rejects invalid and contradicting options.

Ids are those of the target vocabulary. All lengths count subwords without the end token. The defaults are the paper's
beam search. Every other option is off by default.
"""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

MAX_BEAM_SIZE = 16
MAX_ALTERNATIVES = 16
# Target subwords allowed beyond the source's length, if a request sets no limit of its own. The paper, section 6.1:
# "maximum output length during inference to input length + 50".
EXTRA_TARGET_LENGTH = 50


class LengthPenalty(StrEnum):
    """The divisor of a log-probability. length: subwords, the end token included.

    WU: ((5 + length) / 6)^alpha, Wu et al. 2016, equation (14), which the paper uses (section 6.1).
    POWER: length^alpha.
    """

    WU = "wu"
    POWER = "power"


class EarlyStop(StrEnum):
    """When a beam search ends before max_target_length.

    FIRST: as soon as ceil(beam_size * patience) hypotheses are complete.
    BOUND: as soon as no continuation of a live hypothesis can score better than the worst of the num_hypotheses to
        return (Huang et al. 2017, section 3). The results never score lower than those of FIRST, unless the loop guard
        ends the search. With a length penalty it searches longer.
    """

    FIRST = "first"
    BOUND = "bound"


class FinishReason(StrEnum):
    """Why a hypothesis ended.

    STOP: it has the end token.
    LENGTH: it reached max_target_length.
    CONSTRAINT: the options forbid every continuation, the end token included.
    SOURCE: the source is returned, because the translation has no letter or digit, or has only the source's digits
        although the source also has words.
    REPETITION: the source repeats itself, and the translation leaves out a part.
    SOURCE and REPETITION describe the result, however the search ended. The text layer sets them, and the search never
    does.
    """

    STOP = "stop"
    LENGTH = "length"
    CONSTRAINT = "constraint"
    SOURCE = "source"
    REPETITION = "repetition"


@dataclass(frozen=True)
class Sampling:
    """Draw each token by its probability, the end token too, with beam_size 1. A search draws one hypothesis.

    Scores are the model's own: temperature, top_k and top_p change what is drawn, not its score.

    temperature: divides log-probabilities before top_k and top_p apply; 0.01-100, off: 1.
    top_k: draw from the k most probable tokens (Fan et al. 2018); off: 0.
    top_p: of the tokens that top_k leaves, draw from the smallest set of the most probable ones whose probabilities sum
        to at least top_p times the sum over all tokens that top_k leaves (Holtzman et al. 2020); off: 1.
    seed: seed of the sentence's own generator, 0 or more. The same seed draws the same in any batch.
    is_seeded: whether the caller set the seed. If not, the result is not shared with other requests.
    """

    temperature: float = 1.0
    top_k: int = 0
    top_p: float = 1.0
    seed: int = 0
    is_seeded: bool = True


@dataclass(frozen=True)
class DecodingOptions:
    """Options of one sentence's search.

    Strategy:

    beam_size: live hypotheses, 1-16; 1 is greedy search. The paper's value is 4 (section 6.1).
    patience: the search continues until ceil(beam_size * patience) hypotheses are complete (Kasai et al. 2022);
        0.01-10, off: 1. Needs beam_size above 1 and early_stop FIRST.
    early_stop: the rule by which a beam search ends.
    num_hypotheses: hypotheses to return, best first; at most beam_size, and at most ceil(beam_size * patience). With
        sampling it is the number of hypotheses to draw, each by its own search (app.translator.samples).
    sampling: draw instead of searching; off: None. Needs beam_size 1.
    forced_target: score this target (ids without the end token) instead of searching: its tokens and the end token,
        each with its log-probability; off: None. Needs beam_size 1 and no search option.

    Score of a complete hypothesis, s(Y) = log P(Y) / length_penalty + coverage_penalty * coverage:

    length_penalty: the formula that divides the log-probability.
    alpha: its exponent; 0-10, off: 0 (plain log-probability). The paper's value is 0.6.
    coverage_penalty: beta of Wu et al. 2016, equation (14): the weight of the sum over source tokens i of
        log(min(sum over target tokens j of a_ij, 1)), where a_ij is the attention from j to i; 0-10, off: 0. Needs a
        model with alignment.

    Constraints. They forbid subwords or change the scores of some, and keep the scores of all others. They do not apply
    to forced subwords (target_prefix):

    min_target_length: the end token is forbidden before this many subwords, and always before the first; off: 0.
    max_target_length: the maximum number of subwords of a hypothesis.
    min_target_ratio, max_target_ratio: the same two lengths as multiples of the source's length. The minimum is rounded
        up. The maximum is rounded down, and is at least 1. Of a length and its ratio, the stricter one applies; off: 0
        and None.
    suppress_sequences: runs of ids that no hypothesis contains; a run of one suppresses a token; off: empty.
    no_repeat_ngram_size: no n-gram of this size occurs twice in a hypothesis (Paulus et al. 2018, section 2.5); off: 0.
    repetition_penalty: multiplies the log-probabilities of subwords that the hypothesis contains (Keskar et al. 2019,
        section 4.1, here on log-probabilities, which are never positive); 0.1-10, off: 1. Scores and token scores
        include it.
    target_prefix: ids that every hypothesis begins with, scored like searched ones; off: empty.

    Vocabulary, start token and loops:

    shortlist: which of the bundle's shortlist tables (`app.shortlist_file`), counted from 0, a plain search takes. The
        search chooses among that table's subwords for the source, and normalises the probabilities over them; off:
        None, the whole vocabulary. Guided searches do not use it.
    start_id: the start token, for a model with several, each for one target language (`Limits.prefill_id` is set).
        The start token is no subword of the result and has no score. The length penalty counts it, as the length
        penalty of `transformers` does. None: the model's own start token.
    loop_guard: a hypothesis that loops (app.decoding.loop_guard has the rule) ends the search. The sentence is decoded
        again so that no trigram repeats, and its result is flagged; off: False.

    Details in the result, beside token scores, which are always there:

    num_alternatives: how many of the most probable tokens the result has at each position, before constraints. The
        first position has no end token; 0-16, off: 0.
    alignment: whether the result has the attention from each target token to each source token; off: False. Needs a
        model with alignment.
    """

    beam_size: int = 4
    num_hypotheses: int = 1
    length_penalty: LengthPenalty = LengthPenalty.WU
    alpha: float = 0.6
    max_target_length: int = 256
    patience: float = 1.0
    early_stop: EarlyStop = EarlyStop.FIRST
    sampling: Sampling | None = None
    forced_target: tuple[int, ...] | None = None
    coverage_penalty: float = 0.0
    min_target_length: int = 0
    min_target_ratio: float = 0.0
    max_target_ratio: float | None = None
    suppress_sequences: tuple[tuple[int, ...], ...] = ()
    no_repeat_ngram_size: int = 0
    repetition_penalty: float = 1.0
    target_prefix: tuple[int, ...] = ()
    shortlist: int | None = None
    start_id: int | None = None
    loop_guard: bool = False
    num_alternatives: int = 0
    alignment: bool = False

    def __hash__(self) -> int:
        """The hash of all fields. Cached, because the same few options are looked up for every sentence."""
        return self._hash

    @functools.cached_property
    def _hash(self) -> int:
        return hash(tuple(getattr(self, name) for name in self.__dataclass_fields__))

    @property
    def num_to_complete(self) -> int:
        """How many complete hypotheses end a search by EarlyStop.FIRST: ceil(beam_size * patience)."""
        return math.ceil(self.beam_size * self.patience - 1e-9)


class Alternative(NamedTuple):
    """A candidate at a position: its subword and natural log-probability."""

    id: int
    log_probability: float


@dataclass(frozen=True)
class Hypothesis:
    """One finished translation of one sentence.

    ids: its subwords, without the start and end tokens.
    log_probability: natural logarithm, summed over its tokens: its subwords, and its end token if it has one.
    score: log_probability / length_penalty(number of tokens), plus the coverage term if requested.
    token_log_probabilities: one for each token, so one more than ids if finish_reason is STOP.
    alternatives: for each token the num_alternatives most probable tokens, best first; empty if not requested.
    alignment: for each token the attention to each source token, including the source's end token; empty if not
        requested.
    """

    ids: tuple[int, ...]
    log_probability: float
    score: float
    finish_reason: FinishReason
    token_log_probabilities: tuple[float, ...] = ()
    alternatives: tuple[tuple[Alternative, ...], ...] = ()
    alignment: tuple[tuple[float, ...], ...] = ()
