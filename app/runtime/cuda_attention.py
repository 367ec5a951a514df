"""Prepares the operator RowAttention, this project's attention for decoder steps on a GPU.

The kernel (`cuda/attention.cu`) is compiled for the GPU at hand. The library of native operators
(`native/gpu_attention.cpp`) launches it in ONNX Runtime's graph.
"""

from __future__ import annotations

import ctypes
import logging
from pathlib import Path

from app.graphs import Variant
from app.runtime import native
from app.runtime.cuda_kernels import Kernels

logger = logging.getLogger(__name__)


def attention_library(variant: Variant, kernels: Kernels | None) -> Path | None:
    """Set the kernel of RowAttention, and return the library of operators that the variant's `gpu_decoder` needs.

    kernels: None if they could not be compiled. Returns None, and logs why, if the operator cannot be used.
    """
    if kernels is None:
        return None  # logged by `load_kernels`
    problem = ""
    if variant.gpu_decoder is None:
        problem = (
            "the bundle has no graph for it, because the model's heads are wider than 128 or their width is not a "
            "multiple of 8, or because an older version exported the bundle (then export it again)"
        )
    elif native.library_path() is None:
        problem = "the native operators are not built, or this processor cannot run them"
    if problem:
        logger.info("the project's attention kernel is not used: %s", problem)
        return None
    launch = ctypes.cast(kernels.driver.cuLaunchKernel, ctypes.c_void_p).value
    assert launch is not None
    native.set_gpu_attention(launch, kernels.address_of("attend_rows"))
    return native.library_path()
