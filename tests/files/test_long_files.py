"""The time to read a file is linear in its size, whatever its content."""

from __future__ import annotations

import contextlib
import time

import pytest

from app.files import FileError, FileFormat
from app.files.reading import read_file
from tests.text.growth import TIMES, check_near_linear

# SIZE: the bytes of a file. Some tests read a file of several times SIZE. LIMIT_S: the maximum CPU time to read a file,
# in seconds. The slowest file takes one to two seconds. If the limit is smaller, a busy machine exceeds it. If larger,
# a quadratic reader stays within it.
SIZE = 80_000
LIMIT_S = 10.0
# The time for a run of GROWN_SIZE bytes of markup is at most MAX_GROWTH times the time for 1/TIMES of these bytes.
GROWN_SIZE, MAX_GROWTH = 20_000, 2 * TIMES


# Markdown's runs are in test_markdown_text.py.
@pytest.mark.parametrize("seed", ["<", "<a ", "<!--", "<http:", "<a b='", "</", "<b>", "&#1;"])
def test_a_long_run_of_markup_is_read_in_linear_time(seed: str) -> None:
    def read(size: int) -> None:
        read_file(("The house. " + seed * (size // len(seed))).encode(), FileFormat.HTML)

    check_near_linear(read, GROWN_SIZE, max_growth=MAX_GROWTH)


@pytest.mark.parametrize(
    ("cell", "num_cells", "has_units"), [("a\\\\|b", 5_000, True), ("\u0101\0", 20_000, False)]
)
def test_cells_that_the_parser_changes_are_read_in_linear_time(
    cell: str, num_cells: int, has_units: bool
) -> None:
    def read(size: int) -> None:
        data = f"|{(cell + '|') * size}\n|{'-|' * size}\n".encode()
        assert len(read_file(data, FileFormat.MARKDOWN).units) == size * has_units

    check_near_linear(read, num_cells, max_growth=MAX_GROWTH)


@pytest.mark.parametrize(
    "catalogue",
    [
        "# " + "Content-Type:" * (SIZE // 2),
        'msgid "a"\nmsgid_plural "'
        + "1" * 10 * SIZE
        + '"\n'
        + "".join(f'msgstr[{index}] ""\n' for index in range(8000)),
    ],
    ids=["media types", "plural forms"],
)
def test_a_catalogue_is_read_in_linear_time(catalogue: str) -> None:
    started = time.process_time()
    with contextlib.suppress(FileError):  # the forms together exceed the limit of characters
        read_file(catalogue.encode(), FileFormat.PO)
    assert time.process_time() - started < LIMIT_S


def test_json_with_a_long_run_of_backslashes_is_read_in_linear_time() -> None:
    data = ('["The house. ' + "\\\\" * SIZE + '"]').encode()
    started = time.process_time()
    read_file(data, FileFormat.JSON)
    assert time.process_time() - started < LIMIT_S
