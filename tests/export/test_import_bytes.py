"""A model whose SentencePiece models have byte fallback reads and writes unknown characters in bytes."""

from __future__ import annotations

import shutil
import warnings
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
import sentencepiece
import torch

from app.bundle import Bundle, load_bundle
from app.bundle_tokenizers import load_tokenizers
from app.decoding.options import DecodingOptions
from app.runtime.ort_runner import load_runner
from app.text.spans import source_offsets
from app.text.tokenizer import PLACEHOLDER_SYMBOLS, Tokenizer
from export.golden import translate_ids
from model.ctranslate2_files import read_ctranslate2
from model.imported import (
    FIRST,
    NEVER,
    NUM_BYTES,
    can_spell,
    masked_bias,
    piece_order,
    read_sentencepiece,
    reordered,
)
from model.m2m import read_m2m
from model.marian import read_marian
from tests.export import m2m_folder
from tests.export.firefox_folder import FirefoxModel
from tests.export.m2m_folder import bpe_model, write_m2m
from tests.export.marian_folder import IMPORT_OPTIONS, sentencepiece_model, tokenizer_of, write_marian
from tests.export.pieces import pieces_of
from tests.export.test_import import IdMap
from tests.model.sentences import pairs
from transduce.cli import main

ctranslate2: Any = import_module("ctranslate2")  # it has no types
pytestmark = pytest.mark.training
MAX_TOKENS = 24
UNKNOWN = [
    "Anna \U0001f642 sees the river.",
    "\u96ea\u4eba",
    "Anna sees \u0416\u0416 and \u65e5\u672c\u8a9e.",
    "the river\u2764\ufe0f, \U0001f468\u200d\U0001f469\u200d\U0001f467",
    "ANNA SEES 1234",
    " ".join(
        "\U0001f600\U0001f680\U0001f525\U0001f308\U0001f335\U0001f40c\U0001f9ed\U0001f9f2\U0001f52d\u2603"
    ),
]
# A character that `app.text.blocks` puts in the place of a protected span.
PLACEHOLDER = "\U000f0000"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("bytes") / "opus-mt-en-de"


@pytest.fixture(scope="module")
def marian(folder: Path) -> Any:
    return write_marian(folder, byte_fallback=True, init_std=0.2)


@pytest.fixture(scope="module")
def bundle(folder: Path, marian: object) -> Bundle:
    output = folder.parent / "bundle"
    assert main(["import", str(folder), "--output", str(output), *IMPORT_OPTIONS]) == 0
    return load_bundle(output)


@pytest.fixture(scope="module")
def tokenizer(bundle: Bundle) -> Tokenizer:
    return load_tokenizers(bundle)[0]


@pytest.mark.parametrize("text", [*UNKNOWN, "Anna sees the river."])
def test_subwords_are_those_of_transformers(folder: Path, tokenizer: Tokenizer, text: str) -> None:
    encoded = tokenizer.encode(text)
    assert encoded.ids == IdMap(folder, tokenizer).to_bundle(tokenizer_of(folder)(text).input_ids)
    assert encoded.verbatim_spans == ()


def test_translations_are_those_of_transformers(
    folder: Path, marian: Any, bundle: Bundle, tokenizer: Tokenizer
) -> None:
    """With random weights, the translations contain pieces for bytes."""
    ids = IdMap(folder, tokenizer)
    start, end = ids.vocabulary["<pad>"], ids.vocabulary["</s>"]
    rows = marian.generate(
        **tokenizer_of(folder)(UNKNOWN, return_tensors="pt", padding=True),
        num_beams=1,
        max_new_tokens=MAX_TOKENS,
        min_new_tokens=1,
        bad_words_ids=[[start]],
    ).tolist()
    expected = [
        ids.to_bundle([each for each in row if each not in (start, end)])[:MAX_TOKENS] for row in rows
    ]
    runner = load_runner(
        bundle, precision="fp32", device="cpu", kernels="standard", num_rows=16, num_threads=1
    )
    options = DecodingOptions(beam_size=1, max_target_length=MAX_TOKENS)
    assert translate_ids(runner, [tokenizer.encode(text).ids for text in UNKNOWN], options) == expected
    assert len({*expected}) > len(UNKNOWN) / 2
    assert any("<0x" in piece for row in expected for piece in pieces_of(tokenizer, row))


def test_placeholders_and_private_characters_keep_their_symbols(tokenizer: Tokenizer) -> None:
    text = f"Anna \U0001f642{PLACEHOLDER} sees {PLACEHOLDER_SYMBOLS[2]} the river."
    encoded = tokenizer.encode(text)
    assert encoded.verbatim_spans == (PLACEHOLDER, PLACEHOLDER_SYMBOLS[2])
    assert tokenizer.num_verbatim_spans(text) == 2
    pieces = pieces_of(tokenizer, encoded.ids)
    first = pieces.index(PLACEHOLDER_SYMBOLS[0])
    assert pieces[first - 4 : first] == [f"<0x{byte:02X}>" for byte in "\U0001f642".encode()]
    assert tokenizer.decode(encoded.ids[:-1], encoded.verbatim_spans).text == text
    target = tokenizer.encode_target(text, encoded.verbatim_spans)
    assert target == encoded.ids


def test_offsets_of_a_character_in_bytes_are_those_of_its_last_byte(tokenizer: Tokenizer) -> None:
    text = f"Anna \U0001f642 sees {PLACEHOLDER} \u96ea."
    offsets = source_offsets(tokenizer, text)
    assert len(offsets) == len(tokenizer.encode(text).ids) - 1
    found = [text[start:end] for start, end in offsets]
    assert "".join(found) == text
    assert {"\U0001f642", PLACEHOLDER, "\u96ea"} <= {*found}


@pytest.mark.parametrize("dropped", ["\u200e", "\u200b", "\ufeff", "\u0007", "\u2581"])
def test_a_character_that_sentencepiece_drops_keeps_its_place(tokenizer: Tokenizer, dropped: str) -> None:
    text = f"Anna {dropped}sees{dropped} the river\U0001f642."
    encoded = tokenizer.encode(text)
    assert encoded.verbatim_spans == (dropped, dropped)
    assert tokenizer.decode(encoded.ids[:-1], encoded.verbatim_spans).text == text
    found = [text[start:end] for start, end in source_offsets(tokenizer, text)]
    assert "".join(found) == text
    assert found.count(dropped) == 2


def test_the_golden_sentences_have_bytes(bundle: Bundle, tokenizer: Tokenizer) -> None:
    emoji = next(each.source for each in bundle.golden if "\U0001f642" in each.source)
    assert "<0xF0>" in pieces_of(tokenizer, tokenizer.encode(emoji).ids)


def test_a_model_of_firefox_reads_bytes(tmp_path: Path) -> None:
    model = FirefoxModel(byte_fallback=True)
    model.write(tmp_path)
    (tmp_path / "source.spm").write_bytes(read_marian(tmp_path).source_spm)
    tokenizer = Tokenizer(tmp_path / "source.spm")
    theirs = sentencepiece.SentencePieceProcessor(model_proto=model.models[0])
    for text in UNKNOWN:
        assert pieces_of(tokenizer, tokenizer.encode(text).ids[:-1]) == theirs.encode(text, out_type=str)


def test_a_model_of_ctranslate2_reads_bytes(folder: Path, marian: object, tmp_path: Path) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        ctranslate2.converters.TransformersConverter(str(folder)).convert(str(tmp_path / "converted"))
    for name in ("source.spm", "target.spm"):
        shutil.copy(folder / name, tmp_path / "converted")
    original, found = read_marian(folder), read_ctranslate2(tmp_path / "converted")
    assert (found.source_spm, found.target_spm) == (original.source_spm, original.target_spm)


def test_a_model_of_many_languages_reads_bytes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(m2m_folder, "bpe_model", lambda size: bpe_model(size + NUM_BYTES, byte_fallback=True))
    write_m2m(tmp_path)
    (tmp_path / "source.spm").write_bytes(read_m2m(tmp_path).source_spm)
    tokenizer = Tokenizer(tmp_path / "source.spm")
    theirs = sentencepiece.SentencePieceProcessor(model_file=str(tmp_path / "sentencepiece.bpe.model"))
    for text in UNKNOWN:
        assert pieces_of(tokenizer, tokenizer.encode(text).ids[:-1]) == theirs.encode(text, out_type=str)


@pytest.mark.parametrize(
    "case", ["target without bytes", "one byte missing", "with placeholder symbols", "complete"]
)
def test_both_sides_need_byte_fallback_and_a_row_for_each_byte(tmp_path: Path, case: str) -> None:
    """Our own models have a row for each byte, but they do not spell unknown characters.

    They learn to copy the placeholder symbols, which are in their vocabularies.
    """
    protos = []
    for side in ("source", "target"):
        has_bytes = side == "source" or case != "target without bytes"
        texts = [getattr(pair, side) for pair in pairs()]
        content = sentencepiece_model(texts, 90 + NUM_BYTES * has_bytes, byte_fallback=has_bytes)
        (tmp_path / side).write_bytes(content)
        protos.append(read_sentencepiece(tmp_path / side))
    pieces = dict.fromkeys(piece.piece for proto in protos for piece in proto.pieces)
    if case == "one byte missing":
        del pieces["<0x41>"]
    if case == "with placeholder symbols":
        pieces |= dict.fromkeys(PLACEHOLDER_SYMBOLS)
    vocabulary = {piece: index for index, piece in enumerate(pieces)}
    is_spelled = can_spell(protos, [vocabulary, vocabulary])
    assert is_spelled == (case == "complete")
    # `transduce export --to` also writes the placeholder symbols, which the foreign vocabulary lacks. `can_spell` must
    # give the same result for the second import.
    order = piece_order(vocabulary)
    content = reordered(protos[0], order, vocabulary, spells_unknown=is_spelled)
    (tmp_path / "again").write_bytes(content)
    assert Tokenizer(tmp_path / "again").vocab_size == len(FIRST) + len(order), (
        "SentencePiece reads the model"
    )
    bias = masked_bias(torch.zeros(len(FIRST) + len(order)), vocabulary)
    are_bytes_masked = {
        float(bias[order.index(f"<0x{byte:02X}>") + len(FIRST)]) == NEVER for byte in (0, 255)
    }
    assert are_bytes_masked == {case == "one byte missing"}
    again = {piece: index for index, piece in enumerate([*FIRST, *order])}
    assert can_spell([read_sentencepiece(tmp_path / "again")], [again]) == is_spelled
