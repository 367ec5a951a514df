"""The benchmark of steps measures the variants of `--variants`, and says what it cannot measure."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from app.errors import BundleError, SettingsError
from app.graphs import KernelChoice
from app.runtime.native.cpu import TARGETS
from app.runtime.session import UNFUSED_ATTENTION
from benchmarks import step
from model.config import ConfigError


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (["--variants", "int9"], "'int9' is no variant"),
        (["--variants", "int8,int8-avx513"], "'int8-avx513' is no variant"),
        (["--variants", "int8-avx2-fused"], "'int8-avx2-fused' is no variant"),
        (["--variants", "int8,"], "'' is no variant"),
        (["--preset", "tinyy"], "invalid choice: 'tinyy'"),
        (["--vocab-size", "0"], "'0' is not a whole number of at least 1"),
        (["--preset", "tiny", "--vocab-size", "12"], "--vocab-size must be above 12"),
        (["--preset", "tiny", "--num-candidates", "64"], "--num-candidates must be at most 63"),
        (["--preset", "tiny", "--vocab-size", "13", "--num-candidates", "14"], "must be at most 13"),
        (["--preset", "tiny", "--sentences", "1x6,1x257"], "has 257 subwords, more than the model's 256"),
        (["--json", "missing/step.json"], "'missing/step.json' is not a file in an existing folder"),
        (["--json", "."], "'.' is not a file in an existing folder"),
        (["--num-rounds", "0"], "'0' is not a whole number of at least 1"),
        (["--num-candidates", "0"], "'0' is not a whole number of at least 1"),
        (["--num-threads", "none"], "'none' is not a whole number of at least 1"),
        (["--rows", "1,0"], "'0' is not a whole number of at least 1"),
        (["--sentences", "1x6,8"], "'8' is not COUNTxLENGTH"),
        (["--sentences", "1x0"], "'0' is not a whole number of at least 1"),
    ],
)
def test_impossible_arguments_are_refused(
    arguments: list[str], problem: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        step.main(arguments)
    assert problem in capsys.readouterr().err


def test_a_bundle_too_small_for_the_cases_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    bundle = step.random_bundle("tiny", 12, ["int8"], tmp_path, max_length=39)
    monkeypatch.setattr(step, "load_bundle", lambda _: bundle)
    with pytest.raises(SystemExit):
        step.main(["--bundle", "small"])
    problems = capsys.readouterr().err
    assert "the model has 12 subwords, and at least 13 are needed" in problems
    assert "the model's sources are limited to 39 subwords, and 40 are needed" in problems
    assert "the model's targets are limited to 39 subwords, and 40 are needed" in problems


def test_kernels_that_a_precision_lacks_have_no_traceback(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        step.main(["--preset", "tiny", "--variants", "fp16-avx2", "--rows", "1", "--sentences", "1x6"])
    assert (
        "avx2 kernels are required, and the bundle's variant has no native graphs" in capsys.readouterr().err
    )


@pytest.mark.parametrize(
    "error",
    [BundleError("x", ["why"]), SettingsError(["why"]), ConfigError("why")],
    ids=lambda error: type(error).__name__,
)
def test_an_error_of_the_model_has_no_traceback(
    error: Exception, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(*_: object) -> None:
        raise error

    monkeypatch.setattr(step, "random_bundle", fail)
    with pytest.raises(SystemExit):
        step.main([])
    assert "why" in capsys.readouterr().err


KERNELS = {
    "int8": "auto",
    "int8-fused": "auto",
    "fp32-standard": "standard",
    "fp32-standard-fused": "standard",
    **{f"int8-{target}": target for target in TARGETS},
}


@pytest.mark.parametrize(("variant", "kernels"), KERNELS.items())
def test_the_suffix_of_a_variant_chooses_its_kernels(
    variant: str, kernels: KernelChoice, monkeypatch: pytest.MonkeyPatch
) -> None:
    chosen: dict[str, Any] = {}
    monkeypatch.setenv(UNFUSED_ATTENTION, "1")
    monkeypatch.setattr(step, "load_runner", lambda _, **options: chosen.update(options))
    assert step.variants(variant) == [variant]
    step.load_variant(Path(), variant, num_rows=1, num_threads=1)  # type: ignore[arg-type]
    assert (chosen["precision"], chosen["kernels"]) == (variant[:4], kernels)
    assert chosen["device"] == ("cpu" if kernels in TARGETS else "auto"), (
        "a GPU has none of a CPU's instructions"
    )
