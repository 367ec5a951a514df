"""Hugging Face's weights in several files with an index are imported like weights in one file."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from model.huggingface_files import read_weights
from model.imported import UnusableModel
from model.marian import read_marian
from tests.export.marian_folder import write_marian

pytestmark = pytest.mark.training
WHOLE, INDEX = "model.safetensors", "model.safetensors.index.json"
PICKLE_INDEX = "pytorch_model.bin.index.json"


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the weights in one file."""
    folder = tmp_path_factory.mktemp("whole")
    write_marian(folder)
    return folder


@pytest.fixture(scope="module")
def in_parts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same model, as `transformers` writes it in parts."""
    folder = tmp_path_factory.mktemp("parts")
    model = write_marian(folder)
    (folder / WHOLE).unlink()
    model.save_pretrained(folder, max_shard_size="100KB")
    assert (folder / INDEX).is_file()
    assert len(list(folder.glob("model-*-of-*.safetensors"))) > 2
    return folder


@pytest.fixture
def broken(in_parts: Path, tmp_path: Path) -> Path:
    return shutil.copytree(in_parts, tmp_path / "broken")


def check_equal(folder: Path, whole: Path) -> None:
    reference, found = read_marian(whole).state, read_marian(folder).state
    assert reference.keys() == found.keys()
    assert all(torch.equal(reference[name], found[name]) for name in reference)


def test_parts_are_the_same_as_one_file(whole: Path, in_parts: Path) -> None:
    check_equal(in_parts, whole)


def test_pickled_parts_are_the_same_as_one_file(whole: Path, tmp_path: Path) -> None:
    folder = shutil.copytree(whole, tmp_path / "pickled")
    weights = load_file(folder / WHOLE)
    (folder / WHOLE).unlink()
    names = sorted(weights)
    places = {name: f"pytorch_model-0000{1 + index % 2}-of-00002.bin" for index, name in enumerate(names)}
    for part in set(places.values()):
        state = {name: weights[name] for name in names if places[name] == part}
        torch.save(state, folder / part)  # noqa: TID251 - as others write it
    (folder / PICKLE_INDEX).write_text(json.dumps({"metadata": {}, "weight_map": places}), "utf-8")
    check_equal(folder, whole)


def test_a_missing_part_is_named(broken: Path) -> None:
    last = max(broken.glob("model-*-of-*.safetensors"))
    last.unlink()
    with pytest.raises(UnusableModel, match=f"{last.name} is missing"):
        read_marian(broken)


def test_a_pickled_part_that_disappears_is_an_error_of_the_system(tmp_path: Path) -> None:
    index = {"weight_map": {"model.shared.weight": "pytorch_model-00001-of-00001.bin"}}
    (tmp_path / PICKLE_INDEX).write_text(json.dumps(index), "utf-8")
    with pytest.raises(FileNotFoundError):
        read_weights(tmp_path)


def test_a_damaged_part_is_named(broken: Path) -> None:
    last = max(broken.glob("model-*-of-*.safetensors"))
    last.write_bytes(last.read_bytes()[:1000])
    with pytest.raises(UnusableModel, match=f"{last.name} cannot be read"):
        read_marian(broken)


@pytest.mark.parametrize("part", ["../model.safetensors", "/etc/passwd", "model.py", "a\\b.safetensors"])
def test_an_index_names_only_files_of_weights_beside_it(broken: Path, part: str) -> None:
    index = json.loads((broken / INDEX).read_text("utf-8"))
    index["weight_map"]["model.shared.weight"] = part
    (broken / INDEX).write_text(json.dumps(index), "utf-8")
    with pytest.raises(
        UnusableModel, match=r"it must be the name of a \.safetensors file in the same folder"
    ):
        read_marian(broken)


@pytest.mark.parametrize("content", ["{}", '{"weight_map": []}', '{"weight_map": {}}'])
def test_an_index_without_parts_is_refused(broken: Path, content: str) -> None:
    (broken / INDEX).write_text(content, "utf-8")
    with pytest.raises(UnusableModel, match=f"{INDEX} has no weight_map"):
        read_marian(broken)
