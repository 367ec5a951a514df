"""`benchmarks.shortlist` decodes the directions of its test set as the server does, even if a line is unusual."""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import sacrebleu

from app.bundle import load_bundle
from app.bundle_tokenizers import load_tokenizers
from app.decoding.options import DecodingOptions
from app.engine.engine import Engine
from app.shortlist_file import ShortlistTable
from benchmarks.shortlist import Model, main
from export.bundle_shortlist import write_with_shortlist
from model.corpus import Pair
from model.tokenizer_training import train_tokenizer
from tests.bundles.damage import set_field, update_hashes
from tests.export.tiny import MAX_LENGTH, VOCAB_SIZE, sentences

PAIRS = [("en", "de", "\u2581DIE"), ("de", "en", "\u2581ALTE"), ("en", "fr", "\u2581DIE")]
# The bundle's max_target_length. The caches have MAX_LENGTH columns, and the start token of a pair takes one column.
LONGEST = MAX_LENGTH - 1
UNKNOWN = " ".join("\u03b1\u03b2\u03b3\u03b4\u03b5\u03b6\u03b7\u03b8\u03b9")
LINES = [
    *((pair.source.rsplit(" ", 1)[0], "Die Br\u00fccke") for pair in sentences()[:2]),
    (f"the {UNKNOWN}", "die Karte"),  # more runs of unknown characters than there are placeholder symbols
    (" ".join(["the"] * MAX_LENGTH), "die Burg"),  # longer than a source may be
]


@pytest.fixture(scope="module")
def bundle(tiny: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A bundle with a shortlist for each of PAIRS. Its target vocabulary has capitals only."""
    folder = tmp_path_factory.mktemp("shortlist") / "bundle"
    shutil.copytree(tiny / "bundle", folder)
    capitals = [Pair(pair.source.upper(), pair.target.upper(), "tiny") for pair in sentences()]
    train_tokenizer(capitals, folder / "target.spm", vocab_size=VOCAB_SIZE, character_coverage=1.0)
    names = ("source", "target", "target_start")
    set_field("language_pairs", [dict(zip(names, pair, strict=True)) for pair in PAIRS])(folder)
    set_field("max_target_length", LONGEST)(folder)
    update_hashes(folder)
    table = ShortlistTable(
        np.arange(VOCAB_SIZE, dtype=np.uint16), np.array([], np.uint16), np.zeros(VOCAB_SIZE + 1, np.uint32)
    )
    write_with_shortlist(load_bundle(folder), folder, dict.fromkeys(range(3), table), -1000.0)
    return folder


@pytest.fixture
def arguments(bundle: Path, tmp_path: Path) -> list[str]:
    """The arguments of a short measurement of LINES."""
    test = tmp_path / "test.tsv"
    test.write_text("".join(f"{source}\t{target}\n" for source, target in LINES), "utf-8")
    names = {"bundle": bundle, "test": test, "num-rounds": 1, "json": tmp_path / "result.json"}
    return [f"--{name}={value}" for name, value in names.items()]


@pytest.mark.seconds
def test_it_decodes_the_directions_of_its_test_set_as_the_server_does(
    bundle: Path,
    arguments: list[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    submitted: list[DecodingOptions] = []
    texts: list[list[str]] = []
    scored: list[list[tuple[int, ...]]] = []
    references: list[list[str]] = []
    decoded: list[list[tuple[int, ...]]] = []
    submit, decode, score = Engine.submit, Model.decode, sacrebleu.corpus_bleu

    def submit_recorded(engine: Engine, ids: Sequence[int], options: DecodingOptions, **more: Any) -> Any:
        submitted.append(options)
        return submit(engine, ids, options, **more)

    async def decode_recorded(model: Model, *arguments: Any) -> list[tuple[int, ...]]:
        decoded.append(await decode(model, *arguments))
        return decoded[-1]

    def score_recorded(hypotheses: list[str], references_of: list[list[str]]) -> Any:
        texts.append(hypotheses)
        scored.append(decoded[-1])
        references.extend(references_of)
        return score(hypotheses, references_of)

    monkeypatch.setattr(Engine, "submit", submit_recorded)
    monkeypatch.setattr(Model, "decode", decode_recorded)
    monkeypatch.setattr(sacrebleu, "corpus_bleu", score_recorded)
    assert main(arguments) == 0

    directions = json.loads((tmp_path / "result.json").read_text("utf-8"))["directions"]
    assert [direction["direction"] for direction in directions] == ["en-de", "de-en"]
    assert "en-fr is left out: the test set is en-de" in capsys.readouterr().err
    # Two sources of the first direction are left out. In the second direction they are references.
    assert [direction["quality"]["num_sentences"] for direction in directions] == [2, 4]
    assert references[0] == [target for _, target in LINES[:2]]
    assert references[2] == [source for source, _ in LINES]
    target = load_tokenizers(load_bundle(bundle))[1]
    assert texts == [[target.decode(ids).text for ids in batch] for batch in scored]
    starts = [target.id_of(start) for *_, start in PAIRS[:2]]
    assert list(dict.fromkeys(options.start_id for options in submitted)) == starts
    assert {options.max_target_length for options in submitted} == {LONGEST - 1}


def test_the_engine_is_closed_after_an_error(arguments: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    closed: list[Engine] = []
    close = Engine.close

    async def close_recorded(engine: Engine, drain_timeout_s: float) -> None:
        closed.append(engine)
        await close(engine, drain_timeout_s)

    def fail(*_: object) -> None:
        raise ArithmeticError

    monkeypatch.setattr(Engine, "close", close_recorded)
    monkeypatch.setattr(sacrebleu, "corpus_bleu", fail)
    with pytest.raises(ArithmeticError):
        main(arguments)
    assert len(closed) == 1
