"""Chooses the kernels of a CPU's graphs: ONNX Runtime's operators (standard) or this project's (native)."""

from __future__ import annotations

import logging
import platform
from typing import Literal

from app.errors import SettingsError
from app.graphs import KernelChoice, Variant
from app.runtime import native
from app.runtime.native import built_targets, is_supported, usable_targets
from app.runtime.native.cpu import TARGETS, supported_targets, targets_for

logger = logging.getLogger(__name__)

Kernels = Literal["native", "standard"]
# The input by which native decoder graphs take several steps in one call. Older graphs lack it.
STEPS_INPUT = "num_steps"
# The instructions that a processor needs for each target, in words.
INSTRUCTIONS = {
    "avx512": "AVX-512 VNNI",
    "avxvnni": "AVX-VNNI",
    "avx2": "AVX2 and FMA",
    "neon": "Arm dot products",
}


def is_native_usable() -> bool:
    """Whether the native kernels are built and this processor can run them."""
    return bool(usable_targets())


def choose_kernels(variant: Variant, wanted: KernelChoice) -> Kernels:
    """The kernels to use. `auto` chooses native kernels if possible, and otherwise logs the reason.

    For native kernels, also selects their target (instruction set) for this process. Raises SettingsError if native
    kernels are required and cannot be used.
    """
    if wanted == "standard":
        return "standard"
    target = wanted if wanted in TARGETS else None
    problem = _problem_with_native(variant, target)
    if problem and wanted != "auto":
        raise SettingsError([f"{wanted} kernels are required, and {problem}"])
    if problem:
        # If the processor is the problem, the user cannot mend it, so the message is no warning.
        level = logging.WARNING if is_supported() else logging.INFO
        logger.log(level, "the faster native kernels are not used: %s", problem)
        return "standard"
    native.select_target(target)
    return "native"


def usable_kernels(variant: Variant) -> tuple[Kernels, ...]:
    """All kernels that can run a variant on this machine. `auto` chooses the last one."""
    return ("standard",) if _problem_with_native(variant) else ("standard", "native")


def _problem_with_native(variant: Variant, target: str | None = None) -> str:
    """Why the native kernels, or those of a target, cannot be used on this machine; empty if they can."""
    if variant.native is None:
        return "the bundle's variant has no native graphs"
    if STEPS_INPUT not in {spec.name for spec in variant.native.decoder.inputs}:
        return "the bundle's native graphs are from an older transduce: export the bundle again"
    needed = target or next(reversed(targets_for(platform.machine())), None)
    if needed is None:
        return f"there are none for {platform.machine()} processors"
    if not is_supported() or (target and target not in supported_targets()):
        return f"this processor has no {INSTRUCTIONS[needed]}"
    is_built = target in built_targets() if target else bool(usable_targets())
    if not is_built:
        # An editable installation has the fastest target only.
        setting = " with NATIVE_KERNELS=all," if usable_targets() else ""
        return f"they are not built: install transduce again{setting} on a machine with a C++ compiler"
    return ""
