"""A segment while it is decoded: its parts, its attempts and its translation."""

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
from app.translator.request import TextSpan, Timings
from app.translator.samples import samples_of


class Phases(NamedTuple):
    """Seconds in each phase of the engine, and decoder steps."""

    queue: float = 0.0
    encode: float = 0.0
    decode: float = 0.0
    num_steps: int = 0

    @classmethod
    def of(cls, results: Sequence[SequenceResult]) -> Phases:
        """Return the maximum time of each phase, and the maximum steps, of sentences that were decoded in parallel."""
        return cls.slowest(
            [
                cls(each.queue_time_s, each.encode_time_s, each.decode_time_s, each.num_steps)
                for each in results
            ]
        )

    @classmethod
    def slowest(cls, phases: Sequence[Phases]) -> Phases:
        """Return the maximum time of each phase, and the maximum number of steps."""
        if len(phases) == 1:
            return phases[0]
        return cls(
            max((each.queue for each in phases), default=0.0),
            max((each.encode for each in phases), default=0.0),
            max((each.decode for each in phases), default=0.0),
            max((each.num_steps for each in phases), default=0),
        )

    def followed_by(self, later: Phases) -> Phases:
        """Return the sum of these figures and those of a later decoding of the same segment."""
        if self == NO_PHASES:
            return later
        return Phases(
            self.queue + later.queue,
            self.encode + later.encode,
            self.decode + later.decode,
            self.num_steps + later.num_steps,
        )

    def timings(self, tokenise_s: float, detokenise_s: float) -> Timings:
        """Return these times, and those of the phases outside the engine, in the milliseconds of a response."""
        return Timings(
            tokenise=tokenise_s * 1000,
            queue=self.queue * 1000,
            encode=self.encode * 1000,
            decode=self.decode * 1000,
            detokenise=detokenise_s * 1000,
        )


NO_PHASES = Phases()


@dataclass(eq=False)
class Part:
    """One sentence for the engine: a segment, a part of a segment, or a text to score.

    span: where the part is in the segment's source, or in the text to score. result: None until decoded. was_wordless:
    whether an earlier output had no words, by the rule of `is_wordless`. suppresses_digits: whether its options forbid
    digits.
    """

    span: Span
    encoded: Encoded
    options: DecodingOptions
    result: SequenceResult | None = None
    was_wordless: bool = False
    suppresses_digits: bool = False

    @property
    def is_cached(self) -> bool:
        """Whether the result is from an earlier request."""
        return self.result is not None and self.result.is_cached

    @property
    def num_rows(self) -> int:
        """Rows of the key/value caches, one for each hypothesis; 0 if the result is from an earlier request."""
        return 0 if self.is_cached else sum(options.beam_size for options in samples_of(self.options))

    @property
    def hypotheses(self) -> Sequence[Hypothesis]:
        """Return the hypotheses, best first; empty until decoded."""
        return () if self.result is None else self.result.hypotheses

    def hypothesis(self, rank: int) -> Hypothesis:
        """Return the hypothesis of a rank, or the last if there are fewer. Rank 0 is the best. Requires a result."""
        return self.hypotheses[min(rank, len(self.hypotheses) - 1)]

    @property
    def num_target_tokens(self) -> int:
        """Subwords of the best hypothesis, with its end token if it has one."""
        best = self.hypothesis(0)
        return len(best.ids) + (best.finish_reason is FinishReason.STOP)


# Numbers of an attempt's faults, the most important first.
Faults = tuple[int, int]


class Attempt(NamedTuple):
    """One decoding of a segment, as a candidate for its translation."""

    segment: SourceSegment
    parts: list[Part]
    part_fallbacks: tuple[Fallback, ...]
    num_splits: int
    best: SegmentTranslation


@dataclass(eq=False)
class SegmentJob:
    """The decoding of a segment, in one part at first, later perhaps in several. Only one thread at a time changes it.

    prefix: forced beginning of the translation; "" for none.
    part_fallbacks: the reasons why there are several parts. num_splits: how often parts were halved.
    attempts: decodings so far, each with its faults. candidates: versions of the segment that are not decoded yet,
        with placeholders for terms or numbers.
    terms_done: whether no further retry for missing terms begins. numbers_done: whether no further retry for changed
        numbers begins. digits_done: whether the retry with digits suppressed was begun or is not needed.
    best: the accepted translation. phases: engine time of all decodings.
    """

    parsed_text: ParsedText
    language: ResolvedLanguage
    segment: SourceSegment
    prefix: str
    parts: list[Part] = field(default_factory=list)
    part_fallbacks: tuple[Fallback, ...] = ()
    num_splits: int = 0
    attempts: list[tuple[Faults, Attempt]] = field(default_factory=list)
    candidates: list[tuple[SourceSegment, Encoded]] = field(default_factory=list)
    terms_done: bool = False
    numbers_done: bool = False
    digits_done: bool = False
    best: SegmentTranslation | None = None
    phases: Phases = NO_PHASES

    @property
    def pending_parts(self) -> list[Part]:
        """Return the parts that are to be decoded."""
        return [part for part in self.parts if part.result is None]

    def as_attempt(self) -> Attempt:
        """Return the current state as an attempt. Requires a translation."""
        assert self.best is not None
        return Attempt(self.segment, self.parts, self.part_fallbacks, self.num_splits, self.best)

    def choose(self, attempt: Attempt) -> None:
        """Restore an attempt and drop the others."""
        self.segment, self.parts, self.part_fallbacks, self.num_splits, self.best = attempt
        self.attempts, self.candidates = [], []

    @property
    def expected_decodings(self) -> int:
        """Expected number of decodings, 1 or 2.

        It is 2 with terms, or with digits and no prefix, because many of these segments are decoded twice.
        """
        may_change_numbers = not self.prefix and any(map(str.isdigit, self.segment.source))
        return 2 if may_change_numbers or self.segment.terms else 1

    def add_phases(self, decoded: Sequence[Part]) -> None:
        """Add the engine time of parts that were decoded in parallel."""
        results = [part.result for part in decoded if part.result is not None]
        self.phases = self.phases.followed_by(Phases.of(results))

    @property
    def is_shortened(self) -> bool:
        """Whether the source repeats itself and the best translation leaves much of that out."""
        return any(leaves_out_repetition(part.encoded.ids, part.hypothesis(0).ids) for part in self.parts)

    @property
    def num_hypotheses(self) -> int:
        """The number of hypotheses that every part has."""
        return min(len(part.hypotheses) for part in self.parts)

    @property
    def num_target_tokens(self) -> int:
        """Subwords of the best translation, end tokens included."""
        return sum(part.num_target_tokens for part in self.parts)

    @property
    def finish_reason(self) -> FinishReason:
        """Return the finish reason of the best translation; see `joint_reason`."""
        hypotheses = [part.hypothesis(0) for part in self.parts]
        keeps_source = self.best is not None and self.best.keeps_source
        return joint_reason(hypotheses, keeps_source=keeps_source, is_shortened=self.is_shortened)


class TextPlan(NamedTuple):
    """A parsed text and the jobs of its segments; no jobs if no model translates a part of it."""

    language: ResolvedLanguage
    parsed_text: ParsedText
    jobs: tuple[SegmentJob, ...]


class Submission(NamedTuple):
    """A sentence for admission. num_decodings: how often it is expected to be decoded."""

    ids: tuple[int, ...]
    options: DecodingOptions
    num_decodings: int


def submissions(jobs: Sequence[SegmentJob]) -> list[Submission]:
    """Return the ids, the options and the expected number of decodings of each sentence."""
    return [
        Submission(part.encoded.ids, options, job.expected_decodings)
        for job in jobs
        for part in job.parts
        for options in samples_of(part.options)
    ]


def spans_of(texts: Sequence[TextPlan]) -> list[list[TextSpan]]:
    """Return where each segment of each text stands in that text."""
    return [[TextSpan(*job.parsed_text.span(job.segment)) for job in text.jobs] for text in texts]


def joint_reason(hypotheses: Sequence[Hypothesis], *, keeps_source: bool, is_shortened: bool) -> FinishReason:
    """Return the finish reason of a segment: STOP if every part has it, else the first other reason.

    keeps_source: whether a part's source replaces its translation; the reason is then SOURCE.
    is_shortened: whether the translation leaves out repetitions of the source; the reason is then REPETITION.
    """
    if keeps_source:
        return FinishReason.SOURCE
    if is_shortened:
        return FinishReason.REPETITION
    return next(
        (each.finish_reason for each in hypotheses if each.finish_reason is not FinishReason.STOP),
        FinishReason.STOP,
    )


def add_phases(decoded: Sequence[tuple[SegmentJob, Sequence[Part]]]) -> None:
    """Add the engine time of each job's parts, which were decoded in parallel."""
    for job, parts in decoded:
        job.add_phases(parts)
