"""Jobs for a side and their results: plain data, so that each side can be a separate process."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

# Normalises scores by length^alpha, the one formula that both sides have.
ALPHA = 0.6


@dataclass(frozen=True)
class Job:
    """Groups of sentences, each translated in one call, one group after another.

    groups: source ids with the end token last, by group and sentence. max_target_length: subwords and, where a sentence
    ends by itself, its end token. is_forced: every sentence is that long, on both sides, so that both take that
    many decoder steps. num_calls: how often the groups are translated and timed, after once untimed if is_warmed.
    """

    groups: list[list[list[int]]]
    beam_size: int
    max_target_length: int
    is_forced: bool
    num_calls: int = 1
    is_warmed: bool = True


@dataclass(frozen=True)
class Spent:
    """Where our side's time goes, summed over the calls.

    Steps, rows and seconds as `StepStats` counts them; encoder_s and decoder_s: inside ONNX Runtime, counted around
    its own call, with how often it was called; blocks_s: of both by kind of block, all threads together, where the
    graphs are of native kernels.
    """

    num_steps: int = 0
    num_rows: int = 0
    step_s: float = 0.0
    encode_s: float = 0.0
    encoder_s: float = 0.0
    decoder_s: float = 0.0
    num_encoder_runs: int = 0
    num_decoder_runs: int = 0
    cpu_s: float = 0.0
    blocks_s: dict[str, dict[str, float]] = field(default_factory=dict)


@dataclass(frozen=True)
class Done:
    """A job's result. times_s: of each call. ids: of the last call's sentences, group by group."""

    times_s: list[float]
    ids: list[list[int]]
    spent: Spent = field(default_factory=Spent)


@dataclass(frozen=True)
class Arrivals:
    """Sentences that arrive at random times: sentences[i] arrives `gaps_s[i]` after the previous one."""

    sentences: list[list[int]]
    gaps_s: list[float]
    beam_size: int
    max_target_length: int
    limit_s: float


@dataclass(frozen=True)
class ArrivalResult:
    """Seconds from when each sentence was due to its answer; None for those without an answer within the limit."""

    latencies_s: list[float | None]
    sent_late_s: list[float]


@dataclass(frozen=True)
class PeerSettings:
    """CTranslate2's own settings: its threads, and how it splits the input of one call.

    batch_type `tokens` counts max_batch_size in subwords, padding included; 0 is all in one batch.
    """

    inter_threads: int
    intra_threads: int
    max_batch_size: int = 0
    batch_type: Literal["examples", "tokens"] = "examples"
