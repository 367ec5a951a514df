"""The export of the missing fp32 variant of a bundle: its options and its failures."""

from __future__ import annotations

import importlib.util
import subprocess
from pathlib import Path
from subprocess import CompletedProcess

import pytest

from app.bundle import Bundle, DecodingDefaults, load_bundle
from app.decoding.options import LengthPenalty
from app.language_pairs import pairs_between
from benchmarks.machine import ROOT
from benchmarks.reference_bundle import NoReferenceError, alignment_option, pair_options, reference_bundle


@pytest.fixture(scope="module")
def bundle() -> Bundle:
    return load_bundle(ROOT / "bundles" / "en-de")


def test_both_directions_of_the_bundled_model_keep_their_tags(bundle: Bundle) -> None:
    manifest = bundle.manifest
    both = {"--source": "en", "--target": "de", "--tag": ">>de<<"}
    assert pair_options(manifest) == {**both, "--reverse-tag": ">>en<<"}
    one = manifest.model_copy(update={"language_pairs": manifest.language_pairs[:1]})
    assert pair_options(one) == both
    assert alignment_option(manifest) == {"--alignment": "2:0,1,4"}


@pytest.mark.parametrize(
    "change",
    [
        {"ends_source": False},
        {"tag_follows_source": True},
        {"has_distinct_placeholders": False},
        {"alignment": None},
        {"decoding": DecodingDefaults(beam_size=4, length_penalty=LengthPenalty.POWER, alpha=1.0)},
        {"language_pairs": pairs_between({"en": "<en>", "de": "<de>"})},
    ],
)
def test_an_imported_model_is_not_exported_as_another_model(
    bundle: Bundle, tmp_path: Path, change: dict[str, object]
) -> None:
    imported = Bundle(bundle.path, bundle.manifest.model_copy(update=change), bundle.golden)
    with pytest.raises(NoReferenceError, match="has no option for a part"):
        reference_bundle(imported, tmp_path)


@pytest.mark.parametrize(
    ("end", "reason"),
    [
        (subprocess.TimeoutExpired("transduce", 120), "took more than 120 s"),
        (CompletedProcess([], -9, stderr=""), "failed: exit code -9"),
        (CompletedProcess([], 1, stderr="first\nno space left\n"), "failed: no space left"),
    ],
)
def test_a_failed_export_says_why(
    bundle: Bundle,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    end: subprocess.TimeoutExpired | CompletedProcess[str],
    reason: str,
) -> None:
    """A benchmark then leaves out fp32, and keeps what it has measured."""

    def run(*_: object, **__: object) -> CompletedProcess[str]:
        if isinstance(end, subprocess.TimeoutExpired):
            raise end
        return end

    monkeypatch.setattr(importlib.util, "find_spec", lambda name: name)
    monkeypatch.setattr(subprocess, "run", run)
    with pytest.raises(NoReferenceError, match=reason):
        reference_bundle(bundle, tmp_path)
