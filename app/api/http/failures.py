"""Counts requests and files that end without a translation, and logs those with status 500."""

from __future__ import annotations

import logging

from app.api.http.error_table import UNEXPECTED, answer_to
from app.errors import ServiceError
from app.observability.logging import log_event
from app.observability.metrics import Metrics

logger = logging.getLogger("app.http")


def count_error(metrics: Metrics, error: Exception, request_id: str) -> None:
    """Count an error by its reason. Log it if its status is 500. Any error but a ServiceError is unexpected."""
    answer = answer_to(error) if isinstance(error, ServiceError) else UNEXPECTED
    metrics.rejected.labels(answer.reason).inc()
    if answer is UNEXPECTED:
        log_event(logger, logging.ERROR, "unexpected_error", error=error, fields={"request_id": request_id})
    elif answer.status == UNEXPECTED.status:
        log_event(
            logger,
            logging.ERROR,
            "request_failed",
            error=error,
            fields={"request_id": request_id, "code": answer.code},
        )
