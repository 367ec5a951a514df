"""Traces of requests in OpenTelemetry's form, exported by OTLP over HTTP. FastAPI makes the span of each request.

The span of a translation has a child for each phase of its work. No span holds a text, a path or a query: a path can
contain the secret name of a translated file, a query can contain a text. OpenTelemetry's SDK is imported only for a
server with tracing.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import os
import random
import re
import time
from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fastapi.telemetry import TelemetryConfig

OFF: TelemetryConfig = {"tracing": False, "metrics": False, "logs": False}
# Attributes of FastAPI's spans that may hold a file's secret name or a text.
_SECRET_ATTRIBUTES = ("url.path", "url.query")
HIDDEN = "hidden"
# Seconds in which the last spans are exported at the end of the server. If longer, a receiver that does not answer
# delays the end by more.
CLOSE_TIMEOUT_S = 2.0


# A traceparent (W3C Trace Context, section 3.2). Ids of zeros are not valid. Only versions above 00 may add fields.
_IDS_AND_FLAGS = rb"(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}"
_PARENT = re.compile(rb"00-%b|(?!00|ff)[0-9a-f]{2}-%b(?:-.*)?" % (_IDS_AND_FLAGS, _IDS_AND_FLAGS))


def _is_valid(parent: bytes) -> bool:
    return _PARENT.fullmatch(parent) is not None


class Tracing:
    """Makes and exports the spans of one server. The spans are exported in batches, on a thread of the SDK.

    telemetry: FastAPI's argument of this name.
    """

    def __init__(self, endpoint: str, *, share: float, untraced: Collection[str]) -> None:
        """endpoint: the receiver's URL, which usually ends with /v1/traces. untraced: paths without spans.

        share: probability that a request without a valid `traceparent` header is traced, 0-1. A request with this
        header is traced if its sender traces it.
        """
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
        from opentelemetry.sdk.resources import SERVICE_NAME, Resource
        from opentelemetry.sdk.trace import SpanProcessor, TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor

        class Hider(SpanProcessor):
            def on_start(self, span: Any, parent_context: object = None) -> None:
                for name in _SECRET_ATTRIBUTES:
                    if name in span.attributes:
                        span.set_attribute(name, HIDDEN)

        resource = Resource.create({SERVICE_NAME: os.environ.get("OTEL_SERVICE_NAME") or "transduce"})
        self._provider = TracerProvider(resource=resource, shutdown_on_exit=False)
        self._provider.add_span_processor(Hider())
        self._provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter(endpoint=endpoint)))
        self._tracer = self._provider.get_tracer("transduce")
        self._share = share
        self._untraced = frozenset(untraced)
        self.telemetry: TelemetryConfig = {
            "tracer_provider": self._provider,
            "metrics": False,
            "logs": False,
            "operation_spans": False,
            "exclude": self._is_excluded,
        }

    def _is_excluded(self, scope: Mapping[str, Any]) -> bool:
        """Whether a request has no span. The sampler decides on requests with a valid traceparent."""
        if scope["path"] in self._untraced:
            return True
        parents = [value for name, value in scope["headers"] if name == b"traceparent"]
        if len(parents) == 1 and _is_valid(parents[0]):
            return False
        return random.random() >= self._share

    def add_work(
        self,
        phases: Mapping[str, float],
        attributes: Mapping[str, str | int],
        *,
        decoding: Mapping[str, int],
    ) -> None:
        """Add attributes to the current request's span, and a child span for each phase. The last phase ends now.

        phases: milliseconds by name, in order. The span `admission` is the time before the first phase. If sentences
        were decoded in parallel, each phase has the time of the slowest sentence. The phases together may then be
        longer than the request. A phase that would begin before the request is cut off at the beginning of the request.
        decoding: attributes of the span of the phase `decode`.
        """
        from opentelemetry import trace

        span: Any = trace.get_current_span()
        if not span.is_recording():
            return
        span.set_attributes(attributes)
        bounds = [time.time_ns()]
        for duration_ms in reversed(list(phases.values())):
            bounds.append(max(span.start_time, bounds[-1] - round(1e6 * duration_ms)))
        bounds.append(span.start_time)
        bounds.reverse()
        for name, (start, end) in zip(("admission", *phases), itertools.pairwise(bounds), strict=True):
            found = decoding if name == "decode" else None
            self._tracer.start_span(name, start_time=start, attributes=found).end(end)

    def trace_id(self) -> str | None:
        """The id of the current request's trace in hexadecimal; None if the trace is not exported."""
        from opentelemetry import trace

        context = trace.get_current_span().get_span_context()
        return trace.format_trace_id(context.trace_id) if context.trace_flags.sampled else None

    async def close(self) -> None:
        """Export the last spans and end the thread, within CLOSE_TIMEOUT_S."""
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(asyncio.to_thread(self._provider.shutdown), CLOSE_TIMEOUT_S)
