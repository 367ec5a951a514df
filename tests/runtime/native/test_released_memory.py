"""The weights of models share a mapping. When one model has ended, its memory is the system's again."""

from __future__ import annotations

import os
import sys

import pytest

from tests.runtime.native.processes import run_python

pytestmark = pytest.mark.skipif(
    sys.platform != "linux" or "EMULATED_PYTHON" in os.environ,
    reason="reads the memory of its own process in /proc/self/smaps_rollup",
)


@pytest.mark.seconds
def test_a_model_frees_its_memory_while_another_keeps_the_mapping() -> None:
    status, error = run_python(
        """
        import re
        from pathlib import Path
        from app.runtime.memory import return_memory
        from tests.runtime.native.test_feed_forward import Block

        def used_mb():
            return_memory()
            return int(re.search(r"Anonymous: *([0-9]+)", Path("/proc/self/smaps_rollup").read_text())[1]) / 1000

        kept, large = Block(64, 80).operator(), Block(512, 16384)
        large.operator()
        before = used_mb()
        operator = large.operator()
        loaded = used_mb()
        del operator
        after = used_mb()
        assert loaded - before > 14, f"the packed weights take 16 MB, not {loaded - before}"
        assert after - before < 4, f"{after - before} MB of {loaded - before} are not released"
        """
    )
    assert status == 0, error.decode()
