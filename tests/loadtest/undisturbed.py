"""Repeats runs that a busy machine disturbed, so that tests see only the tester and the server.

Both measure how late they were. A run in which either waited for a core says nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.loadtest.steady_server import SteadyServer
from transduce.loadtest.plan import RunPlan
from transduce.loadtest.result import RunResult
from transduce.loadtest.runner import OnProgress, run

NUM_TRIALS = 10
CarryOut = Callable[[RunPlan, OnProgress | None], RunResult]


class Trials:
    """The remaining repetitions; without any left the test is skipped."""

    def __init__(self, max_late_ms: float) -> None:
        self.max_late_ms = max_late_ms
        self.num_left = NUM_TRIALS

    def run(
        self, server: SteadyServer, plan: RunPlan, on_progress: OnProgress | None = None
    ) -> RunResult | None:
        """One run; None if the tester or the server was late by more than `max_late_ms`."""
        if not self.num_left:
            pytest.skip(
                f"in {NUM_TRIALS} runs this machine let a process wait for over {self.max_late_ms} ms"
            )
        server.late_ms()
        result = run(plan, on_progress)
        # The lag covers the first request, which the loop's probe does not.
        lags_ms = [lag.max_ms for lag in (result.loop_lag, result.lag) if lag is not None]
        if max(server.late_ms(), *lags_ms) <= self.max_late_ms:
            return result
        self.num_left -= 1
        return None


def undisturbed(plan_of: Callable[[str], RunPlan], *, max_late_ms: float, **server: Any) -> RunResult:
    """The first run in which neither was later than `max_late_ms`, each on its own steady server.

    plan_of: makes the plan for the server's URL. server: arguments of SteadyServer.
    """
    trials = Trials(max_late_ms)
    while True:
        with SteadyServer(**server) as steady:
            if (result := trials.run(steady, plan_of(steady.url))) is not None:
                return result


def undisturbed_runs(server: SteadyServer, *, max_late_ms: float) -> CarryOut:
    """A function that executes plans on one server, each until it is not disturbed."""
    trials = Trials(max_late_ms)

    def carry_out(plan: RunPlan, on_progress: OnProgress | None) -> RunResult:
        while True:
            if (result := trials.run(server, plan, on_progress)) is not None:
                return result

    return carry_out
