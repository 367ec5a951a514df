"""Marian models in Hugging Face's format or Marian's own become bundles, which translate as `transformers` does."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from app.bundle import Bundle, load_bundle
from app.decoding.options import DecodingOptions, LengthPenalty
from app.runtime.kernels import Kernels
from app.runtime.ort_runner import load_runner
from app.text.tokenizer import PLACEHOLDER_SYMBOLS, Tokenizer
from export.golden import translate_ids
from model.config import BOS_ID, EOS_ID, PAD_ID
from model.imported import NEVER, UnusableModel
from model.marian import read_marian
from model.transformer import Transformer
from tests.api.server_process import ServerProcess
from tests.e2e.conftest import SERVE_BY_FORK
from tests.export.m2m_folder import change
from tests.export.marian_folder import TAGS, tokenizer_of, train, write_marian, write_npz
from tests.export.tiny import KERNELS
from tests.model.sentences import pairs
from transduce.cli import main

pytestmark = pytest.mark.training
MAX_NEW_TOKENS = 56
# Training steps after which the translations differ and most of them end.
NUM_STEPS = 80
SENTENCES = [pair.source for pair in pairs()][:80:2]
# SentencePiece's default rule folds a ligature, a no-break space, full-width letters and consecutive spaces.
FOLDED = ("Anna \ufb01nds the river.", "Anna\u00a0sees the \uff52iver", "Anna   sees  it")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("marian") / "opus-mt-en-de"


@pytest.fixture(scope="module")
def marian(folder: Path) -> Any:
    model = write_marian(folder)
    train(model, folder, num_steps=NUM_STEPS)
    return model


@pytest.fixture(scope="module")
def their_tokenizer(folder: Path, marian: Any) -> Any:
    return tokenizer_of(folder)


@pytest.fixture(scope="module")
def bundle(folder: Path, marian: Any, tmp_path_factory: pytest.TempPathFactory) -> Bundle:
    return imported(folder, tmp_path_factory.mktemp("bundles") / "en-de", "--precisions", "fp32,int8")


def imported(folder: Path, output: Path, *more: str, target: tuple[str, ...] = ("de",)) -> Bundle:
    targets = [argument for one in target for argument in ("--target", one)]
    arguments = [
        "import",
        str(folder),
        "--output",
        str(output),
        "--source",
        "en",
        *targets,
        "--licence",
        "CC-BY-4.0",
    ]
    assert main([*arguments, *more]) == 0
    return load_bundle(output)


class IdMap:
    """Maps the ids of vocab.json to those of a bundle. The first placeholder symbol has the row of <unk>."""

    def __init__(self, folder: Path, tokenizer: Tokenizer) -> None:
        vocabulary = json.loads((folder / "vocab.json").read_text("utf-8"))
        self.vocabulary = vocabulary
        self.bundle_ids = {
            identity: tokenizer.id_of(piece)
            for piece, identity in vocabulary.items()
            if piece not in ("<unk>", "<pad>")
        }
        self.bundle_ids[vocabulary["<unk>"]] = tokenizer.id_of(PLACEHOLDER_SYMBOLS[0])
        self.bundle_ids[vocabulary["<pad>"]] = BOS_ID

    def to_bundle(self, theirs: list[int]) -> tuple[int, ...]:
        return tuple(self.bundle_ids[identity] for identity in theirs)


@pytest.mark.parametrize("activation", ["swish", "relu", "gelu"])
def test_logits_are_those_of_transformers(tmp_path: Path, activation: str) -> None:
    theirs = write_marian(tmp_path, activation_function=activation)
    read = read_marian(tmp_path)
    model = Transformer(read.config)
    model.load_state_dict(read.state)
    (tmp_path / "bundle.spm").write_bytes(read.source_spm)
    ids = IdMap(tmp_path, Tokenizer(tmp_path / "bundle.spm"))
    start, size = theirs.config.pad_token_id, theirs.config.vocab_size
    generator = torch.Generator().manual_seed(1)
    source = torch.randint(2, size - 1, (3, 17), generator=generator)
    target = torch.cat(
        [torch.full((3, 1), start), torch.randint(2, size - 1, (3, 11), generator=generator)], dim=1
    )
    with torch.no_grad():
        reference = theirs(input_ids=source, decoder_input_ids=target).logits
        found = model.eval()(
            *(torch.tensor([ids.to_bundle(row.tolist()) for row in side]) for side in (source, target))
        )
    known = [identity for identity in range(size) if identity != start]
    assert torch.allclose(found[..., list(ids.to_bundle(known))], reference[..., known], atol=1e-5)
    never = {PAD_ID, BOS_ID, *range(EOS_ID + 1, EOS_ID + 2 + len(PLACEHOLDER_SYMBOLS))}
    never.remove(ids.bundle_ids[ids.vocabulary["<unk>"]])
    assert float(found[..., sorted(never)].max()) < NEVER / 2


@pytest.mark.parametrize("text", [*SENTENCES[:20], *FOLDED])
def test_subwords_are_those_of_transformers(
    folder: Path, their_tokenizer: Any, bundle: Bundle, text: str
) -> None:
    tokenizer = Tokenizer(bundle.file("source.spm"))
    theirs = their_tokenizer(text).input_ids
    assert tokenizer.encode(text).ids == IdMap(folder, tokenizer).to_bundle(theirs)


def test_unknown_characters_are_copied_to_the_translation(bundle: Bundle) -> None:
    """The text has an emoji, a character of the target's vocabulary only, and one that the normalisation deletes."""
    source, target = (Tokenizer(bundle.file(f"{side}.spm")) for side in ("source", "target"))
    encoded = source.encode("Anna 🙂 sees ß again\u200b.")
    assert encoded.verbatim_spans == ("🙂", "ß", "\u200b")
    assert target.decode(encoded.ids[:-1], encoded.verbatim_spans).text == "Anna 🙂 sees ß again\u200b."


@pytest.mark.parametrize("kernels", KERNELS)
@pytest.mark.parametrize("beam_size", [1, 4])
def test_translations_are_those_of_transformers(
    folder: Path, marian: Any, bundle: Bundle, kernels: Kernels, beam_size: int
) -> None:
    tokenizer = Tokenizer(bundle.file("source.spm"))
    options = DecodingOptions(
        beam_size=beam_size, length_penalty=LengthPenalty.POWER, alpha=1.0, max_target_length=MAX_NEW_TOKENS
    )
    runner = load_runner(bundle, precision="fp32", device="cpu", kernels=kernels, num_rows=64, num_threads=1)
    found = translate_ids(runner, [tokenizer.encode(text).ids for text in SENTENCES], options)
    reference = generated(marian, folder, tokenizer, beam_size)
    # If no hypothesis ends before the limit, the two searches differ: `transformers` counts the end token as one of
    # max_new_tokens, and max_target_length does not count it.
    ended = {
        text: ids for text, ids in zip(SENTENCES, reference, strict=True) if len(ids) < MAX_NEW_TOKENS - 1
    }
    assert ended == {text: ids for text, ids in zip(SENTENCES, found, strict=True) if text in ended}
    assert len(set(ended.values())) > len(SENTENCES) / 4, "the translations are too similar for a comparison"


def generated(marian: Any, folder: Path, tokenizer: Tokenizer, beam_size: int) -> list[tuple[int, ...]]:
    """The ids of `generate()` for SENTENCES, as ids of the bundle, without start and end tokens."""
    ids = IdMap(folder, tokenizer)
    start, end = ids.vocabulary["<pad>"], ids.vocabulary["</s>"]
    rows = marian.generate(
        **tokenizer_of(folder)(SENTENCES, return_tensors="pt", padding=True),
        num_beams=beam_size,
        length_penalty=1.0,
        early_stopping=True,
        max_new_tokens=MAX_NEW_TOKENS,
        min_new_tokens=1,
        bad_words_ids=[[start]],
        renormalize_logits=True,
    )
    return [
        ids.to_bundle([identity for identity in row if identity not in (start, end)]) for row in rows.tolist()
    ]


@pytest.mark.server
def test_a_server_gives_the_same_translations(folder: Path, marian: Any, bundle: Bundle) -> None:
    """Sentences that the server decodes again or repairs are left out: a model of few training steps has some."""
    reference = generated(marian, folder, Tokenizer(bundle.file("source.spm")), beam_size=4)
    target = Tokenizer(bundle.file("target.spm"))
    body = {"source": "en", "target": "de", "beam_size": 4, "max_target_length": MAX_NEW_TOKENS}
    settings = {"bundle": bundle.path, "precision": "fp32", "num_threads": 1}
    num_checked = 0
    with ServerProcess(SERVE_BY_FORK, settings) as process, process.ready().client() as client:
        for text, ids in list(zip(SENTENCES, reference, strict=True))[:20]:
            answer = client.post("/v1/translate", json={**body, "text": text}).json()
            (segment,) = answer["translations"][0]["segments"]
            expected = target.decode(ids).text
            adds_a_number = any(map(str.isdigit, expected)) and not any(map(str.isdigit, text))
            if "fallbacks" not in segment and not adds_a_number:
                assert answer["translations"][0]["text"] == expected, text
                num_checked += 1
    assert num_checked > 10


@pytest.mark.parametrize("has_target_vocabulary", [False, True])
def test_a_model_of_several_targets_has_a_pair_for_each(tmp_path: Path, has_target_vocabulary: bool) -> None:
    write_marian(tmp_path / "opus-mt-en-gmw", tags=TAGS, has_target_vocabulary=has_target_vocabulary)
    bundle = imported(
        tmp_path / "opus-mt-en-gmw",
        tmp_path / "out",
        "--precisions",
        "fp32",
        "--max-length",
        "24",
        target=("de=>>deu<<", "nl=>>nld<<"),
    )
    assert [(pair.source, pair.target, pair.source_prefix) for pair in bundle.manifest.language_pairs] == [
        ("en", "de", ">>deu<<"),
        ("en", "nl", ">>nld<<"),
    ]
    tokenizer = Tokenizer(bundle.file("source.spm"))
    theirs = tokenizer_of(tmp_path / "opus-mt-en-gmw")(">>nld<< Anna sees").input_ids
    converted = IdMap(tmp_path / "opus-mt-en-gmw", tokenizer).to_bundle(theirs)
    assert tokenizer.encode_tagged("Anna sees", ">>nld<<").ids == converted
    assert tokenizer.id_of(">>nld<<") not in tokenizer.encode(">>nld<< Anna").ids, "a tag in a text is text"


def test_the_manifest_has_the_models_own_search(bundle: Bundle) -> None:
    manifest = bundle.manifest
    assert (manifest.name, manifest.weights_licence) == ("opus-mt-en-de", "CC-BY-4.0")
    assert manifest.decoding.length_penalty is LengthPenalty.POWER
    assert manifest.max_target_length == 64
    card = (bundle.path / "MODEL_CARD.md").read_text("utf-8")
    assert "Trained elsewhere" in card
    assert card.endswith("Weights: CC-BY-4.0.\n")  # there is no table of corpora with licences


# --- Marian's own files


@pytest.fixture
def npz(tmp_path: Path) -> Path:
    """A model in Marian's format, and beside it in Hugging Face's. Marian's first decoder input is zeros."""
    marian = write_marian(tmp_path / "theirs")
    with torch.no_grad():
        marian.get_input_embeddings().weight[-1] = 0
        marian.final_logits_bias[0, -1] = 0
    marian.save_pretrained(tmp_path / "theirs")
    write_npz(tmp_path / "theirs", tmp_path / "npz")
    return tmp_path / "npz"


def test_marians_own_files_give_the_same_model_but_for_positions(npz: Path) -> None:
    reference, found = read_marian(npz.parent / "theirs", max_length=40), read_marian(npz, max_length=40)
    assert found.config == reference.config
    assert (found.source_spm, found.target_spm) == (reference.source_spm, reference.target_spm)
    assert reference.state.keys() == found.state.keys()
    different = [
        name for name in reference.state if not torch.equal(reference.state[name], found.state[name])
    ]
    assert different == ["embedding.positions"]
    assert (found.beam_size, found.length_penalty) == (1, 1.0)


def test_a_missing_array_is_named(npz: Path) -> None:
    arrays = dict(np.load(npz / "opus.npz"))
    del arrays["decoder_l2_context_Wo"]
    np.savez(npz / "opus.npz", **arrays)
    with pytest.raises(UnusableModel, match=r"opus\.npz has no decoder_l2_context_Wo"):
        read_marian(npz)


def test_an_array_of_objects_is_refused_and_not_read(npz: Path, tmp_path: Path) -> None:
    np.savez(npz / "opus.npz", Wemb=np.array([Attack(tmp_path / "run")], object))
    with pytest.raises(UnusableModel, match=r"opus\.npz is not an archive of arrays"):
        read_marian(npz)
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("name", ["opus.npz", "opus.spm32k-spm32k.vocab.yml"])
def test_a_truncated_file_of_marian_is_refused(npz: Path, name: str) -> None:
    content = (npz / name).read_bytes()
    (npz / name).write_bytes(content[: len(content) // 2])
    with pytest.raises(UnusableModel):
        read_marian(npz)


# --- refusals


@pytest.fixture
def broken(folder: Path, marian: Any, tmp_path: Path) -> Path:
    """A copy of the folder to damage."""
    return shutil.copytree(folder, tmp_path / "broken")


def test_all_missing_files_are_listed(tmp_path: Path) -> None:
    with pytest.raises(UnusableModel) as found:
        read_marian(tmp_path)
    assert found.value.problems == [
        "config.json is missing", "vocab.json is missing", "source.spm is missing", "target.spm is missing",
        "model.safetensors or pytorch_model.bin is missing",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("model_type", "bart", "model_type of config.json is 'bart'"),
        ("scale_embedding", False, "scale_embedding of config.json is False"),
        (
            "share_encoder_decoder_embeddings",
            False,
            "target_vocab.json is missing; by config.json source and target have their own embeddings",
        ),
        ("activation_function", "tanh", "must be one of relu, swish, silu, gelu"),
        ("encoder_layers", None, "encoder_layers of config.json is missing or no whole number"),
        ("encoder_layers", 20_000, "encoder_layers of config.json is 20000; it must be from 1 to 1000"),
        ("d_model", True, "d_model of config.json is missing or no whole number"),
        ("d_model", 2, "d_model of config.json is 2; it must be from 4 to 100000"),
        ("d_model", 63, "d_model of config.json is 63; it must be even"),
        ("encoder_ffn_dim", 0, "encoder_ffn_dim of config.json is 0; it must be from 1 to 1000000"),
        ("pad_token_id", -1, "pad_token_id of config.json is -1; it must be from 0 to 9999999"),
        ("decoder_vocab_size", "many", "decoder_vocab_size of config.json is no whole number"),
        ("decoder_vocab_size", [1], "decoder_vocab_size of config.json is no whole number"),
        ("decoder_vocab_size", 2.9, "decoder_vocab_size of config.json is no whole number"),
        ("decoder_vocab_size", 0, "decoder_vocab_size of config.json is 0; it must be from 1 to 10000000"),
        (
            "decoder_attention_heads",
            4,
            "encoder_attention_heads and decoder_attention_heads of config.json differ",
        ),
        ("vocab_size", 7, "vocab_size of config.json is 7"),
        ("eos_token_id", 5, "</s> is 0 in vocab.json, eos_token_id of config.json is 5"),
        ("decoder_start_token_id", 0, "_start_token_id of config.json is 0, which is neither <pad> nor <s>"),
        ("d_model", 32, "; config.json requires ("),
        ("decoder_layers", 3, "the weight model.decoder.layers.2.self_attn.q_proj.weight is missing"),
    ],
)
def test_a_contradictory_config_is_refused(broken: Path, field: str, value: object, message: str) -> None:
    change(broken / "config.json", lambda config: config.update({field: value}))
    with pytest.raises(UnusableModel) as found:
        read_marian(broken)
    assert message in str(found.value)


@pytest.mark.parametrize("name", ["model.safetensors", "source.spm", "config.json", "vocab.json"])
def test_a_truncated_file_is_refused(broken: Path, name: str) -> None:
    content = (broken / name).read_bytes()
    (broken / name).write_bytes(content[: len(content) // 2])
    with pytest.raises(UnusableModel):
        read_marian(broken)


@pytest.mark.parametrize("is_zip", [True, False])  # PyTorch before 1.6 wrote no zip archive
def test_pickled_weights_equal_safetensors(folder: Path, broken: Path, marian: Any, is_zip: bool) -> None:
    (broken / "model.safetensors").unlink()
    file = broken / "pytorch_model.bin"
    torch.save(marian.state_dict(), file, _use_new_zipfile_serialization=is_zip)  # noqa: TID251 - as others write it
    reference, found = read_marian(folder).state, read_marian(broken).state
    assert reference.keys() == found.keys()
    assert all(torch.equal(reference[name], found[name]) for name in reference)


class Attack:
    """An object that creates a file if it is unpickled in the usual way."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Any, ...]:
        return Path.touch, (self.path,)


def test_a_pickle_with_code_is_refused_and_not_run(broken: Path, tmp_path: Path) -> None:
    (broken / "model.safetensors").unlink()
    attack = {"model.shared.weight": Attack(tmp_path / "run")}
    torch.save(attack, broken / "pytorch_model.bin")  # noqa: TID251
    with pytest.raises(UnusableModel, match=r"pytorch_model\.bin holds no tensors that can be read safely"):
        read_marian(broken)
    assert not (tmp_path / "run").exists()


def test_tags_and_targets_that_do_not_fit_are_an_error(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_marian(tmp_path / "many", tags=TAGS)
    write_marian(tmp_path / "one")
    options = ["--output", str(tmp_path / "out"), "--source", "en", "--licence", "MIT"]
    for name, targets, message in (
        ("many", ["de"], "--target de needs a tag: --target 'de=>>deu<<'; the model has >>deu<<, >>nld<<"),
        ("many", ["fr=>>fra<<"], "--target fr: the vocabulary has no tag >>fra<<"),
        ("one", ["de", "fr"], "the model has no tags, so it has only one target language: name one --target"),
    ):
        named = [part for target in targets for part in ("--target", target)]
        assert main(["import", str(tmp_path / name), *options, *named]) == 1
        assert message in capsys.readouterr().err
    assert not (tmp_path / "out").exists()
