"""Jobs for an engine and their results. They are plain data, so that each engine can run in its own process."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

# Scores are normalised by length^alpha, because both engines have this formula.
ALPHA = 0.6


@dataclass(frozen=True)
class Job:
    """Groups of sentences. An engine translates the groups one after another, all sentences of a group at once.

    groups: source ids, by group and sentence; random ids have no end token. max_target_length: the largest number of
    decoder steps, the step of the end token included. is_forced: every target takes exactly max_target_length steps in
    both engines. num_calls: how often all groups are translated and timed. is_warmed: whether an untimed call comes
    first. has_shortlist: whether outputs are limited to the bundle's first shortlist.
    """

    groups: list[list[list[int]]]
    beam_size: int
    max_target_length: int
    is_forced: bool
    num_calls: int = 1
    is_warmed: bool = True
    has_shortlist: bool = False


@dataclass(frozen=True)
class EngineCounters:
    """Counters of Transduce's work, summed over the calls.

    num_steps: decoder steps. num_rows: rows decoded, summed over the steps. step_s: seconds of the engine's steps,
    encodings included. encode_s: seconds of the encodings. encoder_s, decoder_s: seconds inside ONNX Runtime's calls of
    each graph. num_encoder_runs, num_decoder_runs: the number of these calls. cpu_s: CPU time of the process. blocks_s:
    seconds of the native kernels by graph and kind of block, summed over the threads; empty without native kernels.
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
class JobResult:
    """A job's result. times_s: seconds of each call. ids: the last call's targets, group by group."""

    times_s: list[float]
    ids: list[list[int]]
    spent: EngineCounters = field(default_factory=EngineCounters)


@dataclass(frozen=True)
class Arrivals:
    """Sentences with arrival times. sentences[i] arrives gaps_s[i] seconds after the previous one.

    limit_s: how many seconds after the last arrival the trial still waits for answers.
    """

    sentences: list[list[int]]
    gaps_s: list[float]
    beam_size: int
    max_target_length: int
    limit_s: float


@dataclass(frozen=True)
class ArrivalResult:
    """Results of arrivals, by sentence.

    latencies_s: seconds from the due time to the answer; None without an answer within the limit. sent_late_s: seconds
    from the due time to the submission.
    """

    latencies_s: list[float | None]
    sent_late_s: list[float]


@dataclass(frozen=True)
class PeerSettings:
    """CTranslate2's settings: its threads, and how it splits the input of one call into batches.

    inter_threads: the number of batches at once, each with intra_threads threads.
    max_batch_size: 0 puts all sentences in one batch. batch_type: `tokens` counts max_batch_size in subwords, padding
    included.
    """

    inter_threads: int
    intra_threads: int
    max_batch_size: int = 0
    batch_type: Literal["examples", "tokens"] = "examples"
