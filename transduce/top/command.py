"""`transduce top [URL]`: shows a running server until Ctrl-C, or once as text or JSON."""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import sys
import time
from pathlib import Path

from transduce.api_key import find_api_key
from transduce.arguments import default_url, number, server_url
from transduce.client.wire import Endpoint
from transduce.errors import CommandError, ExitCode
from transduce.top.frame import Frame, compare
from transduce.top.scrape import Away, Scrape, Scraper

# Minimum seconds between two frames. Shorter intervals have few requests, and their percentiles say little.
MIN_INTERVAL_S = 0.1
# A day. Python refuses very long pauses.
MAX_INTERVAL_S = 86_400.0
TIMEOUT_S = 10.0
# Values of TERM for terminals on which rich draws no frames.
DUMB_TERMINALS = {"dumb", "unknown"}
# Width of the text of --once, in characters, if the variable COLUMNS is no positive number.
WIDTH = 120


def add_top_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `transduce top`."""
    parser.add_argument(
        "url",
        nargs="?",
        type=server_url,
        default=default_url(),
        metavar="URL",
        help="root of the server, or of its probe port (TRANSDUCE_URL; default: %(default)s)",
    )
    parser.add_argument(
        "--interval",
        type=interval,
        default=2.0,
        metavar="S",
        help="seconds between two views, over which rates and percentiles are computed (default: %(default)g)",
    )
    form = parser.add_mutually_exclusive_group()
    form.add_argument("--once", action="store_true", help="print one view as text, after one interval")
    form.add_argument(
        "--json", action="store_true", help="print one view as a JSON object, after one interval"
    )
    parser.add_argument(
        "--api-key-file",
        type=Path,
        metavar="FILE",
        help="file with the API key (default: TRANSDUCE_API_KEY)",
    )


def interval(text: str) -> float:
    """A number of seconds from MIN_INTERVAL_S to MAX_INTERVAL_S. Raises argparse.ArgumentTypeError."""
    seconds = number(text)
    if seconds < MIN_INTERVAL_S:
        raise argparse.ArgumentTypeError(f"{text} is less than {MIN_INTERVAL_S:g}")
    if seconds > MAX_INTERVAL_S:
        raise argparse.ArgumentTypeError(f"{text} is more than {MAX_INTERVAL_S:g}")
    return seconds


def run_top(args: argparse.Namespace) -> int:
    """Show the server. Returns 0.

    Raises:
        CommandError: the API key is invalid. With --once or --json, the server gives no metrics. Without these options,
            stdout is not a terminal, or is a terminal that cannot draw frames.
        OSError: the file with the key cannot be read.
        ValueError: the proxy or certificate variables of the environment cannot be used.
    """
    is_single: bool = args.once or args.json
    if not is_single:
        term = os.environ.get("TERM", "")
        if not sys.stdout.isatty():
            raise CommandError("stdout is not a terminal: add --once or --json", exit_code=ExitCode.USAGE)
        if term.lower() in DUMB_TERMINALS:
            raise CommandError(f"TERM is {term}: add --once or --json", exit_code=ExitCode.USAGE)
    endpoint = Endpoint.of(args.url, find_api_key(args.api_key_file), TIMEOUT_S)
    with Scraper(endpoint) as scraper:
        if not is_single:
            _show(scraper, endpoint.url, args.interval)
            return 0
        try:
            before = scraper.scrape()
            time.sleep(args.interval)
            frame = compare(before, scraper.scrape())
        except Away as error:
            raise CommandError(str(error)) from error
    if args.json:
        print(json.dumps(frame.as_json()))
    else:
        _print(frame, endpoint.url)
    return 0


def _print(frame: Frame, url: str) -> None:
    from rich.console import Console

    from transduce.top.view import view

    columns = os.environ.get("COLUMNS", "")
    width = (int(columns) if columns.isdecimal() else 0) or WIDTH
    Console(no_color=True, highlight=False, force_terminal=False, width=width).print(view(frame, url, width))


def _show(scraper: Scraper, url: str, interval_s: float) -> None:
    """Draw a frame in every interval, until Ctrl-C. Goes on while the server is away."""
    from rich.live import Live

    from transduce.top.view import away, view

    before: Scrape | None = None
    with contextlib.suppress(KeyboardInterrupt), Live(screen=True, auto_refresh=False) as live:
        while True:
            try:
                now = scraper.scrape()
                shown = view(compare(before, now), url, live.console.width)
                before = now
            except Away as error:
                before, shown = None, away(str(error), url)
            live.update(shown, refresh=True)
            time.sleep(interval_s)
