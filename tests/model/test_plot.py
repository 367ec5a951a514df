"""`transduce plot` draws attention weights, positions, training curves and BLEU by length, as PNG, SVG or both."""

from __future__ import annotations

import ast
import dataclasses
import json
import shutil
from pathlib import Path
from typing import cast
from xml.etree import ElementTree

import numpy as np
import pytest
import torch

from app.text.tokenizer import SPACE, Tokenizer
from model import checkpoint
from model.attention_maps import (
    END,
    START,
    AttentionMaps,
    align_words,
    attention_weights,
    maps_of,
    words_of,
)
from model.config import BOS_ID, PAD_ID, preset
from model.loading import load_with_tokenizers
from model.run_figures import FigureError, bleu_by_length, read_curves
from model.training_log import FIELDS
from model.transformer import EncoderLayer, Residual, Transformer
from tests.forked import run_forked
from tests.model.cross_attention import forward_cross_weights
from tests.model.sentences import pairs, write_tsv
from transduce.cli import main

ROOT = Path(__file__).resolve().parents[2]
NOTEBOOK = ROOT / "docs" / "notebooks" / "attention.ipynb"
PNG = b"\x89PNG\r\n\x1a\n"
SOURCE, TARGET = "Anna sees the river today.", "Anna sieht heute den Fluss."


@pytest.fixture(scope="module")
def model(tokenizer: Tokenizer) -> Transformer:
    torch.manual_seed(7)
    return Transformer(preset("tiny", tokenizer.vocab_size, num_encoder_layers=3, norm="pre")).eval()


@pytest.fixture(scope="module")
def saved(model: Transformer, tokenizer_path: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("checkpoints") / "tiny"
    content = checkpoint.Saved(model.state_dict(), {"model": model.config.to_json()}, {}, {})
    checkpoint.save(path, content, tokenizer_path)
    return path


@pytest.mark.parametrize(("norm", "own_source_table"), [("pre", False), ("post", False), ("pre", True)])
def test_the_weights_equal_the_models_attention(
    tokenizer: Tokenizer, norm: str, own_source_table: bool
) -> None:
    torch.manual_seed(3)
    config = preset(
        "tiny", tokenizer.vocab_size, num_encoder_layers=3, norm=norm, own_source_table=own_source_table
    )
    model = Transformer(config).eval()
    source, labels = tokenizer.encode(SOURCE).ids, tokenizer.encode_target(TARGET)
    inputs = (BOS_ID, *labels[:-1])
    encoder, decoder, cross = attention_weights(model, source, inputs)
    assert decoder is not None
    assert encoder.shape == (3, 2, len(source), len(source))
    assert decoder.shape == (2, 2, len(inputs), len(inputs))
    assert cross.shape == (2, 2, len(inputs), len(source))
    np.testing.assert_allclose(cross, forward_cross_weights(model, source, inputs).numpy(), atol=1e-6)
    for weights in (encoder, decoder, cross):
        np.testing.assert_allclose(weights.sum(axis=-1), 1.0, atol=1e-5)
    assert not np.triu(decoder, 1).any()
    # The first head of the first layer's self-attention, computed by hand.
    layer = cast(EncoderLayer, model.encoder[0])
    residual = cast(Residual, layer.residuals[0])
    with torch.no_grad():
        x = model.embedding(torch.tensor([source]), is_source=True)[0]
        y = residual.norm(x) if norm == "pre" else x
        d = config.head_dim
        q, k = layer.self_attention.w_q(y)[:, :d], layer.self_attention.w_k(y)[:, :d]
    np.testing.assert_allclose(encoder[0, 0], torch.softmax(q @ k.T / d**0.5, -1).numpy(), atol=1e-6)
    assert PAD_ID not in source


def test_maps_name_their_subwords(model: Transformer, tokenizer: Tokenizer) -> None:
    maps = maps_of(model, tokenizer, SOURCE, TARGET)
    assert "".join(maps.source) == f"{SPACE}{SOURCE.replace(' ', SPACE)}{END}"
    assert maps.inputs[0] == START
    assert maps.inputs[1:] == maps.outputs[:-1]
    assert maps.outputs[-1] == END
    translated = maps_of(model, tokenizer, SOURCE)
    assert translated.cross.shape[2:] == (len(translated.outputs), len(translated.source))
    with pytest.raises(ValueError, match="positions end at"):
        maps_of(model, tokenizer, SOURCE * 100, TARGET)


def test_words_have_the_sum_of_their_subwords_weights() -> None:
    cross = np.zeros((2, 2, 3, 5), np.float32)
    cross[0, 0] = [[0.5, 0.25, 0.25, 0.0, 0.0], [0.1, 0.1, 0.8, 0.0, 0.0], [0.0, 0.0, 0.0, 0.25, 0.75]]
    cross[0, 1] = cross[1] = 0.2
    empty = np.zeros((1, 1, 1, 1), np.float32)
    maps = AttentionMaps(
        (f"{SPACE}riv", "er", f"{SPACE}bank", ".", END),
        (START, "x", "y"),
        (f"{SPACE}Ufer", "s", END),
        empty,
        empty,
        cross,
    )
    alignment = align_words(maps, heads=[0])
    assert alignment.source == ("river", "bank", ".", END)
    assert alignment.target == ("Ufers", END)
    np.testing.assert_allclose(
        alignment.weights, [[0.475, 0.525, 0.0, 0.0], [0.0, 0.0, 0.25, 0.75]], atol=1e-6
    )
    assert alignment.links() == (1, 3)
    uniform = align_words(maps, layer=1)
    np.testing.assert_allclose(uniform.weights[0], [0.4, 0.2, 0.2, 0.2], atol=1e-6)
    one_layer = dataclasses.replace(maps, cross=cross[:1])
    np.testing.assert_allclose(align_words(one_layer, heads=[0]).weights, alignment.weights)
    with pytest.raises(ValueError, match="no layer 2: the decoder's are 0 to 1"):
        align_words(maps, layer=2)
    for heads in ([2], []):
        with pytest.raises(ValueError, match="heads: a layer's are 0 to 1"):
            align_words(maps, heads=heads)
    assert words_of(("a", f"{SPACE}b", "c")) == ([0, 1], ("a", "bc"))


def check_file(path: Path) -> None:
    content = path.read_bytes()
    if path.suffix == ".png":
        assert content.startswith(PNG)
    else:
        assert ElementTree.fromstring(content).tag.endswith("svg")
    assert len(content) > 3000


def log(run: Path, losses: list[float]) -> Path:
    run.mkdir()
    rows = [
        f"{step * 100},0,{loss + 0.1},{loss},{20 - loss},0.001,900,{step * 60}"
        for step, loss in enumerate(losses)
    ]
    (run / "train.csv").write_text("\n".join([",".join(FIELDS), *rows]) + "\n", "utf-8")
    return run


def test_curves_are_read_by_column(tmp_path: Path) -> None:
    curves = read_curves(log(tmp_path / "run", [4.0, 3.0]))
    assert curves.points["dev_loss"] == ((0.0, 0.0, 4.0), (100.0, 60.0, 3.0))
    assert set(curves.named("loss")) == {"train_loss", "dev_loss"}
    assert set(curves.named("bleu")) == {"dev_bleu"}
    (tmp_path / "other.csv").write_text("a,b\n1,2\n", "utf-8")
    (tmp_path / "new.csv").write_text(",".join(FIELDS) + "\n", "utf-8")
    for name, message in (
        ("none", "does not exist"),
        ("other.csv", "no training log"),
        ("new.csv", "no loss and no BLEU yet"),
    ):
        with pytest.raises(FigureError, match=message):
            read_curves(tmp_path / name)


def test_bleu_is_grouped_by_the_number_of_source_words() -> None:
    sources = ["one", "one two three", "one two three four", " ".join(["word"] * 9)]
    references = ["eins", "eins zwei drei vier", "eins zwei drei vier fünf", "Wort " * 9]
    translations = [
        "eins",
        "eins zwei drei vier",
        "eins zwei drei vier fünf",
        "ganz falsch geraten ist das hier leider",
    ]
    first, second = bleu_by_length(sources, translations, references, bounds=(2, 5))
    assert (first.name, first.num_sentences, round(first.bleu)) == ("2-4", 3, 100)
    assert (second.name, second.num_sentences) == ("5+", 1)
    assert second.bleu < 10
    assert len(bleu_by_length(sources, translations, references, bounds=(1, 20))) == 1
    with pytest.raises(FigureError, match=r"sources \(4\), translations \(1\)"):
        bleu_by_length(sources, ["eins"], references)


def plot(capsys: pytest.CaptureFixture[str], *arguments: object) -> tuple[int, str]:
    """Exit code and stderr."""
    code = main(["plot", *map(str, arguments)])
    return code, capsys.readouterr().err


@pytest.mark.seconds
def test_each_kind_of_figure_becomes_a_file(
    saved: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    runs = [log(tmp_path / name, [4.0, 3.0, 2.5]) for name in ("one", "two")]
    data = write_tsv(tmp_path / "test.tsv", pairs()[:20])
    (tmp_path / "out.txt").write_text("".join(f"{pair.target}\n" for pair in pairs()[:20]), "utf-8")
    sentence = ("--checkpoint", saved, "--source", SOURCE)
    for name, arguments in {
        "cross.png": ("attention", *sentence, "--target", TARGET),
        "encoder.svg": ("attention", *sentence, "--part", "encoder"),
        "decoder.svg": ("attention", *sentence, "--part", "decoder"),
        "alignment": (
            "alignment",
            *sentence,
            "--layer",
            1,
            "--heads",
            "0,1",
            "--target",
            "Das kostet $5 oder 5$.",
        ),
        "positions.png": ("positions", "--checkpoint", saved, "--length", 50),
        "curves.svg": ("curves", "--run", runs[0], "--run", f"B={runs[1]}", "--over", "hours"),
        "lengths.svg": ("lengths", "--data", data, "--translations", f"mine={tmp_path / 'out.txt'}"),
    }.items():
        code, lines = plot(capsys, *arguments, "--output", tmp_path / "figures" / name)
        assert code == 0, lines
        files = [Path(line) for line in lines.splitlines()]
        expected = [name] if "." in name else [f"{name}.png", f"{name}.svg"]
        assert [path.name for path in files] == expected
        for path in files:
            check_file(path)
    text = (tmp_path / "figures" / "curves.svg").read_text("utf-8")
    assert "one: train loss" in text
    assert "B: dev bleu" in text


@pytest.mark.seconds
def test_the_same_figure_has_the_same_bytes() -> None:
    from model.attention_figures import positions_picture
    from model.transformer import sinusoidal_positions

    one, two = (positions_picture(sinusoidal_positions(16, 20)) for _ in range(2))
    assert one.content("svg") == two.content("svg")
    assert one._repr_png_() == two._repr_png_()
    assert len(one._repr_png_()) < len(one.content("png"))


def test_a_suffix_in_capitals_names_the_format_of_the_file(
    saved: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    options = ("positions", "--checkpoint", saved, "--length", 4)
    assert plot(capsys, *options, "--output", tmp_path / "P.PNG") == (0, f"{tmp_path / 'P.PNG'}\n")
    assert (tmp_path / "P.PNG").read_bytes().startswith(PNG)


def test_an_error_is_one_line(saved: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model, sentence = ("--checkpoint", saved), ("--source", SOURCE)
    for arguments, message in (
        (("alignment", *model, *sentence, "--layer", 9), "there is no layer 9"),
        (("attention", *model, *sentence, "--tag", ">>fr<<"), "the vocabulary has no piece '>>fr<<'"),
        (
            ("attention", *model, *sentence, "--tokenizer", tmp_path / "none.spm"),
            "none.spm is not a SentencePiece model",
        ),
        (("positions", *model, "--length", 10_000), "the model has 256 positions"),
        (("positions", *model, "--length", 0), "--length 0: the model has 256 positions"),
        (("curves", "--run", tmp_path), "train.csv does not exist"),
        (
            ("curves", "--run", "a/train.csv", "--run", "b/train.csv"),
            "two inputs are called train.csv: rename one of them, as NAME=b/train.csv",
        ),
    ):
        code, lines = plot(capsys, *arguments, "--output", tmp_path / "x.png")
        assert code == (2 if message.startswith("two inputs") else 1)
        assert lines.startswith("transduce plot: ")
        assert message in lines
        assert len(lines.splitlines()) == 1


def test_a_bundles_weights_find_their_tokenizer() -> None:
    model, tokenizer, target_tokenizer = load_with_tokenizers(ROOT / "bundles" / "en-de" / "weights")
    assert model.config.vocab_size == tokenizer.vocab_size
    assert target_tokenizer is tokenizer, "both files of the bundle are equal"


def test_a_target_vocabulary_beside_a_checkpoint_in_no_bundle_is_not_read(
    saved: Path, tmp_path: Path
) -> None:
    shutil.copytree(saved, tmp_path / "step-1")
    (tmp_path / "target.spm").write_bytes(b"no vocabulary")
    _, tokenizer, target_tokenizer = load_with_tokenizers(tmp_path / "step-1")
    assert target_tokenizer is tokenizer


def program_of(notebook: Path) -> str:
    """Join the code of the cells. The program prints how many cells end with a picture, which Jupyter would show."""
    lines = ["shown = []"]
    for cell in json.loads(notebook.read_text("utf-8"))["cells"]:
        if cell["cell_type"] != "code":
            continue
        tree = ast.parse("".join(cell["source"]))
        last = tree.body[-1]
        if isinstance(last, ast.Expr):
            tree.body[-1] = ast.parse(f"shown.append({ast.unparse(last.value)})").body[0]
        lines.append(ast.unparse(tree))
    lines.append(
        "print('pictures:', sum(each._repr_png_()[:4] == b'\\x89PNG' for each in shown if hasattr(each, 'content')))"
    )
    return "\n".join(lines)


@pytest.mark.slow
def test_the_notebook_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "cells_of_the_notebook.py").write_text(program_of(NOTEBOOK), "utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    done = run_forked("cells_of_the_notebook", cwd=NOTEBOOK.parent)
    assert done.returncode == 0, done.stderr
    assert "Haus" in done.stdout
    assert done.stdout.splitlines()[-1] == "pictures: 5"


def test_the_notebook_shows_its_outputs_in_the_order_of_the_cells() -> None:
    cells = [cell for cell in json.loads(NOTEBOOK.read_text("utf-8"))["cells"] if cell["cell_type"] == "code"]
    assert [cell["execution_count"] for cell in cells] == list(range(1, len(cells) + 1))
    pictures = [
        output for cell in cells for output in cell["outputs"] if "image/png" in output.get("data", {})
    ]
    assert len(pictures) == 5
    assert NOTEBOOK.stat().st_size < 1_000_000


def test_a_short_model_shows_all_its_positions(
    tokenizer_path: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = preset("tiny", 400, max_length=40)
    content = checkpoint.Saved(Transformer(config).state_dict(), {"model": config.to_json()}, {}, {})
    checkpoint.save(tmp_path / "short", content, tokenizer_path)
    options = ("positions", "--checkpoint", tmp_path / "short", "--output", tmp_path / "short.png")
    assert plot(capsys, *options)[0] == 0
