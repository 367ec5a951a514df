"""`transduce translate`: stdin or a file, line by line or as the format that it has, through a running server."""

from __future__ import annotations

import argparse
import os
import sys
from contextlib import ExitStack
from pathlib import Path
from typing import NoReturn

from tqdm import tqdm

from transduce.arguments import add_decoding_arguments, decoding_options, positive
from transduce.client import Client
from transduce.errors import CommandError, ExitCode
from transduce.translate_batch import TranslateParams, translate_batch
from transduce.translate_file import FORMATS, FileTask, choose_format, translate_file
from transduce.translate_lines import (
    MAX_ITEMS,
    batches,
    json_line,
    read_lines,
    requests,
    translated_line,
)

DEFAULT_BATCH_SIZE = 32
# A wait ends when --max-wait is used up, not after so many repetitions.
MAX_RETRIES = 100_000


def add_translate_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `transduce translate`."""
    parser.add_argument("file", nargs="?", type=Path, metavar="FILE", help="what to translate; default stdin")
    parser.add_argument(
        "-o", "--output", type=Path, metavar="OUT", help="write there, and go on there after an interruption"
    )
    parser.add_argument(
        "--format", choices=FORMATS, help="what the file is (default: by its suffix, plain text without one)"
    )
    parser.add_argument(
        "--url",
        default=os.environ.get("TRANSDUCE_URL", "http://127.0.0.1:8000"),
        help="the server (TRANSDUCE_URL; default: %(default)s)",
    )
    parser.add_argument("--source", required=True, help="language of the text, such as en; auto: detected")
    parser.add_argument("--target", required=True, help="language to translate into, such as de")
    parser.add_argument(
        "--batch-size",
        type=batch_size,
        metavar="N",
        default=DEFAULT_BATCH_SIZE,
        help=f"texts in one request, at most {MAX_ITEMS} (default: %(default)s; 1 at a terminal)",
    )
    parser.add_argument(
        "--api-key-file",
        type=Path,
        metavar="FILE",
        help="file that holds the API key (else TRANSDUCE_API_KEY)",
    )
    parser.add_argument(
        "--timeout",
        type=float,
        default=60.0,
        metavar="S",
        help="seconds for one answer (default: %(default)g)",
    )
    parser.add_argument(
        "--max-wait",
        type=float,
        default=300.0,
        metavar="S",
        help="seconds to keep trying when the server is overloaded or loading (default: %(default)g)",
    )
    add_decoding_arguments(parser)


def run_translate(args: argparse.Namespace) -> int:
    """Translate the file or stdin.

    Raises:
        CommandError: the input cannot be read, or the server fails as `translate_batch` says, or --json cannot be had.
        OSError: the file cannot be read, or the output not be written.
    """
    options = decoding_options(args)
    if args.target_prefix:
        options["target_prefix"] = args.target_prefix
    params = TranslateParams(args.source, args.target, options)
    with Client(
        args.url,
        api_key=find_api_key(args.api_key_file),
        timeout_s=args.timeout,
        max_retries=MAX_RETRIES,
        max_wait_s=args.max_wait,
    ) as client:
        file_format = choose_format(args.file, args.format)
        if file_format == "txt" and args.output is None:
            translate_stream(client, args, params)
        elif args.json:
            raise CommandError("--json needs plain text, without --output", exit_code=ExitCode.USAGE)
        else:
            data = args.file.read_bytes() if args.file else sys.stdin.buffer.read()
            translate_file(client, FileTask(data, file_format, args.output, args.batch_size), params)
    return 0


def translate_stream(client: Client, args: argparse.Namespace, params: TranslateParams) -> None:
    """Lines in, lines out, each batch written as soon as it is there."""
    written = json_line if args.json else translated_line
    with ExitStack() as stack:
        source = stack.enter_context(args.file.open("rb")) if args.file else sys.stdin.buffer
        progress = stack.enter_context(progress_bar(args.file))
        # Whoever types wants the answer to each line at once.
        is_typed = args.file is None and sys.stdin.isatty()
        for batch in batches(read_lines(source), max_lines=1 if is_typed else args.batch_size):
            texts = [piece for line in batch for piece in line.pieces]
            answers = (
                each for request in requests(texts) for each in translate_batch(client, request, params)
            )
            for line in batch:
                sys.stdout.buffer.write(written(line, answers).encode("utf-8", "replace"))
                progress.update(line.num_bytes)
            sys.stdout.buffer.flush()


def progress_bar(file: Path | None) -> tqdm[NoReturn]:
    """A bar on stderr that counts bytes of `file`; silent for stdin and where stderr is no terminal."""
    is_hidden = file is None or not sys.stderr.isatty()
    total = None if file is None else file.stat().st_size
    return tqdm(
        total=total, unit="B", unit_scale=True, disable=is_hidden, desc="translating", file=sys.stderr
    )


def find_api_key(path: Path | None) -> str | None:
    """The API key in the file at `path`, else the one in TRANSDUCE_API_KEY, else None; white space around it goes.

    Raises:
        CommandError: there is one to be read, but it is empty or holds characters that no header carries.
        OSError: the file cannot be read.
    """
    text = path.read_text("utf-8") if path else os.environ.get("TRANSDUCE_API_KEY")
    if text is None:
        return None
    key = text.strip()
    if not key or not key.isascii() or not key.isprintable():
        raise CommandError(f"{path or 'TRANSDUCE_API_KEY'} holds no API key of printable ASCII")
    return key


def batch_size(text: str) -> int:
    """A whole number from 1 to `MAX_ITEMS`.

    Raises:
        argparse.ArgumentTypeError: it is not.
    """
    number = positive(text)
    if number > MAX_ITEMS:
        raise argparse.ArgumentTypeError(
            f"{number} is more than {MAX_ITEMS}, the most that a request may hold"
        )
    return number
