"""Marian as an engine of the peers' HTTP server: a process that `benchmarks/marian/build.sh` builds, with pipes.

It has int8 weights with scales of activations, as Firefox's models have, and one graph a thread. This module imports no
PyTorch, so that the server's memory is its own.
"""

from __future__ import annotations

import os
import subprocess
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.http.peer_engines import Search
from benchmarks.tagged_tokenizer import TaggedTokenizer
from model.config import BOS_ID, EOS_ID, UNK_ID

# Marian decodes until source length times this factor.
LENGTH_FACTOR = 3
# Memory of a graph in MB. Firefox has 128.
WORKSPACE_MB = 128
CLOSE_LIMIT_S = 60
# Marian's names of two pieces. All others are the ids as decimal numbers.
END, UNKNOWN = "</s>", "<unk>"
# Changes of the environment with which Marian computes our network (benchmarks/marian/trained.py).
PAPER_NETWORK = {"PAPER_NETWORK": str(BOS_ID)}


@dataclass(frozen=True)
class MarianSettings:
    """num_threads: graphs, each with a thread. batch_size: sentences of a batch, into which a call is split."""

    num_threads: int
    batch_size: int

    def describe(self) -> str:
        """A short form for a table."""
        return f"1 x {self.num_threads}, {self.batch_size} examples"


@dataclass(frozen=True)
class MarianFiles:
    """The files of a model, and the folder of Marian's programs."""

    weights: Path
    vocabulary: Path
    programs: Path


def pieces_of(ids: Sequence[int]) -> list[str]:
    """A source for Marian, which adds the end token by itself."""
    return [UNKNOWN if identity == UNK_ID else str(identity) for identity in ids if identity != EOS_ID]


def ids_of(line: str) -> list[int]:
    """The ids of one of Marian's translations."""
    return [UNK_ID if piece == UNKNOWN else int(piece) for piece in line.split()]


class MarianEngine:
    """A running process of Marian, which translates one call at a time. The constructor returns when it is ready.

    Raises RuntimeError if the process ends.
    """

    def __init__(
        self, files: MarianFiles, tokenizer: TaggedTokenizer, search: Search, settings: MarianSettings
    ) -> None:
        self._tokenizer, self._batch_size, self._lock = tokenizer, settings.batch_size, threading.Lock()
        options = {
            "--models": files.weights,
            "--gemm-precision": "int8shiftAlphaAll",
            "--normalize": search.alpha,
            "--beam-size": search.beam_size,
            "--max-length-factor": LENGTH_FACTOR,
            "--maxi-batch-sort": "src",
            "--cpu-threads": settings.num_threads,
            "--workspace": WORKSPACE_MB,
            "--log-level": "off",
        }
        words = [files.programs / "marian-bench", *(word for pair in options.items() for word in pair)]
        vocabularies = ["--vocabs", files.vocabulary, files.vocabulary]
        flags = ["--skip-cost", "--quiet", "--quiet-translation"]
        self._process = subprocess.Popen(
            [str(word) for word in (*words, *vocabularies, *flags)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, **PAPER_NETWORK},
        )
        self._read_line()

    def translate(self, texts: list[str]) -> list[str]:
        """Translate sentences. Raises RuntimeError if the process ends."""
        encoded = [self._tokenizer.encode(text) for text in texts]
        lines = [" ".join(pieces_of(each.ids)) for each in encoded]
        assert self._process.stdin is not None
        with self._lock:
            self._process.stdin.write("\n".join([f"{self._batch_size} {len(lines)}", *lines]) + "\n")
            self._process.stdin.flush()
            found = [self._read_line() for _ in lines]
        return [
            self._tokenizer.decode(ids_of(line), each.verbatim_spans)
            for line, each in zip(found, encoded, strict=True)
        ]

    def close(self) -> None:
        """End the process."""
        self._process.communicate(timeout=CLOSE_LIMIT_S)

    def _read_line(self) -> str:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError(f"Marian ended with exit code {self._process.wait(timeout=CLOSE_LIMIT_S)}")
        return line
