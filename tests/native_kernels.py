"""The mark of tests that need the native kernels."""

from __future__ import annotations

import pytest

from app.runtime.kernels import is_native_usable

NEEDS_NATIVE = pytest.mark.skipif(not is_native_usable(), reason="no native kernels here")
