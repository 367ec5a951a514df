"""The options with which the missing fp32 variant of a bundle is exported."""

from __future__ import annotations

from app.bundle import load_bundle
from benchmarks.machine import ROOT
from benchmarks.reference_bundle import pair_options


def test_both_directions_of_the_bundled_model_keep_their_tags() -> None:
    manifest = load_bundle(ROOT / "bundles" / "en-de").manifest
    both = {"--source": "en", "--target": "de", "--tag": ">>de<<"}
    assert pair_options(manifest) == {**both, "--reverse-tag": ">>en<<"}
    one = manifest.model_copy(update={"language_pairs": manifest.language_pairs[:1]})
    assert pair_options(one) == both
