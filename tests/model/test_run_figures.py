"""Training logs that cannot be read."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest

from model.run_figures import FigureError, read_curves


def test_a_field_beyond_the_limit_of_csv_is_one_error(tmp_path: Path) -> None:
    """csv.Error is no ValueError."""
    file = tmp_path / "train.csv"
    file.write_text(f"step,loss\n1,{'2' * (csv.field_size_limit() + 1)}\n", "utf-8")
    with pytest.raises(FigureError, match=r"no training log.*field larger than field limit"):
        read_curves(file)
