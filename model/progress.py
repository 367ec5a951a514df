"""Shows the progress of a command that reads millions of lines, as a bar on a terminal or as occasional lines."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from types import TracebackType
from typing import Any, Self, TextIO

from tqdm import tqdm

# Seconds between two lines where stderr is no terminal. If smaller, logs are long. If larger, a run looks dead.
LINE_EVERY_S = 30.0


class Progress:
    """Shows a count on stderr. Use it as a context manager.

    Without a terminal, the end of the block writes a last line, but not after an error.
    """

    def __init__(
        self,
        description: str,
        *,
        unit: str,
        total: int | None = None,
        file: TextIO | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """unit: the plural noun for the counted things. total: how many there are, if that is known.

        file: the output, stderr by default. clock: returns seconds.
        """
        self._file = sys.stderr if file is None else file
        self._description, self._unit, self._total, self._clock = description, unit, total, clock
        self._count = self._start_count = 0
        self._started_at = self._shown_at = clock()
        self._note = ""
        self._shown: tuple[int, str] | None = None
        self._bar: tqdm[Any] | None = None
        if self._file.isatty():
            self._bar = tqdm(desc=description, unit=f" {unit}", total=total, file=self._file)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._bar is not None:
            self._bar.close()
        elif error is None and (self._count, self._note) != self._shown:
            self._show()

    def start_at(self, count: int) -> None:
        """Count `count` things that were done earlier. The speed leaves them out."""
        self._count = self._start_count = count
        if self._bar is not None:
            self._bar.initial = self._bar.n = self._bar.last_print_n = count
            self._bar.refresh()

    def advance(self, count: int, note: str = "") -> None:
        """Count `count` more. note: a text after the speed."""
        self._count += count
        self._note = note
        if self._bar is not None:
            self._bar.set_postfix_str(note, refresh=False)
            self._bar.update(count)
        elif self._clock() - self._shown_at >= LINE_EVERY_S:
            self._shown_at = self._clock()
            self._show()

    def _show(self) -> None:
        """Write a line: count, speed, time left if it is known, note."""
        self._shown = self._count, self._note
        speed = (self._count - self._start_count) / max(self._clock() - self._started_at, 1e-9)
        parts = [f"{self._count:,} {self._unit}", f"{speed:,.0f}/s"]
        if self._total is not None:
            parts[0] = f"{self._count:,} of {self._total:,} {self._unit}"
            if 0 < self._count < self._total and speed > 0:
                parts.append(f"{(self._total - self._count) / speed:,.0f} s left")
        if self._note:
            parts.append(self._note)
        print(f"{self._description}: {', '.join(parts)}", file=self._file, flush=True)
