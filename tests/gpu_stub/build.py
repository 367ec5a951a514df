"""Builds the stand-ins for CUDA's libraries, over which ONNX Runtime's CUDA provider runs on a machine without a GPU.

Each library exports all functions that the provider needs from it. Those that its C file does not define return 0.
"""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

SOURCES = Path(__file__).parent
GCC = ("gcc", "-O1", "-fPIC", "-shared", "-Wall", "-Werror")
RUNTIME, CUDNN = "libcudart.so.13", "libcudnn.so.9"
CUDNN_NAME = rb"\0(cudnn[A-Z]\w+)(?=\0)"
# The C file of each library that the provider or the server loads. None: all its functions return 0.
LIBRARIES = {
    RUNTIME: "cudart.c",
    "libcublas.so.13": "cublas.c",
    "libcublasLt.so.13": "cublaslt.c",
    "libcurand.so.10": None,
    CUDNN: "cudnn.c",
    "libcuda.so.1": "driver.c",
    "libnvrtc.so.13": "nvrtc.c",
}


def build(folder: Path, *, provider: Path, headers: Path) -> None:
    """Compile the libraries to a folder. All of them write the trace through the runtime library.

    provider: libonnxruntime_providers_cuda.so. headers: the folder of cuda_runtime_api.h, version 13. Raises
    CalledProcessError with the compiler's message.
    """
    symbols = run("nm", "-D", "--undefined-only", provider)
    # The provider finds cuDNN's functions by their names while it runs.
    symbols += "".join(
        f" U {name.decode()}@{CUDNN}\n" for name in re.findall(CUDNN_NAME, provider.read_bytes())
    )
    for library, source in LIBRARIES.items():
        own = [] if source is None else [SOURCES / source]
        rest = folder / f"{library}.c"
        rest.write_text(returning_zero(needed(symbols, library)), "utf-8")
        versions = folder / f"{library}.map"
        versions.write_text(f"{library} {{ global: *; }};\n", "utf-8")
        command: list[str | Path] = [*GCC, f"-I{SOURCES}", f"-I{headers}"]
        command += ["-o", folder / library, *own, rest]
        command += [f"-Wl,-soname,{library}", f"-Wl,--version-script={versions}"]
        run(*command, *([] if library == RUNTIME else [folder / RUNTIME]))


def needed(symbols: str, library: str) -> set[str]:
    """Names of the functions that the provider takes from a library. symbols: the output of nm."""
    return set(re.findall(rf" U (\w+)@+{re.escape(library)}$", symbols, re.MULTILINE))


def returning_zero(names: set[str]) -> str:
    """C source of functions that return 0. A library's own C file overrides them."""
    return "".join(f"__attribute__((weak)) int {name}(void) {{ return 0; }}\n" for name in sorted(names))


def run(*command: str | Path) -> str:
    """The standard output of a command. Raises CalledProcessError with its standard error as a note."""
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    if done.returncode:
        error = subprocess.CalledProcessError(done.returncode, command)
        error.add_note(done.stderr)
        raise error
    return done.stdout
