"""Chooses the device and the bundle's variant without loading ONNX Runtime. session.py probes a possible GPU."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Literal

from app.errors import BundleError
from app.graphs import Precision
from app.runtime.machine import has_cuda_provider

if TYPE_CHECKING:
    from app.bundle import Bundle

logger = logging.getLogger(__name__)

Device = Literal["cpu", "cuda"]
# The name of ONNX Runtime's execution provider for each device.
PROVIDERS: dict[Device, str] = {"cpu": "CPUExecutionProvider", "cuda": "CUDAExecutionProvider"}
# The variants that `auto` may choose on each device, best first.
PREFERRED: dict[Device, tuple[Precision, ...]] = {"cpu": ("int8", "fp32", "fp16"), "cuda": ("fp16",)}
NO_PROVIDER = (
    "the installed onnxruntime has no CUDA provider: pip uninstall onnxruntime, then pip install -e '.[gpu]' "
    "in the checkout"
)


def known_device(wanted: Literal["auto", "cpu", "cuda"]) -> Device | None:
    """The CPU if it is wanted or no GPU is possible; None if `app.runtime.session.choose_device` must look for one."""
    if wanted == "cuda" or (wanted == "auto" and has_cuda_provider()):
        return None
    log_device("cpu", wanted, "" if wanted == "cpu" else NO_PROVIDER)
    return "cpu"


def log_device(device: Device, wanted: str, problem: str) -> None:
    """Log the chosen device. problem: why no GPU is used; empty for none."""
    logger.info("running on %s (requested: %s%s)", device, wanted, f"; {problem}" if problem else "")


def choose_precision(bundle: Bundle, device: Device, wanted: Precision | Literal["auto"]) -> Precision:
    """The variant to load. Raises BundleError, naming the variants that exist, if none fits."""
    variants = bundle.manifest.variants
    candidates = PREFERRED[device] if wanted == "auto" else (wanted,)
    for precision in candidates:
        if precision in variants:
            return precision
    names = " or ".join(candidates)
    problem = f"no {names} variant for device {device}: the bundle has {', '.join(sorted(variants))}"
    raise BundleError(bundle.path.name, [problem])
