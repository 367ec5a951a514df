"""`transduce translate`: translates stdin or a file through a running server, and keeps its lines or file format."""

from __future__ import annotations

import argparse
import sys
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import NoReturn

from tqdm import tqdm

from transduce.api_key import find_api_key
from transduce.arguments import (
    above_zero,
    add_decoding_arguments,
    decoding_options,
    default_url,
    not_negative,
    positive,
    server_url,
)
from transduce.client import Client
from transduce.errors import CommandError, ExitCode
from transduce.translate_batch import Piece, TranslateParams
from transduce.translate_file import FORMATS, FileTask, choose_format, translate_file
from transduce.translate_lines import (
    MAX_ITEMS,
    batches,
    json_line,
    read_lines,
    translated_line,
)
from transduce.translate_output import output_file
from transduce.translate_pieces import translate_pieces

DEFAULT_BATCH_SIZE = 32
# In practice no limit: --max-wait ends the retries.
MAX_RETRIES = 100_000


def add_translate_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `transduce translate`."""
    parser.add_argument(
        "file", nargs="?", type=Path, metavar="FILE", help="file to translate (default: stdin)"
    )
    parser.add_argument(
        "-o",
        "--output",
        type=Path,
        metavar="OUT",
        help="output file; the same command resumes after an interruption",
    )
    parser.add_argument(
        "--format",
        choices=FORMATS,
        help="format of the file (default: that of its suffix; plain text for stdin and for a file without a suffix)",
    )
    parser.add_argument(
        "--url",
        type=server_url,
        default=default_url(),
        help="root of the server (TRANSDUCE_URL; default: %(default)s)",
    )
    parser.add_argument("--source", required=True, help="language of the text, such as en; auto detects it")
    parser.add_argument("--target", required=True, help="language to translate into, such as de")
    parser.add_argument(
        "--model",
        metavar="NAME",
        help="one of the server's models (default: the first one that translates these languages)",
    )
    parser.add_argument(
        "--no-pivot",
        action="store_true",
        help="use one model only; without this option, two models may translate through a third language",
    )
    parser.add_argument(
        "--batch-size",
        type=batch_size,
        metavar="N",
        default=DEFAULT_BATCH_SIZE,
        help=f"lines or texts in a batch, at most {MAX_ITEMS} (default: %(default)s; 1 while lines are typed)",
    )
    parser.add_argument(
        "--api-key-file",
        type=Path,
        metavar="FILE",
        help="file with the API key (default: TRANSDUCE_API_KEY)",
    )
    parser.add_argument(
        "--timeout",
        type=above_zero,
        default=60.0,
        metavar="S",
        help="seconds to wait for one response (default: %(default)g)",
    )
    parser.add_argument(
        "--max-wait",
        type=not_negative,
        default=300.0,
        metavar="S",
        help="seconds to keep retrying while the server is overloaded or loading (default: %(default)g)",
    )
    add_decoding_arguments(parser)


def run_translate(args: argparse.Namespace) -> int:
    """Translate the file or stdin. Returns 0.

    Raises:
        CommandError: the input is not UTF-8, no format has its suffix, the API key is invalid, a request fails as in
            `translate_batch`, a file cannot be translated as in `translate_file`, the output cannot be written as in
            `output_file`, an option needs --json, or --json is set for another format than plain text or with --output.
        OSError: the input or the key cannot be read, or the output cannot be written.
    """
    options = decoding_options(args)
    if args.target_prefix:
        options["target_prefix"] = args.target_prefix
    if args.model:
        options["model"] = args.model
    if args.no_pivot:
        options["pivot"] = False
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
            raise CommandError("--json needs plain text and no --output", exit_code=ExitCode.USAGE)
        else:
            output = None if args.output is None else output_file(args.output)
            data = args.file.read_bytes() if args.file else sys.stdin.buffer.read()
            translate_file(client, FileTask(data, file_format, output, args.batch_size), params)
    return 0


def translate_stream(client: Client, args: argparse.Namespace, params: TranslateParams) -> None:
    """Translate plain text in batches of lines, and write each batch as soon as it is translated."""
    from app.text.language_codes import separator

    gap = separator(params.source, params.target)
    format_line = json_line if args.json else partial(translated_line, gap=gap)
    with ExitStack() as stack:
        source = stack.enter_context(args.file.open("rb")) if args.file else sys.stdin.buffer
        progress = stack.enter_context(progress_bar(args.file))
        # A typed line is translated at once: its batch does not wait for further lines.
        is_typed = args.file is None and sys.stdin.isatty()
        for batch in batches(read_lines(source), max_lines=1 if is_typed else args.batch_size):
            pieces = [Piece(text, index == 0) for line in batch for index, text in enumerate(line.pieces)]
            answers = translate_pieces(client, pieces, params)
            for line in batch:
                sys.stdout.buffer.write(format_line(line, answers).encode("utf-8", "replace"))
                progress.update(line.num_bytes)
            sys.stdout.buffer.flush()


def progress_bar(file: Path | None) -> tqdm[NoReturn]:
    """A progress bar on stderr that counts bytes of `file`.

    It is hidden for stdin, and if stderr is not a terminal. It is also hidden if stdout is a terminal, because the
    lines there show the progress.
    """
    is_hidden = file is None or not sys.stderr.isatty() or sys.stdout.isatty()
    total = None if file is None else file.stat().st_size
    return tqdm(
        total=total, unit="B", unit_scale=True, disable=is_hidden, desc="translating", file=sys.stderr
    )


def batch_size(text: str) -> int:
    """A whole number from 1 to `MAX_ITEMS`.

    Raises:
        argparse.ArgumentTypeError: the text is not such a number.
    """
    number = positive(text)
    if number > MAX_ITEMS:
        raise argparse.ArgumentTypeError(f"{number} is more than {MAX_ITEMS}, the limit of one request")
    return number
