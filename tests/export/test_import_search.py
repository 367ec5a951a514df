"""Hugging Face's search options: wrong values are refused, and options that no bundle has are left out and named."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from app.bundle import load_bundle
from app.decoding.options import MAX_BEAM_SIZE
from model.generation_options import LEFT_OUT, left_out_options
from model.imported import UnusableModel
from model.m2m import read_m2m
from model.marian import read_marian
from tests.export.m2m_folder import change, write_m2m
from tests.export.marian_folder import IMPORT_OPTIONS, write_marian
from transduce.cli import main

pytestmark = pytest.mark.training
CONFIGURATIONS = ("config.json", "generation_config.json")
WHOLE, NUMBER = "a whole number of at least 1", "a number from 0 to 10"


def _update(fields: dict[str, Any], found: dict[str, Any]) -> None:
    found.update(fields)


@pytest.mark.parametrize(("write", "read"), [(write_m2m, read_m2m), (write_marian, read_marian)])
def test_a_wrong_beam_size_or_length_penalty_is_refused(
    tmp_path: Path, write: Callable[[Path], Any], read: Callable[[Path], Any]
) -> None:
    write(tmp_path)
    beams: tuple[Any, ...] = ("four", [4], 4.7, 0, -1, True)
    penalties: tuple[Any, ...] = ("x", [1.0], -1.0, 10.5, float("nan"), True)
    wrong = [("num_beams", value, WHOLE) for value in beams]
    wrong += [("length_penalty", value, NUMBER) for value in penalties]
    for field, value, needed in wrong:
        for wrong_file in CONFIGURATIONS:
            for each_file in CONFIGURATIONS:
                fields: dict[str, Any] = {"num_beams": None, "length_penalty": None}
                fields |= {field: value} if each_file == wrong_file else {}
                change(tmp_path / each_file, partial(_update, fields))
            generation = tmp_path / CONFIGURATIONS[1]
            content = generation.read_text("utf-8")
            # With generation_config.json, the search options of config.json are not read.
            if wrong_file != CONFIGURATIONS[1]:
                generation.unlink()
            message = f"{field} of {wrong_file} is {value!r}; it must be {needed}"
            with pytest.raises(UnusableModel, match=re.escape(message) + "$"):
                read(tmp_path)
            generation.write_text(content, "utf-8")


@pytest.mark.parametrize(("write", "read"), [(write_m2m, read_m2m), (write_marian, read_marian)])
def test_generation_config_replaces_all_search_options_of_config(
    tmp_path: Path, write: Callable[[Path], Any], read: Callable[[Path], Any]
) -> None:
    """If there is a generation_config.json, `transformers` and the import ignore all search options of config.json.

    The notes of the import also ignore these options.
    """
    theirs = write(tmp_path)
    older = {"num_beams": 6, "length_penalty": 0.5, "no_repeat_ngram_size": 3}
    change(tmp_path / "config.json", partial(_update, older))
    change(tmp_path / "generation_config.json", partial(_update, {"num_beams": 2, "length_penalty": None}))
    found, search = read(tmp_path), type(theirs).from_pretrained(tmp_path).generation_config
    assert (search.num_beams, search.length_penalty or 1.0, search.no_repeat_ngram_size or 0) == (2, 1.0, 0)
    assert (found.beam_size, found.length_penalty, found.notes) == (2, 1.0, ())


@pytest.mark.parametrize("file", CONFIGURATIONS)
def test_the_import_names_the_options_that_it_leaves_out(
    tmp_path: Path, file: str, capsys: pytest.CaptureFixture[str]
) -> None:
    write_marian(tmp_path / "theirs")
    changed = {"no_repeat_ngram_size": 3, "repetition_penalty": 1.3, "bad_words_ids": [[7]]}
    if file == "config.json":
        (tmp_path / "theirs" / "generation_config.json").unlink()
    change(tmp_path / "theirs" / file, partial(_update, changed))
    arguments = [*IMPORT_OPTIONS, "--max-length", "24"]
    assert main(["import", str(tmp_path / "theirs"), "--output", str(tmp_path / "out"), *arguments]) == 0
    lines = capsys.readouterr().err.splitlines()
    for name, value in changed.items():
        assert f"{name} of {file} is {value}; the bundle does not have this option" in lines


def test_a_beam_wider_than_a_server_takes_becomes_its_widest(tmp_path: Path) -> None:
    write_marian(tmp_path / "theirs")
    change(tmp_path / "theirs" / "generation_config.json", partial(_update, {"num_beams": MAX_BEAM_SIZE + 1}))
    arguments = [*IMPORT_OPTIONS, "--max-length", "24"]
    assert main(["import", str(tmp_path / "theirs"), "--output", str(tmp_path / "out"), *arguments]) == 0
    assert load_bundle(tmp_path / "out").manifest.decoding.beam_size == MAX_BEAM_SIZE


@pytest.mark.parametrize("name", LEFT_OUT)
def test_each_option_that_is_left_out_is_named(name: str) -> None:
    (note,) = left_out_options({}, {name: 7})
    assert note.startswith(f"{name} of generation_config.json is 7; ")


def test_options_that_change_nothing_are_not_named() -> None:
    """OPUS-MT has these values. Its only entry in bad_words_ids is the padding."""
    found = {
        "bad_words_ids": [[58100]], "pad_token_id": 58100, "forced_eos_token_id": 0, "renormalize_logits": True,
        "num_beams": 4, "max_length": 512, "do_sample": False, "no_repeat_ngram_size": 0, "repetition_penalty": 1.0,
        "min_length": 2, "min_new_tokens": 1, "forced_bos_token_id": None, "suppress_tokens": [],
    }  # fmt: skip
    assert left_out_options(found, {}) == left_out_options(found, found) == ()
    assert left_out_options({"no_repeat_ngram_size": 3}, {"no_repeat_ngram_size": 0}) == ()
    (note,) = left_out_options(found, {"bad_words_ids": [[number] for number in range(1000)]})
    assert len(note) < 150


def test_the_target_language_is_not_named_as_left_out(tmp_path: Path) -> None:
    write_m2m(tmp_path)
    change(tmp_path / "generation_config.json", partial(_update, {"forced_bos_token_id": 9}))
    assert read_m2m(tmp_path).notes == ()
    change(tmp_path / "generation_config.json", partial(_update, {"do_sample": True}))
    assert len(read_m2m(tmp_path).notes) == 1


@pytest.mark.parametrize("field", ["decoder_start_token_id", "eos_token_id", "pad_token_id"])
def test_ids_that_differ_between_the_two_configurations_are_refused(tmp_path: Path, field: str) -> None:
    write_marian(tmp_path)
    change(tmp_path / "generation_config.json", partial(_update, {field: 7}))
    with pytest.raises(
        UnusableModel, match=rf"{field} of config\.json is \d+, of generation_config\.json it is 7$"
    ):
        read_marian(tmp_path)
