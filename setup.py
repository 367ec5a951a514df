"""Builds the native kernels, once for each target of this machine's architecture. A target is an instruction set.

Decides whether the installation may go on without the kernels:

- If a compiler is found and the processor can run the kernels, a compile error ends the installation.
- Otherwise, or with the environment variable NATIVE_KERNELS=optional, a compile error is a warning. The server then
  runs on ONNX Runtime's operators.
- On architectures other than x86-64 and 64-bit Arm, and with NATIVE_KERNELS=none, nothing is compiled, and the wheel
  fits every platform.

A wheel has all targets of the architecture. An editable installation stays on this machine, so it compiles only the
fastest one that the processor can run, unless NATIVE_KERNELS=all asks for all.
"""

import contextlib
import copy
import hashlib
import os
import platform
import shutil
import subprocess
import sys
from pathlib import Path
from runpy import run_path

from setuptools import Distribution, Extension, setup
from setuptools.command.build_ext import build_ext
from setuptools.errors import CompileError, LinkError

FOLDER = Path(__file__).resolve().parent
CPU = run_path(str(FOLDER / "app" / "runtime" / "native" / "cpu.py"))

# The fields of an extension that decide what the compiler makes of it.
OPTIONS = (
    "sources", "include_dirs", "define_macros", "undef_macros", "library_dirs", "libraries", "runtime_library_dirs",
    "extra_objects", "extra_compile_args", "extra_link_args",
)  # fmt: skip


def targets() -> tuple[str, ...]:
    """The targets of a wheel: those of this machine's architecture, or none if NATIVE_KERNELS leaves them out."""
    return () if os.environ.get("NATIVE_KERNELS") == "none" else CPU["targets_for"](platform.machine())


def needed_targets() -> tuple[str, ...]:
    """The targets of an editable installation: the fastest that the processor can run, or all if it can run none."""
    if os.environ.get("NATIVE_KERNELS") == "all":
        return targets()
    supported = CPU["supported_targets"]()
    return tuple(target for target in targets() if target in supported)[:1] or targets()


class Project(Distribution):
    """The distribution: without kernels its wheel is one of pure Python."""

    def has_ext_modules(self) -> bool:
        """Whether an extension is built."""
        return bool(targets()) and bool(super().has_ext_modules())


class BuildNativeKernels(build_ext):
    """build_ext that compiles the kernels for all targets at the same time.

    It fails on a compile error only on a machine that can compile and run the kernels.
    """

    def finalize_options(self) -> None:
        """Replace the extension of pyproject.toml by one for each target."""
        found = self.distribution.ext_modules or []
        if not any(hasattr(extension, "target") for extension in found):
            self.distribution.ext_modules = [
                _for_target(extension, target) for extension in found for target in targets()
            ]
        super().finalize_options()
        self.parallel = self.parallel or True

    def build_extensions(self) -> None:
        """Build all extensions. A compile error ends the build unless `optional` is True."""
        if self.editable_mode:
            self._leave_out_others(needed_targets())
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

    def build_extension(self, extension: Extension) -> None:
        """Build one extension, with its own folder for object files, because all have the same sources.

        An editable installation keeps each library in build/kernels, under a hash of the sources, the options and the
        compiler. So the next virtual environment (`make test` after `make serve`) does not compile the same library
        again.
        """
        own = copy.copy(self)
        own.build_temp = str(Path(self.build_temp) / extension.target)
        if not self.editable_mode or not self._has_compiler():
            super(BuildNativeKernels, own).build_extension(extension)
            return
        library, kept = Path(self.get_ext_fullpath(extension.name)), self._kept(extension)
        with contextlib.suppress(FileNotFoundError):
            if not self.force:
                _copy(kept, library)
                return
        super(BuildNativeKernels, own).build_extension(extension)
        _copy(library, kept)
        for older in set(kept.parent.glob(f"*-{library.name}")) - {kept}:
            older.unlink(missing_ok=True)

    def _leave_out_others(self, chosen: tuple[str, ...]) -> None:
        """Leave out the extensions of other targets that are not compiled yet.

        Removes their libraries, which may be of older sources. So a library that is there is of these sources.
        """
        has_compiler = self._has_compiler()
        found = self.extensions
        self.extensions = [
            extension
            for extension in found
            if extension.target in chosen or (has_compiler and self._kept(extension).exists())
        ]
        for extension in found:
            if extension not in self.extensions:
                (FOLDER / self.get_ext_filename(extension.name)).unlink(missing_ok=True)

    def _kept(self, extension: Extension) -> Path:
        """The library in build/kernels, whether or not it is there."""
        name = Path(self.get_ext_filename(extension.name)).name
        return FOLDER / "build" / "kernels" / f"{self._hash(extension)}-{name}"

    def _hash(self, extension: Extension) -> str:
        """A hash of all that decides what the compiler makes of the extension, except the system's own headers."""
        native = FOLDER / "app" / "runtime" / "native"
        sources = sorted([*native.glob("*.cpp"), *native.glob("*.h")])
        linker = getattr(self.compiler, "linker_so_cxx", None) or self.compiler.linker_so
        version = subprocess.run(
            [*self._compiler_command(), "--version"], capture_output=True, text=True, check=False
        )
        parts = [
            repr((self._compiler_command(), linker, self.debug, [vars(extension)[name] for name in OPTIONS])),
            repr([os.environ.get(name) for name in ("CPATH", "CPLUS_INCLUDE_PATH", "LIBRARY_PATH")]),
            version.stdout,
            *(path.read_text("utf-8") for path in sources),
        ]
        return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:16]

    def _compiler_command(self) -> list[str]:
        return getattr(self.compiler, "compiler_so_cxx", None) or self.compiler.compiler_so

    def _has_compiler(self) -> bool:
        return shutil.which(self._compiler_command()[0]) is not None

    def _is_required(self) -> bool:
        """Whether NATIVE_KERNELS is not `optional`, the processor can run the kernels, and a compiler is found."""
        if os.environ.get("NATIVE_KERNELS") == "optional" or not CPU["is_supported"]():
            return False
        return self._has_compiler()


def _for_target(extension: Extension, target: str) -> Extension:
    own = copy.copy(extension)
    own.target = target
    own.name = f"{extension.name}_{target}"
    own.extra_compile_args = [*extension.extra_compile_args, *CPU["TARGETS"][target].compiler_options]
    return own


def _copy(source: Path, target: Path) -> None:
    """Copy a file, so that the target is complete at each moment, also if several processes write it."""
    target.parent.mkdir(parents=True, exist_ok=True)
    temporary = target.with_name(f"{target.name}.{os.getpid()}.tmp")
    shutil.copy(source, temporary)
    temporary.replace(target)


setup(cmdclass={"build_ext": BuildNativeKernels}, distclass=Project)
