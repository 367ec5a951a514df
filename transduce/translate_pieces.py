"""Translates the pieces of lines or of units, in requests within the server's default limits."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from itertools import islice

from transduce.client import Client
from transduce.translate_batch import Part, Piece, TranslateParams, translate_batch
from transduce.translate_lines import requests


def translate_pieces(
    client: Client, pieces: Sequence[Piece], params: TranslateParams
) -> Iterator[list[Part]]:
    """Yield the parts of each piece, in order, as `translate_batch` returns them.

    Raises:
        CommandError: as in `translate_batch`.
    """
    halves = partial(cut_in_two, is_text="format" not in params.options)
    remaining = iter(pieces)
    for texts in requests(piece.text for piece in pieces):
        yield from translate_batch(client, list(islice(remaining, len(texts))), params, halves)


def cut_in_two(text: str, *, is_text: bool) -> tuple[str, ...]:
    """Cut a text before or at its middle, as `app.files.parts` does.

    Markup may be cut after the middle, or not at all.
    """
    from app.files.parts import cut

    first = next(cut(text, (len(text) + 1) // 2, is_text=is_text))
    return (first, text[len(first) :]) if len(first) < len(text) else (text,)
