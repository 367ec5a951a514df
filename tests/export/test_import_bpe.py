"""Models whose vocabulary lacks pieces of their BPE model. A bundle encodes and translates as CTranslate2 does."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import sentencepiece
from sentencepiece import sentencepiece_model_pb2

from app.bundle import Bundle, load_bundle
from app.decoding.options import DecodingOptions
from app.runtime.ort_runner import load_runner
from app.text.tokenizer import Tokenizer
from export.golden import translate_ids
from model.ctranslate2_files import read_ctranslate2
from model.imported import merged_pieces, num_left_out, piece_order, reordered
from tests.export.argos_package import MAX_TOKENS, SENTENCES, occurring_ids, write_argos
from tests.export.marian_folder import sentencepiece_model
from tests.export.pieces import pieces_of
from tests.model.sentences import pairs
from transduce.cli import main

pytestmark = pytest.mark.training


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("argos") / "translate-en_de"


@pytest.fixture(scope="module")
def translator(folder: Path) -> Any:
    return write_argos(folder, is_bpe=True)


@pytest.fixture(scope="module")
def processor(folder: Path, translator: object) -> Any:
    return sentencepiece.SentencePieceProcessor(model_file=str(folder / "sentencepiece.model"))


@pytest.fixture(scope="module")
def bundle(folder: Path, translator: object, tmp_path_factory: pytest.TempPathFactory) -> Bundle:
    output = tmp_path_factory.mktemp("bundles") / "en-de"
    arguments = ["--output", str(output), "--licence", "MIT", "--precisions", "fp32"]
    assert main(["import", str(folder), *arguments]) == 0
    return load_bundle(output)


def test_texts_are_encoded_as_with_the_whole_vocabulary(folder: Path, processor: Any, bundle: Bundle) -> None:
    assert read_ctranslate2(folder).num_left_out > 20
    tokenizer = Tokenizer(bundle.file("source.spm"), ends_source=False)
    for text in SENTENCES:
        assert pieces_of(tokenizer, tokenizer.encode(text).ids) == processor.encode(text, out_type=str)


def test_no_text_is_encoded_with_a_piece_that_the_vocabulary_lacks(
    folder: Path, processor: Any, bundle: Bundle
) -> None:
    vocabulary = json.loads((folder / "model" / "shared_vocabulary.json").read_text("utf-8"))
    pieces = [processor.id_to_piece(index) for index in range(processor.vocab_size())]
    missing = [piece for piece in pieces if piece not in vocabulary]
    tokenizer = Tokenizer(bundle.file("source.spm"), ends_source=False)
    for piece in missing:
        text = piece.replace("\u2581", "")
        assert not {*pieces_of(tokenizer, tokenizer.encode(text).ids)} & {*missing}
    assert any(processor.encode(piece.replace("\u2581", ""), out_type=str) == [piece] for piece in missing)


def test_translations_equal_those_of_ctranslate2(translator: Any, processor: Any, bundle: Bundle) -> None:
    tokenizer = Tokenizer(bundle.file("source.spm"), ends_source=False)
    sources = [tokenizer.encode(text).ids for text in SENTENCES]
    options = DecodingOptions(beam_size=1, alpha=0.0, max_target_length=MAX_TOKENS)
    runner = load_runner(
        bundle, precision="fp32", device="cpu", kernels="standard", num_rows=64, num_threads=1
    )
    found = translate_ids(runner, sources, options)
    results = translator.translate_batch(
        processor.encode(SENTENCES, out_type=str), beam_size=1, max_decoding_length=MAX_TOKENS
    )
    reference = [result.hypotheses[0] for result in results]
    ended = [index for index, pieces in enumerate(reference) if len(pieces) < MAX_TOKENS - 1]
    assert len(ended) > len(SENTENCES) / 2
    assert [pieces_of(tokenizer, found[index]) for index in ended] == [reference[index] for index in ended]


def test_a_single_character_that_the_vocabulary_lacks_is_no_merged_piece() -> None:
    sentences = [text for pair in pairs() for text in (pair.source, pair.target)]
    proto = sentencepiece_model_pb2.ModelProto()  # type: ignore[attr-defined]
    proto.ParseFromString(sentencepiece_model(sentences, 110, "bpe"))
    normal = [piece.piece for piece in proto.pieces if piece.type == piece.NORMAL]
    lacking = [max(normal, key=len), next(piece for piece in normal if len(piece) == 1)]
    vocabulary = {piece: index for index, piece in enumerate(normal) if piece not in lacking}
    assert merged_pieces([proto], vocabulary) == lacking[:1]


def test_a_unigram_model_needs_no_piece_that_the_vocabulary_lacks() -> None:
    sentences = [text for pair in pairs() for text in (pair.source, pair.target)]
    content = sentencepiece_model(sentences, 110)
    processor = sentencepiece.SentencePieceProcessor(model_proto=content)
    kept = occurring_ids(processor, sentences[:40])
    vocabulary = {processor.id_to_piece(index): position for position, index in enumerate(kept)}
    proto = sentencepiece_model_pb2.ModelProto()  # type: ignore[attr-defined]
    proto.ParseFromString(content)
    assert num_left_out([proto], vocabulary) > 0
    assert merged_pieces([proto], vocabulary) == []
    content = reordered(proto, piece_order(vocabulary, [proto]), vocabulary)
    smaller = sentencepiece.SentencePieceProcessor(model_proto=content)
    for text in sentences[:40]:
        assert smaller.encode(text, out_type=str) == processor.encode(text, out_type=str)
