"""Prints the server's address, the last line that a start prints on a terminal."""

from __future__ import annotations

import sys


def print_address(scheme: str, host: str, port: int, *, has_page: bool) -> None:
    """Print the server's address on stderr, if stderr is a terminal. host: the address that it listens on."""
    if not sys.stderr.isatty():
        return
    # A browser cannot open the wildcard address.
    shown = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)
    url = f"{scheme}://{f'[{shown}]' if ':' in shown else shown}:{port}"
    page = f"the page is at {url}/" if has_page else f"the API is at {url}/v1/translate"
    sys.stderr.write(f"Transduce is ready: {page}\n")
