"""Beam size and length penalty of Marian's own files are those of decoder.yml."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest

from model.imported import UnusableModel
from model.marian import read_marian
from tests.export.marian_folder import IMPORT_OPTIONS, change_decoder, change_npz
from transduce.cli import main

pytestmark = pytest.mark.training
WHOLE, NUMBER = "a whole number of at least 1", "a number from 0 to 10"


def search_of(folder: Path) -> tuple[int, float]:
    read = read_marian(folder)
    assert read.notes == ()
    return read.beam_size, read.length_penalty


@pytest.mark.parametrize(
    "name", ["decoder.yml", "opus.npz.decoder.yml", "opus.npz.best-bleu.npz.decoder.yml"]
)
def test_the_search_options_are_those_of_the_decoder_file(npz: Path, name: str) -> None:
    change_decoder(npz, {"beam-size": 4, "normalize": 0.6})
    (npz / "decoder.yml").rename(npz / name)
    assert search_of(npz) == (4, 0.6)


def test_decoder_yml_has_priority(npz: Path) -> None:
    change_decoder(npz, {"beam-size": 4})
    (npz / "opus.npz.decoder.yml").write_text("beam-size: 12", "utf-8")
    assert search_of(npz) == (4, 1.0)


def test_without_the_file_or_its_options_the_search_has_defaults(npz: Path) -> None:
    """Marian does not write the options to special:model.yml, so they are not read there."""
    change_npz(npz, {"beam-size": 3, "normalize": 0.3})
    change_decoder(npz, {"beam-size": None, "normalize": None, "word-penalty": None})
    assert search_of(npz) == (6, 0.0)
    (npz / "decoder.yml").unlink()
    assert search_of(npz) == (6, 0.0)


def test_several_files_that_differ_are_refused(npz: Path) -> None:
    (npz / "decoder.yml").rename(npz / "a.decoder.yml")
    shutil.copy(npz / "a.decoder.yml", npz / "b.decoder.yml")
    assert search_of(npz) == (1, 1.0)
    (npz / "b.decoder.yml").write_text("beam-size: 12", "utf-8")
    with pytest.raises(UnusableModel, match=r"2 files are called \*\.decoder\.yml, where one is needed"):
        read_marian(npz)


@pytest.mark.parametrize(
    ("option", "value", "needed"),
    [
        ("beam-size", [1], WHOLE),
        ("beam-size", -1, WHOLE),
        ("normalize", [1], NUMBER),
        ("normalize", -0.5, NUMBER),
        ("normalize", float("nan"), NUMBER),
    ],
)
def test_a_damaged_option_is_refused(npz: Path, option: str, value: object, needed: str) -> None:
    change_decoder(npz, {option: value})
    message = f"{option} of decoder.yml is {value!r}; it must be {needed}"
    with pytest.raises(UnusableModel, match=re.escape(message) + "$"):
        read_marian(npz)


@pytest.mark.parametrize(("content", "message"), [(b"a: [", "is not YAML"), (b"", "is not a table of YAML")])
def test_a_damaged_file_is_refused(npz: Path, content: bytes, message: str) -> None:
    (npz / "decoder.yml").write_bytes(content)
    with pytest.raises(UnusableModel, match=rf"decoder\.yml {message}$"):
        read_marian(npz)


def test_a_word_penalty_is_named_as_left_out(npz: Path, capsys: pytest.CaptureFixture[str]) -> None:
    change_decoder(npz, {"word-penalty": 0.5})
    arguments = [*IMPORT_OPTIONS, "--max-length", "24"]
    assert main(["import", str(npz), "--output", str(npz.parent / "bundle"), *arguments]) == 0
    note = "word-penalty of decoder.yml is 0.5; the bundle does not have this option"
    assert note in capsys.readouterr().err.splitlines()
