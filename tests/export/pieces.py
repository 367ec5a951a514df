"""The subwords of ids, as CTranslate2 reads and writes them."""

from __future__ import annotations

from collections.abc import Sequence

from app.text.tokenizer import Tokenizer


def pieces_of(tokenizer: Tokenizer, ids: Sequence[int]) -> list[str]:
    """The piece of each id in the tokenizer's SentencePiece model."""
    return [str(tokenizer._processor.id_to_piece(each)) for each in ids]
