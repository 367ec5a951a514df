"""The baseline: responses of the idle server. Responses under load are compared with them."""

from __future__ import annotations

import dataclasses

import uvloop

from transduce.loadtest.arrivals import ClosedLoop
from transduce.loadtest.plan import RunPlan
from transduce.loadtest.quality import Expectation, Texts
from transduce.loadtest.runner import observe
from transduce.loadtest.sample import with_example

# Seconds after which the baseline sends no further request. The requests that are left have no baseline.
LIMIT_S = 300.0


class BaselineError(ValueError):
    """The baseline could not be measured, or cannot apply to the workload."""


def baseline_answers(plan: RunPlan, num_requests: int) -> Expectation:
    """Return the responses of the idle server to the workload entries of the run's first requests.

    The requests are sent one after another, each entry once.

    Raises:
        BaselineError: every text of the workload is distinct, or a request failed.
    """
    if plan.workload.is_distinct:
        raise BaselineError("distinct texts cannot be compared with a baseline, because no text occurs twice")
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
    record = uvloop.run(observe(alone))
    for sample in record.samples:
        if sample.response is None:
            ended = with_example(sample.outcome, record.error_examples)
            raise BaselineError(f"a request of the baseline ended as {ended}")
        found[numbers[sample.number]] = sample.response.texts
    return Expectation("answers at rest", found)


def first_numbers(plan: RunPlan, num_requests: int) -> list[int]:
    """The workload entries of the first requests, each entry once. An open loop's warm-up does not count."""
    warm_up = plan.warm_up_arrivals()
    begin = len(warm_up.times_s(plan.seed + 1)) if warm_up else 0
    sequence = plan.workload.sequence(plan.seed)
    sent = [sequence(begin + place).number for place in range(num_requests)]
    return list(dict.fromkeys(sent))
