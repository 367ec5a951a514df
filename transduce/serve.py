"""`transduce serve`: passes its command-line options to the server, which reads the environment itself."""

from __future__ import annotations

import argparse
import gc


def add_serve_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the most common settings as options; docs/configuration.md lists all settings."""
    parser.add_argument("--host", help="address to listen on (TRANSDUCE_HOST; default: 127.0.0.1)")
    parser.add_argument("--port", type=port_number, help="port to listen on (TRANSDUCE_PORT; default: 8000)")
    parser.add_argument(
        "--bundle",
        metavar="FOLDER",
        help="bundle to serve (TRANSDUCE_BUNDLE; default: the only one in the folder bundles)",
    )
    parser.add_argument(
        "--bundles",
        metavar="FOLDER",
        action="append",
        help="serve every bundle in the folder (TRANSDUCE_BUNDLES)",
    )
    parser.add_argument(
        "--watch",
        action="store_true",
        default=None,
        help="reload a model when its bundle changes, and the keys when their file changes (TRANSDUCE_WATCH)",
    )


def run_serve(args: argparse.Namespace) -> int:
    """Serve until SIGTERM or Ctrl-C and return the exit code, as `app.main.serve`.

    Raises:
        OSError: the address cannot be bound.
    """
    # Imported modules are never freed, and searching them for garbage takes a tenth of the start time. `app.main`
    # enables the collector again when the model is loaded.
    gc.disable()
    from app.workers.early_start import start_early

    fork_server = start_early()
    try:
        from app.main import serve

        names = ("host", "port", "bundle", "bundles", "watch")
        options = {name: value for name in names if (value := getattr(args, name)) is not None}
        return serve(options, fork_server)
    finally:
        if fork_server is not None:
            fork_server.close()


def port_number(text: str) -> int:
    """A TCP port; 0 lets the system choose one.

    Raises:
        argparse.ArgumentTypeError: the text is not a whole number from 0 to 65535.
    """
    if not (text.isascii() and text.isdigit() and int(text) <= 65535):
        raise argparse.ArgumentTypeError(f"{text!r} is not a port from 0 to 65535")
    return int(text)
