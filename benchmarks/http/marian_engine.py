"""Marian as an engine of the peers' HTTP server: processes, each with one graph for each of its threads.

This module imports no PyTorch, which would take memory in the server.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from benchmarks.http.peer_engines import Search
from benchmarks.marian.process import MarianFiles, MarianProcess
from benchmarks.tagged_tokenizer import TaggedTokenizer
from model.config import BOS_ID, EOS_ID, UNK_ID

# The longest target of Marian, as a multiple of the length of its source.
LENGTH_FACTOR = 3
# Memory of a graph in MB. Firefox also has 128.
WORKSPACE_MB = 128
# Marian's names of two pieces. All others are the ids as decimal numbers.
END, UNKNOWN = "</s>", "<unk>"
# Environment variables with which Marian computes our network (benchmarks/marian/trained.py).
PAPER_NETWORK = {"PAPER_NETWORK": str(BOS_ID)}


@dataclass(frozen=True)
class MarianSettings:
    """The layout of Marian.

    num_threads: graphs of a process, each with a thread. batch_size: Marian splits a call into batches of this many
    sentences. num_processes: each translates one call at a time.
    """

    num_threads: int
    batch_size: int
    num_processes: int = 1

    def describe(self) -> str:
        """A short form for a table."""
        return f"{self.num_processes} x {self.num_threads}, {self.batch_size} examples"


def pieces_of(ids: Sequence[int]) -> list[str]:
    """A source for Marian, which adds the end token by itself."""
    return [UNKNOWN if identity == UNK_ID else str(identity) for identity in ids if identity != EOS_ID]


def ids_of(line: str) -> list[int]:
    """The ids of one of Marian's translations."""
    return [UNK_ID if piece == UNKNOWN else int(piece) for piece in line.split()]


class MarianEngine:
    """A running process of Marian, which translates one call at a time. The constructor returns when it is ready.

    Raises MarianError if the process ends.
    """

    def __init__(
        self, files: MarianFiles, tokenizer: TaggedTokenizer, search: Search, settings: MarianSettings
    ) -> None:
        self._tokenizer, self._batch_size, self._lock = tokenizer, settings.batch_size, threading.Lock()
        options = [
            "--normalize", search.alpha, "--beam-size", search.beam_size, "--max-length-factor", LENGTH_FACTOR,
            "--maxi-batch-sort", "src", "--cpu-threads", settings.num_threads, "--workspace", WORKSPACE_MB,
        ]  # fmt: skip
        self._process = MarianProcess(files, options, PAPER_NETWORK)

    def translate(self, texts: list[str]) -> list[str]:
        """Translate sentences. Raises MarianError if the process ends."""
        encoded = [self._tokenizer.encode(text) for text in texts]
        lines = [" ".join(pieces_of(each.ids)) for each in encoded]
        with self._lock:
            self._process.write("\n".join([f"{self._batch_size} {len(lines)}", *lines]) + "\n")
            found = [self._process.read_line() for _ in lines]
        return [
            self._tokenizer.decode(ids_of(line), each.verbatim_spans)
            for line, each in zip(found, encoded, strict=True)
        ]

    def close(self) -> None:
        """End the process."""
        self._process.close()


def shared(engines: Sequence[Callable[[list[str]], list[str]]]) -> Callable[[list[str]], list[str]]:
    """A function that gives each call to an engine that is free. As many calls run at once as there are engines."""
    free: queue.SimpleQueue[Callable[[list[str]], list[str]]] = queue.SimpleQueue()
    for engine in engines:
        free.put(engine)

    def translate(texts: list[str]) -> list[str]:
        engine = free.get()
        try:
            return engine(texts)
        finally:
            free.put(engine)

    return translate
