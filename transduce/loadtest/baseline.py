"""The answers of a server at rest, to hold those under load against."""

from __future__ import annotations

import dataclasses

import uvloop

from transduce.loadtest.arrivals import ClosedLoop
from transduce.loadtest.plan import RunPlan
from transduce.loadtest.quality import Expectation, Texts
from transduce.loadtest.runner import observe

LIMIT_S = 300.0


class BaselineError(ValueError):
    """The answers at rest did not come, or could never come again."""


def baseline_answers(plan: RunPlan, num_requests: int) -> Expectation:
    """Ask the first requests that the plan's own time begins with, one after another, by one client.

    Raises:
        BaselineError: the workload makes every text distinct, or a request failed.
    """
    if plan.workload.is_distinct:
        raise BaselineError("texts that are all distinct cannot be compared with answers at rest")
    numbers = first_numbers(plan, num_requests)
    alone = dataclasses.replace(
        plan,
        workload=dataclasses.replace(
            plan.workload,
            requests=tuple(plan.workload.requests[number] for number in numbers),
            disconnect_share=0.0,
            references=None,
        ),
        load=ClosedLoop(1, LIMIT_S, num_requests=len(numbers)),
        warm_up_s=0.0,
        keeps_texts=True,
    )
    found: dict[int, Texts] = {}
    for sample in uvloop.run(observe(alone)).samples:
        if sample.response is None:
            raise BaselineError(f"at rest a request ended as {sample.outcome}")
        found[numbers[sample.number]] = sample.response.texts
    return Expectation("answers at rest", found)


def first_numbers(plan: RunPlan, num_requests: int) -> list[int]:
    """Which entries of the workload are sent first once the warm-up is over, each once."""
    warm_up = plan.warm_up_arrivals()
    begin = len(warm_up.times_s(plan.seed + 1)) if warm_up else 0
    sequence = plan.workload.sequence(plan.seed)
    sent = [sequence(begin + place).number for place in range(num_requests)]
    return list(dict.fromkeys(sent))
