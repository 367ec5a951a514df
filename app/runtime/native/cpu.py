"""Tells which builds of the native kernels a processor can run. Imports only the standard library, for setup.py."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple


class Target(NamedTuple):
    """One build of the kernels.

    compiler_options: the options that select the instruction set. needed_flags: the flags in /proc/cpuinfo of every
    instruction that the compiler may use with them.
    """

    compiler_options: tuple[str, ...]
    needed_flags: frozenset[str]


# Linux lists a flag only if programs may use the instructions. Flags of every 64-bit processor are left out.
X86_64_V2 = frozenset({"cx16", "lahf_lm", "popcnt", "pni", "ssse3", "sse4_1", "sse4_2"})
X86_64_V3 = X86_64_V2 | {"avx", "avx2", "bmi1", "bmi2", "f16c", "fma", "abm", "movbe", "xsave"}
X86_64_V4 = X86_64_V3 | {"avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl"}
# By name, the fastest first.
TARGETS = {
    "avx512": Target(("-march=x86-64-v4", "-mavx512vnni"), X86_64_V4 | {"avx512_vnni"}),
    "avx2": Target(("-march=x86-64-v3",), X86_64_V3),
}
CPU_INFO = Path("/proc/cpuinfo")


def supported_targets(cpu_info: Path = CPU_INFO) -> tuple[str, ...]:
    """Return the names of the targets that this machine's processor can run, the fastest first.

    cpu_info: Linux's description of the processor. A system without that file supports none.
    """
    try:
        lines = cpu_info.read_text().splitlines()
    except OSError:
        return ()
    flags = next((line.partition(":")[2].split() for line in lines if line.startswith("flags")), [])
    return tuple(name for name, target in TARGETS.items() if target.needed_flags.issubset(flags))


def is_supported(cpu_info: Path = CPU_INFO) -> bool:
    """Return whether this machine's processor can run any target."""
    return bool(supported_targets(cpu_info))
