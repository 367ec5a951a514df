"""M2M-100 and NLLB become bundles of many languages, which translate as `transformers` does."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch
from safetensors.torch import load_file, save_file

from app.bundle import Bundle, load_bundle, read_manifest
from app.decoding.options import DecodingOptions, LengthPenalty
from app.errors import BundleError, InvalidRequest
from app.runtime.kernels import Kernels
from app.runtime.ort_runner import load_runner
from app.text.tokenizer import Tokenizer
from export.golden import MAX_PAIRS, translate_ids
from export.portable import FormatError, read_bundle
from export.verify import VerifyOptions, verify
from model.checkpoint import CheckpointError
from model.config import BOS_ID
from model.language_codes import of_m2m_100, of_nllb
from model.m2m import read_m2m
from model.transformer import Transformer
from tests.api.server_process import ServerProcess
from tests.bundles.damage import set_field, update_hashes
from tests.e2e.conftest import SERVE_BY_FORK
from tests.export.m2m_folder import (
    KINDS,
    MAX_LENGTH,
    Kind,
    change,
    ids_of,
    tokenizer_of,
    train,
    write_m2m,
    write_nllb,
)
from tests.export.tiny import KERNELS, verify_few_sentences
from tests.model.sentences import pairs
from transduce.cli import main

pytestmark = pytest.mark.training
# The maximum number of subwords of a translation, without the language and the end token.
MAX_SUBWORDS = 48
# Training steps after which the translations differ and most of them end.
NUM_STEPS = 50
SENTENCES = [pair.source for pair in pairs()][:80:2]
# SentencePiece's default rule folds a ligature, a no-break space, full-width letters and consecutive spaces.
FOLDED = ("Anna \ufb01nds the river.", "Anna\u00a0sees the \uff52iver", "Anna   sees  it")
TARGETS = ("de", "fr")


class Imported(NamedTuple):
    """A trained model, its folder and its bundle.

    to_bundle: the bundle's id for each id of the model. generated: returns `translations` for a target language and
    num_beams.
    """

    kind: Kind
    model: Any
    folder: Path
    bundle: Bundle
    to_bundle: dict[int, int]
    generated: Callable[[str, int], list[tuple[tuple[int, ...], float]]]

    @property
    def tokens(self) -> dict[str, str]:
        """The subword of each language."""
        assert self.bundle.manifest.languages is not None
        return self.bundle.manifest.languages


def run_import(folder: Path, output: Path, *more: str) -> int:
    return main(["import", str(folder), "--output", str(output), "--licence", "MIT", *more])


@pytest.fixture(scope="module", params=KINDS)
def imported(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Imported:
    kind, folder = KINDS[request.param], tmp_path_factory.mktemp(request.param) / "many"
    model = kind.write(folder)
    train(model, folder, kind.codes, num_steps=NUM_STEPS)
    output = folder.parent / "bundle"
    assert run_import(folder, output, "--languages", "en,de,fr", "--precisions", "fp32,int8") == 0
    bundle = load_bundle(output)
    to_bundle = ids_of(folder, Tokenizer(bundle.file("source.spm")))

    @cache
    def generated(target: str, num_beams: int) -> list[tuple[tuple[int, ...], float]]:
        return translations(Imported(kind, model, folder, bundle, to_bundle, generated), target, num_beams)

    return Imported(kind, model, folder, bundle, to_bundle, generated)


def translations(imported: Imported, target: str, num_beams: int) -> list[tuple[tuple[int, ...], float]]:
    """The ids of `generate()` for SENTENCES, as ids of the bundle without start and end tokens, and the scores."""
    tokenizer = tokenizer_of(imported.folder, imported.kind.code("en"))
    token = imported.kind.token.format(imported.kind.code(target))
    found = imported.model.generate(
        **tokenizer(SENTENCES, return_tensors="pt", padding=True),
        forced_bos_token_id=tokenizer.convert_tokens_to_ids(token),
        num_beams=num_beams,
        length_penalty=1.0,
        early_stopping=True,
        max_new_tokens=MAX_SUBWORDS + 2,
        min_new_tokens=2,
        bad_words_ids=[[0], [1]],
        renormalize_logits=True,
        return_dict_in_generate=True,
        output_scores=True,
    )
    scores = found.sequences_scores.tolist() if num_beams > 1 else [0.0] * len(SENTENCES)
    rows = [[identity for identity in row[2:] if identity not in (1, 2)] for row in found.sequences.tolist()]
    return [
        (tuple(imported.to_bundle[identity] for identity in row), score)
        for row, score in zip(rows, scores, strict=True)
    ]


@pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)
def test_logits_are_those_of_transformers(kind: Kind, tmp_path: Path) -> None:
    theirs = kind.write(tmp_path)
    read = read_m2m(tmp_path)
    model = Transformer(read.config).eval()
    model.load_state_dict(read.state)
    (tmp_path / "bundle.spm").write_bytes(read.source_spm)
    ids = ids_of(tmp_path, Tokenizer(tmp_path / "bundle.spm"))
    generator = torch.Generator().manual_seed(1)
    size = theirs.config.vocab_size
    source = torch.randint(2, size, (3, 60), generator=generator)
    target = torch.cat([torch.full((3, 1), 2), torch.randint(3, size, (3, 41), generator=generator)], dim=1)
    own = [torch.tensor([[ids[one] for one in row] for row in side.tolist()]) for side in (source, target)]
    own[1][:, 0] = BOS_ID
    with torch.no_grad():
        reference = theirs(input_ids=source, decoder_input_ids=target).logits
        found = model(*own)
    assert torch.allclose(found[..., [*ids.values()]], reference[..., [*ids]], atol=1e-5)


def test_subwords_are_those_of_transformers(imported: Imported) -> None:
    tokenizer = Tokenizer(imported.bundle.file("source.spm"))
    theirs = tokenizer_of(imported.folder, imported.kind.code("en"))
    prefix = imported.tokens["en"]
    for text in (*SENTENCES, *FOLDED):
        expected = tuple(imported.to_bundle[one] for one in theirs(text).input_ids)
        assert tokenizer.encode_tagged(text, prefix).ids == expected, text


def test_unknown_characters_are_copied_to_the_translation(imported: Imported) -> None:
    source, target = (Tokenizer(imported.bundle.file(f"{side}.spm")) for side in ("source", "target"))
    encoded = source.encode_tagged("Anna 🙂 sees 漢 again.", imported.tokens["en"])
    assert encoded.verbatim_spans == ("🙂", "漢")
    assert target.decode(encoded.ids[1:-1], encoded.verbatim_spans).text == "Anna 🙂 sees 漢 again."


@pytest.mark.parametrize("kernels", KERNELS)
@pytest.mark.parametrize("beam_size", [1, 4])
@pytest.mark.parametrize("target", TARGETS)
def test_translations_are_those_of_transformers(
    imported: Imported, kernels: Kernels, beam_size: int, target: str
) -> None:
    """The sentences share a batch with the same sentences into the other language."""
    tokenizer = Tokenizer(imported.bundle.file("source.spm"))
    options = options_of(beam_size)
    runner = load_runner(
        imported.bundle, precision="fp32", device="cpu", kernels=kernels, num_rows=24, num_threads=1
    )
    sources = [tokenizer.encode_tagged(text, imported.tokens["en"]).ids for text in SENTENCES]
    other = TARGETS[1 - TARGETS.index(target)]
    starts = [tokenizer.id_of(imported.tokens[language]) for language in (target, other)]
    both = [source for source in sources for _ in starts]
    found = translate_ids(runner, both, options, starts=starts * len(sources))[::2]
    reference = [ids for ids, _ in imported.generated(target, beam_size)]
    # If no hypothesis ends before the limit, the two searches differ: `transformers` counts the end token as one of
    # max_new_tokens, and max_target_length does not count it.
    ended = {text: ids for text, ids in zip(SENTENCES, reference, strict=True) if len(ids) < MAX_SUBWORDS - 1}
    assert ended == {text: ids for text, ids in zip(SENTENCES, found, strict=True) if text in ended}
    assert len(set(ended.values())) > len(SENTENCES) / 4, "the translations are too similar for a comparison"


def options_of(beam_size: int) -> DecodingOptions:
    return DecodingOptions(
        beam_size=beam_size, length_penalty=LengthPenalty.POWER, alpha=1.0, max_target_length=MAX_SUBWORDS
    )


def test_a_sentence_without_its_start_token_is_refused(imported: Imported) -> None:
    runner = load_runner(imported.bundle, precision="fp32", device="cpu", num_rows=4, num_threads=1)
    with pytest.raises(InvalidRequest, match="the model needs a start_id"):
        translate_ids(runner, [(5, 2)], options_of(1))
    with pytest.raises(InvalidRequest, match="start_id must be 0 to"):
        translate_ids(runner, [(5, 2)], options_of(1), starts=[-1])


def test_the_bundle_is_not_exported_to_other_formats(imported: Imported) -> None:
    with pytest.raises(FormatError, match="targets that begin with a language token"):
        read_bundle(imported.bundle.path)


@pytest.mark.server
def test_a_server_gives_the_same_translations_and_scores(imported: Imported) -> None:
    """Sentences that the server decodes again or repairs are left out."""
    target = Tokenizer(imported.bundle.file("target.spm"))
    settings = {"bundle": imported.bundle.path, "precision": "fp32", "num_threads": 1}
    num_checked = 0
    with ServerProcess(SERVE_BY_FORK, settings) as process, process.ready().client() as client:
        for language in TARGETS:
            body = {"source": "en", "target": language, "beam_size": 4, "max_target_length": MAX_SUBWORDS}
            for text, (ids, score) in list(zip(SENTENCES, imported.generated(language, 4), strict=True))[:12]:
                (answer,) = client.post("/v1/translate", json={**body, "text": text}).json()["translations"]
                (segment,) = answer["segments"]
                expected = target.decode(ids).text
                adds_a_number = any(map(str.isdigit, expected)) and not any(map(str.isdigit, text))
                if "fallbacks" in segment or adds_a_number or segment["finish_reason"] != "stop":
                    continue
                assert answer["text"] == expected, text
                assert segment["score"] == pytest.approx(score, abs=2e-3)
                scored = {"source": "en", "target": language, "text": text, "translation": expected}
                (pair,) = client.post("/v1/score", json=scored).json()["scores"]
                assert pair["score"] == pytest.approx(score, abs=2e-3)
                num_checked += 1
        check_other_searches(client, imported.tokens["de"])
    assert num_checked > 6


def check_other_searches(client: Any, token: str) -> None:
    """A stream, a sample and a forced beginning give translations without the language's subword, `token`."""
    body = {"source": "en", "target": "de", "text": SENTENCES[0], "beam_size": 1}
    plain = client.post("/v1/translate", json=body).json()["translations"][0]["text"]
    streamed = client.post("/v1/translate/stream", json=body).text
    assert json.dumps(plain, ensure_ascii=False) in streamed
    assert token not in streamed
    forced = client.post("/v1/translate", json={**body, "target_prefix": plain[:4]}).json()
    assert forced["translations"][0]["text"].startswith(plain[:4])
    sampled = client.post("/v1/translate", json={**body, "sampling": {"seed": 1}}).json()
    for answer in (forced, sampled):
        assert token not in answer["translations"][0]["text"]
    models = client.get("/v1/models").json()["models"]
    assert len(models[0]["language_pairs"]) == 6
    assert models[0]["max_target_length"] == MAX_LENGTH - 2


# --- languages


def test_languages_have_bcp_47_tags() -> None:
    assert [of_m2m_100(code) for code in ("de", "ast", "ns")] == ["de", "ast", "nso"]
    assert [of_nllb(code) for code in ("deu_Latn", "zsm_Latn", "ace_Latn", "zho_Hans", "zho_Hant")] == [
        *("de", "ms", "ace", "zh", "zh-Hant"),
    ]


def test_sources_may_be_longer_than_a_servers_encoder_takes_by_default(tmp_path: Path) -> None:
    write_m2m(tmp_path / "long", max_position_embeddings=1024)
    options = ("--source", "en", "--target", "de", "--precisions", "fp32", "--max-length", "600")
    assert run_import(tmp_path / "long", tmp_path / "out", *options) == 0
    assert load_bundle(tmp_path / "out").manifest.max_source_length == 600
    whole, more = read_m2m(tmp_path / "long"), read_m2m(tmp_path / "long", max_length=5000)
    assert more.config.max_length == whole.config.max_length < 5000


def test_all_languages_need_no_list_of_pairs(tmp_path: Path) -> None:
    write_m2m(tmp_path / "many")
    assert run_import(tmp_path / "many", tmp_path / "out", "--precisions", "fp32", "--max-length", "40") == 0
    manifest = load_bundle(tmp_path / "out").manifest
    assert len(manifest.language_pairs) == 100 * 99
    assert (tmp_path / "out" / "manifest.json").stat().st_size < 20_000
    (pair,) = [pair for pair in manifest.language_pairs if (pair.source, pair.target) == ("de", "nso")]
    assert (pair.source_prefix, pair.target_start) == ("__de__", "__ns__")
    assert "the M2M-100 model many." in (tmp_path / "out" / "MODEL_CARD.md").read_text("utf-8")
    assert len({line.pair for line in load_bundle(tmp_path / "out").golden}) == MAX_PAIRS
    assert (manifest.max_source_length, manifest.max_target_length) == (40, 39)
    assert read_manifest(tmp_path / "out").model_dump_json(indent=1) + "\n" == (
        tmp_path / "out" / "manifest.json"
    ).read_text("utf-8")


def test_older_models_have_the_search_in_their_configuration(tmp_path: Path) -> None:
    write_m2m(tmp_path)
    (tmp_path / "generation_config.json").unlink()
    change(tmp_path / "config.json", lambda config: config.update(num_beams=5, length_penalty=0.8))
    found = read_m2m(tmp_path)
    assert (found.beam_size, found.length_penalty) == (5, 0.8)


def test_null_in_the_generation_config_counts_as_a_missing_field(tmp_path: Path) -> None:
    write_m2m(tmp_path)
    nothing = {"num_beams": None, "length_penalty": None}
    change(tmp_path / "generation_config.json", lambda config: config.update(nothing))
    change(tmp_path / "config.json", lambda config: config.update(num_beams=5, length_penalty=0.8))
    found = read_m2m(tmp_path)
    assert (found.beam_size, found.length_penalty) == (1, 1.0)
    change(tmp_path / "config.json", lambda config: config.update(nothing))
    found = read_m2m(tmp_path)
    assert (found.beam_size, found.length_penalty) == (1, 1.0)


def test_the_bundle_has_only_the_named_pairs(
    imported: Imported, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The bundle also passes `transduce verify`, which compares the graphs with the weights in the bundle."""
    arguments = ("--source", "en", "--target", "fr", "--precisions", "fp32")
    assert run_import(imported.folder, tmp_path / "out", *arguments) == 0
    manifest = load_bundle(tmp_path / "out").manifest
    assert [tuple(vars(pair).values()) for pair in manifest.language_pairs] == [
        ("en", "fr", imported.tokens["en"], imported.tokens["fr"])
    ]
    verify_few_sentences(monkeypatch)
    assert all(check.is_passed for check in verify(tmp_path / "out", VerifyOptions()).checks)


def test_a_checkpoint_needs_a_position_for_the_start_token_of_targets(
    imported: Imported, tmp_path: Path
) -> None:
    own = Path(shutil.copytree(imported.bundle.path, tmp_path / "own"))
    most = imported.bundle.manifest.max_target_length
    set_field("max_source_length", most)(own)
    change(own / "weights" / "config.json", lambda config: config["model"].update(max_length=most))
    weights = load_file(own / "weights" / "model.safetensors")
    weights["embedding.positions"] = weights["embedding.positions"][:most].clone()
    save_file(weights, own / "weights" / "model.safetensors")
    update_hashes(own)
    message = f"the checkpoint has {most} positions, and the bundle needs {most + 1}"
    with pytest.raises(CheckpointError, match=message):
        verify(own, VerifyOptions())


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--languages", "en,xx,yy"), "the model has no xx, yy; it has ace-Arab, de, en, fr, zh-Hant"),
        (("--source", "en"), "name --source and --target together"),
        (("--source", "en", "--target", "de", "--languages", "en,de"), "name --source and --target together"),
        (("--source", "en", "--target", "en"), "--target en is the source"),
        (("--source", "en", "--target", "de", "--target", "de"), "--target: de is named 2 times"),
        (("--source", "en", "--target", "de=deu_Latn"), "the model's languages have no tags"),
    ],
)
def test_directions_that_contradict_each_other_are_an_error(
    arguments: tuple[str, ...], message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_nllb(tmp_path / "many")
    assert run_import(tmp_path / "many", tmp_path / "out", *arguments) == 1
    assert message in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"language_pairs": [{"source": "en", "target": "de"}]}, "either language_pairs or languages"),
        ({"languages": {"en": "__en__"}}, "languages"),
        (
            {"languages": {f"x{a}{b}": "__en__" for a in "abcdefghijklmnopqrst" for b in "abcdefghijklmn"}},
            "languages",
        ),
        ({"max_target_length": MAX_LENGTH}, f"max_target_length is {MAX_LENGTH + 1}, and the caches"),
    ],
)
def test_a_manifest_that_contradicts_itself_is_refused(
    imported: Imported, tmp_path: Path, changes: dict[str, Any], message: str
) -> None:
    copy = shutil.copytree(imported.bundle.path, tmp_path / "copy")
    change(copy / "manifest.json", lambda manifest: manifest.update(changes))
    with pytest.raises(BundleError, match=message):
        load_bundle(copy)
