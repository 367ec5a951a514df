"""The client side of Transduce: the `transduce` command and the HTTP client.

Every name of `transduce.client`, such as `Client` and `AsyncClient`, is available here too. These names are imported on
first use, so that the command starts without an HTTP library.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from transduce.client import *  # noqa: F403


def __getattr__(name: str) -> object:
    """Import a name of `transduce.client`. Raises AttributeError."""
    if not name.startswith("_"):
        client = import_module("transduce.client")
        if name in client.__all__:
            found: object = getattr(client, name)
            return found
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
