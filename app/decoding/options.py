"""What a caller may ask of the search, and what it answers. `app.decoding.validation` refuses what contradicts.

Ids are the target vocabulary's. Lengths count target subwords without the end token; a source's length is
counted likewise. Every option's default but those of the paper's beam is its off value: it changes nothing.
"""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

MAX_BEAM_SIZE = 16
MAX_ALTERNATIVES = 16
# "maximum output length during inference to input length + 50", section 6.1: where nobody asks for another limit.
EXTRA_TARGET_LENGTH = 50


class LengthPenalty(StrEnum):
    """How a hypothesis' log-probability is weighed against its length, in subwords with the end token.

    WU: ((5 + length) / 6)^alpha, Wu et al. 2016, equation (14): the paper's own (section 6.1).
    POWER: length^alpha.
    """

    WU = "wu"
    POWER = "power"


class EarlyStop(StrEnum):
    """When a beam search ends before max_target_length.

    FIRST: as soon as ceil(beam_size * patience) hypotheses are complete, first come first served.
    BOUND: as soon as no live hypothesis can come to score better than the worst of the num_hypotheses to be
        returned, whatever it says next and however long (Huang et al. 2017, section 3): never worse, and slower.
    """

    FIRST = "first"
    BOUND = "bound"


class FinishReason(StrEnum):
    """Why a hypothesis ended.

    STOP: by the end token. LENGTH: at max_target_length.
    CONSTRAINT: the options left nothing that may follow, not even the end token.
    SOURCE: it said nothing that has a letter or digit, and the source stands. REPETITION: the source repeats itself,
    and the translation does not say all of it. These two are the text layer's to say, never the search's.
    """

    STOP = "stop"
    LENGTH = "length"
    CONSTRAINT = "constraint"
    SOURCE = "source"
    REPETITION = "repetition"


@dataclass(frozen=True)
class Sampling:
    """Draw each subword by its probability instead of taking the best. A beam of one; a search draws one hypothesis.

    The scores are the model's own: temperature and the cuts decide what is drawn, not what it is worth.

    temperature: log-probabilities are divided by it before anything is cut; 0.01-100, off: 1.
    top_k: only the k most probable are drawn from (Fan et al. 2018); off: 0.
    top_p: only the fewest most probable whose probabilities reach p (Holtzman et al. 2020); off: 1. After top_k.
    seed: of the sentence's own generator, 0 or more: the same seed draws the same in any company.
    is_seeded: whether the caller chose the seed, and so asks for the same again; else nobody else is given its draws.
    """

    temperature: float = 1.0
    top_k: int = 0
    top_p: float = 1.0
    seed: int = 0
    is_seeded: bool = True


@dataclass(frozen=True)
class DecodingOptions:
    """Options of one sentence's search.

    What decides which hypothesis is found:

    beam_size: hypotheses kept alive, 1-16; 1 is greedy. The paper's is 4 (section 6.1).
    patience: the search goes on until ceil(beam_size * patience) hypotheses are complete (Kasai et al. 2022);
        above 0, at most 10; off: 1. Needs a beam, and early_stop FIRST.
    early_stop: the rule by which a beam ends.
    num_hypotheses: how many are returned, best first; at most beam_size, and at most what patience completes. With
        sampling: how many are drawn, each by a search of its own (app.translator.samples).
    sampling: draw instead of search; off: None. Needs beam_size 1.
    forced_target: score this target, given as ids without the end token, instead of searching: its tokens and the
        end token after it, each with its log-probability; off: None. Needs beam_size 1 and no option that searches.

    What a complete hypothesis is worth, s(Y) = log P(Y) / length_penalty + coverage_penalty * coverage:

    length_penalty: formula that log-probabilities are divided by.
    alpha: its exponent; 0 is off (plain log-probability). The paper's is 0.6.
    coverage_penalty: beta of Wu et al. 2016, equation (14): weight of sum over the source's tokens i of
        log(min(sum over target tokens j of a_ij, 1)), a_ij the attention that j pays to i; 0-10, off: 0. Needs a
        model that gives its alignment.

    What a hypothesis may contain. Constraints forbid; they do not change what the rest is worth, so a score stays
    the model's own. Forced subwords (target_prefix) are subject to none of them:

    min_target_length: the end token is forbidden before so many subwords, and always before the first one, so that no
        translation is empty; off: 0.
    max_target_length: most subwords of a hypothesis.
    min_target_ratio, max_target_ratio: the same as a multiple of the source's length, rounded up and down, at
        least 1; the stricter of both counts; off: 0 and None.
    suppress_sequences: runs of ids that no hypothesis contains; a suppressed token is a run of one; off: empty.
    no_repeat_ngram_size: no n subwords in a row stand in a hypothesis twice (Paulus et al. 2018, section 2.5); off: 0.
    repetition_penalty: log-probabilities of subwords that the hypothesis contains are multiplied by it (Keskar et
        al. 2019, section 4.1, on log-probabilities, which are never positive); 0.1-10, off: 1. It counts: scores
        and token scores are the penalised ones.
    target_prefix: ids that every hypothesis begins with, scored as if found; off: empty.
    loop_guard: a hypothesis that has run into a cycle (app.decoding.loop_guard states the rule) ends the search; the
        sentence is decoded once more with no_repeat_ngram_size at most 3, and its result is flagged; off: False.

    What is told of it. Token scores are always there:

    num_alternatives: the k most probable subwords at each position, before any constraint but that the first
        is no end token; 0-16, off: 0.
    alignment: the attention that each target token pays to each source token; off: False. Needs a model that
        gives its alignment.
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
    loop_guard: bool = False
    num_alternatives: int = 0
    alignment: bool = False

    def __hash__(self) -> int:
        """Of all fields; counted once, since the same few options are looked up for every sentence."""
        return self._hash

    @functools.cached_property
    def _hash(self) -> int:
        return hash(tuple(getattr(self, name) for name in self.__dataclass_fields__))

    @property
    def num_to_complete(self) -> int:
        """ceil(beam_size * patience): complete hypotheses that end a search by EarlyStop.FIRST."""
        return math.ceil(self.beam_size * self.patience - 1e-9)


class Alternative(NamedTuple):
    """A subword that could have stood at a position, and its natural log-probability there."""

    id: int
    log_probability: float


@dataclass(frozen=True)
class Hypothesis:
    """One finished translation of one sentence.

    ids: its subwords, without the start and end tokens.
    log_probability: natural logarithm, summed over its tokens: its subwords, and its end token where it has one.
    score: log_probability / length_penalty(number of tokens), and the coverage penalty where it is asked for.
    token_log_probabilities: of each token, so one more than ids where finish_reason is STOP.
    alternatives: for each token the num_alternatives most probable, best first; empty where not asked for.
    alignment: for each token, attention to each source token (the end token's included); empty where not asked for.
    """

    ids: tuple[int, ...]
    log_probability: float
    score: float
    finish_reason: FinishReason
    token_log_probabilities: tuple[float, ...] = ()
    alternatives: tuple[tuple[Alternative, ...], ...] = ()
    alignment: tuple[tuple[float, ...], ...] = ()
