"""Simulates one server by events, with the engine's own rules and measured times.

The engine's scheduler admits sentences, its placement chooses the worker, and its call length decides how many steps a
call takes. Only the times are not real: those of a step and of the encoder come from `Costs`. A request occupies the
event loop twice, before and after the engine, each time for half of `Costs.request_s`. A request has one sentence. A
sentence that is longer than the model takes is halved until its parts fit. All requests are of one caller.
"""

from __future__ import annotations

import functools
import heapq
import itertools
import math
import random
from collections.abc import Callable, Iterator, Sequence
from typing import cast

import numpy as np

from app.decoding.options import DecodingOptions
from app.decoding.search import Search
from app.engine.call_length import CallLength
from app.engine.placement import Placement
from app.engine.scheduler import Scheduler
from app.engine.sequence import Sequence as Sentence
from app.engine.worker import Worker
from app.runtime.stop_condition import StopCondition, WakeFlag
from transduce.sizing.costs import MAX_ENCODE_TOKENS, Costs

CALLER = "one"
MAX_STEPS = 1 << 20  # of a call: in practice no limit
Event = Callable[[float], None]


class Clock:
    """Events in the order of their times."""

    def __init__(self) -> None:
        self._events: list[tuple[float, int, Event]] = []
        self._numbers = itertools.count()

    def at(self, time_s: float, event: Event) -> None:
        """Call `event` at this time, with the time."""
        heapq.heappush(self._events, (time_s, next(self._numbers), event))

    def run(self) -> None:
        """Call all events, including those that events add."""
        while self._events:
            time_s, _, event = heapq.heappop(self._events)
            event(time_s)


class SimulatedWorker:
    """The loop of app/engine/core.py: admit, encode, decode for some steps, end what is done."""

    def __init__(self, costs: Costs, clock: Clock, on_end: Callable[[Sentence, float], None]) -> None:
        """on_end: called when a sentence is decoded, with the time."""
        self._clock, self._on_end = clock, on_end
        # A worker has few numbers of rows, and asks for the same times again in each call.
        self._step_s, self._encode_s = functools.cache(costs.step_s), functools.cache(costs.encode_s)
        # If the model takes longer sentences, assume a setting of the server that admits them.
        max_encode_tokens = max(MAX_ENCODE_TOKENS, costs.max_source_length)
        self._scheduler = Scheduler(costs.max_rows, max_encode_tokens, num_kept_rows=costs.num_kept_rows)
        self._call_length = CallLength(MAX_STEPS, WakeFlag())
        self._arrived: list[Sentence] = []
        self._steps_left: dict[Sentence, int] = {}
        self._call = 0  # the number of the call under way
        self._is_busy = False
        self._decodes_from_s = 0.0
        self._spans: list[tuple[int, float]] = []  # the call's steps: how many, and the time of each
        self._num_steps, self._stop = 0, StopCondition()

    def put(self, sentence: Sentence, num_steps: int, now_s: float) -> None:
        """Submit a sentence that takes this many decoder steps."""
        self._arrived.append(sentence)
        self._steps_left[sentence] = num_steps
        if not self._is_busy:
            self._begin(now_s)
        elif self._stop.wake_flag is not None:
            self._end_after(max(1, self._stop.min_steps, self._num_begun(now_s - self._decodes_from_s)))

    def _begin(self, now_s: float) -> None:
        """Begin a call, or become idle."""
        scheduler = self._scheduler
        for sentence in self._arrived:
            scheduler.add(sentence)
        self._arrived.clear()
        self._is_busy = scheduler.has_work
        if not self._is_busy:
            return
        admitted, _ = scheduler.schedule(now_s)
        running = [(self._steps_left[each], each.num_reserved_rows) for each in scheduler.running]
        num_rows = sum(rows for _, rows in running)
        self._spans = self._spans_of(running)
        num_subwords = sum(len(sentence.source_ids) for sentence in admitted)
        self._decodes_from_s = now_s + num_subwords * self._encode_s(num_rows)
        max_steps, self._stop = self._call_length.choose(
            num_rows,
            admits_next=scheduler.stopped_at_budget,
            has_waiting=bool(scheduler.num_waiting),
            is_full=scheduler.row_allocator.is_full,
            is_streaming=False,
            pause_s=None,
        )
        self._num_rows, self._call = num_rows, self._call + 1
        self._num_steps = MAX_STEPS
        steps = [left for left, _ in running]
        self._end_after(min(max_steps, max(steps), min(steps) + self._stop.steps_after_end))

    def _spans_of(self, running: Sequence[tuple[int, int]]) -> list[tuple[int, float]]:
        """The steps of a call, as pairs: how many, and the seconds of each.

        running: steps left and rows of each sentence. A sentence costs nothing after its end.
        """
        num_rows, begin, spans = sum(rows for _, rows in running), 0, list[tuple[int, float]]()
        for end, rows in sorted(running):
            if end > begin:
                spans.append((end - begin, self._step_s(num_rows)))
            begin, num_rows = end, num_rows - rows
        return spans

    def _duration_s(self, num_steps: int) -> float:
        """Seconds of the first `num_steps` steps of the call."""
        found = 0.0
        for steps, step_s in self._spans:
            found += min(steps, num_steps) * step_s
            num_steps -= min(steps, num_steps)
        return found

    def _num_begun(self, elapsed_s: float) -> int:
        """Steps of the call that have begun `elapsed_s` seconds after the first of them."""
        begun = 0
        for steps, step_s in self._spans:
            if elapsed_s <= steps * step_s:
                return begun + math.ceil(elapsed_s / step_s)
            elapsed_s, begun = elapsed_s - steps * step_s, begun + steps
        return begun

    def _end_after(self, num_steps: int) -> None:
        """End the call under way after this many steps, unless it ends earlier."""
        if num_steps >= self._num_steps:
            return
        self._num_steps, call = num_steps, self._call
        self._clock.at(
            self._decodes_from_s + self._duration_s(num_steps),
            lambda now_s: self._end(now_s) if (call, num_steps) == (self._call, self._num_steps) else None,
        )

    def _end(self, now_s: float) -> None:
        self._call_length.record(self._duration_s(self._num_steps), self._num_steps, self._num_rows)
        for sentence in list(self._scheduler.running):
            self._steps_left[sentence] -= self._num_steps
            if self._steps_left[sentence] <= 0:
                del self._steps_left[sentence]
                self._scheduler.end(sentence)
                self._on_end(sentence, now_s)
        self._begin(now_s)


class SimulatedServer:
    """One server: the event loop, the placement and the workers."""

    def __init__(self, costs: Costs, clock: Clock) -> None:
        self._costs, self._clock = costs, clock
        self._options = DecodingOptions(beam_size=costs.beam_size)
        self._placement = Placement()
        self._workers = [SimulatedWorker(costs, clock, self._decoded) for _ in range(costs.num_workers)]
        for worker in self._workers:
            self._placement.add_worker(cast(Worker, worker))
        # For each part of a request: its worker, and an iterator that all parts of the request share. A part that ends
        # takes the iterator's next item: None, or for the part that ends last, the event to call.
        self._owners: dict[Sentence, tuple[SimulatedWorker, Iterator[Event | None]]] = {}
        # A request needs an id of its own, because the scheduler lets the requests of a caller take turns.
        self._request_numbers = itertools.count()
        self._loop_free_at_s = -math.inf

    def request(self, num_subwords: int, now_s: float, on_answer: Event) -> None:
        """Send a request. on_answer: called with the time of its answer."""
        self._on_event_loop(now_s, lambda at_s: self._submit(num_subwords, at_s, on_answer))

    def _on_event_loop(self, now_s: float, event: Event) -> None:
        self._loop_free_at_s = max(self._loop_free_at_s, now_s) + self._costs.request_s / 2
        self._clock.at(self._loop_free_at_s, event)

    def _submit(self, num_subwords: int, now_s: float, on_answer: Event) -> None:
        num_parts = 1
        while num_subwords > num_parts * self._costs.max_source_length:
            num_parts *= 2
        length = math.ceil(num_subwords / num_parts)
        request_id = str(next(self._request_numbers))
        on_ends = iter([*[None] * (num_parts - 1), on_answer])
        for _ in range(num_parts):
            sentence = Sentence(
                source_ids=np.zeros(length, np.int32),
                options=self._options,
                request_id=request_id,
                caller=CALLER,
                deadline=math.inf,
                submitted_at=now_s,
                search=cast(Search, None),  # the scheduler does not read it
            )
            worker = cast(SimulatedWorker, self._placement.choose())
            self._placement.add(cast(Worker, worker), CALLER, self._costs.beam_size)
            self._owners[sentence] = worker, on_ends
            worker.put(sentence, max(1, round(length * self._costs.steps_per_subword)), now_s)

    def _decoded(self, sentence: Sentence, now_s: float) -> None:
        worker, on_ends = self._owners.pop(sentence)
        self._placement.remove(cast(Worker, worker), CALLER, self._costs.beam_size)
        on_answer = next(on_ends)
        if on_answer is not None:
            self._on_event_loop(now_s, on_answer)


def latencies_s(costs: Costs, lengths: Sequence[int], times_s: Sequence[float]) -> list[float]:
    """Seconds of each request, in the order of the answers. Requests before time 0 are a warm-up, left out.

    lengths: in subwords, of one sentence in each request. times_s: when the requests arrive, ascending.
    """
    clock, found = Clock(), list[float]()
    server = SimulatedServer(costs, clock)

    def send(length: int) -> Event:
        def sent(now_s: float) -> None:
            server.request(
                length, now_s, lambda answered_s: found.append(answered_s - now_s) if now_s >= 0 else None
            )

        return sent

    for length, at_s in zip(lengths, times_s, strict=True):
        clock.at(at_s, send(length))
    clock.run()
    return found


def poisson_times_s(number: int, *, rate: float, seed: int = 1) -> list[float]:
    """Random arrival times of `number` requests. rate: requests a second. Raises ValueError if it is not above 0."""
    if not rate > 0:
        raise ValueError(f"the rate must be above 0, and is {rate}")
    draw = random.Random(seed)
    return list(itertools.accumulate(draw.expovariate(rate) for _ in range(number)))


def saturated_rate(costs: Costs, lengths: Sequence[int], *, num_clients: int) -> float:
    """Answers a second if each client sends its next request when it has an answer. Each length is sent once."""
    clock = Clock()
    server = SimulatedServer(costs, clock)
    left: Iterator[int] = iter(lengths)
    answered: list[float] = []

    def send(now_s: float) -> None:
        length = next(left, None)
        if length is not None:
            server.request(length, now_s, end)

    def end(now_s: float) -> None:
        answered.append(now_s)
        send(now_s)

    for _ in range(num_clients):
        clock.at(0.0, send)
    clock.run()
    # Leave out the start, in which the rows fill, and the end, at which not all clients have a further request.
    first = len(answered) // 5
    return (len(answered) - 1 - first - num_clients) / (answered[-1 - num_clients] - answered[first])
