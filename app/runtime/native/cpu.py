"""Tells which processors can run the native kernels. Imports only the standard library, because setup.py loads it."""

from __future__ import annotations

from pathlib import Path

# The flags in /proc/cpuinfo of every instruction set that the compiler may use for -march=x86-64-v4 -mavx512vnni. Flags
# of every 64-bit processor are left out. Linux lists a flag only if programs may use the instructions.
NEEDED_FLAGS = frozenset(
    {
        *("cx16", "lahf_lm", "popcnt", "pni", "ssse3", "sse4_1", "sse4_2"),  # x86-64-v2
        *("avx", "avx2", "bmi1", "bmi2", "f16c", "fma", "abm", "movbe", "xsave"),  # x86-64-v3
        *("avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl"),  # x86-64-v4
        "avx512_vnni",
    }
)
CPU_INFO = Path("/proc/cpuinfo")


def is_supported(cpu_info: Path = CPU_INFO) -> bool:
    """Return whether this machine's processor has every instruction that the native kernels may use.

    cpu_info: Linux's description of the processor. A system without that file is not supported.
    """
    try:
        lines = cpu_info.read_text().splitlines()
    except OSError:
        return False
    flags = next((line.partition(":")[2].split() for line in lines if line.startswith("flags")), [])
    return NEEDED_FLAGS.issubset(flags)
