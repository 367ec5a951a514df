"""What all parts of the HTTP comparison share: its state, the choice of cores, and the start of servers."""

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
# Transduce's metrics of sentences that were answered from the cache or coalesced with an equal sentence in flight.
NOT_DECODED = re.compile(
    r'^transduce_(?:sentence_cache_lookups_total\{result="hit"\}|coalesced_sentences_total) (\S+)$',
    re.MULTILINE,
)
NUM_NOT_DECODED_METRICS = 2
# Transduce's metric of all sentences.
SENTENCES = re.compile(r"^transduce_sentences_total(?:\{[^}]*\})? (\S+)$", re.MULTILINE)


@dataclass(frozen=True)
class Effort:
    """How much to measure.

    num_starts: starts of each server. num_rounds: closed loops of each kind with each server. alone_s, saturated_s:
    duration of a closed loop with one client, and with NUM_CLIENTS. scaling_s: duration of a closed loop of
    `benchmarks.http.scaling`. trial_s: duration of a trial at one rate. most_trials: the largest number of trials of
    each server. search_s: when the search for the highest rates has taken this time, no new round of its trials begins.
    num_bimodal: rounds with short and long sentences. bimodal_s: duration of each server's turn in such a round.
    num_quality: sentence pairs for BLEU and chrF. num_ten_words: how many sentences of ten words measure the overhead.
    """

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
    num_starts=3, num_rounds=2, alone_s=3.0, saturated_s=4.0, trial_s=10.0, most_trials=6, search_s=600.0,
    num_bimodal=3, bimodal_s=12.0, num_quality=200, num_ten_words=60, scaling_s=4.0, is_quick=False,
)  # fmt: skip
QUICK = Effort(
    num_starts=1, num_rounds=1, alone_s=1.0, saturated_s=1.0, trial_s=2.0, most_trials=1, search_s=60.0,
    num_bimodal=1, bimodal_s=2.0, num_quality=10, num_ten_words=10, scaling_s=0.7, is_quick=True,
)  # fmt: skip


@dataclass(frozen=True)
class Context:
    """The state that all parts of the comparison share.

    python: the interpreter of the Transduce server. data: a table of sentence pairs, for quality. choices:
    CTranslate2's fastest settings by the number of threads, then by the number of sentences in a call. marian_programs:
    the folder that `benchmarks/marian/build.sh` makes; None to leave Marian out.
    """

    bundle: Bundle
    folder: Path
    effort: Effort
    python: str
    data: Path | None
    with_libretranslate: bool
    marian_programs: Path | None
    price_per_hour: float
    choices: dict[int, dict[int, Choice]] = field(default_factory=dict)
    _values: dict[str, Any] = field(default_factory=dict)

    def once(self, name: str, create: Callable[[], T]) -> T:
        """The value of `name`. The first call creates it, and all parts of the comparison share it."""
        if name not in self._values:
            self._values[name] = create()
        found: T = self._values[name]
        return found


@dataclass(frozen=True)
class Cores:
    """The cores of the server and of the load tester."""

    server: frozenset[int]
    tester: frozenset[int]

    @property
    def are_separate(self) -> bool:
        """Whether the server and the tester have different cores."""
        return self.server.isdisjoint(self.tester)


def separate_cores() -> Cores:
    """One core for the server and one for the tester. On a machine with one core they share it."""
    first, *others = sorted(ALL_CORES)
    return Cores(frozenset({first}), frozenset(others[:1] or {first}))


def shared_cores() -> Cores:
    """All cores for both, as when a user runs the load tester on the server's machine."""
    return Cores(ALL_CORES, ALL_CORES)


@contextmanager
def running_servers(subjects: Sequence[Subject], cores: Cores) -> Iterator[list[tuple[Subject, ProcessTree]]]:
    """Start all servers and wait until they are ready. Moves this process to the tester's cores."""
    with ExitStack() as stack:
        stack.callback(os.sched_setaffinity, 0, ALL_CORES)
        os.sched_setaffinity(0, cores.tester)
        started = [
            (subject, stack.enter_context(ProcessTree(subject.command, cores=cores.server)))
            for subject in subjects
        ]
        yield started


def rotated(servers: list[tuple[Subject, ProcessTree]], number: int) -> list[tuple[Subject, ProcessTree]]:
    """The servers in the order of round `number`. Each round begins with the next server."""
    start = number % len(servers)
    return [*servers[start:], *servers[:start]]


class CachedAnswerError(Exception):
    """Transduce answered sentences without decoding them, or its metrics cannot show that it did not."""


def cached_share(server: ProcessTree) -> float:
    """Check that Transduce decoded every sentence. Returns 0.0, the share of sentences that it did not decode.

    Raises CachedAnswerError if the share is not 0, or if the metrics lack it.
    """
    metrics = server.get("/metrics").decode()
    values = NOT_DECODED.findall(metrics)
    if len(values) != NUM_NOT_DECODED_METRICS:
        raise CachedAnswerError("the server's metrics lack the number of cached or coalesced sentences")
    not_decoded = sum(map(float, values))
    share = not_decoded / max(1.0, sum(float(value) for value in SENTENCES.findall(metrics)))
    if not_decoded:
        raise CachedAnswerError(
            f"{not_decoded:.0f} sentences ({share:.2%}) were answered from the cache or coalesced"
        )
    return share


def print_progress(line: str) -> None:
    """Print progress to stderr."""
    print(line, file=sys.stderr, flush=True)
