"""Random inputs, and how many of them a fuzz test tries.

`make test` tries a few inputs, the same in every run. `make fuzz` tries other inputs in every run, as many as fit into
FUZZ_SECONDS.
"""

from __future__ import annotations

import os
from collections.abc import Sequence

from hypothesis import strategies as st

# Seconds for each test; None in `make test`.
SECONDS = int(os.environ["FUZZ_SECONDS"]) if "FUZZ_SECONDS" in os.environ else None


def examples(few: int, *, per_s: float) -> int:
    """The number of inputs. few: in `make test`. per_s: inputs that one core checks in a second."""
    return few if SECONDS is None else max(few, int(per_s * SECONDS))


def joined(tokens: Sequence[str], *, max_size: int) -> st.SearchStrategy[bytes]:
    """Some of the tokens, and short random texts between them."""
    parts = st.lists(st.sampled_from(tokens) | st.text(max_size=3), max_size=max_size)
    return parts.map(lambda found: "".join(found).encode(errors="replace"))


@st.composite
def changed(draw: st.DrawFn, data: bytes, tokens: Sequence[str]) -> bytes:
    """Bytes of which one to three short ranges are replaced by tokens. Sometimes the end is cut off."""
    for _ in range(draw(st.integers(1, 3))):
        start = draw(st.integers(0, len(data)))
        end = draw(st.integers(start, min(start + 8, len(data))))
        data = data[:start] + draw(joined(tokens, max_size=4)) + data[end:]
    return data[: draw(st.sampled_from([len(data), len(data), draw(st.integers(0, len(data)))]))]
