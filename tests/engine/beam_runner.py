"""A fake runner that advances beams with the native library's beam search."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from app.runtime import native
from app.runtime.beams import BeamOutcome
from app.runtime.interface import FREE_ROW_ID, Limits, StepInput, StepOutput
from tests.engine.fake_runner import BOS, LIMITS, FakeRunner, StepBudget

BEAM_LIMITS = replace(LIMITS, has_alignment=True, max_steps=4, advances_beams=True, skips_free_rows=True)


class BeamRunner(FakeRunner):
    """A fake runner that advances beams and records the calls.

    beam_calls: for each decode with beams, the number of beams and the number of steps.
    outcomes: the outcome of each beam in each call.
    """

    def __init__(self, limits: Limits = BEAM_LIMITS, *, eos_bonus: float = 1.0) -> None:
        super().__init__(limits, eos_bonus=eos_bonus)
        self.beam_calls: list[tuple[int, int]] = []
        self.outcomes: list[BeamOutcome] = []

    def decode(self, step: StepInput) -> StepOutput:
        if not step.beams:
            return super().decode(step)
        self.calls["decode"] += 1
        self.batches.append(len(step.ids))
        rows = [row for beam in step.beams for row in beam.rows]
        assert len(rows) == len(set(rows))
        # A search on the host takes single steps, so a call of several steps has no rows of such a search.
        assert step.num_steps == 1 or (step.ids == FREE_ROW_ID).all()
        ids, positions = step.ids.copy(), step.positions.copy()
        outcomes = [int(BeamOutcome.CONTINUES)] * len(step.beams)
        num_steps = 0
        budget = StepBudget(step)
        while budget.is_open and BeamOutcome.CONTINUES in outcomes and BeamOutcome.UNDECIDED not in outcomes:
            for beam, outcome in zip(step.beams, outcomes, strict=True):
                if outcome == BeamOutcome.DONE:
                    ids[beam.rows] = FREE_ROW_ID
                    continue
                # Before its first step, a beam has one hypothesis: the start token.
                live = beam.rows if beam.length else beam.rows[:1]
                ids[live], positions[live] = beam.history()[0][-beam.beam_size :] or [BOS], beam.length
            output = self._compute_step(replace(step, ids=ids, positions=positions))
            moves: list[list[int]] = []
            for index, beam in enumerate(step.beams):
                if outcomes[index] != BeamOutcome.DONE:
                    candidates = output.log_probabilities, output.ids, output.alignment
                    outcomes[index], copies = native.advance_beam(beam.address, *candidates)
                    moves += copies
            if moves:
                sources, targets, firsts, ends = np.array(moves, np.int32).T
                self.reorder(sources, targets, ends, firsts)
            num_steps += 1
            self.on_step(num_steps)
            budget.note_step(has_ended=BeamOutcome.DONE in outcomes)
        self.beam_calls.append((len(step.beams), num_steps))
        self.outcomes += map(BeamOutcome, outcomes)
        return replace(output, num_steps=num_steps, outcomes=outcomes)
