"""The choice of kernels on a CPU, and the native runner's slots."""

from __future__ import annotations

import logging
import platform
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from app.bundle import Bundle, load_bundle
from app.errors import SettingsError
from app.graphs import Variant
from app.runtime import kernels
from app.runtime.interface import StepInput
from app.runtime.kernels import INSTRUCTIONS, choose_kernels
from app.runtime.native import usable_targets, used_target
from app.runtime.native.cpu import TARGETS, targets_for
from app.runtime.native_runner import NativeRunner
from app.runtime.ort_runner import OrtRunner, load_runner
from model.config import BOS_ID, EOS_ID
from tests.export.tiny import load_tiny_runner, random_model
from tests.native_kernels import NEEDS_NATIVE

# The target that needs the fewest instructions: an x86-64 processor that can run any target can run this one.
LAST_TARGET = targets_for("x86_64")[-1]


@pytest.fixture(scope="module")
def bundle(tiny: Path) -> Bundle:
    return load_bundle(tiny / "bundle")


@pytest.fixture
def variant(bundle: Bundle) -> Variant:
    return bundle.manifest.variants["int8"]


def pretend(monkeypatch: pytest.MonkeyPatch, *, built: tuple[str, ...], supported: tuple[str, ...]) -> None:
    """Let `choose_kernels` find these targets built, and these supported by the processor."""
    monkeypatch.setattr(kernels, "built_targets", lambda: built)
    monkeypatch.setattr(kernels, "supported_targets", lambda: supported)
    monkeypatch.setattr(kernels, "is_supported", lambda: bool(supported))
    monkeypatch.setattr(kernels, "usable_targets", lambda: tuple(name for name in built if name in supported))
    monkeypatch.setattr("app.runtime.native.select_target", lambda target: None)


@NEEDS_NATIVE
def test_auto_is_native_if_possible(bundle: Bundle) -> None:
    loaded = {
        choice: type(
            load_runner(bundle, precision="int8", device="cpu", num_rows=2, num_threads=1, kernels=choice)
        )
        for choice in ("auto", "native", "standard")
    }
    assert loaded == {"auto": NativeRunner, "native": NativeRunner, "standard": OrtRunner}


@pytest.mark.parametrize(
    ("is_built", "can_run", "has_graphs", "reason"),
    [
        (False, False, True, f"this processor has no {INSTRUCTIONS[LAST_TARGET]}"),
        (False, True, True, "they are not built"),
        (True, False, True, f"this processor has no {INSTRUCTIONS[LAST_TARGET]}"),
        (True, True, False, "the bundle's variant has no native graphs"),
    ],
)
def test_without_usable_native_kernels_auto_is_standard_and_native_is_an_error(
    is_built: bool,
    can_run: bool,
    has_graphs: bool,
    reason: str,
    variant: Variant,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """auto logs the reason. The level is warning if the processor can run the kernels."""
    caplog.set_level(logging.INFO)
    monkeypatch.setattr(platform, "machine", lambda: "x86_64")
    only = (LAST_TARGET,)
    pretend(monkeypatch, built=only if is_built else (), supported=only if can_run else ())
    found = variant if has_graphs else replace(variant, native=None)
    assert choose_kernels(found, "auto") == "standard"
    (record,) = caplog.records
    assert reason in record.getMessage()
    assert (record.levelno == logging.WARNING) == can_run
    assert choose_kernels(found, "standard") == "standard"
    assert len(caplog.records) == 1
    with pytest.raises(SettingsError) as caught:
        choose_kernels(found, "native")
    assert reason in caught.value.problems[0]


@NEEDS_NATIVE
@pytest.mark.parametrize("target", usable_targets())
def test_a_target_can_be_chosen(target: Any, bundle: Bundle, caplog: pytest.LogCaptureFixture) -> None:
    """The log names the target that runs."""
    caplog.set_level(logging.INFO)
    load_runner(bundle, precision="int8", device="cpu", num_rows=2, num_threads=1, kernels=target)
    assert used_target() == target
    assert f"int8 on cpu with native {target} kernels, 1 threads" in caplog.text
    load_runner(bundle, precision="int8", device="cpu", num_rows=2, num_threads=1, kernels="native")
    assert used_target() == usable_targets()[0]


@pytest.mark.parametrize(
    ("built", "supported", "reason"),
    [
        (("avx512", "avx2"), ("avx2",), "this processor has no AVX-512 VNNI"),
        (
            ("avx2",),
            ("avx512", "avx2"),
            "they are not built: install transduce again with NATIVE_KERNELS=all",
        ),
        ((), ("avx512",), "they are not built: install transduce again on a machine with a C"),
        ((), (), "this processor has no AVX-512 VNNI"),
    ],
)
def test_a_target_that_cannot_be_used_is_an_error(
    built: tuple[str, ...],
    supported: tuple[str, ...],
    reason: str,
    variant: Variant,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pretend(monkeypatch, built=built, supported=supported)
    with pytest.raises(SettingsError, match=f"avx512 kernels are required, and {reason}"):
        choose_kernels(variant, "avx512")


def test_the_instructions_of_every_target_have_a_name() -> None:
    assert list(INSTRUCTIONS) == list(TARGETS)


def test_an_architecture_without_targets_has_no_native_kernels(
    variant: Variant, monkeypatch: pytest.MonkeyPatch
) -> None:
    pretend(monkeypatch, built=(), supported=())
    monkeypatch.setattr(platform, "machine", lambda: "riscv64")
    assert choose_kernels(variant, "auto") == "standard"
    with pytest.raises(SettingsError, match="there are none for riscv64 processors"):
        choose_kernels(variant, "native")


def test_older_native_graphs_are_not_used(variant: Variant, monkeypatch: pytest.MonkeyPatch) -> None:
    pretend(monkeypatch, built=("avx2",), supported=("avx2",))
    native = variant.native
    assert native is not None
    assert choose_kernels(variant, "auto") == "native"
    inputs = tuple(spec for spec in native.decoder.inputs if spec.name != "num_steps")
    older = replace(native, decoder=replace(native.decoder, inputs=inputs))
    found = replace(variant, native=older)
    assert choose_kernels(found, "auto") == "standard"
    with pytest.raises(SettingsError, match="older transduce: export the bundle again"):
        choose_kernels(found, "native")


@NEEDS_NATIVE
class TestSlots:
    @pytest.fixture
    def runner(self, tmp_path: Path) -> NativeRunner:
        found = load_tiny_runner(random_model(max_length=16), "int8", tmp_path, num_rows=3, kernels="native")
        assert isinstance(found, NativeRunner)
        return found

    def first_step(self, runner: NativeRunner, num_rows: int) -> list[list[float]]:
        ids, positions = np.full(num_rows, BOS_ID, np.int32), np.zeros(num_rows, np.int32)
        found: list[list[float]] = runner.decode(StepInput(ids, positions, 4)).log_probabilities.tolist()
        return found

    def test_a_new_sentence_always_finds_a_slot(self, runner: NativeRunner) -> None:
        """Rows share slots, move, and are encoded more often than there are slots."""
        sources = [np.array([8 + n, 30 + n, EOS_ID], np.int32) for n in range(12)]
        alone = []
        for source in sources:
            runner.encode([source], [0])
            alone += self.first_step(runner, 1)
        for n in range(0, 12, 3):
            runner.encode(sources[n : n + 2], [0, 1])
            runner.copy_rows(*(np.array([value], np.int32) for value in (1, 2, 0)))
            assert self.first_step(runner, 3) == [alone[n], alone[n + 1], alone[n + 1]]
            runner.encode([sources[n + 2]], [1])
            assert self.first_step(runner, 3) == [alone[n], alone[n + 2], alone[n + 1]]

    def test_a_step_frees_the_slots_of_the_rows_that_it_leaves_out(self, runner: NativeRunner) -> None:
        """The next sentence gets slot 0 again. A new slot would allocate pages, which are never freed."""
        runner.encode([np.array([8, 30, EOS_ID], np.int32)], [0])
        runner.copy_rows(*(np.array(values, np.int32) for values in ([0, 0], [1, 2], [0, 0])))
        for num_rows in (3, 1):
            self.first_step(runner, num_rows)
        runner.encode([np.array([9, 31, EOS_ID], np.int32)], [0])
        assert runner._cross_cache[:, 0].any()
        assert not runner._cross_cache[:, 1:].any()

    def test_rows_encoded_since_the_last_step_keep_their_slots(self, runner: NativeRunner) -> None:
        sources = [np.array([8 + n, 30 + n, EOS_ID], np.int32) for n in range(3)]
        alone = []
        for source in sources:
            runner.encode([source], [0])
            alone += self.first_step(runner, 1)
        for row in (1, 2):
            runner.encode([sources[row - 1]], [row])
        assert self.first_step(runner, 3) == [alone[2], alone[0], alone[1]]
        self.first_step(runner, 1)
        runner.copy_rows(*(np.array([value], np.int32) for value in (0, 1, 0)))
        runner.encode([sources[0]], [0])
        assert self.first_step(runner, 2) == [alone[0], alone[2]]
