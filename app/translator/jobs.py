"""A segment on its way through the engine: the parts in which it is decoded, and what came of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from app.decoding.loop_guard import leaves_out_repetition
from app.decoding.options import DecodingOptions, FinishReason, Hypothesis
from app.engine.sequence import SequenceResult
from app.text.parsed_text import ParsedText
from app.text.segmentation import Span
from app.text.segments import Fallback, SegmentTranslation, SourceSegment
from app.text.tokenizer import Encoded
from app.translator.languages import ResolvedLanguage


class Phases(NamedTuple):
    """Seconds in the engine's phases."""

    queue: float = 0.0
    encode: float = 0.0
    decode: float = 0.0

    @classmethod
    def of(cls, results: Sequence[SequenceResult]) -> Phases:
        """Of the slowest of sentences that ran side by side, phase by phase."""
        return cls.slowest(
            [cls(each.queue_time_s, each.encode_time_s, each.decode_time_s) for each in results]
        )

    @classmethod
    def slowest(cls, phases: Sequence[Phases]) -> Phases:
        """The longest of each."""
        if len(phases) == 1:
            return phases[0]
        return cls(*map(max, zip(*phases, strict=True))) if phases else cls()

    def followed_by(self, later: Phases) -> Phases:
        """Both together."""
        if self == NO_PHASES:
            return later
        return Phases(*map(sum, zip(self, later, strict=True)))


NO_PHASES = Phases()


@dataclass(eq=False)
class Part:
    """What the engine is given at once. span: in its segment's source. result: None while it is waited for.

    is_wordless_retry: whether it is decoded once more, since nothing with a letter or digit was said of it.
    """

    span: Span
    encoded: Encoded
    options: DecodingOptions
    result: SequenceResult | None = None
    is_wordless_retry: bool = False

    @property
    def is_cached(self) -> bool:
        """Whether it was decoded for an earlier request."""
        return self.result is not None and self.result.is_cached

    @property
    def hypotheses(self) -> Sequence[Hypothesis]:
        """Best first; empty before they are there."""
        return () if self.result is None else self.result.hypotheses

    def hypothesis(self, rank: int) -> Hypothesis:
        """The best one's rank is 0; where there are fewer, the last. Only once they are there."""
        return self.hypotheses[min(rank, len(self.hypotheses) - 1)]

    @property
    def num_target_tokens(self) -> int:
        """Subwords of the best translation, its end token counted where it has one."""
        best = self.hypothesis(0)
        return len(best.ids) + (best.finish_reason is FinishReason.STOP)


class Attempt(NamedTuple):
    """A decoded segment, to be chosen or not."""

    segment: SourceSegment
    parts: list[Part]
    reasons: tuple[Fallback, ...]
    num_splits: int
    best: SegmentTranslation


@dataclass(eq=False)
class SegmentJob:
    """A segment and its parts, one at first; only one thread at a time changes it.

    prefix: what its translation begins with, "" where it is free. reasons: why there are several parts.
    num_splits: how often parts were halved. attempts: what came of it with other words or numbers carried; plans: what
    is still to be tried. terms_done, numbers_done: whether what becomes of its terms, and of its numbers, is decided.
    best: its translation, once it is decoded. phases: what the engine took for it, over all rounds.
    """

    parsed_text: ParsedText
    language: ResolvedLanguage
    segment: SourceSegment
    prefix: str
    parts: list[Part] = field(default_factory=list)
    reasons: tuple[Fallback, ...] = ()
    num_splits: int = 0
    attempts: list[Attempt] = field(default_factory=list)
    candidates: list[tuple[SourceSegment, Encoded]] = field(default_factory=list)
    terms_done: bool = False
    numbers_done: bool = False
    best: SegmentTranslation | None = None
    phases: Phases = NO_PHASES

    @property
    def waiting(self) -> list[Part]:
        """Parts to decode."""
        return [part for part in self.parts if part.result is None]

    def as_attempt(self) -> Attempt:
        """As it stands now; it has its translation."""
        assert self.best is not None
        return Attempt(self.segment, self.parts, self.reasons, self.num_splits, self.best)

    def choose(self, attempt: Attempt) -> None:
        """Stand as it did then, for good."""
        self.segment, self.parts, self.reasons, self.num_splits, self.best = attempt
        self.attempts, self.candidates = [], []

    @property
    def expected_rounds(self) -> int:
        """How often it is likely to be decoded: half of the sentences with numbers come back, many with terms."""
        numbers_done = not self.prefix and any(map(str.isdigit, self.segment.source))
        return 2 if numbers_done or self.segment.terms else 1

    def count(self, decoded: Sequence[Part]) -> None:
        """Add the time of parts that ran side by side."""
        results = [part.result for part in decoded if part.result is not None]
        self.phases = self.phases.followed_by(Phases.of(results))

    @property
    def is_shortened(self) -> bool:
        """Whether its source repeats itself and its best translation leaves much of that out."""
        return any(leaves_out_repetition(part.encoded.ids, part.hypothesis(0).ids) for part in self.parts)

    @property
    def num_hypotheses(self) -> int:
        """How many there are of every part."""
        return min(len(part.hypotheses) for part in self.parts)

    @property
    def num_target_tokens(self) -> int:
        """Subwords of the best translation, end tokens counted."""
        return sum(part.num_target_tokens for part in self.parts)

    @property
    def finish_reason(self) -> FinishReason:
        """Of the best translation, as `joint_reason`."""
        said = [part.hypothesis(0) for part in self.parts]
        keeps_source = self.best is not None and self.best.keeps_source
        return joint_reason(said, keeps_source=keeps_source, is_shortened=self.is_shortened)


class TextPlan(NamedTuple):
    """A text and what is to be decoded of it. jobs: empty where it comes back as it is."""

    text: str
    language: ResolvedLanguage
    parsed_text: ParsedText
    jobs: tuple[SegmentJob, ...]


def joint_reason(said: Sequence[Hypothesis], *, keeps_source: bool, is_shortened: bool) -> FinishReason:
    """Of parts: STOP where every one ended so, else why the first other one did.

    keeps_source: whether the source stands for one of them. is_shortened: whether they say less often what repeats.
    """
    if keeps_source:
        return FinishReason.SOURCE
    if is_shortened:
        return FinishReason.REPETITION
    return next(
        (each.finish_reason for each in said if each.finish_reason is not FinishReason.STOP),
        FinishReason.STOP,
    )
