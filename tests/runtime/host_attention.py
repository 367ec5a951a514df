"""The operator RowAttention on a CPU: the kernel for GPUs, compiled as C++, in ONNX Runtime's CPU provider."""

from __future__ import annotations

import ctypes
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from app.runtime.native import used_target
from app.runtime.native.cpu import TARGETS
from tests.house_rules.project import ROOT

NATIVE = ROOT / "app" / "runtime" / "native"
# A library with the one operator, and a stand-in for cuLaunchKernel that runs the kernel with HOST_THREADS threads a
# block. HOST_THREADS is a multiple of the number of threads that share a column (cuda/attention.cu).
SOURCE = """
#include "operators.h"
#include "matrix_tiles.h"

namespace transduce {
void release_matrix_tiles() {}
}  // namespace transduce

using Kernel = void (*)(void** arguments, unsigned x, unsigned y, unsigned z, unsigned num_threads);

extern "C" __attribute__((visibility("default"))) int launch(
    void* function, unsigned x, unsigned y, unsigned z, unsigned, unsigned, unsigned, unsigned, void*, void** arguments,
    void**) {
    reinterpret_cast<Kernel>(function)(arguments, x, y, z, HOST_THREADS);
    return 0;
}

extern "C" __attribute__((visibility("default"))) transduce::OrtStatus* RegisterCustomOps(
    transduce::OrtSessionOptions* options, const transduce::OrtApiBase* base) {
    using namespace transduce;
    const OrtApi* api = base->get_api(API_VERSION);
    OrtDomain* domain = nullptr;
    OrtStatus* status = call<OrtStatus*>(api, Function::create_custom_op_domain, "transduce", &domain);
    if (!status) status = register_gpu_attention(api, domain);
    return status ? status : call<OrtStatus*>(api, Function::add_custom_op_domain, options, domain);
}
"""


def operator_library(folder: Path, kernels: Any, *, num_threads: int) -> Path:
    """Compile the library and set its kernel. kernels: the library that `compile_for_host` returns.

    num_threads: the number of threads of a block. Skips the test if there is no C++ compiler, or if the native kernels
    have no target for this processor.
    """
    compiler, target = shutil.which("g++"), used_target()
    if compiler is None or target is None:
        pytest.skip("there is no C++ compiler, or no target for this processor")
    source, library = folder / "operator.cpp", folder / "operator.so"
    source.write_text(SOURCE, "utf-8")
    command = [compiler, "-std=c++17", "-O1", "-fPIC", "-shared", "-fvisibility=hidden", f"-I{NATIVE}"]
    command += [*TARGETS[target].compiler_options, f"-DHOST_THREADS={num_threads}"]
    command += ["-DTRANSDUCE_ATTENTION_PROVIDER=nullptr", "-o", str(library), str(source)]
    sources = [str(NATIVE / name) for name in ("gpu_attention.cpp", "kernel.cpp")]
    subprocess.run([*command, *sources], check=True, timeout=120)
    loaded = ctypes.CDLL(str(library))
    loaded.transduce_set_gpu_attention(loaded.launch, kernels.launch_attend_rows)
    return library
