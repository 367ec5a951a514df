"""Ends sequences with their results or errors, and decides what follows a failed call of the runner."""

from __future__ import annotations

import logging
from collections.abc import Iterable

from app.engine.decoding_batch import DecodingBatch
from app.engine.reporter import Reporter
from app.engine.scheduler import Scheduler
from app.engine.sequence import Sequence, SequenceResult
from app.engine.stats import StepStats
from app.errors import DeadlineExceeded, EngineFailure, ServiceError
from app.observability.logging import Field, log_event

logger = logging.getLogger(__name__)


class Outcomes:
    """Ends the sequences of one worker. Belongs to the engine thread.

    has_failed: whether a forward or a sequence has failed since the engine's loop last reset it.
    """

    def __init__(
        self,
        scheduler: Scheduler,
        batch: DecodingBatch,
        reporter: Reporter,
        *,
        max_consecutive_failures: int,
    ) -> None:
        """max_consecutive_failures: as in `EngineLimits`."""
        self.has_failed = False
        self._scheduler, self._batch, self._reporter = scheduler, batch, reporter
        self._max_consecutive_failures = max_consecutive_failures
        self._num_failures = 0  # consecutive failed forwards, as `EngineLimits` counts them

    def end(self, sequence: Sequence, outcome: SequenceResult | ServiceError) -> None:
        """End a sequence with its result or error, which the next report holds."""
        sequence.outcome = outcome
        self.release(sequence)
        self._reporter.add_ended(sequence)

    def release(self, sequence: Sequence) -> None:
        """Stop a sequence and free its rows. A cancelled sequence is released without an outcome."""
        self._batch.remove(sequence)
        self._scheduler.end(sequence)

    def expire(self, sequences: list[Sequence], stats: StepStats) -> None:
        """End sequences whose deadline has passed."""
        for sequence in sequences:
            self.end(sequence, DeadlineExceeded("the request's time ran out"))
        stats.num_expired += len(sequences)

    def _fail(self, sequence: Sequence, error: EngineFailure, stats: StepStats) -> None:
        """End a sequence with an error, and log it."""
        fields: dict[str, Field] = {"request_id": sequence.request_id, "problem": error.message}
        log_event(logger, logging.ERROR, "sentence_failed", fields=fields)
        self.end(sequence, error)
        self.has_failed = True
        stats.num_failed += 1

    def fail_invalid(self, invalid: list[Sequence], num_decoded: int, stats: StepStats) -> None:
        """Fail the sequences that `DecodingBatch.without_scores` returns for a call.

        num_decoded: the number of sequences that the call decoded. If all of them are invalid, the forward counts as
        failed. Raises EngineFailure after max_consecutive_failures consecutive failed forwards.
        """
        for sequence in invalid:
            self._fail(sequence, EngineFailure("the model's scores are NaN or infinite"), stats)
        if len(invalid) < num_decoded:
            self._num_failures = 0
        elif invalid:
            self._count_failed_forward()

    def fail_encodings(
        self, failures: Iterable[tuple[Sequence, EngineFailure]], num_encoded: int, stats: StepStats
    ) -> None:
        """Fail the sequences whose encoding failed even alone. num_encoded: how many sequences were to be encoded.

        If all have failed, each counts as a failed forward. Otherwise the encoder works, and the cause is in the
        sequences that failed. Raises EngineFailure after max_consecutive_failures consecutive failed forwards.
        """
        errors = dict(failures)
        for sequence, error in errors.items():
            self._fail(sequence, error, stats)
        if len(errors) == num_encoded:
            for _ in errors:
                self._count_failed_forward()

    def recover(self, error: EngineFailure, stats: StepStats) -> None:
        """Restart all running sequences after a failed call. If only one sequence runs, fail it.

        Raises EngineFailure after max_consecutive_failures consecutive failed forwards.
        """
        running = self._scheduler.running
        self.has_failed = True
        if len(running) > 1:
            logger.error(
                "%d sentences failed together and are retried in halves: %s", len(running), error.message
            )
            for sequence in running:
                self._batch.remove(sequence)
            stats.num_retried += len(self._scheduler.split_running())
        else:
            self._fail(next(iter(running)), error, stats)
            self._count_failed_forward()

    def _count_failed_forward(self) -> None:
        """Count a forward that failed for every sequence in it.

        Raises EngineFailure after max_consecutive_failures consecutive failed forwards.
        """
        self._num_failures += 1
        if self._num_failures >= self._max_consecutive_failures:
            raise EngineFailure(f"{self._num_failures} forwards in a row failed for every sentence in them")
