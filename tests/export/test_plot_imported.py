"""`transduce plot` draws an imported model's attention with the subwords that the model reads and writes."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from app.text.tokenizer import SPACE, Tokenizer
from model.attention_maps import END, START, maps_of
from model.checkpoint import CheckpointError
from model.config import BOS_ID
from model.evaluate import translate_greedily
from model.loading import load_with_tokenizers
from tests.export.marian_folder import train, write_marian
from tests.model.cross_attention import forward_cross_weights
from tests.model.sentences import pairs
from transduce.cli import main

pytestmark = pytest.mark.training
SOURCE, TARGET = pairs()[0].source, pairs()[0].target
TAG = "."  # any subword of the source


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A bundle of a model whose sources and targets have vocabularies of their own."""
    folder = tmp_path_factory.mktemp("marian") / "opus-mt-en-de"
    train(write_marian(folder, has_target_vocabulary=True), folder, num_steps=60)
    arguments = ["--source", "en", "--target", "de", "--licence", "CC-BY-4.0", "--precisions", "fp32"]
    assert main(["import", str(folder), "--output", str(folder.parent / "bundle"), *arguments]) == 0
    return folder.parent / "bundle"


@pytest.fixture
def changed(bundle: Path, tmp_path: Path) -> Path:
    """A copy of the bundle that a test may change."""
    return Path(shutil.copytree(bundle, tmp_path / "changed"))


def change_manifest(bundle: Path, **fields: Any) -> None:
    manifest = json.loads((bundle / "manifest.json").read_text("utf-8"))
    (bundle / "manifest.json").write_text(json.dumps(manifest | fields), "utf-8")


def test_targets_have_the_subwords_of_their_own_vocabulary(bundle: Path) -> None:
    model, tokenizer, target_tokenizer = load_with_tokenizers(bundle / "weights")
    maps = maps_of(model, tokenizer, SOURCE, TARGET, target_tokenizer=target_tokenizer)
    assert "".join(maps.source) == f"{SPACE}{SOURCE.replace(' ', SPACE)}{END}"
    assert "".join(maps.outputs) == f"{SPACE}{TARGET.replace(' ', SPACE)}{END}"
    assert "".join(maps.inputs) == f"{START}{SPACE}{TARGET.replace(' ', SPACE)}"
    source = Tokenizer(bundle / "source.spm").encode(SOURCE).ids
    target = (BOS_ID, *Tokenizer(bundle / "target.spm").encode_target(TARGET)[:-1])
    np.testing.assert_allclose(maps.cross, forward_cross_weights(model, source, target).numpy(), atol=1e-6)


def test_the_greedy_translation_is_decoded_with_the_targets_vocabulary(bundle: Path) -> None:
    model, tokenizer, target_tokenizer = load_with_tokenizers(bundle / "weights")
    (translation,) = translate_greedily(model, tokenizer, [SOURCE], target_tokenizer=target_tokenizer)
    maps = maps_of(model, tokenizer, SOURCE, target_tokenizer=target_tokenizer)
    assert "".join(maps.outputs) == f"{SPACE}{translation.replace(' ', SPACE)}{END}"
    words = {word for pair in pairs() for word in pair.target.split()}
    assert set(translation.split()) & words, translation


def test_the_plot_command_draws_with_both_vocabularies(
    bundle: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    drawn = []

    def draw(maps: Any, part: str) -> Any:
        drawn.append(maps)
        raise ValueError("drawn")

    monkeypatch.setattr("model.attention_figures.attention_picture", draw)
    sentence = ["--source", SOURCE, "--target", TARGET, "--tag", TAG]
    for more in ([], ["--tokenizer", str(bundle / "source.spm")]):
        arguments = ["--checkpoint", str(bundle / "weights"), *sentence, *more]
        assert main(["plot", "attention", *arguments, "--output", str(tmp_path / "x.png")]) == 1
        maps = drawn.pop()
        assert maps.source[0] == TAG
        assert "".join(maps.outputs) == f"{SPACE}{TARGET.replace(' ', SPACE)}{END}"


@pytest.mark.parametrize("folder", ["bundle", "checkpoint"])
def test_a_copied_source_tokenizer_is_not_used_for_targets(changed: Path, folder: str) -> None:
    """Bundles may have a tokenizer.spm in their weights: earlier versions of `transduce evaluate` needed it."""
    shutil.copy(changed / "source.spm", changed / "weights" / "tokenizer.spm")
    if folder == "checkpoint":
        (changed / "source.spm").unlink()
        (changed / "target.spm").rename(changed / "weights" / "target.spm")
    model, tokenizer, target_tokenizer = load_with_tokenizers(changed / "weights")
    maps = maps_of(model, tokenizer, SOURCE, TARGET, target_tokenizer=target_tokenizer)
    assert "".join(maps.outputs) == f"{SPACE}{TARGET.replace(' ', SPACE)}{END}"


def test_sources_are_encoded_as_the_manifest_says(changed: Path) -> None:
    change_manifest(changed, ends_source=False)
    model, tokenizer, _ = load_with_tokenizers(changed / "weights")
    assert END not in maps_of(model, tokenizer, SOURCE, TARGET).source
    change_manifest(changed, ends_source=True, tag_follows_source=True)
    model, tokenizer, _ = load_with_tokenizers(changed / "weights")
    assert maps_of(model, tokenizer, SOURCE, TARGET, tag=TAG).source[-2:] == (END, TAG)


@pytest.mark.parametrize("beam_size", ["1", "2"])
def test_evaluation_decodes_with_the_targets_vocabulary(
    bundle: Path, tmp_path: Path, beam_size: str, capsys: pytest.CaptureFixture[str]
) -> None:
    data = tmp_path / "test.tsv"
    data.write_text("".join(f"{pair.source}\t{pair.target}\n" for pair in pairs()[:3]), "utf-8")
    arguments = ["--checkpoint", str(bundle / "weights"), "--data", str(data), "--beam-size", beam_size]
    assert main(["evaluate", *arguments, "--threads", "1", "--write", str(tmp_path / "written")]) == 0
    translations = (tmp_path / "written" / "test.tsv.translation").read_text("utf-8")
    words = {word for pair in pairs() for word in pair.target.split()}
    assert set(translations.split()) & words, translations
    assert "BLEU" in capsys.readouterr().out


PAIR = {"source": "en", "target": "de", "source_prefix": ">>deu<<", "target_start": ">>deu<<"}


@pytest.mark.parametrize(
    "fields", [{"languages": {"en": ">>deu<<", "de": ">>nld<<"}}, {"language_pairs": [PAIR]}]
)
def test_a_model_whose_targets_begin_with_a_language_is_refused(
    changed: Path, fields: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    change_manifest(changed, **fields)
    arguments = ["--checkpoint", str(changed / "weights"), "--source", SOURCE, "--output", str(changed / "x")]
    assert main(["plot", "alignment", *arguments]) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(f"transduce plot: {changed}: the model's targets begin with a subword that names")


@pytest.mark.parametrize("content", ["{", "7", "[1]", '{"language_pairs": [1]}'])
def test_a_broken_manifest_is_named(changed: Path, content: str) -> None:
    (changed / "manifest.json").write_text(content, "utf-8")
    with pytest.raises(CheckpointError, match=r"manifest\.json is not a bundle's manifest"):
        load_with_tokenizers(changed / "weights")
