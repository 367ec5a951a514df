"""The choice of the decoder layer and heads that align words best, and the export option for it."""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
import pytest

from app.text.tokenizer import Tokenizer
from benchmarks.alignment import (
    Point,
    Tally,
    candidate_choices,
    find_anchors,
    main,
    overlapping,
    points_of,
    read_examples,
)
from export.cli import add_export_arguments, alignment_argument
from model.corpus import Pair
from model.tokenizer_training import train_tokenizer
from tests.model.sentences import pairs, write_tokenizer, write_tsv


def test_an_anchor_occurs_once_in_source_and_target() -> None:
    pair = Pair(
        "In 1999 Mr Brown sold 42 cars, 42 bikes and 3.5 t of Tea to Anna (yes).",
        "Im Jahr 1999 verkaufte Herr Brown 42 Autos, ebenso viele Rad und 3.5 t Tea an Anna (ja).",
        "home",
    )
    found = {(anchor.kind, pair.source[slice(*anchor.source)]) for anchor in find_anchors(pair)}
    assert found == {
        ("number", "1999"), ("number", "3.5"), ("name", "Brown"), ("name", "Tea"), ("name", "Anna"),
        ("punctuation", "("), ("punctuation", ")"),
    }  # fmt: skip
    for anchor in find_anchors(pair):
        assert pair.source[slice(*anchor.source)] == pair.target[slice(*anchor.target)]


def test_the_first_word_is_not_a_name() -> None:
    assert not list(find_anchors(Pair("Anna draws 4 cats", "Anna zeichnet vier Katzen", "home")))


def test_points_are_subwords_of_anchors(tmp_path: Path) -> None:
    tokenizer = Tokenizer(write_tokenizer(tmp_path / "tokenizer.spm"))
    pair = Pair("today Anna sees 42 cats", "heute sieht Anna 42 Katzen", "home")
    target, source = (tokenizer.encode(text).ids for text in (pair.target, pair.source))
    points = points_of(pair, tokenizer)
    assert {point.kind for point in points} == {"name", "number"}
    for point in points:
        word = tokenizer.decode([target[point.step]]).text.strip()
        assert word in "".join(tokenizer.decode([source[index]]).text.strip() for index in point.sources)


def test_sources_have_the_tag_that_the_model_was_trained_with(tmp_path: Path) -> None:
    train_tokenizer(pairs(), tmp_path / "tagged.spm", vocab_size=400, tags=(">>de<<",))
    tokenizer = Tokenizer(tmp_path / "tagged.spm")
    args = argparse.Namespace(data=[str(write_tsv(tmp_path / "pairs.tsv", pairs()))], limit=9)
    plain, tagged = (read_examples(args, tokenizer, tag, 64) for tag in (None, ">>de<<"))
    assert len(tagged) == len(plain) == 9
    for one, other in zip(plain, tagged, strict=True):
        assert other.source == (tokenizer.id_of(">>de<<"), *one.source)
        for point, moved in zip(one.points, other.points, strict=True):
            assert moved.sources == tuple(index + 1 for index in point.sources)


def test_overlapping_returns_the_subwords_that_share_a_character() -> None:
    assert overlapping([(0, 3), (3, 3), (3, 7), (7, 9)], (2, 4)) == (0, 2)
    assert overlapping([(0, 3), (3, 7)], (7, 9)) == ()


def test_accuracy_is_counted_by_kind_and_averaged_over_kinds() -> None:
    """Head 0 attends to source position 0 at every step. Head 1 attends to position n at step n.

    With shift 1, the weights of the step after the target subword count.
    """
    weights = np.zeros((1, 2, 4, 4), np.float32)
    weights[0, 0, :, 0] = 1.0
    weights[0, 1] = 0.9 * np.eye(4)
    # For each point: kind, target step, source positions.
    points = [Point("number", 1, (1,)), Point("number", 0, (0,)), Point("name", 2, (0, 1))]
    tally, shifted = Tally(), Tally()
    choices = [(0, (0,)), (0, (1,)), (0, (0, 1))]
    tally.add(weights, points, choices, shift=0)
    shifted.add(weights, points, choices, shift=1)
    assert tally.counts() == {"name": 1, "number": 2}
    assert tally.shares((0, (0,))) == {"name": 1.0, "number": 0.5, "mean": 0.75}
    assert tally.shares((0, (1,))) == {"name": 0.0, "number": 1.0, "mean": 0.5}
    assert tally.shares((0, (0, 1))) == tally.shares((0, (0,)))
    assert shifted.shares((0, (1,))) == {"name": 0.0, "number": 0.0, "mean": 0.0}
    assert candidate_choices(tally, 1, 2) == [(0, (0,)), (0, (0, 1))]


def test_two_pairs_need_an_anchor_and_a_kind_without_anchors_is_nan(
    tiny: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data = tmp_path / "pairs.tsv"
    arguments = ["--bundle", str(tiny / "bundle"), "--data", str(data)]
    data.write_text("Anna sees 42 cats\tAnna sieht 42 Katzen\n")
    with pytest.raises(SystemExit, match="fewer than two pairs have an anchor"):
        main(arguments)
    data.write_text(data.read_text() * 2)
    assert main(arguments) == 0
    kinds, first = (line.split() for line in capsys.readouterr().out.splitlines()[:2])
    assert [first[kinds.index(kind)] for kind in ("name", "punct.")] == ["nan", "nan"]
    assert float(first[kinds.index("number")]) <= 1


def test_the_export_option_is_parsed() -> None:
    parser = argparse.ArgumentParser()
    add_export_arguments(parser)
    line = "--checkpoint a --output b --name c --version 1 --source en --target de --card d"
    needed = line.split()
    assert parser.parse_args([*needed, "--alignment", "1:0,3"]).alignment == (1, (0, 3))
    assert parser.parse_args(needed).alignment is None
    for text in ("", "1", "1:", ":0", "1:0,", "one:0", "1:0:2"):
        with pytest.raises(argparse.ArgumentTypeError):
            alignment_argument(text)
