"""The seam between deciding and computing: what the engine asks of a model.

A runner holds a fixed number of cache rows. Rows 0..n-1 are decoded together in one step; the
engine keeps them dense, where that is of use, and decides which row belongs to whom. A row's cache holds its
self-attention keys and values (one column a decoded position) and the cross-attention keys and
values of its sentence.
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

# The id of a row that no hypothesis holds, where the runner passes over such rows.
UNUSED_ROW = -1


@dataclass(frozen=True)
class Limits:
    """What a loaded model can hold.

    num_rows: cache rows, so the most hypotheses that run at once.
    num_kept_rows: of these, those that are kept for callers that come while another holds the rest.
    max_source_length: subwords of a source, its end token counted.
    max_target_length: positions of a row's self-attention cache: the start token and the subwords.
    has_alignment: whether a step can return the attention that its tokens pay to the source.
    max_steps: decoder steps that one call may take, each row going on with its best candidate or its beam.
    advances_beams: whether a step may be given beams.
    skips_unused_rows: whether rows of a step that no hypothesis holds cost nothing: they need not be dense.
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
    skips_unused_rows: bool = False
    num_kept_rows: int = 0


@dataclass(frozen=True)
class StepInput:
    """One decoder step of rows 0..num_rows-1, or several.

    ids: (num_rows,) the last subword of each row; bos_id in a row's first step.
    positions: (num_rows,) that subword's position, which is how many the row's cache holds before it.
    num_candidates: k of the top-k, the same for all rows.
    num_steps: steps at most in which each row goes on with its best candidate, at most the runner's max_steps; every
        row's cache must have room for them. More than one only with one candidate and nothing else wanted. With beams
        the last one is that in which one is open, or the last is done. More than one only where every row is a beam's.
    stop: what else ends them.
    beams: those that the runner advances; what ids and positions say of their rows is not read.
    ids and positions may be views of what changes after the step.
    wants_distributions, wants_alignment: whether the optional outputs are wanted; a step that asks for none of
        them pays for none.
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

    log_probabilities: (num_rows, num_candidates) natural logarithms, each row descending, of equal ones the
        smaller id first. In a row's first step (position 0, bos_id) the end token is no candidate: a translation has a
        subword. Where the vocabulary has too few others it stands last, with negative infinity.
        Where several steps were allowed (num_steps, num_rows), those taken, the best one's; 0
        behind a row's end token. With beams the last step's candidates.
    ids: of the same shape, their subwords; the end token behind a row's end token.
    distributions: (num_rows, vocab_size) log-probabilities of all subwords; None where the step did not want them.
    alignment: (num_rows, capacity) attention that this position pays to the source, 0 behind the row's source; None
        where the step did not want it. Only a model whose limits say has_alignment is asked.
    num_steps: those taken.
    outcomes: of each beam, what has become of it in the last of its own (`app.runtime.beams.BeamOutcome`).
    All arrays may be views that the next step overwrites.
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
        """What this runner can hold."""

    def encode(self, sources: Sequence[Int32s], rows: Sequence[int]) -> None:
        """Encode sentences and write each one's cross-attention keys and values into its row.

        sources: ids of each sentence, its end token last, 1..max_source_length long. What a
        sentence gets does not depend on the others. Raises EngineFailure.
        """

    def decode(self, step: StepInput) -> StepOutput:
        """Run one step: append a column to each row's cache, return the candidates. Raises EngineFailure.

        Rows behind those of the step hold nothing that is needed: a runner may write to them. A row of the step that
        no hypothesis holds is given at position 0, as id 0, or as UNUSED_ROW where `skips_unused_rows` is set; it was
        another's before, and nobody reads what it gives.
        """

    def copy_rows(self, sources: Int32s, targets: Int32s, lengths: Int32s) -> None:
        """Copy whole rows, cross-attention included, as if all at once: targets may be sources of others.

        lengths: (n,) columns of the self-attention cache that each source row holds.
        """

    def reorder(self, sources: Int32s, targets: Int32s, lengths: Int32s, shared: Int32s) -> None:
        """As copy_rows within one sentence: the cross-attention cache is the same and is not touched.

        shared: (n,) columns from the first on that source and target hold alike already, and may be left alone.
        """

    def share_cores(self, num_sharing: int) -> None:
        """So many runners of the machine are at work now, this one among them: take a fair part of the threads."""
