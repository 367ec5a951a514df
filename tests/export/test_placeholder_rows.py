"""The rows and biases of the placeholder symbols in an imported model."""

from __future__ import annotations

import pytest
import torch

from app.text.tokenizer import PLACEHOLDER_SYMBOLS
from model.config import UNK_ID
from model.imported import FIRST, NEVER, Specials, masked_bias, piece_order, rows_of

SPECIALS = Specials(pad=0, start=1, end=2, unknown=3)
FIRST_SYMBOL, LAST_SYMBOL = UNK_ID + 1, len(FIRST)


@pytest.mark.parametrize("num_symbols", [0, 1, 7])
def test_symbols_of_a_foreign_vocabulary_have_the_row_of_the_unknown_token(num_symbols: int) -> None:
    pieces = [*FIRST[:4], "a", "b", *PLACEHOLDER_SYMBOLS[:num_symbols]]
    vocabulary = {piece: index for index, piece in enumerate(pieces)}
    rows = rows_of(vocabulary, piece_order(vocabulary), SPECIALS)
    assert rows == [0, 1, 2, 3, *[SPECIALS.unknown] * len(PLACEHOLDER_SYMBOLS), 4, 5]
    bias = masked_bias(torch.zeros(len(rows)), vocabulary)
    assert bias[[FIRST_SYMBOL, UNK_ID]].tolist() == [0.0, NEVER]
    assert (bias[FIRST_SYMBOL + 1 : LAST_SYMBOL] == NEVER).all()


def test_symbols_of_our_own_vocabulary_keep_their_rows() -> None:
    vocabulary = {piece: index for index, piece in enumerate([*FIRST, "a"])}
    rows = rows_of(vocabulary, piece_order(vocabulary), SPECIALS)
    assert rows == list(range(len(FIRST) + 1))
    assert (masked_bias(torch.zeros(len(rows)), vocabulary) == 0.0).all()
