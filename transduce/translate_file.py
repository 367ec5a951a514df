"""Translates a whole file through a running server, in batches that a journal keeps until the output is written."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

from tqdm import tqdm

from transduce.client import Client, TransduceError
from transduce.errors import CommandError, ExitCode
from transduce.journal import Journal
from transduce.translate_batch import Piece, TranslateParams, error_line, model_facts
from transduce.translate_lines import MAX_ITEM_CHARACTERS
from transduce.translate_output import write_output
from transduce.translate_pieces import translate_pieces

if TYPE_CHECKING:
    from app.files import TranslatableFile, Unit

# The formats of app.files, which is imported only when a file is read.
FORMATS = ("txt", "srt", "vtt", "html", "md", "po", "json", "xliff", "docx", "pptx", "odt", "odp")
# Request options for units in XML (docs/files.md).
XML_OPTIONS = {"non_splitting_tags": ["g", "x"], "splitting_tags": ["br"]}


@dataclass(frozen=True)
class FileTask:
    """One file to translate. data: its content. output: where to write; None for stdout, without a journal."""

    data: bytes
    format: str
    output: Path | None
    batch_size: int


def choose_format(file: Path | None, chosen: str | None) -> str:
    """The format selected by --format, else by the file's suffix, else plain text.

    Raises:
        CommandError: no format has this suffix.
    """
    if chosen is not None or file is None or file.suffix.lower() in {"", ".txt"}:
        return chosen or "txt"
    from app.files import SUFFIXES, format_of

    found = format_of(file.name)
    if found is None:
        raise CommandError(
            f"{file.name}: files with the suffix {file.suffix} cannot be translated; supported are "
            f"{', '.join(SUFFIXES)}; --format ({', '.join(FORMATS)}) sets the format of a file with another suffix",
            exit_code=ExitCode.USAGE,
        )
    return str(found)


def translate_file(client: Client, task: FileTask, params: TranslateParams) -> None:
    """Read the file, translate its texts and write the output. A file without texts is written with a warning.

    Raises:
        CommandError: the file does not have its format, a request fails as in `translate_batch` or
            `translating_models`, the file in the journal's place is no journal, another run is writing the journal, or
            a translation cannot be inserted into the file.
        OSError: the output cannot be written.
    """
    from app.files import FileError, FileFormat
    from app.files.reading import read_file

    try:
        file = read_file(task.data, FileFormat(task.format), target=params.target)
    except FileError as error:
        raise CommandError(f"the file cannot be read as {task.format}: {error}") from error
    if not file.units:
        print("transduce translate: no text to translate was found", file=sys.stderr)
    with ExitStack() as stack:
        journal = None
        if task.output is not None:
            # The key has the texts, because another version of this command may divide the file differently.
            key = {"source": params.source, "target": params.target, "format": task.format, **params.options}
            key |= {"texts": [unit.text for unit in file.units], "models": translating_models(client, params)}
            journal = stack.enter_context(Journal(task.output, task.data, key))
        progress = stack.enter_context(progress_of(file.units))
        try:
            translations = _translations(client, file, params, _Progress(task.batch_size, journal, progress))
        except CommandError as error:
            if journal is not None and journal.done:
                raise CommandError(f"{error.message}; run the same command again to resume") from error
            raise
        try:
            content = file.write(translations)
        except ValueError as error:
            if journal is not None:
                journal.remove()  # with the same translations, a resumed run would fail again
            raise CommandError(f"the translation cannot be inserted into the file: {error}") from error
        write_output(task.output, content)
        if journal is not None:
            journal.remove()


def translating_models(client: Client, params: TranslateParams) -> list[dict[str, str]]:
    """The facts of the model that translates: the chosen one, else the server's first one for the languages.

    If the server has no such model, the facts of all its models. Several may then take part, because the source is
    detected, or a text is translated through a third language.

    Raises:
        CommandError: the server cannot be reached, or does not list its models.
    """
    try:
        models = client.models()
    except TransduceError as error:
        raise CommandError(error_line(error)) from error
    name, languages = params.options.get("model"), (params.source, params.target)
    for model in models:
        pairs = {(pair.source, pair.target) for pair in model.language_pairs}
        if languages in pairs if name is None else model.name == name:
            return [model_facts(model)]
    return [model_facts(model) for model in models]


@dataclass(frozen=True)
class _Progress:
    """The batch size of a file's translation, and where its progress is kept and shown.

    batch_size: texts of a batch. journal: of finished texts; None without an output file. bar: on stderr.
    """

    batch_size: int
    journal: Journal | None
    bar: tqdm[NoReturn]


def _translations(
    client: Client, file: TranslatableFile, params: TranslateParams, progress: _Progress
) -> list[str]:
    """The translation of each unit of the file. Units in the journal are not translated again."""
    units = file.units
    done = dict(progress.journal.done) if progress.journal else {}
    progress.bar.update(sum(len(units[number].text) for number in done))
    for batch in batches(
        units, [number for number in range(len(units)) if number not in done], progress.batch_size
    ):
        found = dict(zip(batch, _batch(client, [units[number] for number in batch], params), strict=True))
        if progress.journal is not None:
            progress.journal.add(found)
        done |= found
        progress.bar.update(sum(len(units[number].text) for number in batch))
    return [done[number] for number in range(len(units))]


def _batch(client: Client, units: Sequence[Unit], params: TranslateParams) -> list[str]:
    """The translations of units with the same options. A piece too long for a request is copied, with a warning."""
    from app.files.parts import joined
    from app.text.language_codes import separator

    texts_of_units = [list(pieces_of(unit)) for unit in units]
    pieces = [
        Piece(text, index == 0)
        for texts in texts_of_units
        for index, text in enumerate(filter(is_sent, texts))
    ]
    params = replace(params, options={**params.options, **options_of(units[0])})
    answers = translate_pieces(client, pieces, params)
    for text in (text for texts in texts_of_units for text in texts if len(text) > MAX_ITEM_CHARACTERS):
        print(
            f"transduce translate: {len(text)} characters cannot be split for a request and are left untranslated",
            file=sys.stderr,
        )
    gap = separator(params.source, params.target)
    translations = []
    for texts in texts_of_units:
        sources, translated = [], []
        for text in texts:
            parts = next(answers) if is_sent(text) else None
            sources += [text] if parts is None else [part.text for part in parts]
            translated += [text] if parts is None else [part.translation.text for part in parts]
        translations.append(joined(sources, translated, gap))
    return translations


def is_sent(piece: str) -> bool:
    """Whether the piece is translated: it fits into a request and is not only white space."""
    return len(piece) <= MAX_ITEM_CHARACTERS and not piece.isspace()


def options_of(unit: Unit) -> dict[str, object]:
    """The request options for units like this one; empty for a unit of plain text that is not wrapped."""
    options: dict[str, object] = {} if unit.format == "text" else {"format": str(unit.format)}
    if unit.format == "xml":
        options |= XML_OPTIONS
    return {**options, "splitting": "no_newlines"} if unit.is_wrapped else options


def batches(units: Sequence[Unit], numbers: Sequence[int], size: int) -> Iterator[list[int]]:
    """Yield `numbers` in groups of at most `size` units with the same request options, nearly in the file's order."""
    waiting: dict[tuple[str, bool], list[int]] = {}
    for number in numbers:
        group = waiting.setdefault((units[number].format, units[number].is_wrapped), [])
        group.append(number)
        if len(group) == size:
            yield group.copy()
            group.clear()
    yield from (group for group in waiting.values() if group)


def pieces_of(unit: Unit) -> Iterator[str]:
    """Split the unit into pieces that fit into a request; a piece that cannot be cut stays too long."""
    from app.files.parts import cut

    return cut(unit.text, MAX_ITEM_CHARACTERS, is_text=unit.format == "text")


def progress_of(units: Sequence[Unit]) -> tqdm[NoReturn]:
    """A progress bar on stderr that counts characters; hidden if stderr is not a terminal."""
    total = sum(len(unit.text) for unit in units)
    return tqdm(
        total=total,
        unit="char",
        unit_scale=True,
        disable=not sys.stderr.isatty(),
        desc="translating",
        file=sys.stderr,
    )
