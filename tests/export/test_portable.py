"""`transduce export --to` writes models that `transformers` and CTranslate2 run, and that `transduce import` reads."""

from __future__ import annotations

import io
import json
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
import torch

from app.text.tokenizer import Tokenizer
from benchmarks.engine.ctranslate2_model import write_ctranslate2
from export import ctranslate2_writer
from export.bundle_writer import DEFAULT_DECODING
from export.huggingface_writer import dimension_order, write_huggingface
from export.portable import FormatError, PortableModel, read_checkpoint
from model.checkpoint import TOKENIZER, load_model
from model.config import BOS_ID, EOS_ID, PAD_ID, preset
from model.ctranslate2_binary import read_variables
from model.ctranslate2_files import read_ctranslate2
from model.imported import ImportedModel
from model.marian import marian_positions, read_marian
from model.search import pad
from model.transformer import Transformer
from tests.export.marian_folder import write_marian
from tests.export.own_model import (
    EMOJI,
    MAX_LENGTH,
    MAX_TARGET_LENGTH,
    OTHER_TAG,
    TAG,
    reference_search,
    write_own_checkpoint,
)
from tests.export.tiny import random_model, write_checkpoint
from tests.model.sentences import pairs
from transduce.cli import main

pytestmark = pytest.mark.training
transformers: Any = import_module("transformers")
ctranslate2: Any = import_module("ctranslate2")
SENTENCES = [pair.source for pair in pairs()][::12]
LANGUAGES = "--source en --target {} --reverse-tag >>en<< --precisions fp32"
CLASSES = {"post": "MarianMTModel", "pre": "PegasusForConditionalGeneration"}


@pytest.fixture(scope="module", params=["post", "pre"])
def norm(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def checkpoint(norm: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp(norm) / "own"
    write_own_checkpoint(folder, norm=norm)
    return folder / "checkpoint"


@pytest.fixture(scope="module")
def model(checkpoint: Path) -> Transformer:
    return load_model(checkpoint)


@pytest.fixture(scope="module")
def sources(checkpoint: Path) -> list[tuple[int, ...]]:
    tokenizer = Tokenizer(checkpoint / TOKENIZER)
    return [tokenizer.encode_tagged(text, TAG).ids for text in SENTENCES]


@pytest.fixture(scope="module")
def huggingface(checkpoint: Path) -> Path:
    return exported(checkpoint, "huggingface")


@pytest.fixture(scope="module")
def bundle(checkpoint: Path) -> Path:
    """A bundle of the checkpoint, with both directions."""
    facts, output = checkpoint.with_name("card.toml"), checkpoint.with_name("bundle")
    facts.write_text(
        'summary = "x"\ngood_at = ["x"]\nbad_at = ["x"]\nweights_licence = "MIT"\n'
        '[training]\ncommit = "x"\nnum_steps = 1\ndata = []\n'
    )
    assert main(
        f"export --checkpoint {checkpoint} --output {output} --name x --version 1 --card {facts} --tag {TAG} "
        f"{LANGUAGES.format('de')}".split()
    ) == 0  # fmt: skip
    return output


@pytest.fixture(scope="module")
def converted(checkpoint: Path) -> Path:
    return exported(checkpoint, "ctranslate2")


def exported(checkpoint: Path, to: str) -> Path:
    output = checkpoint.parent / to
    assert main(["export", "--checkpoint", str(checkpoint), "--to", to, "--output", str(output)]) == 0
    return output


def loaded(folder: Path) -> Any:
    """The model that `transformers` chooses for a folder."""
    found, report = transformers.AutoModelForSeq2SeqLM.from_pretrained(folder, output_loading_info=True)
    assert not any(report[kind] for kind in ("missing_keys", "unexpected_keys", "mismatched_keys"))
    return found.eval()


def test_logits_of_transformers_are_ours(norm: str, huggingface: Path, model: Transformer) -> None:
    theirs = loaded(huggingface)
    assert type(theirs).__name__ == CLASSES[norm]
    generator = torch.Generator().manual_seed(1)
    source, target = (
        torch.randint(EOS_ID + 1, model.config.vocab_size, (3, length), generator=generator)
        for length in (17, 12)
    )
    with torch.no_grad():
        reference = theirs(input_ids=source, decoder_input_ids=target).logits
        assert torch.allclose(model(source, target), reference, atol=1e-5)


@pytest.mark.parametrize("beam_size", [1, 4])
def test_translations_of_transformers_are_ours(
    huggingface: Path, model: Transformer, sources: list[tuple[int, ...]], beam_size: int
) -> None:
    batch = pad(sources)
    rows = loaded(huggingface).generate(
        input_ids=batch,
        attention_mask=(batch != PAD_ID).long(),
        num_beams=beam_size,
        early_stopping=beam_size > 1,
        max_new_tokens=MAX_TARGET_LENGTH + 1,
        length_penalty=1.0,
    )
    found = [
        tuple(identity for identity in row if identity not in (PAD_ID, BOS_ID, EOS_ID))
        for row in rows.tolist()
    ]
    assert found == reference_search(model, sources, beam_size, 1.0)
    assert len(set(found)) > len(sources) / 3, "the translations are too similar for a comparison"


@pytest.mark.filterwarnings("ignore:Recommended. pip install sacremoses")  # not used for ids
def test_the_tokenizer_of_transformers_gives_our_ids_and_texts(
    huggingface: Path, checkpoint: Path, sources: list[tuple[int, ...]]
) -> None:
    own, theirs = Tokenizer(checkpoint / TOKENIZER), transformers.AutoTokenizer.from_pretrained(huggingface)
    assert type(theirs).__name__ == "MarianTokenizer"
    for space in ("", " "):
        found = theirs([f"{TAG}{space}{text}" for text in SENTENCES]).input_ids
        assert [tuple(row) for row in found] == sources
    for pair in pairs()[:20]:
        ids = own.encode_target(pair.target)
        assert theirs.decode([BOS_ID, *ids, PAD_ID], skip_special_tokens=True) == pair.target


def test_generation_options_are_those_of_the_model(huggingface: Path) -> None:
    """The exponent is that of Wu's formula, which `transformers` does not have."""
    options = loaded(huggingface).generation_config
    assert (options.num_beams, options.length_penalty, options.early_stopping) == (4, 0.6, True)
    assert (options.max_length, options.min_new_tokens, options.forced_eos_token_id) == (MAX_LENGTH, 1, None)


@pytest.mark.parametrize("beam_size", [1, 4])
def test_translations_of_ctranslate2_are_ours(
    converted: Path, model: Transformer, sources: list[tuple[int, ...]], beam_size: int
) -> None:
    """CTranslate2 adds the end token to a source. Its length penalty, off here, does not count a target's end token."""
    pieces = json.loads((converted / "shared_vocabulary.json").read_text("utf-8"))
    translator = ctranslate2.Translator(str(converted), inter_threads=1, intra_threads=1)
    results = translator.translate_batch(
        [[pieces[identity] for identity in source[:-1]] for source in sources],
        beam_size=beam_size,
        length_penalty=1e-9,  # with 0 its search would end by another rule
        max_decoding_length=MAX_TARGET_LENGTH + 1,
    )
    found = [tuple(pieces.index(piece) for piece in result.hypotheses[0]) for result in results]
    assert found == reference_search(model, sources, beam_size, 0.0)


def test_model_bin_has_the_variables_of_ctranslate2s_own_converter(
    converted: Path, model: Transformer, tmp_path: Path
) -> None:
    write_ctranslate2(model, tmp_path / "theirs", "float32")
    reference, found = (
        read_variables(io.BytesIO((folder / "model.bin").read_bytes()))
        for folder in (tmp_path / "theirs", converted)
    )
    assert reference.keys() == found.keys()
    for name, values in reference.items():
        assert (values.dtype, values.shape) == (found[name].dtype, found[name].shape), name
        assert (values == found[name]).all(), name


# --- import of an exported model


def imported_model(read: ImportedModel) -> Transformer:
    model = Transformer(read.config)
    model.load_state_dict(read.state)
    return model.eval()


def test_an_import_gives_the_model_back(
    huggingface: Path, converted: Path, checkpoint: Path, model: Transformer, tmp_path: Path
) -> None:
    """Logits, subwords and placeholder symbols are the same. The ids are in another order."""
    own = Tokenizer(checkpoint / TOKENIZER)
    pieces = json.loads((converted / "shared_vocabulary.json").read_text("utf-8"))
    text = f"Anna {EMOJI} sees  42 cats."
    for read in (read_marian(huggingface), read_ctranslate2(converted)):
        assert (read.tags, read.ends_source) == ((TAG, OTHER_TAG), True)
        (tmp_path / "back.spm").write_bytes(read.source_spm)
        tokenizer = Tokenizer(tmp_path / "back.spm")
        # The new id of each old id.
        new = torch.tensor([PAD_ID, BOS_ID, EOS_ID, 3, *map(tokenizer.id_of, pieces[4:])])
        encoded = tokenizer.encode_tagged(text, TAG)
        assert encoded.verbatim_spans == (EMOJI,)
        assert tokenizer.decode(encoded.ids[1:-1], encoded.verbatim_spans).text == text
        ids = torch.tensor([own.encode_tagged(text, TAG).ids])
        assert new[ids].tolist() == [list(encoded.ids)]
        with torch.no_grad():
            found = imported_model(read)(new[ids], new[ids])[..., new]
            assert torch.allclose(found, model(ids, ids), atol=1e-5)


@pytest.mark.parametrize("to", ["huggingface", "ctranslate2"])
def test_a_bundle_becomes_a_foreign_model_and_a_bundle_again(bundle: Path, to: str, tmp_path: Path) -> None:
    """At least nine in ten golden translations of greedy search are the same. Both directions have golden lines."""
    foreign, second = tmp_path / "foreign", tmp_path / "second"
    assert main(f"export --bundle {bundle} --to {to} --output {foreign}".split()) == 0
    assert main(
        f"import {foreign} --output {second} --licence MIT {LANGUAGES.format(f'de={TAG}')}".split()
    ) == 0  # fmt: skip
    old, new = (
        [
            (line["source"], line["pair"], line["ids"])
            for line in map(json.loads, (folder / "golden.jsonl").read_text("utf-8").splitlines())
            if line["beam_size"] == 1
        ]
        for folder in (bundle, second)
    )
    assert {pair for _, pair, _ in old} == {0, 1}
    assert len(old) == len(new)
    # The graphs of the first bundle have fp32 weights. The second bundle was made from the first one's fp16 weights.
    assert sum(one != other for one, other in zip(old, new, strict=True)) <= len(old) / 10


@pytest.mark.parametrize(("to", "read"), [("huggingface", read_marian), ("ctranslate2", read_ctranslate2)])
def test_an_imported_model_with_two_tokenizers_can_be_exported(tmp_path: Path, to: str, read: Any) -> None:
    """The bundle's weights are fp16, which rounds each by at most 2^-11 of its size."""
    write_marian(tmp_path / "theirs")
    bundle, output = tmp_path / "bundle", tmp_path / "out"
    languages = "--source en --target de --precisions fp32"
    assert main(f"import {tmp_path / 'theirs'} --output {bundle} --licence MIT {languages}".split()) == 0
    assert main(f"export --bundle {bundle} --to {to} --output {output}".split()) == 0
    reference, found = read_marian(tmp_path / "theirs"), read(output)
    assert (found.source_spm, found.target_spm) == (reference.source_spm, reference.target_spm)
    assert found.config == reference.config
    for name, tensor in reference.state.items():
        assert torch.allclose(found.state[name], tensor, rtol=2**-11, atol=1e-7), name


# --- refusals


def refused(capsys: pytest.CaptureFixture[str], arguments: str, code: int = 1) -> str:
    assert main(["export", *arguments.split()]) == code
    return capsys.readouterr().err


@pytest.fixture
def untrained(tmp_path: Path) -> Path:
    """A checkpoint of random weights."""
    return write_checkpoint(tmp_path, random_model(max_length=MAX_LENGTH))


def test_options_of_a_bundle_are_refused_for_other_formats(
    untrained: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = f"--checkpoint {untrained} --to huggingface --output {tmp_path / 'out'}"
    message = refused(capsys, f"{arguments} --name x --precisions fp32", 2)
    assert "--name, --precisions: only for a bundle; leave out with --to huggingface" in message
    assert not (tmp_path / "out").exists()


def test_a_checkpoint_is_no_bundle(
    untrained: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = [
        "export",
        "--bundle",
        str(untrained),
        "--to",
        "ctranslate2",
        "--output",
        str(tmp_path / "out"),
    ]
    assert main(arguments) == 78
    assert "manifest.json is missing" in capsys.readouterr().err


def test_a_bundle_needs_its_options_and_a_checkpoint(
    untrained: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = f"--checkpoint {untrained} --output {tmp_path / 'out'} --source en --target de"
    message = refused(capsys, arguments, 2)
    assert "--name, --version, --card: needed for a bundle" in message
    assert "give --checkpoint" in refused(capsys, f"--bundle {untrained} --output {tmp_path / 'out'}", 2)


def test_an_existing_folder_is_left_as_it_is(
    untrained: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "file").touch()
    message = refused(capsys, f"--checkpoint {untrained} --to ctranslate2 --output {tmp_path / 'out'}")
    assert f"{tmp_path / 'out'} exists: it is left as it is" in message
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["file"]
    message = refused(
        capsys, f"--checkpoint {untrained} --to ctranslate2 --output {tmp_path / 'out' / 'file' / 'x'}"
    )
    assert f"{tmp_path / 'out' / 'file'} cannot be made" in message


def test_learned_positions_cannot_become_marians(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    learned = write_checkpoint(tmp_path, random_model(max_length=MAX_LENGTH, positions="learned"))
    message = refused(capsys, f"--checkpoint {learned} --to huggingface --output {tmp_path / 'out'}")
    assert "the model's positions are not the sines and cosines" in message
    assert "--to ctranslate2 can express them" in message
    assert not (tmp_path / "out").exists()
    assert main(f"export --checkpoint {learned} --to ctranslate2 --output {tmp_path / 'out'}".split()) == 0
    found = imported_model(read_ctranslate2(tmp_path / "out"))
    assert torch.equal(found.embedding.positions, load_model(learned).embedding.positions)


def test_sources_without_an_end_token_cannot_become_marians(tmp_path: Path) -> None:
    portable = PortableModel(random_model(), (), Path(), Path(), ends_source=False)
    with pytest.raises(FormatError, match="sources have no end token"):
        write_huggingface(portable, tmp_path / "out")


def test_the_search_of_a_greedy_model_does_not_stop_early(tiny: Path, tmp_path: Path) -> None:
    """`transformers` warns of this option if there is one beam."""
    greedy = DEFAULT_DECODING.model_copy(update={"beam_size": 1})
    write_huggingface(replace(read_checkpoint(tiny / "checkpoint"), decoding=greedy), tmp_path / "out")
    options = json.loads((tmp_path / "out" / "generation_config.json").read_text("utf-8"))
    assert (options["num_beams"], options["early_stopping"]) == (1, False)


@pytest.mark.parametrize("ends_source", [True, False])
def test_ctranslate2_adds_the_end_token_that_sources_have(
    ends_source: bool, tiny: Path, tmp_path: Path
) -> None:
    portable = replace(read_checkpoint(tiny / "checkpoint"), ends_source=ends_source)
    ctranslate2_writer.write_ctranslate2(portable, tmp_path / "out")
    assert json.loads((tmp_path / "out" / "config.json").read_text("utf-8"))["add_source_eos"] == ends_source


def test_a_stored_table_of_marians_positions_needs_no_permutation() -> None:
    """fp16, as in a bundle, rounds the table."""
    model = Transformer(preset("tiny", 20, positions="learned"))
    table = marian_positions(model.config.max_length, model.config.d_model).half().float()
    model.load_state_dict({**model.state_dict(), "embedding.positions": table})
    assert dimension_order(model).tolist() == list(range(model.config.d_model))
