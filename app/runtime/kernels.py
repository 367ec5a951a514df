"""Chooses the kernels of a CPU's graphs: ONNX Runtime's operators (standard) or this project's (native)."""

from __future__ import annotations

import logging
from typing import Literal

from app.errors import SettingsError
from app.graphs import Variant
from app.runtime.native import is_supported, library_path

logger = logging.getLogger(__name__)

Kernels = Literal["native", "standard"]
# The input by which native decoder graphs take several steps in one call. Older graphs lack it.
STEPS_INPUT = "num_steps"


def is_native_usable() -> bool:
    """Whether the native kernels are built and this processor can run them."""
    return library_path() is not None and is_supported()


def choose_kernels(variant: Variant, wanted: Literal["auto", "native", "standard"]) -> Kernels:
    """The kernels to use. `auto` chooses native kernels if possible, and otherwise logs the reason.

    Raises SettingsError if native kernels are required and cannot be used.
    """
    if wanted == "standard":
        return "standard"
    problem = _problem_with_native(variant)
    if problem and wanted == "native":
        raise SettingsError([f"native kernels are required, and {problem}"])
    if problem:
        # If the processor is the problem, the user cannot mend it, so the message is no warning.
        level = logging.WARNING if is_supported() else logging.INFO
        logger.log(level, "the faster native kernels are not used: %s", problem)
        return "standard"
    return "native"


def usable_kernels(variant: Variant) -> tuple[Kernels, ...]:
    """All kernels that can run a variant on this machine. `auto` chooses the last one."""
    return ("standard",) if _problem_with_native(variant) else ("standard", "native")


def _problem_with_native(variant: Variant) -> str:
    """Why the native kernels cannot be used on this machine; empty if they can."""
    if variant.native is None:
        return "the bundle's variant has no native graphs"
    if STEPS_INPUT not in {spec.name for spec in variant.native.decoder.inputs}:
        return "the bundle's native graphs are from an older transduce: export the bundle again"
    if library_path() is None:
        return "they are not built: install transduce again on a machine with a C++ compiler"
    if not is_supported():
        return "this processor has no AVX-512 VNNI"
    return ""
