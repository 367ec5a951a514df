"""The server's limits on one request."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class RequestLimits:
    """The limits that are settings. `app.settings` documents their meanings and defaults."""

    max_body_bytes: int
    max_items: int
    max_item_characters: int
    max_request_characters: int
    max_beam_size: int
    max_num_hypotheses: int
    default_timeout_s: float
    max_timeout_s: float

    @property
    def max_timeout_ms(self) -> int:
        """The largest `timeout_ms`."""
        return int(self.max_timeout_s * 1000)

    @property
    def max_alternatives(self) -> int:
        """The maximum number of translations of a text in addition to the best."""
        return self.max_num_hypotheses - 1
