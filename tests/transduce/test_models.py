"""`transduce models`: the list of bundles."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from tests.bundles.damage import set_field
from transduce.cli import main
from transduce.errors import ExitCode
from transduce.models import MAX_PAIRS, BundleRow


@pytest.fixture
def folder(tiny: Path, tmp_path: Path) -> Path:
    """A folder with two bundles and a folder that is no bundle."""
    for name in ("b", "a"):
        shutil.copytree(tiny / "bundle", tmp_path / "bundles" / name)
    (tmp_path / "bundles" / "notes").mkdir()
    return tmp_path / "bundles"


def test_a_line_for_each_bundle(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["models", str(folder)]) == 0
    head, *lines = capsys.readouterr().out.splitlines()
    assert head.split() == ["bundle", "model", "languages", "variants", "licence", "MB"]
    assert [line.split()[:6] for line in lines] == [
        [str(folder / name), "tiny-en-de", "1", "en-de", "fp16,", "fp32,"] for name in ("a", "b")
    ]
    assert len({len(line) for line in (head, *lines)}) == 1, "the columns are aligned"


def test_json_has_the_values_of_the_table(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["models", str(folder / "a"), "--json"]) == 0
    (row,) = map(json.loads, capsys.readouterr().out.splitlines())
    size = sum(path.stat().st_size for path in (folder / "a").rglob("*") if path.is_file())
    assert row.pop("num_bytes") == size - (folder / "a" / "manifest.json").stat().st_size
    assert row == {
        "bundle": str(folder / "a"), "model": "tiny-en-de", "version": "1", "languages": ["en-de"],
        "variants": ["fp16", "fp32", "int8"], "licence": "Apache-2.0",
    }  # fmt: skip


@pytest.mark.parametrize("num_pairs", [MAX_PAIRS, MAX_PAIRS + 1])
def test_a_cell_lists_at_most_max_pairs(num_pairs: int) -> None:
    pairs = tuple(f"en-{number}" for number in range(num_pairs))
    row = BundleRow("folder", "model", "1", pairs, ("int8",), "MIT", num_bytes=1)
    assert row.cells()[2] == (", ".join(pairs) if num_pairs <= MAX_PAIRS else f"{num_pairs} pairs")


def test_an_unusable_bundle_is_reported_and_the_others_are_listed(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "a" / "manifest.json").write_text("{}", "utf-8")
    (folder / "b" / "source.spm").write_bytes(b"no model")
    assert main(["models", str(folder)]) == 1
    printed = capsys.readouterr()
    assert "bundle a" in printed.err
    assert str(folder / "b") in printed.out, "without --check only the manifest is read"
    assert main(["models", str(folder), "--check"]) == 1
    printed = capsys.readouterr()
    assert "source.spm has 8 bytes" in printed.err
    assert printed.out == ""


def test_a_folder_without_bundles_is_an_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["models", str(tmp_path)]) == ExitCode.FAILURE
    assert f"{tmp_path} holds no bundle" in capsys.readouterr().err


def test_check_finds_a_tag_that_the_vocabulary_lacks(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    set_field("language_pairs", [{"source": "en", "target": "de", "source_prefix": ">>none<<"}])(folder / "a")
    assert main(["models", str(folder / "a")]) == 0
    assert main(["models", str(folder / "a"), "--check"]) == 1
    assert "is '>>none<<', which source.spm does not have" in capsys.readouterr().err
