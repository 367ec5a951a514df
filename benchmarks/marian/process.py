"""Runs `marian-bench`, which `build.sh` makes, with pipes.

This module imports no PyTorch, because `benchmarks/http/peer_server.py`, a server of a compared engine, imports it.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

CLOSE_LIMIT_S = 60


class MarianError(RuntimeError):
    """A program of Marian failed. The message is the end of its output, or its exit code."""


@dataclass(frozen=True)
class MarianFiles:
    """The files of a model, and the folder of Marian's programs."""

    weights: Path
    vocabulary: Path
    programs: Path


class MarianProcess:
    """A running `marian-bench` in int8, with scales of activations. The constructor returns when the program is ready.

    Raises MarianError if the process ends before.
    """

    def __init__(self, files: MarianFiles, options: Sequence[object], environment: Mapping[str, str]) -> None:
        """options: of Marian's command line. environment: changes of the environment."""
        words = [
            files.programs / "marian-bench", "--models", files.weights, "--vocabs", *[files.vocabulary] * 2,
            "--gemm-precision", "int8shiftAlphaAll", "--skip-cost", "--quiet", "--quiet-translation",
            "--log-level", "off", *options,
        ]  # fmt: skip
        self._process = subprocess.Popen(
            [str(word) for word in words],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, **environment},
        )
        try:
            self.read_line()
        except MarianError:
            self.close()
            raise

    def write(self, text: str) -> None:
        """Send text. Raises MarianError if the process has ended."""
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(text)
            self._process.stdin.flush()
        except BrokenPipeError as error:
            raise self._ended() from error

    def read_line(self) -> str:
        """Wait for a line, and return it with its line break. Raises MarianError if the process ends."""
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise self._ended()
        return line

    def _ended(self) -> MarianError:
        return MarianError(f"Marian ended with exit code {self._process.wait(timeout=CLOSE_LIMIT_S)}")

    def close(self) -> None:
        """Close the process's input, and wait until it ends.

        After CLOSE_LIMIT_S seconds, kills the process and raises TimeoutExpired.
        """
        try:
            self._process.communicate(timeout=CLOSE_LIMIT_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.communicate()
            raise
