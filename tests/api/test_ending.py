"""A server ends within its time limit after a signal, even if threads or the event loop hang."""

from __future__ import annotations

import signal
import time

import pytest

from app.api.http.server import (
    CLOSE_TIMEOUT_S,
    END_MARGIN_S,
    EXIT_DRAIN_OVERRAN,
    SAME_SIGNAL_S,
    SECOND_SIGNAL_END_S,
)
from tests.api.server_process import ServerProcess

SETTINGS: dict[str, object] = {"drain_timeout_s": 0.5}
# Seconds. The maximum delay of a busy machine.
SLACK_S = 20.0


def test_a_thread_that_never_ends_does_not_keep_a_drained_server_alive(echo_command: list[str]) -> None:
    with ServerProcess([*echo_command, "stuck=thread"], SETTINGS) as server:
        server.ready().signal()
        started = time.monotonic()
        assert server.ended() == 0
        assert time.monotonic() - started < SLACK_S


@pytest.mark.slow
def test_a_server_whose_event_loop_hangs_is_ended_at_the_time_limit(echo_command: list[str]) -> None:
    with ServerProcess([*echo_command, "stuck=loop"], SETTINGS) as server:
        server.ready().signal()
        started = time.monotonic()
        assert server.ended() == EXIT_DRAIN_OVERRAN
        assert time.monotonic() - started < CLOSE_TIMEOUT_S + END_MARGIN_S + SLACK_S


def test_a_second_signal_ends_a_server_whose_thread_never_ends(echo_command: list[str]) -> None:
    settings: dict[str, object] = {"drain_delay_s": 600}
    with ServerProcess([*echo_command, "stuck=thread"], settings) as server:
        server.ready().signal()
        server.wait_for("draining")
        time.sleep(SAME_SIGNAL_S + 0.2)
        started = time.monotonic()
        server.signal()
        assert server.ended() == 128 + signal.SIGTERM
        assert time.monotonic() - started < SECOND_SIGNAL_END_S + SLACK_S
