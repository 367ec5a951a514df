"""Translates a batch of texts through the client. A batch that is too large or too slow is sent again in halves.

A single text that is too large is cut in two.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any
from urllib.parse import urlsplit

from transduce.client import Client, ConnectionFailed, Model, TimedOut, TransduceError, Translation
from transduce.client.wire import is_loopback
from transduce.errors import CommandError

# The client's message if it cannot connect, with the server's URL.
NO_SERVER = re.compile(r"no server answers at (\S+)")
TOO_LARGE_OR_SLOW = frozenset({HTTPStatus.REQUEST_ENTITY_TOO_LARGE, HTTPStatus.GATEWAY_TIMEOUT})


@dataclass(frozen=True)
class TranslateParams:
    """Languages and options of every request, as `Client.translate` takes them."""

    source: str
    target: str
    options: Mapping[str, Any] = field(default_factory=dict)

    def options_for(self, pieces: Sequence[Piece]) -> dict[str, Any]:
        """The options of a request for these pieces. Only a first piece has the `target_prefix`."""
        options = dict(self.options)
        prefix = options.get("target_prefix")
        if prefix:
            options["target_prefix"] = [prefix if piece.is_first else "" for piece in pieces]
        return options


@dataclass(frozen=True)
class Piece:
    """A text to translate: a line or a unit, or a piece of one. is_first: whether it begins its line or unit."""

    text: str
    is_first: bool = True


@dataclass(frozen=True)
class Part:
    """A part of a piece, mostly the whole piece, and its translation. text: the source of the part."""

    text: str
    translation: Translation


def translate_batch(
    client: Client,
    pieces: Sequence[Piece],
    params: TranslateParams,
    halves: Callable[[str], Sequence[str]],
) -> list[list[Part]]:
    """The parts of each piece, in the same order. A piece has several parts if the server refuses it as too large.

    halves: cuts a text in two; returns the text alone if it cannot be cut.

    Raises:
        CommandError: the server cannot be reached, refuses the request, fails, or sends an invalid response.
    """
    try:
        result = client.translate(
            [piece.text for piece in pieces],
            source=params.source,
            target=params.target,
            **params.options_for(pieces),
        )
    except TransduceError as error:
        if error.status in TOO_LARGE_OR_SLOW and len(pieces) > 1:
            middle = len(pieces) // 2
            return [
                parts
                for half in (pieces[:middle], pieces[middle:])
                for parts in translate_batch(client, half, params, halves)
            ]
        if error.status == HTTPStatus.REQUEST_ENTITY_TOO_LARGE:
            (piece,) = pieces
            texts = halves(piece.text)
            if len(texts) > 1:
                cut = [Piece(text, piece.is_first and index == 0) for index, text in enumerate(texts)]
                found = [translate_batch(client, [half], params, halves) for half in cut]
                return [[part for [parts] in found for part in parts]]
        raise CommandError(error_line(error)) from error
    return [
        [Part(piece.text, translation)]
        for piece, translation in zip(pieces, result.translations, strict=True)
    ]


def model_facts(model: Model) -> dict[str, str]:
    """Name, version and precision: a model with the same facts gives the same translations."""
    return {"name": model.name, "version": model.version, "precision": str(model.raw.get("precision", ""))}


def error_line(error: TransduceError) -> str:
    """The error's message, with a hint for the user where there is one."""
    unanswered = NO_SERVER.match(error.message) if isinstance(error, ConnectionFailed) else None
    if unanswered and is_loopback(urlsplit(unanswered[1]).hostname or ""):
        return f"{error}; `transduce serve` starts one"
    if isinstance(error, TimedOut) and error.status is None:
        return f"{error}; --timeout sets a longer limit"
    return str(error)
