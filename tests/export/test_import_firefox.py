"""Models of Firefox: Marian's binary files, SentencePiece alone as vocabulary, SSRUs in the decoder, a shortlist."""

from __future__ import annotations

import errno
import gzip
import os
import shutil
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import sentencepiece
import torch

from app.bundle import Bundle, load_bundle
from app.bundle_tokenizers import load_tokenizers
from app.decoding.options import DecodingOptions
from app.runtime.kernels import Kernels
from app.runtime.ort_runner import load_runner
from app.shortlist_file import MIN_ALWAYS, SHORTLIST, read_shortlists
from app.text.tokenizer import PLACEHOLDER_SYMBOLS, Tokenizer
from export import bundle_shortlist
from export.golden import translate_ids
from model.config import BOS_ID
from model.imported import ImportedModel, UnusableModel
from model.marian import read_marian
from model.marian_binary import BinaryError, read_arrays, read_shortlist
from model.transformer import Transformer
from tests.export.firefox_folder import FLOAT32, INT8, INTGEMM8, FirefoxModel, binary_file, binary_shortlist
from tests.export.tiny import KERNELS
from tests.model.sentences import pairs
from transduce.cli import main

pytestmark = pytest.mark.training
LAYOUTS: dict[str, dict[str, Any]] = {
    "int8": {},
    "int16": {"bits": 16},
    "float32": {"bits": 32},
    "two vocabularies": {"has_target_vocabulary": True},
}
NUM_SUBWORDS = 12
SENTENCES = [pair.source for pair in pairs()][::20]


def our_ids(model: FirefoxModel, read: ImportedModel, folder: Path) -> tuple[dict[int, int], dict[int, int]]:
    """Our id of each of Marian's ids, for sources and for targets.

    Our id of Marian's <unk> is that of the first placeholder symbol, which has the row of <unk>.
    """
    found = []
    for proto, spm in ((model.models[0], read.source_spm), (model.models[-1], read.target_spm)):
        (folder / "side.spm").write_bytes(spm)
        tokenizer, theirs = (
            Tokenizer(folder / "side.spm"),
            sentencepiece.SentencePieceProcessor(model_proto=proto),
        )
        names = [theirs.id_to_piece(each) for each in range(theirs.vocab_size())]
        names[1] = PLACEHOLDER_SYMBOLS[0]
        found.append({each: tokenizer.id_of(name) for each, name in enumerate(names)})
    return found[0], found[1]


@pytest.mark.parametrize("layout", LAYOUTS.values(), ids=LAYOUTS)
def test_logits_are_those_of_marians_network(tmp_path: Path, layout: dict[str, Any]) -> None:
    theirs = FirefoxModel(**layout)
    theirs.write(tmp_path / "theirs")
    read = read_marian(tmp_path / "theirs")
    assert (read.config.decoder, read.config.norm) == ("ssru", "post")
    ours = Transformer(read.config).eval()
    ours.load_state_dict(read.state)
    sources, targets = our_ids(theirs, read, tmp_path)
    numbers = np.random.default_rng(2)
    source = numbers.integers(2, theirs.num_source, 15).tolist()
    target = numbers.integers(2, theirs.num_target, 11).tolist()
    with torch.no_grad():
        found = ours(
            torch.tensor([[sources[each] for each in source]]),
            torch.tensor([[BOS_ID, *(targets[each] for each in target)]]),
        )[0]
    known = [targets[each] for each in range(theirs.num_target)]
    assert np.allclose(found[:, known], theirs.logits(source, target), atol=1e-4)


def test_the_defaults_are_those_of_firefox(tmp_path: Path) -> None:
    FirefoxModel().write(tmp_path)
    read = read_marian(tmp_path)
    assert (read.beam_size, read.length_penalty) == (1, 1.0)
    assert read.num_left_out == 0


def test_a_search_without_length_normalisation_is_imported_as_such(tmp_path: Path) -> None:
    FirefoxModel().write(tmp_path)
    (tmp_path / "decoder.yml").write_text("normalize: 0", "utf-8")
    assert read_marian(tmp_path).length_penalty == 0.0


@pytest.mark.parametrize("bits", [8, 32])
def test_a_separate_output_matrix_is_read(tmp_path: Path, bits: int) -> None:
    theirs = FirefoxModel(has_target_vocabulary=True, bits=bits)
    theirs.options |= {"tied-embeddings": False}
    table = theirs.arrays["decoder_Wemb"]
    theirs.arrays["decoder_ff_logit_out_Wt"] = -table
    theirs.write(tmp_path / "theirs")
    read = read_marian(tmp_path / "theirs")
    _, targets = our_ids(theirs, read, tmp_path)
    found = read.state["embedding.output_weight"][[targets[each] for each in range(theirs.num_target)]]
    assert np.allclose(found, -table, atol=1e-6)


# --- the bundle


@pytest.fixture(scope="module")
def theirs() -> FirefoxModel:
    return FirefoxModel()


@pytest.fixture(scope="module")
def bundle(theirs: FirefoxModel, tmp_path_factory: pytest.TempPathFactory) -> Bundle:
    folder = tmp_path_factory.mktemp("firefox")
    theirs.write(folder / "ende")
    arguments = ["--source", "en", "--target", "de", "--licence", "MPL-2.0", "--precisions", "fp32,int8"]
    assert main(["import", str(folder / "ende"), "--output", str(folder / "bundle"), *arguments]) == 0
    return load_bundle(folder / "bundle")


def test_gzip_files_and_another_name_give_the_same_bundle(bundle: Bundle, tmp_path: Path) -> None:
    """Firefox publishes gzip files. Here all but the shortlist are packed. The weights have CTranslate2's file name."""
    packed = tmp_path / "ende"
    packed.mkdir()
    for path in (bundle.path.parent / "ende").iterdir():
        name = "model.bin" if path.name.startswith("model.") else path.name
        if name.startswith("lex"):
            (packed / name).write_bytes(path.read_bytes())
        else:
            (packed / f"{name}.gz").write_bytes(gzip.compress(path.read_bytes()))
    arguments = ["--source", "en", "--target", "de", "--licence", "MPL-2.0", "--precisions", "fp32,int8"]
    assert main(["import", str(packed), "--output", str(tmp_path / "bundle"), *arguments]) == 0
    manifest = load_bundle(tmp_path / "bundle").manifest
    files, expected = (dict(each.files) for each in (manifest, bundle.manifest))
    assert files == expected
    assert len(list(packed.glob("*.gz"))) == 2, "the folder is not changed"


@pytest.mark.parametrize("kernels", KERNELS)
def test_a_bundle_translates_as_marians_network(
    bundle: Bundle, theirs: FirefoxModel, kernels: Kernels
) -> None:
    source, target = load_tokenizers(bundle)
    spm = sentencepiece.SentencePieceProcessor(model_proto=theirs.models[0])
    references = []
    for text in SENTENCES:
        ids: list[int] = []
        for _ in range(NUM_SUBWORDS):
            logits = theirs.logits([*spm.encode(text), 0], ids)[-1]
            logits[0] = -np.inf  # the end token, which the minimum length excludes
            ids.append(int(logits.argmax()))
        references.append([PLACEHOLDER_SYMBOLS[0] if each == 1 else spm.id_to_piece(each) for each in ids])
    options = DecodingOptions(
        beam_size=1, min_target_length=NUM_SUBWORDS, max_target_length=NUM_SUBWORDS, loop_guard=False
    )
    runner = load_runner(bundle, precision="fp32", device="cpu", kernels=kernels, num_rows=32, num_threads=1)
    found = translate_ids(runner, [source.encode(text).ids for text in SENTENCES], options)
    pieces = [
        [target.text_of(each).replace(" ", "\u2581") or PLACEHOLDER_SYMBOLS[0] for each in ids]
        for ids in found
    ]
    assert pieces == references
    assert len({tuple(each) for each in references}) > 3, "the translations are too similar for a comparison"


def test_the_bundle_has_the_imported_shortlist(bundle: Bundle, theirs: FirefoxModel, tmp_path: Path) -> None:
    (table,) = read_shortlists(bundle.file(SHORTLIST))
    sources, targets = our_ids(theirs, read_marian(bundle.path.parent / "ende"), tmp_path)
    chosen = [10, 40]
    expected = {targets[each] for source in chosen for each in theirs.likely()[source]}
    # Each shortlist also has the first 7 target ids, and the ids of the sources themselves.
    expected |= {targets[each] for each in range(7)} | {sources[each] for each in chosen}
    found = set(table.shortlist([sources[each] for each in chosen]).tolist())
    assert expected <= found
    assert len(found) < table.vocab_size / 2 + MIN_ALWAYS
    others = found - set(table.always.tolist()) - expected
    assert others == set()


@pytest.mark.parametrize("is_new", [True, False])
def test_if_the_shortlist_cannot_be_written_no_new_bundle_is_left(
    bundle: Bundle,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    is_new: bool,
) -> None:
    """The disk is full when the shortlist is written. An old bundle stays as it is."""
    output = tmp_path / "bundles" / "ende"
    if not is_new:
        shutil.copytree(bundle.path, output)

    def fail(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(bundle_shortlist, "write_shortlists", fail)
    arguments = ["--source", "en", "--target", "de", "--licence", "MPL-2.0", "--precisions", "fp32"]
    assert main(["import", str(bundle.path.parent / "ende"), "--output", str(output), *arguments]) == 1
    assert "No space left on device" in capsys.readouterr().err
    assert [path.name for path in output.parent.iterdir()] == ([] if is_new else [output.name])
    if not is_new:
        assert load_bundle(output).manifest == bundle.manifest


def test_an_output_that_is_no_bundle_is_refused_before_the_export(
    bundle: Bundle, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "own").write_text("x")
    arguments = ["--source", "en", "--target", "de", "--licence", "MPL-2.0", "--precisions", "fp32"]
    assert main(["import", str(bundle.path.parent / "ende"), "--output", str(tmp_path), *arguments]) == 1
    (message,) = capsys.readouterr().err.splitlines()
    assert message.endswith("exists and is not a bundle: it is left as it is")
    assert [path.name for path in tmp_path.iterdir()] == ["own"]


# --- refusals


def damage(path: Path, change: Callable[[bytes], bytes]) -> None:
    path.write_bytes(change(path.read_bytes()))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"transformer-preprocess": "n"},
            "In pre-norm, Marian normalises the queries of attention, but not the keys",
        ),
        ({"dec-cell": "gru"}, r"dec-cell of special:model\.yml is 'gru'; it must be 'ssru'"),
        ({"transformer-tied-layers": [1, 1]}, r"transformer-tied-layers of special:model\.yml is \[1, 1\]"),
        ({"transformer-decoder-ffn-depth": 1}, "transformer-decoder-ffn-depth of special"),
        ({"transformer-rnn-projection": True}, r"transformer-rnn-projection of special:model\.yml is True"),
        (
            {"layer-normalization": True},
            r"layer-normalization of special:model\.yml is True; it must be False in a decoder of SSRUs",
        ),
        (
            {"dec-depth": 1},
            r"alphas\.bin has arrays that this network does not have: decoder_l2_context_Wk, .+, \.\.\.$",
        ),
        ({"dec-depth": 3}, r"model\.ende\.intgemm\.alphas\.bin has no decoder_l3_rnn_Wf"),
    ],
)
def test_another_network_is_refused(tmp_path: Path, options: dict[str, Any], message: str) -> None:
    model = FirefoxModel()
    model.options |= options
    model.write(tmp_path)
    with pytest.raises(UnusableModel, match=message):
        read_marian(tmp_path)


@pytest.mark.parametrize(
    ("name", "change", "message"),
    [
        ("model.ende.intgemm.alphas.bin", lambda content: content[: len(content) // 2], "it is truncated"),
        ("model.ende.intgemm.alphas.bin", lambda _: b"", "it is empty"),
        (
            "model.ende.intgemm.alphas.bin",
            lambda content: b"\x09" + content[1:],
            "its version is 9 instead of 1",
        ),
        (
            "model.ende.intgemm.alphas.bin",
            lambda content: content[:8] + struct.pack("<Q", 1 << 60) + content[16:],
            "it claims 1152921504606846976 arrays",
        ),
        ("lex.50.50.ende.s2t.bin", lambda content: content[:-4], "it is truncated"),
        ("lex.50.50.ende.s2t.bin", lambda content: content + b"1234", "it has 4 bytes after its last id"),
        (
            "lex.50.50.ende.s2t.bin",
            lambda content: content[:-4] + struct.pack("<I", 500),
            "it has the id 500",
        ),
        ("vocab.ende.spm", lambda content: content[:-1], "vocab.ende.spm is not a SentencePiece model"),
    ],
)
def test_a_damaged_file_is_refused(
    tmp_path: Path, name: str, change: Callable[[bytes], bytes], message: str
) -> None:
    FirefoxModel().write(tmp_path)
    damage(tmp_path / name, change)
    with pytest.raises(UnusableModel, match=message):
        read_marian(tmp_path)


@pytest.mark.parametrize(
    ("missing", "patterns"),
    [
        (["vocab.ende.spm"], r"\*vocab\.yml or \*vocab\*\.spm"),
        (["model.ende.intgemm.alphas.bin"], r"\*\.npz or \*\.bin"),
        (["model.ende.intgemm.alphas.bin", "lex.50.50.ende.s2t.bin"], r"\*\.npz or \*\.bin"),
        (["model.ende.intgemm.alphas.bin", "vocab.ende.spm"], r"\*\.npz or \*\.bin"),
    ],
)
def test_a_missing_file_is_named(tmp_path: Path, missing: list[str], patterns: str) -> None:
    FirefoxModel().write(tmp_path)
    for name in missing:
        (tmp_path / name).unlink()
    with pytest.raises(UnusableModel, match=f"0 files are called {patterns}, where one is needed"):
        read_marian(tmp_path)


@pytest.mark.parametrize(
    ("entries", "message"),
    [
        ([("x_W", 0x1801, (2, 2), b"1234")], "x_W has the type 0x1801; only float32"),
        ([("x_W", INTGEMM8, (2, 2), b"1234\0\0\0\0")], r"x_W has the impossible scale 0\.0"),
        ([("x", FLOAT32, (-1, 2), b"1234")], r"x has the impossible shape \(-1, 2\)"),
        ([("x", FLOAT32, (1, 2), b"1234")], "x has 4 bytes, and needs 8"),
        ([("x_W", INTGEMM8, (2, 2), b"1234")], "x_W has 4 bytes, and needs 8"),
        ([("x", INT8, (1,) * 9, b"1")], "impossible name or shape"),
        ([("x" * 2000, INT8, (1,), b"1")], "impossible name or shape"),
    ],
)
def test_an_impossible_array_is_refused(tmp_path: Path, entries: Any, message: str) -> None:
    (tmp_path / "model.bin").write_bytes(binary_file(entries))
    with pytest.raises(BinaryError, match=message):
        read_arrays(tmp_path / "model.bin")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (binary_shortlist([[1], [2]], num_first=1), "it is for 2 source subwords, and the vocabulary has 3"),
        (
            binary_shortlist([[1], [3], [0]], num_first=1),
            "it has the id 3, and the vocabulary has 3 subwords",
        ),
        (b"12345678" * 6, "it is not a binary shortlist"),
    ],
)
def test_a_shortlist_of_another_vocabulary_or_format_is_refused(
    tmp_path: Path, content: bytes, message: str
) -> None:
    (tmp_path / "lex.bin").write_bytes(content)
    with pytest.raises(BinaryError, match=message):
        read_shortlist(tmp_path / "lex.bin", num_source=3, num_target=3)


def test_a_shortlist_has_no_more_first_subwords_than_the_vocabulary(tmp_path: Path) -> None:
    (tmp_path / "lex.bin").write_bytes(binary_shortlist([[1], [2], [0]], num_first=2**60))
    assert read_shortlist(tmp_path / "lex.bin", num_source=3, num_target=3).num_first == 3


def test_offsets_that_descend_are_refused(tmp_path: Path) -> None:
    content = bytearray(binary_shortlist([[1], [2], [0]], num_first=1))
    content[48 + 8 : 48 + 16] = struct.pack("<Q", 3)
    (tmp_path / "lex.bin").write_bytes(bytes(content))
    with pytest.raises(BinaryError, match="its offsets do not ascend from 0 to 3"):
        read_shortlist(tmp_path / "lex.bin", num_source=3, num_target=3)
