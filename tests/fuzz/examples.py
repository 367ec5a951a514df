"""How many inputs each fuzz test tries: few in `make test`, and as many as fit FUZZ_SECONDS in `make fuzz`."""

from __future__ import annotations

import os

# Seconds for each test; None in `make test`.
SECONDS = int(os.environ["FUZZ_SECONDS"]) if "FUZZ_SECONDS" in os.environ else None


def examples(few: int, *, per_s: float) -> int:
    """The number of inputs. few: in `make test`. per_s: inputs that one core checks in a second."""
    return few if SECONDS is None else max(few, int(per_s * SECONDS))
