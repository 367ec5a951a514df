"""Builds the native kernels. Decides whether the installation may go on without them.

A compile error ends the installation where a compiler is found and the processor can run the kernels. The environment
variable NATIVE_KERNELS=optional turns that error into a warning; the server then runs on ONNX Runtime's operators.
"""

import os
import shutil
import sys
from pathlib import Path
from runpy import run_path

from setuptools import setup
from setuptools.command.build_ext import build_ext
from setuptools.errors import CompileError, LinkError

CPU = Path(__file__).parent / "app" / "runtime" / "native" / "cpu.py"


class BuildNativeKernels(build_ext):
    """build_ext that fails on a compile error only on a machine that can compile and run the kernels."""

    def build_extensions(self) -> None:
        """Build all extensions. A compile error ends the build unless `optional` is True."""
        is_required = self._is_required()
        for extension in self.extensions:
            extension.optional = not is_required
        try:
            super().build_extensions()
        except (CompileError, LinkError):
            print("The native kernels could not be built: the compiler's error is above.", file=sys.stderr)
            print(
                "Set NATIVE_KERNELS=optional to install without them. Translations are then slower.",
                file=sys.stderr,
            )
            raise

    def _is_required(self) -> bool:
        """Whether NATIVE_KERNELS is not `optional`, the processor can run the kernels, and a compiler is found."""
        if os.environ.get("NATIVE_KERNELS") == "optional" or not run_path(str(CPU))["is_supported"]():
            return False
        command = getattr(self.compiler, "compiler_so_cxx", None) or self.compiler.compiler_so
        return shutil.which(command[0]) is not None


setup(cmdclass={"build_ext": BuildNativeKernels})
