"""The tests of the native kernels are skipped if the kernels are not built or cannot run.

NATIVE_LIBRARY names another build of them to test (`make check-native`).
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from app.runtime import native

if library := os.environ.get("NATIVE_LIBRARY"):
    pytest.MonkeyPatch().setattr(native, "library_path", partial(Path, library))


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    """Start every test with one thread."""
    if native.library_path() is None or not native.is_supported():
        pytest.skip("the native kernels are not built, or this CPU cannot run them")
    native.set_num_threads(1)
    yield
    native.set_num_threads(1)
