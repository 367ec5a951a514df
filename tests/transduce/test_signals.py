"""SIGTERM during a command that has something to undo."""

from __future__ import annotations

import contextlib
import signal

import pytest

from transduce.signals import sigterm_as_interrupt


def test_sigterm_ends_the_block_as_ctrl_c_does() -> None:
    with pytest.raises(KeyboardInterrupt), sigterm_as_interrupt():
        signal.raise_signal(signal.SIGTERM)


@pytest.mark.parametrize("fails", [False, True])
def test_after_the_block_sigterm_does_what_it_did_before(fails: bool) -> None:
    before = signal.getsignal(signal.SIGTERM)
    with contextlib.suppress(ValueError), sigterm_as_interrupt():
        assert signal.getsignal(signal.SIGTERM) is not before
        if fails:
            raise ValueError
    assert signal.getsignal(signal.SIGTERM) is before
