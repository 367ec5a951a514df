"""What the model card says about a bundle."""

from __future__ import annotations

from pathlib import Path

import pytest

from app.bundle import Score, load_bundle
from app.graphs import Precision
from app.language_pairs import LanguagePair
from export.model_card import read_facts, render_card
from tests.export.tiny import bundle_request, export_arguments


@pytest.mark.parametrize(
    ("ends_source", "tag", "longest"), [(True, None, 31), (False, None, 32), (True, ">>de<<", 30)]
)
def test_the_cards_longest_source_has_neither_end_token_nor_tag(
    ends_source: bool, tag: str | None, longest: int, tiny: Path
) -> None:
    pair = LanguagePair(source="en", target="de", source_prefix=tag)
    changes = {"ends_source": ends_source, "language_pairs": (pair,)}
    manifest = load_bundle(tiny / "bundle").manifest.model_copy(update=changes)
    card = render_card(bundle_request().facts, manifest, num_parameters=1)
    assert f"| longest source | {longest} subwords |" in card


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"data": ()}, "0 steps, by the code of commit `" + "0" * 40 + "`.\n\nThe data is not recorded.\n"),
        (
            {"data": (), "commit": ""},
            "Trained elsewhere. The bundle does not record how, or on which data.\n",
        ),
        (
            {"commit": "", "num_steps": 90_000},
            "90,000 steps.\n\n| corpus | pairs | licence |\n| --- | --- | --- |\n| made up | 400 | CC0-1.0 |\n",
        ),
    ],
)
def test_the_card_says_what_is_recorded_of_the_training(
    changes: dict[str, object], expected: str, tiny: Path
) -> None:
    manifest = load_bundle(tiny / "bundle").manifest
    training = manifest.training.model_copy(update=changes)
    changed = manifest.model_copy(update={"training": training})
    card = render_card(bundle_request().facts, changed, num_parameters=1)
    assert f"## Training\n\n{expected}" in card


@pytest.mark.parametrize(
    ("scored", "variants", "has_note"),
    [
        (["int8", "fp32"], ["int8", "fp16"], True),
        (["int8", "fp32"], ["int8", "fp32"], False),
        (["int8"], ["int8", "fp16"], False),
    ],
)
def test_the_card_says_that_the_bundle_lacks_the_scored_fp32(
    scored: list[Precision], variants: list[Precision], has_note: bool, tiny: Path
) -> None:
    manifest = load_bundle(tiny / "bundle").manifest
    scores = [
        Score(
            test_set="news",
            precision=precision,
            beam_size=4,
            bleu=30.0,
            chrf=60.0,
            bleu_signature="tok:13a",
            chrf_signature="nc:6",
        )
        for precision in scored
    ]
    chosen = {precision: manifest.variants[precision] for precision in variants}
    changed = manifest.model_copy(update={"scores": tuple(scores), "variants": chosen})
    card = render_card(bundle_request().facts, changed, num_parameters=1)
    assert ("60.0 |\n\nThe scores in fp32 are those" in card) == has_note
    assert ("The bundle has no variant in fp32.\n\nsacreBLEU signatures:" in card) == has_note


def test_a_bar_in_the_name_of_a_corpus_does_not_end_its_cell(tiny: Path) -> None:
    manifest = load_bundle(tiny / "bundle").manifest
    (corpus,) = manifest.training.data
    training = manifest.training.model_copy(update={"data": (corpus.model_copy(update={"name": "one|two"}),)})
    changed = manifest.model_copy(update={"training": training})
    card = render_card(bundle_request().facts, changed, num_parameters=1)
    assert "| one\\|two | 400 | CC0-1.0 |" in card


def test_a_byte_order_mark_before_the_facts_is_ignored(tmp_path: Path) -> None:
    export_arguments(tmp_path, tmp_path, tmp_path / "card.toml")
    facts = read_facts(tmp_path / "card.toml")
    (tmp_path / "card.toml").write_bytes(b"\xef\xbb\xbf" + (tmp_path / "card.toml").read_bytes())
    assert read_facts(tmp_path / "card.toml") == facts
