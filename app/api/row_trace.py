"""POST /admin/trace: records cache rows over time, as Chrome's trace events. ui.perfetto.dev opens the response.

Format: https://docs.google.com/document/d/1CvAClvFfyA5R-PhYUmn5OOQtYMH4h6I0nSsKchNAySU
"""

from __future__ import annotations

import asyncio
import heapq
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response
from typing_extensions import TypedDict

from app.api.admin import TAG, AdminToken
from app.api.http.disconnect import while_connected
from app.api.http.error_table import OrjsonResponse
from app.api.native.answers import ErrorAnswer
from app.api.openapi import Errors, operation
from app.api.service import Service
from app.decoding.validation import check_range
from app.engine.row_recorder import MAX_SPANS, RowSpan
from app.errors import InvalidRequest

Json = dict[str, Any]
DEFAULT_S = 60.0
# The maximum seconds of one recording. If larger, a recording of a busy server reaches MAX_SPANS before it ends. If
# smaller, rare events are missed.
MAX_S = 300.0
ERRORS = Errors(
    ErrorAnswer,
    {
        401: "the administrator's token is missing or wrong",
        422: "`seconds` is not a number, or is outside its limits",
        503: "the server loads, drains or has failed",
    },
)


class TraceAnswer(TypedDict):
    """Chrome's trace events. Their times are microseconds since the beginning of the recording."""

    traceEvents: list[Json]
    otherData: Json


def add_trace_route(router: APIRouter, service: Service, token: AdminToken) -> None:
    """Add the route. It records for the seconds that a request sets, and then responds."""

    @router.post(
        "/admin/trace",
        **operation(
            TAG,
            "Record the rows of sentences over time",
            TraceAnswer,
            errors=ERRORS,
            query={"seconds": (DEFAULT_S, f"how long, at most {MAX_S:g}")},
        ),
    )
    async def trace(request: Request) -> Response:
        token.check(request)
        seconds = _seconds_of(request)
        service.check_open()
        began_at = time.monotonic()
        with service.rows.recording() as spans:
            await service.while_open(while_connected(request, asyncio.sleep(seconds)))
        workers = {worker.number: name for name, worker in service.check_open().workers()}
        return OrjsonResponse(await asyncio.to_thread(trace_events, spans, workers, began_at))


def trace_events(spans: Sequence[RowSpan], models: Mapping[int, str], began_at: float) -> TraceAnswer:
    """The events of recorded sentences: one for each row that a sentence held, and a counter of these rows.

    models: the name of each worker's model. began_at: when the recording began, in seconds of time.monotonic; the part
    of a sentence before that time is cut off. Each worker is a process of the trace, and its rows are threads.

    The rows of the trace are not those of the cache, because the engine moves sentences between rows. A sentence gets
    the lowest rows of the trace that are free when it begins, and keeps them.
    """
    events: list[Json] = []
    for worker in sorted({span.worker for span in spans}):
        worker_spans = sorted(
            (span for span in spans if span.worker == worker), key=lambda span: span.began_at
        )
        name = {"name": f"worker {worker}, {models.get(worker, 'replaced')}"}
        events.append({"ph": "M", "name": "process_name", "pid": worker, "args": name})
        events += _row_events(worker_spans, began_at)
        events += _counter_events(worker_spans, began_at)
    return {
        "traceEvents": events,
        "otherData": {"sentences": len(spans), "is_complete": len(spans) < MAX_SPANS},
    }


def _row_events(spans: Iterable[RowSpan], began_at: float) -> Iterator[Json]:
    """Yield the events of one worker's rows. spans: the worker's sentences in the order in which they begin."""
    free: list[int] = []  # a heap of rows below num_rows
    held: list[tuple[float, tuple[int, ...]]] = []  # a heap of ends, with the rows that become free then
    num_rows = 0
    for span in spans:
        while held and held[0][0] <= span.began_at:
            for row in heapq.heappop(held)[1]:
                heapq.heappush(free, row)
        while len(free) < span.num_rows:
            heapq.heappush(free, num_rows)
            yield {
                "ph": "M",
                "name": "thread_name",
                "pid": span.worker,
                "tid": num_rows,
                "args": {"name": f"row {num_rows}"},
            }
            num_rows += 1
        rows = tuple(heapq.heappop(free) for _ in range(span.num_rows))
        heapq.heappush(held, (span.ended_at, rows))
        start_us = _us(span.began_at, began_at)
        arguments = {
            "request_id": span.request_id,
            "rows": span.num_rows,
            "steps": span.num_steps,
            "source_tokens": span.num_source_tokens,
            "queue_ms": round(1000 * span.queue_s, 3),
            "encode_ms": round(1000 * span.encode_s, 3),
        }
        for row in rows:
            yield {
                "ph": "X",
                "name": f"{span.num_source_tokens} subwords",
                "cat": "sentence",
                "pid": span.worker,
                "tid": row,
                "ts": start_us,
                "dur": _us(span.ended_at, began_at) - start_us,
                "args": arguments,
            }


def _counter_events(spans: Iterable[RowSpan], began_at: float) -> Iterator[Json]:
    """Yield the number of rows that one worker's recorded sentences hold, at each change."""
    changes: dict[int, int] = {}
    worker = 0
    for span in spans:
        worker = span.worker
        for at, change in ((span.began_at, span.num_rows), (span.ended_at, -span.num_rows)):
            time_us = _us(at, began_at)
            changes[time_us] = changes.get(time_us, 0) + change
    in_use = 0
    for time_us, change in sorted(changes.items()):
        in_use += change
        yield {
            "ph": "C",
            "name": "rows of recorded sentences",
            "pid": worker,
            "ts": time_us,
            "args": {"rows": in_use},
        }


def _us(at: float, began_at: float) -> int:
    """Microseconds from the beginning of the recording; 0 for an earlier time."""
    return max(0, round(1e6 * (at - began_at)))


def _seconds_of(request: Request) -> float:
    """The query's `seconds`. Raises InvalidRequest."""
    text = request.query_params.get("seconds", str(DEFAULT_S))
    try:
        seconds = float(text)
    except ValueError:
        raise InvalidRequest("seconds is not a number", field="seconds") from None
    check_range("seconds", seconds, (0.1, MAX_S))
    return seconds
