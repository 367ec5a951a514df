"""Which sizes and precisions of a model the native kernels support."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from app.graphs import Precision
from export.native import MAX_HEAD_DIM, is_native_possible
from model.config import ModelConfig

ATTENTION_H = Path(__file__).resolve().parents[2] / "app" / "runtime" / "native" / "attention.h"


def test_max_head_dim_is_that_of_the_kernels() -> None:
    (largest,) = re.findall(r"MAX_HEAD_DIM = (\d+);", ATTENTION_H.read_text("utf-8"))
    assert int(largest) == MAX_HEAD_DIM


@pytest.mark.parametrize(
    ("d_model", "num_heads", "d_ff", "precision", "is_possible"),
    [
        (512, 8, 2048, "int8", True),
        (512, 4, 2048, "fp32", True),
        (512, 2, 2048, "int8", False),  # heads of 256 columns
        (96, 4, 2048, "int8", False),  # heads of 24 columns, no multiple of 16
        (512, 8, 2040, "int8", False),  # d_ff is no multiple of 16
        (512, 8, 2048, "fp16", False),
    ],
)
def test_which_head_widths_d_ff_and_precisions_the_kernels_support(
    d_model: int, num_heads: int, d_ff: int, precision: Precision, is_possible: bool
) -> None:
    config = ModelConfig(vocab_size=400, d_model=d_model, num_heads=num_heads, d_ff=d_ff)
    assert is_native_possible(config, precision) == is_possible
