"""What a caller may ask of the search. Limits that depend on the server are checked before this."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

MAX_BEAM_SIZE = 16
# "maximum output length during inference to input length + 50", section 6.1: where nobody asks for another limit.
EXTRA_TARGET_LENGTH = 50


class LengthPenalty(StrEnum):
    """How a hypothesis' log-probability is weighed against its length, in subwords with the end token.

    WU: ((5 + length) / 6)^alpha, Wu et al. 2016, equation (14): the paper's own (section 6.1).
    POWER: length^alpha.
    """

    WU = "wu"
    POWER = "power"


class FinishReason(StrEnum):
    """Why a hypothesis ended: the end token, or the limit on its length."""

    STOP = "stop"
    LENGTH = "length"


@dataclass(frozen=True)
class DecodingOptions:
    """Options of one sentence's search.

    beam_size: hypotheses kept alive, 1-16; 1 is greedy. The paper's is 4 (section 6.1).
    num_hypotheses: how many are returned, best first; at most beam_size.
    length_penalty: formula that scores are divided by.
    alpha: its exponent; 0 is off (plain log-probability). The paper's is 0.6.
    max_target_length: most subwords of a hypothesis, its end token not counted.
    """

    beam_size: int = 4
    num_hypotheses: int = 1
    length_penalty: LengthPenalty = LengthPenalty.WU
    alpha: float = 0.6
    max_target_length: int = 256


@dataclass(frozen=True)
class Hypothesis:
    """One finished translation of one sentence.

    ids: its subwords, without the start and end tokens.
    log_probability: natural logarithm, summed over its subwords and its end token where it has one.
    score: log_probability / length_penalty(number of subwords summed).
    """

    ids: tuple[int, ...]
    log_probability: float
    score: float
    finish_reason: FinishReason
