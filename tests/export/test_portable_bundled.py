"""The bundled model, exported to other projects' formats, translates there as it does here."""

from __future__ import annotations

import json
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
import torch

from app.text.tokenizer import Tokenizer
from model.checkpoint import load_model
from model.config import BOS_ID, EOS_ID, PAD_ID
from model.search import pad
from model.transformer import Transformer
from tests.export.own_model import MAX_TARGET_LENGTH, reference_search
from transduce.cli import main

pytestmark = [pytest.mark.training, pytest.mark.slow]
transformers: Any = import_module("transformers")
ctranslate2: Any = import_module("ctranslate2")
BUNDLE = Path(__file__).parents[2] / "bundles" / "en-de"


@pytest.fixture(scope="module")
def model() -> Transformer:
    return load_model(BUNDLE / "weights")


@pytest.fixture(scope="module")
def texts() -> list[tuple[str, str]]:
    """The golden sentences of both directions, with their tags.

    Sentences with characters beyond U+FFFF, mostly emoji, are left out: our tokenizer replaces these by placeholder
    symbols, and other tokenizers do not.
    """
    tags = [
        pair["source_prefix"] for pair in json.loads((BUNDLE / "manifest.json").read_text())["language_pairs"]
    ]
    lines = map(json.loads, (BUNDLE / "golden.jsonl").read_text("utf-8").splitlines())
    found = dict.fromkeys((tags[line["pair"]], line["source"]) for line in lines)
    return [(tag, text) for tag, text in found if max(text) < "\U00010000"]


@pytest.fixture(scope="module")
def sources(texts: list[tuple[str, str]]) -> list[tuple[int, ...]]:
    tokenizer = Tokenizer(BUNDLE / "source.spm")
    return [tokenizer.encode_tagged(text, tag).ids for tag, text in texts]


def exported(to: str, output: Path) -> Path:
    """Export the checkpoint in the bundle's folder `weights` to another format."""
    arguments = ["export", "--checkpoint", str(BUNDLE / "weights"), "--to", to, "--output", str(output)]
    assert main(arguments) == 0
    return output


def test_transformers_translates_as_the_bundled_model_does(
    model: Transformer, texts: list[tuple[str, str]], sources: list[tuple[int, ...]], tmp_path: Path
) -> None:
    """Subwords of all texts. Logits and the ids of greedy search and of beam 4 of every fifth text."""
    folder = exported("huggingface", tmp_path / "out")
    theirs = transformers.AutoModelForSeq2SeqLM.from_pretrained(folder).eval()
    with pytest.warns(UserWarning, match="sacremoses"):
        tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    assert [tuple(tokenizer(f"{tag} {text}").input_ids) for tag, text in texts] == sources
    searched = sources[::5]
    batch = pad(searched)
    for beam_size in (1, 4):
        rows = theirs.generate(
            input_ids=batch,
            attention_mask=(batch != PAD_ID).long(),
            num_beams=beam_size,
            early_stopping=beam_size > 1,
            max_length=MAX_TARGET_LENGTH + 1,
            length_penalty=1.0,
        )
        found = [tuple(one for one in row if one not in (PAD_ID, BOS_ID, EOS_ID)) for row in rows.tolist()]
        assert found == reference_search(model, searched, beam_size, 1.0)
    # Any targets will do: these are translations of other sources.
    source, target = batch, torch.tensor([ids[:5] for ids in (*found[1:], found[0])])
    with torch.no_grad():
        logits = theirs.double()(
            input_ids=source, attention_mask=(source != PAD_ID).long(), decoder_input_ids=target
        ).logits
        assert torch.allclose(
            load_model(BUNDLE / "weights").double()(source, target), logits, rtol=0.0, atol=1e-5
        )


def test_ctranslate2_translates_as_the_bundled_model_does(
    model: Transformer, sources: list[tuple[int, ...]], tmp_path: Path
) -> None:
    folder = exported("ctranslate2", tmp_path / "out")
    pieces = json.loads((folder / "shared_vocabulary.json").read_text("utf-8"))
    translator = ctranslate2.Translator(str(folder), inter_threads=1, intra_threads=1)
    searched = sources[::3]
    results = translator.translate_batch(
        [[pieces[identity] for identity in source[:-1]] for source in searched],
        beam_size=1,
        max_decoding_length=MAX_TARGET_LENGTH + 1,
    )
    found = [tuple(pieces.index(piece) for piece in result.hypotheses[0]) for result in results]
    assert found == reference_search(model, searched, 1, 0.0)
