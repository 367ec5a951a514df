"""The fake runner with the library's own beam search: it advances the beams that it is given."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from app.runtime import native
from app.runtime.beams import Outcome
from app.runtime.interface import UNHELD, Limits, StepInput, StepOutput
from tests.engine.fake_runner import BOS, LIMITS, Course, FakeRunner

BEAM_LIMITS = replace(LIMITS, has_alignment=True, max_steps=4, advances_beams=True, skips_unheld=True)


class BeamRunner(FakeRunner):
    """beam_calls: of each decode that was given beams, how many, and the steps taken."""

    def __init__(self, limits: Limits = BEAM_LIMITS, *, eos_bonus: float = 1.0) -> None:
        super().__init__(limits, eos_bonus=eos_bonus)
        self.beam_calls: list[tuple[int, int]] = []
        self.outcomes: list[Outcome] = []

    def decode(self, step: StepInput) -> StepOutput:
        if not step.beams:
            return super().decode(step)
        self.calls["decode"] += 1
        self.batches.append(len(step.ids))
        rows = [row for beam in step.beams for row in beam.rows]
        assert len(rows) == len(set(rows))
        assert step.num_steps == 1 or (step.ids == UNHELD).all()
        ids, positions = step.ids.copy(), step.positions.copy()
        outcomes = [int(Outcome.GOES_ON)] * len(step.beams)
        num_steps = 0
        course = Course(step)
        while course.goes_on and Outcome.GOES_ON in outcomes and Outcome.IS_OPEN not in outcomes:
            for beam, outcome in zip(step.beams, outcomes, strict=True):
                if outcome == Outcome.IS_DONE:
                    ids[beam.rows] = UNHELD
                    continue
                live = beam.rows if beam.length else beam.rows[:1]
                ids[live], positions[live] = beam.history()[0][-beam.beam_size :] or [BOS], beam.length
            output = self._decode_one(replace(step, ids=ids, positions=positions))
            moves: list[list[int]] = []
            for index, beam in enumerate(step.beams):
                if outcomes[index] != Outcome.IS_DONE:
                    candidates = output.log_probabilities, output.ids, output.alignment
                    outcomes[index], copies = native.advance_beam(beam.address, *candidates)
                    moves += copies
            if moves:
                sources, targets, firsts, ends = np.array(moves, np.int32).T
                self.reorder(sources, targets, ends, firsts)
            num_steps += 1
            self.on_step(num_steps)
            course.note_step(has_ended=Outcome.IS_DONE in outcomes)
        self.beam_calls.append((len(step.beams), num_steps))
        self.outcomes += map(Outcome, outcomes)
        return replace(output, num_steps=num_steps, outcomes=outcomes)
