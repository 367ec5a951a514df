"""The fixture `kernels` runs a test on standard kernels and on the native kernels of each target."""

from __future__ import annotations

from tests.runtime.conftest import kernels

__all__ = ["kernels"]
