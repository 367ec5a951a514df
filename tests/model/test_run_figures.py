"""Figures of training logs, and logs that cannot be read."""

from __future__ import annotations

import csv
from pathlib import Path

import matplotlib as mpl
import pytest

from model.run_figures import FigureError, curves_picture, draw, read_curves

LOG = """step,train_loss,dev_loss,dev_bleu,elapsed_s{}
10,5.0,4.5,{},60{}
20,4.0,3.5,{},120{}
"""


@pytest.mark.parametrize("scores", [("", ""), ("1.5", "3.5")], ids=["losses", "losses and BLEU"])
def test_the_picture_of_a_run_has_the_curves_of_all_pairs(tmp_path: Path, scores: tuple[str, str]) -> None:
    """The curves of single domains are left out, because there may be many domains."""
    first, second = scores
    (tmp_path / "all.csv").write_text(LOG.format("", first, "", second, ""), "utf-8")
    log = tmp_path / "train.csv"
    log.write_text(LOG.format(",dev_loss_home", first, ",3.0", second, ",2.0"), "utf-8")
    draw(log, tmp_path / "curve.png")
    expected = curves_picture({"run": read_curves(tmp_path / "all.csv")}).content("png")
    assert (tmp_path / "curve.png").read_bytes() == expected


def test_a_log_without_times_has_its_curves_at_the_start(tmp_path: Path) -> None:
    (tmp_path / "train.csv").write_text("step,dev_loss\n10,4.5\n", "utf-8")
    assert read_curves(tmp_path).points == {"dev_loss": ((10.0, 0.0, 4.5),)}


def test_drawing_does_not_change_the_backend_of_matplotlib(tmp_path: Path) -> None:
    (tmp_path / "train.csv").write_text(LOG.format("", "", "", "", ""), "utf-8")
    mpl.use("svg")
    try:
        draw(tmp_path / "train.csv", tmp_path / "curve.png")
        assert mpl.get_backend() == "svg"
    finally:
        mpl.use("agg")


def test_a_field_larger_than_the_limit_of_csv_is_a_figure_error(tmp_path: Path) -> None:
    """The error is a csv.Error, which is no ValueError."""
    file = tmp_path / "train.csv"
    file.write_text(f"step,loss\n1,{'2' * (csv.field_size_limit() + 1)}\n", "utf-8")
    with pytest.raises(FigureError, match=r"no training log.*field larger than field limit"):
        read_curves(file)
