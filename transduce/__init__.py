"""The client side of Transduce: the `transduce` command and the HTTP client.

Every name of `transduce.client`, such as `Client` and `AsyncClient`, is available here too. These names are imported on
first use, so that the command starts without an HTTP library.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from transduce import client as client
    from transduce.client import *  # noqa: F403
else:  # a type checker that saw these functions would accept any name

    def __getattr__(name: str) -> object:
        """Import `transduce.client`, or one of its names. Raises AttributeError."""
        if name == "client":
            return import_module("transduce.client")
        if name == "__all__" or not name.startswith("_"):
            client = import_module("transduce.client")
            if name in {"__all__", *client.__all__}:
                return getattr(client, name)
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")

    def __dir__() -> list[str]:
        """The names of this module and of `transduce.client`."""
        return sorted({*globals(), *import_module("transduce.client").__all__})
