"""`transduce translate`: a text, line by line, through a running server.

Line structure is kept exactly: every input line gives one output line with the line ending that it had, blank
lines and spaces at either end stay as they are, and a last line without an ending keeps none.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import sys
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, BinaryIO, NoReturn

from tqdm import tqdm

from transduce.arguments import add_decoding_arguments, decoding_options, positive
from transduce.client import ClientOptions, TranslateOptions, TranslationClient
from transduce.errors import CommandError

# The server's default limits for one request.
MAX_ITEMS = 128
MAX_REQUEST_CHARACTERS = 50_000
MAX_ITEM_CHARACTERS = 5_000
DEFAULT_BATCH_SIZE = 32

BYTE_ORDER_MARK = "\ufeff"
# The end of a sentence with the space behind it, and any space: where a line that is too long may be cut.
SENTENCE_END = re.compile(r"[.!?…。！？][\"'”’»)\]]*\s+")
SPACE = re.compile(r"\s+")

# A text's translation as the server tells it: `text` and what else was asked for.
Answer = dict[str, Any]


@dataclass(frozen=True)
class Line:
    """One line of the input: `before` + text + `after` is the line as it stood.

    Attributes:
        before: a byte order mark, white space.
        pieces: the text, in pieces of at most MAX_ITEM_CHARACTERS that join to it; empty for a blank line.
        after: white space and the line ending.
        num_bytes: length of the whole line in UTF-8.
    """

    before: str
    pieces: tuple[str, ...]
    after: str
    num_bytes: int


def add_translate_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `transduce translate`."""
    parser.add_argument("file", nargs="?", type=Path, metavar="FILE", help="UTF-8 text; default stdin")
    parser.add_argument(
        "--url",
        default=os.environ.get("TRANSDUCE_URL", "http://127.0.0.1:8000"),
        help="the server (TRANSDUCE_URL; default: %(default)s)",
    )
    parser.add_argument("--source", required=True, help="language of the text, such as en")
    parser.add_argument("--target", required=True, help="language to translate into, such as de")
    parser.add_argument(
        "--batch-size",
        type=batch_size,
        metavar="N",
        default=DEFAULT_BATCH_SIZE,
        help=f"lines in one request, at most {MAX_ITEMS} (default: %(default)s; 1 at a terminal)",
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
    """Translate the file or stdin to stdout.

    Raises:
        CommandError: the input is not UTF-8, or the server fails as `TranslationClient.translate` says.
        OSError: the file cannot be read.
    """
    options = TranslateOptions(
        source=args.source,
        target=args.target,
        options=decoding_options(args),
        target_prefix=args.target_prefix or "",
    )
    written = json_line if args.json else translated_line
    client_options = ClientOptions(
        url=args.url,
        api_key=find_api_key(args.api_key_file),
        timeout_s=args.timeout,
        max_wait_s=args.max_wait,
    )
    with ExitStack() as stack:
        source = stack.enter_context(args.file.open("rb")) if args.file else sys.stdin.buffer
        progress = stack.enter_context(progress_bar(args.file))
        client = stack.enter_context(TranslationClient(client_options))
        # Whoever types wants the answer to each line at once.
        is_typed = args.file is None and sys.stdin.isatty()
        for batch in batches(read_lines(source), max_lines=1 if is_typed else args.batch_size):
            texts = [piece for line in batch for piece in line.pieces]
            answers = (each for request in requests(texts) for each in client.translate(request, options))
            for line in batch:
                sys.stdout.buffer.write(written(line, answers).encode("utf-8", "replace"))
                progress.update(line.num_bytes)
            sys.stdout.buffer.flush()
    return 0


def read_lines(source: BinaryIO) -> Iterator[Line]:
    r"""The lines of `source`; only \n ends one, a \r before it belongs to the ending.

    Raises:
        CommandError: a line is not UTF-8.
    """
    for number, raw in enumerate(source, start=1):
        try:
            text = raw.decode("utf-8")
        except UnicodeDecodeError as error:
            raise CommandError(f"line {number} is not UTF-8 (byte {error.start + 1} of the line)") from error
        mark = BYTE_ORDER_MARK if number == 1 and text.startswith(BYTE_ORDER_MARK) else ""
        text = text.removeprefix(mark)
        body = text.strip()
        start = text.index(body)
        yield Line(
            before=mark + text[:start],
            pieces=tuple(split_text(body, max_characters=MAX_ITEM_CHARACTERS)),
            after=text[start + len(body) :],
            num_bytes=len(raw),
        )


def split_text(text: str, *, max_characters: int) -> Iterator[str]:
    """Pieces of at most `max_characters` code points that join to `text`.

    Each is cut behind the last end of a sentence that fits, else behind the last space, else where it is full.
    """
    start = 0
    while len(text) - start > max_characters:
        window = text[start : start + max_characters]
        cut = last_end(SENTENCE_END, window) or last_end(SPACE, window) or max_characters
        yield window[:cut]
        start += cut
    if start < len(text):
        yield text[start:]


def last_end(pattern: re.Pattern[str], text: str) -> int:
    """Where the last match of `pattern` in `text` ends; 0 when there is none."""
    return max((match.end() for match in pattern.finditer(text)), default=0)


def batches(lines: Iterable[Line], *, max_lines: int) -> Iterator[list[Line]]:
    """Groups of `max_lines` lines, the last one shorter."""
    remaining = iter(lines)
    while batch := list(islice(remaining, max_lines)):
        yield batch


def requests(texts: Iterable[str]) -> Iterator[list[str]]:
    """Groups of `texts` that keep to the server's limits of items and characters for one request."""
    request: list[str] = []
    num_characters = 0
    for text in texts:
        is_full = len(request) == MAX_ITEMS or num_characters + len(text) > MAX_REQUEST_CHARACTERS
        if request and is_full:
            yield request
            request, num_characters = [], 0
        request.append(text)
        num_characters += len(text)
    if request:
        yield request


def translated_line(line: Line, answers: Iterator[Answer]) -> str:
    """`line` with its pieces replaced by the texts of the next of `answers`, still one line."""
    translated = "".join(next(answers)["text"] for _ in line.pieces)
    return line.before + translated.replace("\n", " ") + line.after


def json_line(line: Line, answers: Iterator[Answer]) -> str:
    """What the server tells of the line's pieces, as one line of JSON: an array, empty for a blank line."""
    return json.dumps([next(answers) for _ in line.pieces], ensure_ascii=False) + "\n"


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
