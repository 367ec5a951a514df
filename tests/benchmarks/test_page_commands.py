"""The commands that write figures into pages have `--help`, and write nothing if an argument is unknown."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType

import pytest

from benchmarks import cluster_pages, loadtest_crosscheck_page
from benchmarks.engine import page as engine_page
from benchmarks.http import page as http_page


@pytest.mark.parametrize("argument", ["--help", "--no-such-option"])
@pytest.mark.parametrize(
    "command",
    [engine_page, http_page, cluster_pages, loadtest_crosscheck_page],
    ids=lambda command: command.__name__,
)
def test_nothing_is_written(command: ModuleType, argument: str, monkeypatch: pytest.MonkeyPatch) -> None:
    written: list[Path] = []
    monkeypatch.setattr(Path, "write_text", lambda path, *_: written.append(path))
    monkeypatch.setattr("sys.argv", ["page", argument])
    with pytest.raises(SystemExit) as raised:
        command.main()
    assert raised.value.code == (0 if argument == "--help" else 2)
    assert written == []
