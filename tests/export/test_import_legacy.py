"""NLLB's legacy layout, in which the language follows the source and its end token."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from app.bundle import load_bundle
from app.bundle_tokenizers import load_tokenizers
from app.decoding.options import DecodingOptions
from app.runtime.ort_runner import load_runner
from app.text.tokenizer import Tokenizer
from export.golden import translate_ids
from export.verify import VerifyOptions, verify
from tests.api.server_process import ServerProcess
from tests.e2e.conftest import SERVE
from tests.export.m2m_folder import MAX_LENGTH, change, ids_of, tokenizer_of, write_nllb
from tests.export.tiny import recorded_translations, verify_few_sentences
from tests.model.sentences import pairs
from transduce.cli import main

pytestmark = pytest.mark.training
NUM_SUBWORDS = 16
SENTENCES = [pair.source for pair in pairs()][::16]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("legacy") / "nllb"


@pytest.fixture(scope="module")
def model(folder: Path) -> Any:
    written = write_nllb(folder)
    change(folder / "tokenizer_config.json", lambda settings: settings.update(legacy_behaviour=True))
    return written


@pytest.fixture(scope="module")
def bundle(folder: Path, model: Any) -> Path:
    output = folder.parent / "bundle"
    arguments = ["--licence", "MIT", "--languages", "en,de", "--precisions", "fp32"]
    assert main(["import", str(folder), "--output", str(output), *arguments]) == 0
    return output


def test_sources_and_translations_are_those_of_transformers(folder: Path, model: Any, bundle: Path) -> None:
    loaded = load_bundle(bundle)
    source, _ = load_tokenizers(loaded)
    theirs = tokenizer_of(folder, "eng_Latn")
    to_bundle = ids_of(folder, Tokenizer(loaded.file("source.spm")))
    encoded = [source.encode_tagged(text, "eng_Latn").ids for text in SENTENCES]
    assert encoded == [tuple(to_bundle[each] for each in theirs(text).input_ids) for text in SENTENCES]
    assert {ids[-2:] for ids in encoded} == {(source.eos_id, source.id_of("eng_Latn"))}
    rows = model.generate(
        **theirs(SENTENCES, return_tensors="pt", padding=True),
        forced_bos_token_id=theirs.convert_tokens_to_ids("deu_Latn"),
        num_beams=1,
        max_new_tokens=NUM_SUBWORDS + 1,
        min_new_tokens=NUM_SUBWORDS + 1,
        bad_words_ids=[[0], [1]],
    )
    options = DecodingOptions(beam_size=1, min_target_length=NUM_SUBWORDS, max_target_length=NUM_SUBWORDS)
    runner = load_runner(loaded, precision="fp32", device="cpu", num_rows=16, num_threads=1)
    found = translate_ids(runner, encoded, options, starts=[source.id_of("deu_Latn")] * len(encoded))
    assert found == [tuple(to_bundle[each] for each in row[2:]) for row in rows.tolist()]


def test_a_source_that_is_cut_keeps_its_end_token_and_language(
    bundle: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "made.tsv").write_text(f"{SENTENCES[0]}\tx\n{' '.join(SENTENCES)}\tx\n", "utf-8")
    verify_few_sentences(monkeypatch)
    translated = recorded_translations(monkeypatch)
    verify(bundle, VerifyOptions(data=(str(tmp_path / "made.tsv"),), beam_size=1))
    source, _ = load_tokenizers(load_bundle(bundle))
    short, long = (source.encode_tagged(text, "eng_Latn").ids for text in (SENTENCES[0], " ".join(SENTENCES)))
    sources = [source for source, _ in translated["made, en to de fp32"]]
    assert sources == [short, (*long[: MAX_LENGTH - 2], *long[-2:])]


def test_the_card_names_the_kind_of_the_model(bundle: Path) -> None:
    assert "Imported from the NLLB model nllb." in (bundle / "MODEL_CARD.md").read_text("utf-8")


@pytest.mark.server
def test_a_server_answers_with_the_attention_of_every_source_token(bundle: Path) -> None:
    text = SENTENCES[0]
    body: dict[str, object] = {"source": "en", "target": "de", "alignment": True, "attention": True}
    body |= {"token_scores": True}
    settings = {"bundle": bundle, "precision": "fp32", "num_threads": 1}
    with ServerProcess(SERVE, settings) as process, process.ready().client() as client:
        answer = client.post("/v1/translate", json={**body, "text": text, "max_target_length": 8}).json()
        scored = client.post("/v1/score", json={**body, "text": text, "translation": "Anna"}).json()
    (segment,) = answer["translations"][0]["segments"]
    for found in (segment, *scored["scores"]):
        assert found["source_tokens"][-2:] == [{"start": len(text), "end": len(text)}] * 2
        weights = [token["weights"] for token in found["tokens"] if "weights" in token]
        assert weights
        assert all(len(row) == len(found["source_tokens"]) and sum(row) > 0.99 for row in weights)
