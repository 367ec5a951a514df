"""Tells which builds of the native kernels a processor can run. Imports only the standard library, for setup.py."""

from __future__ import annotations

import platform
import sys
from pathlib import Path
from typing import NamedTuple


class Target(NamedTuple):
    """One build of the kernels.

    machine: the architecture, by Linux's name. compiler_options: the options that select the instruction set.
    needed_flags: the flags in /proc/cpuinfo of every instruction that the compiler may use with these options.
    """

    machine: str
    compiler_options: tuple[str, ...]
    needed_flags: frozenset[str]


# Linux lists a flag only if programs may use the instructions. Flags that every 64-bit processor has are left out.
X86_64_V2 = frozenset({"cx16", "lahf_lm", "popcnt", "pni", "ssse3", "sse4_1", "sse4_2"})
X86_64_V3 = X86_64_V2 | {"avx", "avx2", "bmi1", "bmi2", "f16c", "fma", "abm", "movbe", "xsave"}
X86_64_V4 = X86_64_V3 | {"avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl"}
ARMV8_2 = frozenset({"asimdrdm", "atomics", "crc32"})
# By name, the fastest of each architecture first.
TARGETS = {
    "avx512": Target("x86_64", ("-march=x86-64-v4", "-mavx512vnni"), X86_64_V4 | {"avx512_vnni"}),
    "avxvnni": Target("x86_64", ("-march=x86-64-v3", "-mavxvnni"), X86_64_V3 | {"avx_vnni"}),
    "avx2": Target("x86_64", ("-march=x86-64-v3",), X86_64_V3),
    "neon": Target("aarch64", ("-march=armv8.2-a+dotprod",), ARMV8_2 | {"asimddp"}),
}
# Linux's names of architectures that other systems call otherwise.
LINUX_NAMES = {"AMD64": "x86_64", "arm64": "aarch64"}
CPU_INFO = Path("/proc/cpuinfo")


def targets_for(machine: str) -> tuple[str, ...]:
    """Return the names of the targets of an architecture, the fastest first.

    machine: the architecture, as platform.machine() names it.
    """
    name = LINUX_NAMES.get(machine, machine)
    return tuple(target for target in TARGETS if TARGETS[target].machine == name)


def supported_targets(cpu_info: Path = CPU_INFO) -> tuple[str, ...]:
    """Return the names of the targets that this machine's processor can run, the fastest first.

    cpu_info: Linux's description of the processor. Of the systems without it, only macOS on Arm supports a target.
    """
    flags = _flags(cpu_info)
    return tuple(name for name, target in TARGETS.items() if target.needed_flags.issubset(flags))


def _flags(cpu_info: Path) -> frozenset[str]:
    if sys.platform == "darwin" and platform.machine() == "arm64":
        return TARGETS["neon"].needed_flags  # every Arm processor of a Mac has these instructions
    try:
        lines = cpu_info.read_text().splitlines()
    except OSError:
        return frozenset()
    # x86-64 calls them flags, Arm features.
    lists = (line.partition(":")[2].split() for line in lines if line.startswith(("flags", "Features")))
    return frozenset(next(lists, ()))


def is_supported(cpu_info: Path = CPU_INFO) -> bool:
    """Return whether this machine's processor can run any target."""
    return bool(supported_targets(cpu_info))
