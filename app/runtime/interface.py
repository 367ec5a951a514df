"""The interface between the engine, which decides, and a runner, which computes.

A runner holds a fixed number of cache rows. One step decodes rows 0..n-1 together. The engine decides which row
belongs to which hypothesis, and keeps rows dense where the runner needs it. A row's cache holds its self-attention
keys and values, one column for each decoded position, and the cross-attention keys and values of its sentence.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from app.runtime.beams import SharedBeam
from app.runtime.stop_condition import NO_EARLY_STOP, StopCondition

Int32s = NDArray[np.int32]
Int64s = NDArray[np.int64]
Floats = NDArray[np.float32]

# For runners whose limits say `skips_free_rows`: the id of a row that has no hypothesis, whose sequence is paused, or
# whose id the runner reads from a beam (`StepInput.beams`). The cache of such a row must stay unchanged, unless a beam
# decodes the row.
FREE_ROW_ID = -1


@dataclass(frozen=True)
class Limits:
    """The limits of a loaded model, and what its runner can do.

    num_rows: cache rows, the maximum number of hypotheses that run at once.
    num_kept_rows: how many of these rows are kept for callers that come later.
    max_source_length: the maximum number of subwords of a source, its end token included.
    max_target_length: positions of a row's self-attention cache: the start token and the subwords.
    has_alignment: whether a step can return the attention from its tokens to the source.
    max_steps: the maximum number of decoder steps in one call. After each step a row continues with its best candidate,
        or as its beam requires.
    advances_beams: whether a step accepts beams.
    skips_free_rows: whether rows with the id FREE_ROW_ID cost nothing, so that rows may have holes, and sequences may
        be paused.
    prefill_id: a token before the start token, for a model that has several start tokens, one for each target language
        (`DecodingOptions.start_id`). `encode` decodes prefill_id in each row. Positions count from the start token, so
        they begin at 0 all the same. None: the start token of every target is bos_id.
    min_log_probability: the mean log-probability per token below which the engine decodes a sentence again with the
        whole vocabulary, if it was decoded among a shortlist; None: never.
    num_shortlists: tables by which `RestrictingRunner.restrict` can restrict rows; 0 for other runners.
    """

    num_rows: int
    max_source_length: int
    max_target_length: int
    vocab_size: int
    bos_id: int
    eos_id: int
    has_alignment: bool = False
    max_steps: int = 1
    advances_beams: bool = False
    skips_free_rows: bool = False
    num_kept_rows: int = 0
    prefill_id: int | None = None
    num_shortlists: int = 0
    min_log_probability: float | None = None

    @property
    def num_prefilled(self) -> int:
        """Columns that each row's self-attention cache has before position 0: 1 with a prefill_id, else 0."""
        return int(self.prefill_id is not None)


@dataclass(frozen=True)
class StepInput:
    """One call of the decoder: one step of rows 0..num_rows-1, or several.

    ids: (num_rows,) the last subword of each row; the start token in a row's first step.
    positions: (num_rows,) the position of that subword: the number of columns in the row's cache before the step, not
        counting the prefilled one.
    num_candidates: k of the top-k, the same for all rows.
    num_steps: the maximum number of steps, from 1 to `Limits.max_steps`. Each row continues with its best candidate.
        Each row's cache must have room. More than 1 step requires that num_candidates is 1 and no optional output is
        requested, or that every row belongs to a beam. With beams the call ends with the first step in which a beam is
        UNDECIDED or all are done. A runner may have begun further steps by then. These steps do not change an UNDECIDED
        beam, but advance the other beams.
    stop: the condition that ends the call before num_steps.
    beams: beams that the runner advances. It reads the ids and positions of their live rows from the beams. Their other
        rows have no hypothesis.
    wants_distributions, wants_alignment: whether the caller reads the optional outputs. Without such a request a runner
        need not compute them.
    ids and positions may be views of arrays that change after the call.
    """

    ids: Int32s
    positions: Int32s
    num_candidates: int
    num_steps: int = 1
    wants_distributions: bool = False
    wants_alignment: bool = False
    beams: Sequence[SharedBeam] = ()
    stop: StopCondition = NO_EARLY_STOP


@dataclass(frozen=True)
class StepOutput:
    """The best candidates for each row's next subword.

    log_probabilities: (num_rows, num_candidates) natural logarithms, descending. Native kernels order equal ones by
        ascending id. In a row's first step (position 0, start token) the end token is no candidate, so that no
        translation is empty. If the vocabulary has too few other subwords, the end token is last, with negative
        infinity.
        If several steps were allowed and there are no beams, the shape is (num_steps, num_rows). It then holds the best
        candidate of each step taken, and 0 after a row's end token. With beams the shape is (num_rows, num_candidates)
        for any number of steps, with the candidates of the last step. For an UNDECIDED beam this is the step that the
        beam has not taken.
    ids: the candidates' subwords, of the same shape; the end token after a row's end token.
    distributions: (num_rows, vocab_size) log-probabilities of all subwords; None unless requested.
    alignment: (num_rows, capacity) attention from this position to the source, 0 after the row's source; None or
        undefined unless requested. capacity: columns of a row's cross-attention cache, at least max_source_length.
        It may be requested only if the model's limits have has_alignment.
    num_steps: steps taken.
    outcomes: for each beam, the outcome of its last step in the call (`app.runtime.beams.BeamOutcome`).
    All arrays may be views that the next call overwrites.
    """

    log_probabilities: Floats
    ids: Int64s
    distributions: Floats | None = None
    alignment: Floats | None = None
    num_steps: int = 1
    outcomes: Sequence[int] = ()


class Runner(Protocol):
    """One model, ready to run. Called from one thread only."""

    @property
    def limits(self) -> Limits:
        """What this runner can hold and do."""

    def encode(self, sources: Sequence[Int32s], rows: Sequence[int]) -> None:
        """Encode sentences and write each one's cross-attention keys and values to its row. Decode prefill_id, if any.

        sources: 1..max_source_length ids of each sentence, with its end token and tag if the model has them. The result
        for a sentence does not depend on the other sentences. Raises EngineFailure.
        """

    def decode(self, step: StepInput) -> StepOutput:
        """Run one call and return the candidates. Raises EngineFailure.

        Each step appends one column to the cache of each row that it decodes. The runner may write to rows after those
        of the step. A row that has no hypothesis, whose sequence is paused, or whose id the runner reads from a beam,
        has position 0 and id FREE_ROW_ID, or id 0 if the limits lack `skips_free_rows`. Its results are not read unless
        a beam decodes it.
        """

    def copy_rows(self, sources: Int32s, targets: Int32s, lengths: Int32s) -> None:
        """Copy whole rows, cross-attention included, as if all at once. A target may be another copy's source.

        lengths: (n,) columns in each source row's self-attention cache, without the prefilled one, as in `reorder`.
        Raises EngineFailure.
        """

    def reorder(self, sources: Int32s, targets: Int32s, lengths: Int32s, shared: Int32s) -> None:
        """Copy self-attention columns, as if all at once. Each copy is between two rows of one sentence.

        The cross-attention cache is the same in all rows of a sentence, and is not touched. lengths: as in `copy_rows`.
        shared: (n,) leading columns that are equal in source and target and need no copy. Raises EngineFailure.
        """

    def share_cores(self, num_sharing: int) -> None:
        """Use 1/num_sharing of the threads. num_sharing: how many workers of the engine are busy now."""


class RestrictingRunner(Runner, Protocol):
    """A runner whose limits have num_shortlists above 0."""

    def restrict(self, rows: Sequence[int], sources: Sequence[Int32s], tables: Sequence[int | None]) -> None:
        """Restrict the candidates of sentences to the shortlists of their sources, until their rows are encoded again.

        rows: one encoded row of each sentence. The restriction holds for all rows of the sentence, those that
        `copy_rows` makes later included. tables: the number of each sentence's table; None: it chooses among the whole
        vocabulary, as after `encode`. The log-probabilities of a restricted row are normalised over its shortlist, so
        they do not depend on other sentences. Its row of `StepOutput.distributions` is undefined. Raises EngineFailure.
        """
