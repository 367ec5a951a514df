"""Chooses the precision of training's matrix products."""

from __future__ import annotations

from typing import Literal

import torch

# Names in `torch.cpu.get_capabilities()`: AVX-512, tile registers and Arm's instructions for bfloat16.
_BF16_INSTRUCTIONS = ("avx512_bf16", "amx_bf16", "bf16", "sve_bf16")


def resolve_precision(
    precision: Literal["auto", "bf16", "fp32"], device: torch.device
) -> Literal["bf16", "fp32"]:
    """Return the precision, or for "auto" the faster one on this device: bf16 if it has instructions for bf16."""
    if precision != "auto":
        return precision
    if device.type == "cuda":
        return "bf16" if torch.cuda.is_bf16_supported(including_emulation=False) else "fp32"
    capabilities = torch.cpu.get_capabilities()
    return "bf16" if any(capabilities.get(name) for name in _BF16_INSTRUCTIONS) else "fp32"
