"""The bound on accepted work, and how long to stay away when it is reached."""

from __future__ import annotations

from types import TracebackType

from app.engine.core import Report
from app.engine.limits import EngineLimits
from app.engine.sequence import SequenceResult
from app.errors import Overloaded

MIN_RETRY_AFTER_S = 1.0
MAX_RETRY_AFTER_S = 60.0
# Share of the measured speed that is forgotten with every report of finished sentences.
FORGETTING = 0.05


class Admission:
    """Counts sentences and source tokens that were accepted and not yet answered."""

    def __init__(self, settings: EngineLimits) -> None:
        self._settings = settings
        self.num_sentences = 0
        self.num_tokens = 0
        self._finished_tokens = 0.0
        self._busy_time_s = 0.0

    def enter(self, num_sentences: int, num_tokens: int) -> None:
        """Count them in. Raises Overloaded, unless nothing else is there: who is alone always enters."""
        sentences, tokens = self.num_sentences + num_sentences, self.num_tokens + num_tokens
        is_full = (
            sentences > self._settings.max_pending_sentences or tokens > self._settings.max_pending_tokens
        )
        if is_full and self.num_sentences > 0:
            raise Overloaded("too much work is waiting; come back later", retry_after_s=self.retry_after_s())
        self.add(num_sentences, num_tokens)

    def add(self, num_sentences: int, num_tokens: int) -> None:
        """Count in or, where negative, out."""
        self.num_sentences += num_sentences
        self.num_tokens += num_tokens

    def retry_after_s(self) -> float:
        """Seconds until what was accepted is done: its source tokens at the speed measured so far."""
        if self._finished_tokens == 0.0:
            return MIN_RETRY_AFTER_S
        seconds = self.num_tokens * self._busy_time_s / self._finished_tokens
        return min(max(seconds, MIN_RETRY_AFTER_S), MAX_RETRY_AFTER_S)

    def measure(self, report: Report) -> None:
        """Learn the speed, in source tokens of finished sentences a second of stepping; the past fades."""
        finished = sum(len(s.source_ids) for s in report.ended if isinstance(s.outcome, SequenceResult))
        kept = 1.0 - FORGETTING if finished else 1.0
        self._finished_tokens = self._finished_tokens * kept + finished
        self._busy_time_s = self._busy_time_s * kept + sum(step.step_time_s for step in report.steps)


class Reservation:
    """A scope that holds a place in the queue: entered with `with`, given back however the scope ends."""

    def __init__(self, admission: Admission, num_sentences: int, num_tokens: int) -> None:
        self._admission = admission
        self._held = (num_sentences, num_tokens)

    def __enter__(self) -> Reservation:
        """Raises Overloaded."""
        self._admission.enter(*self._held)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        num_sentences, num_tokens = self._held
        self._admission.add(-num_sentences, -num_tokens)

    def resize(self, num_sentences: int, num_tokens: int) -> None:
        """Put an estimate right, once the text is split and tokenised. Never refused: the work is half done."""
        old_sentences, old_tokens = self._held
        self._admission.add(num_sentences - old_sentences, num_tokens - old_tokens)
        self._held = (num_sentences, num_tokens)
