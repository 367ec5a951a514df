"""Runs that tell of the tester and the server alone: on a busy machine either may have to wait for a core, and a figure
of such a run says nothing. Both know by how much they were late."""

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
    """How often a disturbed run may still be repeated; after that the test is skipped."""

    def __init__(self, max_late_ms: float) -> None:
        self.max_late_ms = max_late_ms
        self.num_left = NUM_TRIALS

    def run(
        self, server: SteadyServer, plan: RunPlan, on_progress: OnProgress | None = None
    ) -> RunResult | None:
        """One run; None where the tester or the server was late by more than `max_late_ms`."""
        if not self.num_left:
            pytest.skip(
                f"in {NUM_TRIALS} runs this machine let a process wait for over {self.max_late_ms} ms"
            )
        server.late_ms()
        result = run(plan, on_progress)
        # The loop's probe sees nothing of what holds up the first request; the lag does.
        lags_ms = [lag.max_ms for lag in (result.loop_lag, result.lag) if lag is not None]
        if max(server.late_ms(), *lags_ms) <= self.max_late_ms:
            return result
        self.num_left -= 1
        return None


def undisturbed(plan_of: Callable[[str], RunPlan], *, max_late_ms: float, **server: Any) -> RunResult:
    """The first run in which neither was later than that, each on a steady server of its own.

    plan_of: makes the plan of the server's URL. server: what a SteadyServer is made of.
    """
    trials = Trials(max_late_ms)
    while True:
        with SteadyServer(**server) as steady:
            if (result := trials.run(steady, plan_of(steady.url))) is not None:
                return result


def undisturbed_runs(server: SteadyServer, *, max_late_ms: float) -> CarryOut:
    """Carries out plans one after another, all on one server, and each until it was not disturbed."""
    trials = Trials(max_late_ms)

    def carry_out(plan: RunPlan, on_progress: OnProgress | None) -> RunResult:
        while True:
            if (result := trials.run(server, plan, on_progress)) is not None:
                return result

    return carry_out
