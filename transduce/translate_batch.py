"""Translates a batch of texts through the client. A batch that is too large or too slow is sent again in halves."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any

from transduce.client import Client, ConnectionFailed, Model, TimedOut, TransduceError, Translation
from transduce.errors import CommandError

TOO_LARGE_OR_SLOW = frozenset({HTTPStatus.REQUEST_ENTITY_TOO_LARGE, HTTPStatus.GATEWAY_TIMEOUT})


@dataclass(frozen=True)
class TranslateParams:
    """Languages and options of every request, as `Client.translate` takes them."""

    source: str
    target: str
    options: Mapping[str, Any] = field(default_factory=dict)


def translate_batch(client: Client, texts: Sequence[str], params: TranslateParams) -> list[Translation]:
    """The translations of `texts`, in the same order.

    Raises:
        CommandError: the server cannot be reached, refuses the request, fails, or sends an invalid response.
    """
    try:
        result = client.translate(texts, source=params.source, target=params.target, **params.options)
    except TransduceError as error:
        if error.status in TOO_LARGE_OR_SLOW and len(texts) > 1:
            half = len(texts) // 2
            return translate_batch(client, texts[:half], params) + translate_batch(
                client, texts[half:], params
            )
        raise CommandError(error_line(error)) from error
    return list(result.translations)


def model_facts(model: Model) -> dict[str, str]:
    """Name, version and precision: a model with the same facts gives the same translations."""
    return {"name": model.name, "version": model.version, "precision": str(model.raw.get("precision", ""))}


def error_line(error: TransduceError) -> str:
    """The error's message, with a hint for the user where there is one."""
    if isinstance(error, ConnectionFailed) and error.message.startswith("no server"):
        return f"{error}; `make serve` starts a server"
    if isinstance(error, TimedOut) and error.status is None:
        return f"{error}; --timeout sets a longer limit"
    return str(error)
