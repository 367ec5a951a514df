"""A model with a decoder of SSRUs is exported and verified. What such a model cannot have is refused."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from app.bundle import load_bundle
from app.errors import BundleError
from app.language_pairs import LanguagePair
from app.runtime.bundle_limits import limits_of
from app.runtime.cuda_runner import load_cuda_runner
from export.bundle_writer import write_bundle
from export.cli import run_export
from export.output_folder import ExportError
from export.portable import FormatError, read_bundle
from export.verify import VerifyOptions, verify
from tests.export.tiny import bundle_request, export_arguments


def edited(bundle: Path, folder: Path, change: Callable[[dict[str, Any]], None]) -> Path:
    """A copy of a bundle with another manifest."""
    copy = Path(shutil.copytree(bundle, folder / "edited"))
    manifest = json.loads((copy / "manifest.json").read_text("utf-8"))
    change(manifest)
    (copy / "manifest.json").write_text(json.dumps(manifest), "utf-8")
    return copy


@pytest.mark.seconds
def test_verify_passes(tiny_ssru: Path) -> None:
    report = verify(tiny_ssru / "bundle", VerifyOptions(checkpoint=tiny_ssru / "checkpoint"))
    assert [check.line() for check in report.checks if not check.is_passed] == []


def test_the_manifest_names_the_decoder_and_has_no_fp16(tiny_ssru: Path, tiny: Path) -> None:
    manifests = [
        json.loads((folder / "bundle" / "manifest.json").read_text("utf-8")) for folder in (tiny_ssru, tiny)
    ]
    assert manifests[0]["dimensions"]["decoder"] == "ssru"
    assert sorted(manifests[0]["variants"]) == ["fp32", "int8"]
    assert "decoder" not in manifests[1]["dimensions"]  # as older servers expect
    assert load_bundle(tiny / "bundle").manifest.dimensions.decoder == "attention"
    cards = [(folder / "bundle" / "MODEL_CARD.md").read_text("utf-8") for folder in (tiny_ssru, tiny)]
    assert ["SSRUs (Kim et al. 2019)" in card for card in cards] == [True, False]


def test_the_command_says_that_it_leaves_fp16_out(
    tiny_ssru: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = export_arguments(tiny_ssru / "checkpoint", tmp_path / "new", tmp_path / "facts.toml")
    assert run_export(arguments) == 0
    assert "fp16 is left out: a decoder of SSRUs runs on a CPU only" in capsys.readouterr().err
    assert [*load_bundle(tmp_path / "new").manifest.variants] == ["int8"]


def test_only_fp16_is_an_error(tiny_ssru: Path, tmp_path: Path) -> None:
    request = replace(bundle_request(), precisions=("fp16",))
    with pytest.raises(ExportError, match="has no fp16 variant: add int8 or fp32"):
        write_bundle(tiny_ssru / "checkpoint", tmp_path / "new", request)


def test_targets_with_a_start_of_their_own_are_an_error(tiny_ssru: Path, tmp_path: Path) -> None:
    pairs = (LanguagePair(source="en", target="de", target_start=">>de<<"),)
    with pytest.raises(ExportError, match="begin with a language token"):
        write_bundle(tiny_ssru / "checkpoint", tmp_path / "new", replace(bundle_request(), pairs=pairs))

    def add_start(manifest: dict[str, Any]) -> None:
        manifest["language_pairs"][0]["target_start"] = ">>de<<"

    with pytest.raises(BundleError, match="a target_start is not possible"):
        load_bundle(edited(tiny_ssru / "bundle", tmp_path, add_start))


def test_an_export_to_other_formats_is_an_error(tiny_ssru: Path) -> None:
    with pytest.raises(FormatError, match="a decoder of SSRUs, which the other formats cannot express"):
        read_bundle(tiny_ssru / "bundle")


@pytest.mark.parametrize(("claimed", "has"), [("attention", "ssru"), ("ssru", "attention")])
def test_a_manifest_of_another_decoder_is_an_error(
    claimed: str, has: str, tiny_ssru: Path, tiny: Path, tmp_path: Path
) -> None:
    def change(manifest: dict[str, Any]) -> None:
        manifest["dimensions"]["decoder"] = claimed
        manifest["variants"].pop("fp16", None)

    bundle = (tiny_ssru if has == "ssru" else tiny) / "bundle"
    with pytest.raises(BundleError) as found:
        load_bundle(edited(bundle, tmp_path, change))
    assert f"dimensions.decoder is {claimed}, and int8/decoder.onnx has the inputs of {has}" in str(
        found.value
    )


def test_a_native_graph_of_another_decoder_is_an_error(tiny_ssru: Path, tiny: Path, tmp_path: Path) -> None:
    """The manifest's inputs are those of SSRUs, the file's operator is not."""

    def change(manifest: dict[str, Any]) -> None:
        other = json.loads((tiny / "bundle" / "manifest.json").read_text("utf-8"))
        manifest["variants"] = {"int8": manifest["variants"]["int8"]}
        for name in ("native_decoder.onnx", "weights.bin"):
            manifest["files"][f"int8/{name}"] = other["files"][f"int8/{name}"]

    copy = edited(tiny_ssru / "bundle", tmp_path, change)
    for name in ("native_decoder.onnx", "weights.bin"):
        shutil.copyfile(tiny / "bundle" / "int8" / name, copy / "int8" / name)
    with pytest.raises(BundleError, match=r"num_decoder_layers is 2, and int8/native_decoder\.onnx has 0"):
        load_bundle(copy)


def test_a_gpu_is_refused(tiny_ssru: Path) -> None:
    bundle = load_bundle(tiny_ssru / "bundle")
    limits = limits_of(bundle.manifest, 4)
    with pytest.raises(BundleError, match="runs on a CPU only: set TRANSDUCE_DEVICE=cpu"):
        load_cuda_runner(bundle.path, bundle.manifest.variants["fp32"], limits=limits)
