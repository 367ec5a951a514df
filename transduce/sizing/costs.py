"""What the work of one server costs in time, as measured at several loads."""

from __future__ import annotations

import bisect
import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from transduce.errors import CommandError
from transduce.loadtest.output_files import write

MAX_ENCODE_TOKENS = 512  # the default of TRANSDUCE_MAX_ENCODE_TOKENS


@dataclass(frozen=True)
class Level:
    """What a closed loop has measured, or the means of several loops.

    num_clients: clients of the loop, or of the largest of these loops. rows: mean rows in a decoder step. step_s:
    seconds of a step, with the engine's own work around it. encode_s: seconds of the encoder for a source subword.
    rate: answers a second.
    """

    num_clients: int
    rows: float
    step_s: float
    encode_s: float
    rate: float


@dataclass(frozen=True)
class Costs:
    """One server's times.

    name: name and version of the model. levels: by rising rows. num_workers: of the engine. max_rows: of a worker.
    num_kept_rows: rows of a worker that it keeps for further callers. beam_size: rows of a sentence.
    request_s: seconds of a request outside the engine, measured with one client. steps_per_subword: decoder steps of a
    sentence for each of its source subwords. subwords_per_sentence, subwords_per_word: intercept and slope of the line
    that gives a source sentence's subwords from its words. characters_per_word: of the source texts.
    max_source_length: maximum number of subwords of a sentence that the model takes.
    """

    name: str
    levels: tuple[Level, ...]
    num_workers: int
    max_rows: int
    num_kept_rows: int
    beam_size: int
    request_s: float
    steps_per_subword: float
    subwords_per_sentence: float
    subwords_per_word: float
    characters_per_word: float
    max_source_length: int = MAX_ENCODE_TOKENS

    def __post_init__(self) -> None:
        """Raises ValueError without levels, without rising rows, or if a number that must be above 0 is not."""
        if not self.levels:
            raise ValueError("the costs have no level")
        rows = [level.rows for level in self.levels]
        if rows != sorted(set(rows)):
            raise ValueError("the rows of the levels do not rise")
        positive = (
            self.num_workers,
            self.max_rows,
            self.beam_size,
            self.steps_per_subword,
            self.subwords_per_word,
            self.max_source_length,
        )
        if min(*positive, *(level.step_s for level in self.levels)) <= 0:
            raise ValueError("the costs hold a number that is not above 0")

    def step_s(self, num_rows: int) -> float:
        """Seconds of a decoder step of this many rows of one worker."""
        return _interpolated([(level.rows, level.step_s) for level in self.levels], num_rows)

    def encode_s(self, num_rows: int) -> float:
        """Seconds of the encoder for a source subword, while a worker decodes this many rows."""
        return _interpolated([(level.rows, level.encode_s) for level in self.levels], num_rows)

    def num_subwords(self, num_words: int) -> int:
        """Subwords of a source sentence with this many words, at least 1."""
        return max(1, round(self.subwords_per_sentence + self.subwords_per_word * num_words))

    def save(self, path: Path) -> None:
        """Write the costs as JSON."""
        write(path, f"{json.dumps(asdict(self), indent=1)}\n".encode())

    @classmethod
    def load(cls, path: Path) -> Costs:
        """Read costs that `save` has written. Raises CommandError."""
        try:
            return cls.parse(json.loads(path.read_text("utf-8")))
        except (OSError, ValueError, TypeError, KeyError) as error:
            raise CommandError(f"{path} holds no costs of `transduce size --save`: {error}") from error

    @classmethod
    def parse(cls, fields: dict[str, Any]) -> Costs:
        """The costs in a JSON object. Raises ValueError, TypeError, KeyError."""
        return cls(**{**fields, "levels": tuple(Level(**level) for level in fields["levels"])})


def _interpolated(points: Sequence[tuple[float, float]], at: float) -> float:
    """The value at `at`, on the line through the two points beside it.

    Below the first point, the result is the first point's value. Beyond the last point, it is on the line through the
    last two points, but never below the value of the first of the two.
    """
    if at <= points[0][0] or len(points) == 1:
        return points[0][1]
    last = min(bisect.bisect_left([x for x, _ in points], at), len(points) - 1)
    (x0, y0), (x1, y1) = points[last - 1], points[last]
    return max(y0, y0 + (y1 - y0) * (at - x0) / (x1 - x0))
