"""The library as a whole: where it can run, and its thread pool."""

from __future__ import annotations

import platform
import re
import shutil
import subprocess
import sys
import threading
import time
import tomllib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from app.runtime import native
from app.runtime.native import slot_shortlists
from app.runtime.native.cpu import TARGETS, is_supported, supported_targets, targets_for
from tests.house_rules.project import ROOT
from tests.runtime.native.processes import run_python
from tests.runtime.native.test_feed_forward import Block

# What /proc/cpuinfo calls the list of instructions.
LISTS = {"x86_64": "flags\t\t", "aarch64": "Features\t"}


@pytest.mark.parametrize("name", TARGETS)
def test_a_cpu_needs_every_instruction_of_a_target(name: str, tmp_path: Path) -> None:
    cpu_info = tmp_path / "cpuinfo"
    flags = sorted(TARGETS[name].needed_flags)
    start = f"processor\t: 0\n{LISTS[TARGETS[name].machine]}:"
    cpu_info.write_text(f"{start} fpu {' '.join(flags)} ht\n")
    assert supported_targets(cpu_info)[0] == name
    assert is_supported(cpu_info)
    for missing in flags:
        others = " ".join(flag for flag in flags if flag != missing)
        cpu_info.write_text(f"{start} {others} {missing}x\n")
        assert name not in supported_targets(cpu_info)
        assert is_supported(cpu_info) == bool(supported_targets(cpu_info))


@pytest.mark.parametrize("machine", LISTS)
def test_the_fastest_target_comes_first(machine: str, tmp_path: Path) -> None:
    """A processor that can run any target can run the last one."""
    cpu_info = tmp_path / "cpuinfo"
    names = targets_for(machine)
    assert names
    for name in names:
        cpu_info.write_text(f"{LISTS[machine]}: {' '.join(TARGETS[name].needed_flags)}\n")
        supported = supported_targets(cpu_info)
        assert (supported[0], supported[-1]) == (name, names[-1])


def test_every_target_is_of_one_architecture() -> None:
    assert targets_for("x86_64") + targets_for("aarch64") == tuple(TARGETS)
    assert targets_for("AMD64") == targets_for("x86_64")
    assert targets_for("arm64") == targets_for("aarch64")
    assert targets_for("riscv64") == ()


@pytest.mark.parametrize(("machine", "supported"), [("arm64", ("neon",)), ("x86_64", ())])
def test_a_mac_supports_a_target_if_it_has_an_arm_processor(
    machine: str, supported: tuple[str, ...], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(sys, "platform", "darwin")
    monkeypatch.setattr(platform, "machine", lambda: machine)
    assert supported_targets(tmp_path / "none") == supported


def test_only_usable_targets_can_be_selected(target: str) -> None:
    native.select_target(target)
    path = native.library_path()
    assert path is not None
    assert native.used_target() == target
    with pytest.raises(RuntimeError, match="the native kernels for mmx cannot be used here"):
        native.select_target("mmx")
    assert native.library_path() == path


# The compiler's macro of an instruction set, and Linux's flag for it. For any other macro, the flag is its name without
# the outer underscores, in lower case.
FLAGS_OF_MACROS = {
    "__ARM_FEATURE_ATOMICS": "atomics",
    "__ARM_FEATURE_CRC32": "crc32",
    "__ARM_FEATURE_DOTPROD": "asimddp",
    "__ARM_FEATURE_QRDMX": "asimdrdm",
    "__AVX512VNNI__": "avx512_vnni",
    "__AVXVNNI__": "avx_vnni",
    "__BMI__": "bmi1",
    "__CRC32__": "sse4_2",
    "__GCC_HAVE_SYNC_COMPARE_AND_SWAP_16": "cx16",
    "__LAHF_SAHF__": "lahf_lm",
    "__LZCNT__": "abm",
    "__SSE3__": "pni",
}


def macros(compiler: str, *options: str) -> set[str]:
    """The names of the macros that the compiler predefines with these options."""
    command = [compiler, *options, "-dM", "-E", "-x", "c++", "/dev/null"]
    text = subprocess.run(command, capture_output=True, check=True, text=True, timeout=60).stdout
    return {line.split()[1] for line in text.splitlines()}


@pytest.mark.parametrize("name", TARGETS)
def test_the_needed_instructions_are_those_that_the_compiler_may_use(name: str) -> None:
    machine = TARGETS[name].machine
    compiler = "g++" if name in targets_for(platform.machine()) else f"{machine}-linux-gnu-g++"
    if shutil.which(compiler) is None:
        pytest.skip(f"there is no {compiler} here")
    setuptools = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["tool"]["setuptools"]
    (extension,) = setuptools["ext-modules"]
    assert not any(option.startswith("-m") for option in extension["extra-compile-args"])
    found = macros(compiler, *TARGETS[name].compiler_options) - macros(compiler)
    added = {macro for macro in found if not macro.startswith(("__FP_FAST_FMA", "__EVEX"))}
    assert {FLAGS_OF_MACROS.get(macro, macro.strip("_").lower()) for macro in added} == TARGETS[
        name
    ].needed_flags


def test_a_system_without_cpu_information_is_not_supported(tmp_path: Path) -> None:
    assert not is_supported(tmp_path / "none")
    (tmp_path / "empty").write_text("")
    assert not is_supported(tmp_path / "empty")


@pytest.mark.skipif(shutil.which("g++") is None, reason="there is no g++ here")
def test_a_library_of_other_sources_is_an_error_that_says_how_to_rebuild_it(tmp_path: Path) -> None:
    """The library of other sources exports one of the needed functions, and lacks the others."""
    path = tmp_path / "old.so"
    source = 'extern "C" void transduce_share_threads(int) {}'
    command = ["g++", "-shared", "-fPIC", "-x", "c++", "-", "-o", str(path)]
    subprocess.run(command, input=source, check=True, text=True, timeout=60)
    code = f"""
        from pathlib import Path
        from app.runtime import native
        native.library_path = lambda: Path({str(path)!r})
        try:
            native.set_num_threads(1)
        except RuntimeError as error:
            text = str(error)
            assert text.startswith("old.so was built from other sources: it lacks transduce_advance_beam"), text
            assert "transduce_share_threads" not in text
            assert text.endswith("pip install --no-deps --no-build-isolation --editable ."), text
        else:
            raise AssertionError
    """
    assert run_python(code) == (0, b"")


def test_a_library_that_cannot_be_loaded_is_an_error_that_says_why(tmp_path: Path) -> None:
    (tmp_path / "broken.so").write_bytes(b"no library")
    code = f"""
        from pathlib import Path
        from app.runtime import native
        native.library_path = lambda: Path({str(tmp_path / "broken.so")!r})
        try:
            native.set_num_threads(1)
        except RuntimeError as error:
            assert str(error).startswith("broken.so cannot be loaded: "), error
            assert str(error).endswith(("file too short", "invalid ELF header")), error
        else:
            raise AssertionError
    """
    assert run_python(code) == (0, b"")


def test_the_functions_that_are_checked_are_those_that_are_called() -> None:
    files = (native.__file__, slot_shortlists.__file__)
    source = "".join(Path(file).read_text("utf-8") for file in files)
    assert sorted(set(re.findall(r"\.(transduce_\w+)", source))) == list(native.FUNCTIONS)


def test_threads_start_and_end() -> None:
    """The test runs in its own process, where no other thread starts or ends."""
    code = """
        import time
        from pathlib import Path
        from app.runtime import native

        def count():
            return len(list(Path("/proc/self/task").iterdir()))

        native.set_num_threads(1)
        alone = count()
        for num_threads in (3, 5, 2, 1):
            assert native.set_num_threads(num_threads) == num_threads
            while count() != alone + num_threads - 1:
                time.sleep(0.001)
    """
    assert run_python(code) == (0, b"")


@pytest.mark.parametrize("num_threads", [0, -1])
def test_there_is_at_least_one_thread(num_threads: int) -> None:
    with pytest.raises(ValueError, match=rf"num_threads is {num_threads}; it must be at least 1"):
        native.set_num_threads(num_threads)


def test_sleeping_workers_change_no_result() -> None:
    block = Block(256, 1024)
    operator, rows = block.operator(), block.rows(40)
    alone = operator.run(rows)
    native.set_num_threads(3, spin_us=0)
    try:
        for pause_s in [0.0, 0.002, 0.0, 0.01] * 5:
            time.sleep(pause_s)
            assert all(np.array_equal(values, alone[name]) for name, values in operator.run(rows).items())
    finally:
        native.set_num_threads(1, spin_us=150)


def test_several_threads_share_the_pool() -> None:
    """If the pool is busy, a thread runs its job alone."""
    block = Block(256, 1024)
    operator, rows = block.operator(), block.rows(40)
    alone = operator.run(rows)
    native.set_num_threads(2)
    found: list[dict[str, NDArray[Any]]] = []

    def run() -> None:
        found.extend(operator.run(rows) for _ in range(50))

    threads = [threading.Thread(target=run) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 150
    assert all(np.array_equal(values, alone[name]) for result in found for name, values in result.items())


@pytest.mark.seconds
def test_a_process_can_end_while_workers_sleep_or_spin() -> None:
    code = """
        import time
        from app.runtime import native
        from tests.runtime.native.test_feed_forward import Block
        block = Block(64, 80)
        operator, rows = block.operator(), block.rows(40)
        native.set_num_threads(4, spin_us={spin_us})
        operator.run(rows)
        time.sleep(0.01)
    """
    for spin_us in (0, 10**9):
        assert run_python(code.format(spin_us=spin_us)) == (0, b"")
