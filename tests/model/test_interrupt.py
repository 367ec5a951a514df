"""Signals that end a training run."""

from __future__ import annotations

import signal
from typing import Any

import pytest

from model.interrupt import STOP_SIGNALS, stop_signals


def test_a_signal_stops_the_run_even_while_the_handlers_are_set(monkeypatch: pytest.MonkeyPatch) -> None:
    set_handler = signal.signal
    sent: list[int] = []

    def set_and_raise(number: int, handler: Any) -> Any:
        """Set a handler. After the first one, SIGINT arrives."""
        previous = set_handler(number, handler)
        if not sent:
            sent.append(number)
            signal.raise_signal(signal.SIGINT)
        return previous

    before = [signal.getsignal(number) for number in STOP_SIGNALS]
    monkeypatch.setattr(signal, "signal", set_and_raise)
    with stop_signals() as is_stopping:
        assert is_stopping()
    assert sent == [signal.SIGINT]
    assert [signal.getsignal(number) for number in STOP_SIGNALS] == before
