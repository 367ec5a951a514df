"""Which kernels a CPU's graphs run on: ONNX Runtime's own operators, or the native ones where they can be used."""

from __future__ import annotations

import logging
from typing import Literal

from app.errors import SettingsError
from app.graphs import Variant
from app.runtime.native import is_supported, library_path

logger = logging.getLogger(__name__)

Kernels = Literal["native", "standard"]
# What a decoder of native kernels has that takes several steps in one call.
STEPS_INPUT = "num_steps"


def is_native_usable() -> bool:
    """Whether the native kernels were built and this processor can run them."""
    return library_path() is not None and is_supported()


def choose_kernels(variant: Variant, wanted: Literal["auto", "native", "standard"]) -> Kernels:
    """`auto` is native where nothing stands against it; else it is said why not.

    Raises SettingsError where native is asked for in vain.
    """
    if wanted == "standard":
        return "standard"
    problem = _problem_with_native(variant)
    if problem and wanted == "native":
        raise SettingsError([f"kernels native was asked for, and {problem}"])
    if problem:
        # Of a processor nobody can be warned.
        level = logging.WARNING if is_supported() else logging.INFO
        logger.log(level, "the native kernels, which are quicker, are not used: %s", problem)
        return "standard"
    return "native"


def usable_kernels(variant: Variant) -> tuple[Kernels, ...]:
    """All that a variant's graphs can run on here; `auto` takes the last."""
    return ("standard",) if _problem_with_native(variant) else ("standard", "native")


def _problem_with_native(variant: Variant) -> str:
    """Why the native kernels cannot be used here; empty where they can."""
    if variant.native is None:
        return "the bundle's variant has no graphs for them"
    if STEPS_INPUT not in {spec.name for spec in variant.native.decoder.inputs}:
        return "the bundle's graphs for them are of an older transduce: export it again"
    if library_path() is None:
        return "they were not built: install transduce again where there is a C++ compiler"
    if not is_supported():
        return "this processor has no AVX-512 VNNI"
    return ""
