"""The error of a file that cannot be written to the temporary folder."""

from __future__ import annotations

import errno
import logging

from app.errors import NotReady
from app.observability.logging import log_event

logger = logging.getLogger("app.files")
# Seconds after which a caller may retry. If longer, callers wait longer than necessary once there is room. If shorter,
# they send files again while the disk is still full.
RETRY_AFTER_S = 10.0


def storage_failure(error: OSError) -> NotReady:
    """Log why a file cannot be written, and return the error for its caller."""
    problem = errno.errorcode.get(error.errno or 0, type(error).__name__)
    log_event(logger, logging.ERROR, "file_store_failed", fields={"problem": problem})
    if error.errno in {errno.ENOSPC, errno.EDQUOT}:
        return NotReady("no room is left on the disk for files", retry_after_s=RETRY_AFTER_S)
    return NotReady(f"files cannot be stored now ({problem})", retry_after_s=RETRY_AFTER_S)
