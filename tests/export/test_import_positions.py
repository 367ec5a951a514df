"""The positions of M2M-100 begin after the id of the padding token, as in `transformers`."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from model.m2m import read_m2m
from tests.export.m2m_folder import MAX_LENGTH, write_m2m

pytestmark = pytest.mark.training


@pytest.mark.parametrize(
    "special",
    [
        ("<pad>", "</s>", "<s>", "<unk>"),
        ("<s>", "<pad>", "</s>", "<unk>"),
        ("<s>", "</s>", "<unk>", "<pad>"),
    ],
    ids=["padding is 0", "padding is 1", "padding is 3"],
)
def test_positions_are_those_of_transformers(tmp_path: Path, special: tuple[str, ...]) -> None:
    end = special.index("</s>")
    theirs = write_m2m(
        tmp_path,
        special=special,
        pad_token_id=special.index("<pad>"),
        bos_token_id=special.index("<s>"),
        eos_token_id=end,
        decoder_start_token_id=end,
    )
    text = torch.full((1, MAX_LENGTH), len(special))  # the first ordinary piece, repeated
    expected = theirs.get_encoder().embed_positions(text)[0]
    assert torch.equal(read_m2m(tmp_path).state["embedding.positions"], expected)
