"""The fixture `kernels` runs a test on standard kernels, and on the native kernels for each kind of CPU."""

from __future__ import annotations

from tests.runtime.conftest import kernels

__all__ = ["kernels"]
