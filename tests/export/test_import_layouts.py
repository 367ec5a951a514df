"""Marian models with tables of their own for source, target and output, with two vocabularies, and in pre-norm."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file, save_model

from app.bundle import load_bundle
from app.bundle_tokenizers import load_tokenizers
from app.decoding.options import DecodingOptions
from app.runtime.kernels import Kernels
from app.runtime.ort_runner import load_runner
from app.text.tokenizer import PLACEHOLDER_SYMBOLS, Tokenizer
from export.golden import translate_ids
from model.config import BOS_ID
from model.huggingface_files import OUTPUT_TABLE, SHARED, SOURCE_TABLE, TARGET_TABLE
from model.imported import FIRST, NEVER, ImportedModel, UnusableModel, masked_bias
from model.m2m import read_m2m
from model.marian import read_marian
from model.transformer import Transformer
from tests.export.m2m_folder import write_m2m
from tests.export.marian_folder import change_npz, tokenizer_of, write_marian, write_npz
from tests.export.tiny import KERNELS
from tests.model.sentences import pairs
from transduce.cli import main

pytestmark = pytest.mark.training
LAYOUTS: dict[str, dict[str, Any]] = {
    "own output table": {"tie_word_embeddings": False},
    "two vocabularies": {"has_target_vocabulary": True},
    "two vocabularies, three tables": {"has_target_vocabulary": True, "tie_word_embeddings": False},
    "pre-norm": {"is_pre_norm": True},
}
NUM_SUBWORDS = 20
SENTENCES = [pair.source for pair in pairs()][::10]


def id_map(vocabulary: Path, spm: bytes, folder: Path) -> dict[int, int]:
    """The bundle's id of each id of a vocabulary. <pad> is Marian's start token."""
    (folder / "side.spm").write_bytes(spm)
    tokenizer = Tokenizer(folder / "side.spm")
    pieces = json.loads(vocabulary.read_text("utf-8"))
    names = {"<unk>": PLACEHOLDER_SYMBOLS[0], "<pad>": "<s>"}
    return {identity: tokenizer.id_of(names.get(piece, piece)) for piece, identity in pieces.items()}


def id_maps(folder: Path, read: ImportedModel, scratch: Path) -> tuple[dict[int, int], dict[int, int]]:
    """`id_map` of sources and of targets."""
    source, target = folder / "vocab.json", folder / "target_vocab.json"
    return (
        id_map(source, read.source_spm, scratch),
        id_map(target if target.is_file() else source, read.target_spm, scratch),
    )


@pytest.mark.parametrize("layout", LAYOUTS.values(), ids=LAYOUTS)
def test_logits_are_those_of_transformers(tmp_path: Path, layout: dict[str, Any]) -> None:
    theirs = write_marian(tmp_path / "theirs", **layout)
    read = read_marian(tmp_path / "theirs")
    model = Transformer(read.config).eval()
    model.load_state_dict(read.state)
    sources, targets = id_maps(tmp_path / "theirs", read, tmp_path)
    start = theirs.config.decoder_start_token_id
    generator = torch.Generator().manual_seed(1)
    source = torch.randint(2, len(sources) - 1, (3, 17), generator=generator)
    target = torch.randint(2, len(targets) - 1, (3, 12), generator=generator)
    target[:, 0] = start
    with torch.no_grad():
        reference = theirs(input_ids=source, decoder_input_ids=target).logits
        found = model(
            torch.tensor([[sources[each] for each in row] for row in source.tolist()]),
            torch.tensor([[targets[each] for each in row] for row in target.tolist()]),
        )
    known = [identity for identity in targets if identity != start]
    assert torch.allclose(found[..., [targets[each] for each in known]], reference[..., known], atol=1e-5)
    never = sorted(set(range(read.config.vocab_size)) - {targets[each] for each in known})
    assert BOS_ID in never
    assert float(found[..., never].max()) < NEVER / 2, "no translation has a made-up piece"


@pytest.mark.parametrize("is_old", [False, True], ids=["new", "old"])
@pytest.mark.parametrize("layout", [name for name in LAYOUTS if name != "pre-norm"])
def test_marians_own_files_are_the_same_model_with_marians_own_positions(
    tmp_path: Path, layout: str, is_old: bool
) -> None:
    marian = write_marian(tmp_path / "theirs", **LAYOUTS[layout])
    with torch.no_grad():  # Marian has no padding: its decoder starts with zeros
        for tables in (marian.get_encoder().embed_tokens, marian.get_decoder().embed_tokens, marian.lm_head):
            tables.weight[-1] = 0
        marian.final_logits_bias[0, -1] = 0
    marian.save_pretrained(tmp_path / "theirs")
    write_npz(tmp_path / "theirs", tmp_path / "npz", is_old=is_old)
    reference, found = read_marian(tmp_path / "theirs"), read_marian(tmp_path / "npz", max_length=64)
    assert found.config == reference.config
    assert (found.source_spm, found.target_spm) == (reference.source_spm, reference.target_spm)
    assert reference.state.keys() == found.state.keys()
    different = [
        name for name in reference.state if not torch.equal(reference.state[name], found.state[name])
    ]
    assert different == ["embedding.positions"]
    half = found.config.d_model // 2
    angles = [found.state["embedding.positions"][1, each].item() for each in (0, half - 1)]
    assert angles == pytest.approx([math.sin(1), math.sin(1 / 10000)])


def test_no_translation_has_a_made_up_piece_of_a_smaller_target_vocabulary() -> None:
    """The import fills up the smaller vocabulary with made-up pieces (`filled` in model/imported.py).

    Only Marian's own files may have a smaller target vocabulary. No model of `transformers` has one.
    """
    vocabulary = {"</s>": 0, "<unk>": 1, "a": 2, "b": 3, "<pad>": 4}
    bias = masked_bias(torch.zeros(len(FIRST) + 5), vocabulary)
    assert bias[len(FIRST) :].tolist() == [0, 0, NEVER, NEVER, NEVER]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("two") / "opus-mt-en-de"


@pytest.fixture(scope="module")
def generated(folder: Path) -> list[list[str]]:
    """The first pieces of `generate()` for SENTENCES. Writes the folder."""
    model = write_marian(folder, has_target_vocabulary=True, tie_word_embeddings=False, init_std=0.3, seed=3)
    tokenizer = tokenizer_of(folder)
    found = model.generate(
        **tokenizer(SENTENCES, return_tensors="pt", padding=True),
        num_beams=1,
        max_new_tokens=NUM_SUBWORDS,
        min_new_tokens=NUM_SUBWORDS,
        bad_words_ids=[[model.config.decoder_start_token_id]],
    )
    # The tokenizer's own conversion is wrong for one id: it gives the source's padding instead of the target's piece.
    vocabulary = json.loads((folder / "target_vocab.json").read_text("utf-8"))
    pieces = {identity: piece for piece, identity in vocabulary.items()}
    pieces[vocabulary["<unk>"]] = PLACEHOLDER_SYMBOLS[0]
    return [[pieces[each] for each in row[1:]] for row in found.tolist()]


@pytest.fixture(scope="module")
def bundle(folder: Path, generated: list[list[str]]) -> Path:
    arguments = ["--source", "en", "--target", "de", "--licence", "MIT", "--precisions", "fp32,int8"]
    output = folder.parent / "bundle"
    assert main(["import", str(folder), "--output", str(output), *arguments]) == 0
    return output


@pytest.mark.parametrize("kernels", KERNELS)
def test_a_bundle_of_two_vocabularies_translates_as_transformers(
    bundle: Path, generated: list[list[str]], kernels: Kernels
) -> None:
    loaded = load_bundle(bundle)
    source, target = load_tokenizers(loaded)
    options = DecodingOptions(
        beam_size=1, min_target_length=NUM_SUBWORDS, max_target_length=NUM_SUBWORDS, loop_guard=False
    )
    runner = load_runner(loaded, precision="fp32", device="cpu", kernels=kernels, num_rows=32, num_threads=1)
    found = translate_ids(runner, [source.encode(text).ids for text in SENTENCES], options)
    assert [
        [target.text_of(each).replace(" ", "\u2581") or PLACEHOLDER_SYMBOLS[0] for each in ids]
        for ids in found
    ] == generated
    assert len({tuple(row) for row in generated}) > 5, "the translations are too similar for a comparison"


def test_the_vocabularies_have_different_pieces_at_the_same_ids(bundle: Path) -> None:
    source, target = load_tokenizers(load_bundle(bundle))
    pieces = [(source.text_of(index), target.text_of(index)) for index in range(source.vocab_size)]
    assert sum(one != other for one, other in pieces) > len(pieces) / 2


@pytest.mark.parametrize("kind", ["huggingface", "ctranslate2"])
def test_a_bundle_with_separate_tables_is_not_exported_to_other_formats(
    bundle: Path, kind: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["export", "--bundle", str(bundle), "--to", kind, "--output", str(bundle.parent / kind)]) == 1
    assert (
        "has separate embeddings of source, target or output; only a model with one shared"
        in capsys.readouterr().err
    )
    assert not (bundle.parent / kind).exists()


# --- refusals


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"transformer-preprocess": "n"}, "has transformer-preprocess 'n', transformer-postprocess 'dan', "),
        (
            {
                "transformer-preprocess": "n",
                "transformer-postprocess": "da",
                "transformer-postprocess-top": "n",
            },
            "these must be '', 'dan', ''. In pre-norm, Marian normalises the queries",
        ),
        ({"tied-embeddings-all": False, "tied-embeddings-src": False}, "opus.npz has no encoder_Wemb"),
        (
            {"tied-embeddings-all": False, "tied-embeddings": False},
            "opus.npz has no decoder_ff_logit_out_Wt",
        ),
    ],
)
def test_unsupported_options_and_missing_arrays_are_refused(
    tmp_path: Path, changes: dict[str, Any], message: str
) -> None:
    write_marian(tmp_path / "theirs")
    write_npz(tmp_path / "theirs", tmp_path / "npz")
    change_npz(tmp_path / "npz", changes)
    with pytest.raises(UnusableModel) as found:
        read_marian(tmp_path / "npz")
    assert message in str(found.value)


def test_a_target_vocabulary_of_another_size_is_refused(tmp_path: Path) -> None:
    write_marian(tmp_path, has_target_vocabulary=True)
    config = json.loads((tmp_path / "config.json").read_text("utf-8"))
    (tmp_path / "config.json").write_text(json.dumps(config | {"decoder_vocab_size": 7}), "utf-8")
    with pytest.raises(
        UnusableModel, match=r"target_vocab\.json has \d+ pieces, decoder_vocab_size of config\.json is 7"
    ):
        read_marian(tmp_path)


def test_null_in_the_generation_config_counts_as_a_missing_field(tmp_path: Path) -> None:
    write_marian(tmp_path)
    search = {"num_beams": 3, "length_penalty": None}
    (tmp_path / "generation_config.json").write_text(json.dumps(search), "utf-8")
    assert (read_marian(tmp_path).beam_size, read_marian(tmp_path).length_penalty) == (3, 1.0)


@pytest.mark.parametrize("write", [write_marian, write_m2m])
@pytest.mark.parametrize("name", [OUTPUT_TABLE, SOURCE_TABLE, TARGET_TABLE])
def test_a_shared_table_may_be_stored_under_any_of_its_names(
    tmp_path: Path, write: Callable[[Path], Any], name: str
) -> None:
    """`save_model` of Safetensors keeps one name of a shared table, and `transformers` reads any of the names."""
    write(tmp_path)
    read: Callable[[Path], ImportedModel] = read_marian if write is write_marian else read_m2m
    expected = read(tmp_path).state
    weights = load_file(tmp_path / "model.safetensors")
    weights[name] = weights.pop(SHARED)
    save_file(weights, tmp_path / "model.safetensors", metadata={"format": "pt"})
    found = read(tmp_path).state
    assert found.keys() == expected.keys()
    assert all(torch.equal(found[each], expected[each]) for each in expected)
    del weights[name]
    save_file(weights, tmp_path / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(UnusableModel, match=r"the weight model\.shared\.weight is missing"):
        read(tmp_path)


@pytest.mark.parametrize("is_shared", [True, False])
@pytest.mark.parametrize("is_tied", [True, False])
def test_tables_that_save_model_left_out_are_found(tmp_path: Path, is_shared: bool, is_tied: bool) -> None:
    """`save_model` keeps the alphabetically first name of each tensor that has several names."""
    model = write_marian(tmp_path, has_target_vocabulary=not is_shared, tie_word_embeddings=is_tied)
    target = model.get_decoder().embed_tokens
    if is_shared:
        model.model.shared = model.get_encoder().embed_tokens = target
    if is_tied:
        model.lm_head.weight = target.weight
    file = tmp_path / "model.safetensors"
    save_file({name: tensor.clone() for name, tensor in model.state_dict().items()}, file)
    expected = read_marian(tmp_path).state
    save_model(model, str(file))
    kept = {
        (True, True): {OUTPUT_TABLE},
        (True, False): {OUTPUT_TABLE, TARGET_TABLE},
        (False, True): {OUTPUT_TABLE, SOURCE_TABLE},
        (False, False): {OUTPUT_TABLE, SOURCE_TABLE, TARGET_TABLE},
    }
    assert (
        load_file(file).keys() & {SHARED, SOURCE_TABLE, TARGET_TABLE, OUTPUT_TABLE}
        == kept[is_shared, is_tied]
    )
    found = read_marian(tmp_path).state
    assert found.keys() == expected.keys()
    assert all(torch.equal(found[each], expected[each]) for each in expected)


def test_a_target_vocabulary_beside_a_shared_embedding_is_refused(tmp_path: Path) -> None:
    write_marian(tmp_path)
    (tmp_path / "target_vocab.json").write_bytes((tmp_path / "vocab.json").read_bytes())
    with pytest.raises(
        UnusableModel, match=r"there is a target_vocab\.json, but by config\.json both sides share"
    ):
        read_marian(tmp_path)


def test_one_vocabulary_for_two_embeddings_is_refused_unless_the_tokenizer_has_only_one(
    tmp_path: Path,
) -> None:
    write_marian(tmp_path, has_target_vocabulary=True)
    size = len(json.loads((tmp_path / "vocab.json").read_text("utf-8")))
    write_marian(
        tmp_path, has_target_vocabulary=True, decoder_vocab_size=size, decoder_start_token_id=size - 1
    )
    (tmp_path / "target_vocab.json").unlink()
    tokenizer = tmp_path / "tokenizer_config.json"
    for content in ('{"separate_vocabs": true}', "{}", None):
        tokenizer.unlink() if content is None else tokenizer.write_text(content, "utf-8")
        with pytest.raises(
            UnusableModel,
            match=r"target_vocab\.json is missing; by config\.json source and target have their own",
        ):
            read_marian(tmp_path)
    tokenizer.write_text('{"separate_vocabs": false}', "utf-8")
    assert read_marian(tmp_path).config.own_source_table
