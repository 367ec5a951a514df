"""Measures the speed of a training loop in target subwords per second, without padding. Standard library only."""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from pathlib import Path

WARM_UP_UPDATES = 4


def trainer_arguments() -> argparse.Namespace:
    """Parse the options of a trainer: --data FILE.npz --seconds S --threads N --precision fp32|bf16."""
    parser = argparse.ArgumentParser(allow_abbrev=False)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--seconds", type=float, required=True)
    parser.add_argument("--threads", type=int, required=True)
    parser.add_argument("--precision", choices=("fp32", "bf16"), required=True)
    return parser.parse_args()


class Stopwatch:
    """Counts target subwords from the first update after the warm-up until `seconds` are over."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._started = 0.0
        self._elapsed_s = 0.0
        self._num_updates = 0
        self._num_tokens = 0

    def record_update(self, num_tokens: int) -> bool:
        """Record an update with `num_tokens` target subwords. Returns False when the time is over."""
        self._num_updates += 1
        if self._num_updates == WARM_UP_UPDATES:
            self._started = time.perf_counter()
        elif self._num_updates > WARM_UP_UPDATES:
            self._num_tokens += num_tokens
            self._elapsed_s = time.perf_counter() - self._started
        return self._elapsed_s < self._seconds

    def print(self) -> None:
        """Print the speed and the number of updates as one line of JSON."""
        updates = self._num_updates - WARM_UP_UPDATES
        print(
            json.dumps({"target_subwords_per_s": self._num_tokens / self._elapsed_s, "num_updates": updates})
        )


def run(update: Callable[[], int], seconds: float) -> None:
    """Call `update` until the time is over, then print the speed. update: returns its number of target subwords."""
    watch = Stopwatch(seconds)
    while watch.record_update(update()):
        pass
    watch.print()
