"""Marian models that CTranslate2 converted, such as OPUS-MT, are imported like the original files."""

from __future__ import annotations

import json
import shutil
import struct
import warnings
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from app.text.tokenizer import Tokenizer
from model.config import BOS_ID
from model.ctranslate2_files import read_ctranslate2
from model.imported import ImportedModel, UnusableModel
from model.marian import read_marian
from model.search import greedy_search
from model.transformer import Transformer
from tests.export.marian_folder import write_marian, write_npz
from tests.export.pieces import pieces_of
from tests.model.sentences import pairs

ctranslate2: Any = import_module("ctranslate2")  # it has no types
pytestmark = pytest.mark.training
MAX_TOKENS, MAX_LENGTH = 24, 48
SENTENCES = [pair.source for pair in pairs()][:40]
SENTENCEPIECE = ["source.spm", "target.spm"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model in the format of Hugging Face. The row of <pad> is zeros, as in every model of OPUS-MT."""
    folder = tmp_path_factory.mktemp("marian") / "opus-mt-en-de"
    marian = write_marian(folder)
    weights = load_file(folder / "model.safetensors")
    weights["model.shared.weight"][marian.config.pad_token_id] = 0.0
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    return folder


@pytest.fixture(scope="module", params=["huggingface", "marian"])
def converted(request: pytest.FixtureRequest, folder: Path) -> Path:
    """The model of CTranslate2, converted from the files of Hugging Face, or from Marian's own."""
    output = folder.parent / f"from-{request.param}"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if request.param == "huggingface":
            converter = ctranslate2.converters.TransformersConverter(str(folder))
        else:
            own = folder.parent / "own"
            write_npz(folder, own)
            vocabulary = str(next(own.glob("*vocab.yml")))
            converter = ctranslate2.converters.MarianConverter(
                str(next(own.glob("*.npz"))), [vocabulary, vocabulary]
            )
        converter.convert(str(output))
    for name in SENTENCEPIECE:
        shutil.copy(folder / name, output)
    return output


@pytest.fixture(scope="module")
def imported(converted: Path) -> ImportedModel:
    return read_ctranslate2(converted, max_length=MAX_LENGTH)


def test_the_import_equals_that_of_the_original_files(folder: Path, imported: ImportedModel) -> None:
    original = read_marian(folder, max_length=MAX_LENGTH)
    assert imported.config == original.config
    assert imported.ends_source
    assert (imported.source_spm, imported.target_spm) == (original.source_spm, original.target_spm)
    assert imported.state.keys() == original.state.keys()
    for name, tensor in original.state.items():
        torch.testing.assert_close(imported.state[name], tensor, msg=name)
    assert not imported.state["embedding.weight"][BOS_ID].any()


def test_translations_equal_those_of_ctranslate2(
    converted: Path, imported: ImportedModel, tmp_path: Path
) -> None:
    (tmp_path / "source.spm").write_bytes(imported.source_spm)
    tokenizer = Tokenizer(tmp_path / "source.spm")
    sources = [tokenizer.encode(text).ids for text in SENTENCES]
    config = json.loads((converted / "config.json").read_text("utf-8"))
    end = -1 if config.get("add_source_eos") else None  # CTranslate2 then adds the end token
    pieces = [pieces_of(tokenizer, source)[:end] for source in sources]
    translator: Any = ctranslate2.Translator(str(converted), compute_type="float32", intra_threads=1)
    results = translator.translate_batch(pieces, beam_size=1, max_decoding_length=MAX_TOKENS)
    network = Transformer(imported.config).eval()
    network.load_state_dict(imported.state)
    for source, result in zip(sources, results, strict=True):
        found = greedy_search(network, source, max_target_length=MAX_TOKENS)
        assert pieces_of(tokenizer, found.ids) == result.hypotheses[0]


def test_another_scale_of_the_embeddings_is_refused(converted: Path, tmp_path: Path) -> None:
    """CTranslate2 stores an 8-bit flag, or the factor itself. The test sets it to 0."""
    name = b"encoder/scale_embeddings\0"
    content = bytearray((converted / "model.bin").read_bytes())
    start = content.index(name) + len(name) + 1  # after the number of dimensions, which is 0
    size = struct.unpack_from("<I", content, start + 1)[0]
    content[start + 5 : start + 5 + size] = bytes(size)
    broken = shutil.copytree(converted, tmp_path / "broken")
    (broken / "model.bin").write_bytes(content)
    with pytest.raises(UnusableModel, match=r"encoder/scale_embeddings of model\.bin is not sqrt"):
        read_ctranslate2(broken)
