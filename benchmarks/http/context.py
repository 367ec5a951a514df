"""The state that all parts share: model, cores, durations, and servers that run side by side."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from app.bundle import Bundle
from benchmarks.engine.search import Choice
from benchmarks.http.process_tree import ProcessTree
from benchmarks.http.subjects import Subject
from benchmarks.server_process import ALL_CORES

T = TypeVar("T")
# Metrics of our server: sentences answered from its cache or with another request's answer; and all sentences.
KEPT = re.compile(
    r'^transduce_(?:sentence_cache_lookups_total\{result="hit"\}|coalesced_sentences_total) (\S+)$',
    re.MULTILINE,
)
NUM_KEPT = 2
SENTENCES = re.compile(r"^transduce_sentences_total(?:\{[^}]*\})? (\S+)$", re.MULTILINE)


@dataclass(frozen=True)
class Effort:
    """How much to measure. Times in seconds of one run; after search_s no new round of trials begins."""

    num_starts: int
    num_rounds: int
    alone_s: float
    saturated_s: float
    trial_s: float
    most_trials: int
    search_s: float
    num_bimodal: int
    bimodal_s: float
    num_quality: int
    num_ten_words: int
    scaling_s: float
    is_quick: bool


FULL = Effort(
    num_starts=3, num_rounds=2, alone_s=3.0, saturated_s=4.0, trial_s=10.0, most_trials=6, search_s=200.0,
    num_bimodal=3, bimodal_s=12.0, num_quality=200, num_ten_words=60, scaling_s=4.0, is_quick=False,
)  # fmt: skip
QUICK = Effort(
    num_starts=1, num_rounds=1, alone_s=1.0, saturated_s=1.0, trial_s=2.0, most_trials=1, search_s=60.0,
    num_bimodal=1, bimodal_s=2.0, num_quality=10, num_ten_words=10, scaling_s=0.7, is_quick=True,
)  # fmt: skip


@dataclass(frozen=True)
class Context:
    """python: with which our server runs. data: a table of sentence pairs, for quality. price: of a machine hour.

    choices: CTranslate2's best settings by the number of threads, then by sentences in a call.
    """

    bundle: Bundle
    folder: Path
    effort: Effort
    python: str
    data: Path | None
    with_libretranslate: bool
    price_per_hour: float
    choices: dict[int, dict[int, Choice]] = field(default_factory=dict)
    _made: dict[str, Any] = field(default_factory=dict)

    def once(self, name: str, make: Callable[[], T]) -> T:
        """Values that the parts of one run share, created on first use."""
        if name not in self._made:
            self._made[name] = make()
        found: T = self._made[name]
        return found


@dataclass(frozen=True)
class Cores:
    """The cores of server and tester. is_pinned: they have a core each; otherwise they share all cores."""

    server: frozenset[int]
    tester: frozenset[int]

    @property
    def is_pinned(self) -> bool:
        """Whether server and tester have separate cores."""
        return self.server.isdisjoint(self.tester)


def apart() -> Cores:
    """A core each. On a machine with one core they share it, and the result says so."""
    first, *others = sorted(ALL_CORES)
    return Cores(frozenset({first}), frozenset(others[:1] or {first}))


def shared() -> Cores:
    """All cores for both, as when a user tests on the server's own machine."""
    return Cores(ALL_CORES, ALL_CORES)


@contextmanager
def running(subjects: Sequence[Subject], cores: Cores) -> Iterator[list[tuple[Subject, ProcessTree]]]:
    """All servers, started and ready; idle ones sleep. This process moves to the tester's cores."""
    with ExitStack() as stack:
        stack.callback(os.sched_setaffinity, 0, ALL_CORES)
        os.sched_setaffinity(0, cores.tester)
        started = [
            (subject, stack.enter_context(ProcessTree(subject.command, cores=cores.server)))
            for subject in subjects
        ]
        yield started


def turned(servers: list[tuple[Subject, ProcessTree]], number: int) -> list[tuple[Subject, ProcessTree]]:
    """The servers, rotated by round `number`, so that each is once after each other."""
    place = number % len(servers)
    return [*servers[place:], *servers[:place]]


class NotPlainError(Exception):
    """Our server answered sentences without its model, so its figures cannot be compared."""


def kept_share(server: ProcessTree) -> float:
    """The share of our server's sentences without the model: 0, or NotPlainError is raised."""
    metrics = server.get("/metrics").decode()
    values = KEPT.findall(metrics)
    if len(values) != NUM_KEPT:
        raise NotPlainError("the server does not tell how many sentences were answered from a store")
    kept = sum(map(float, values))
    share = kept / max(1.0, sum(float(value) for value in SENTENCES.findall(metrics)))
    if kept:
        raise NotPlainError(
            f"{kept:.0f} sentences ({share:.2%}) were answered from a store or with another's answer"
        )
    return share


def say(line: str) -> None:
    """Print progress to stderr."""
    print(line, file=sys.stderr, flush=True)
