"""`verify` passes a valid bundle, and fails an invalid one with a line and an exit code."""

from __future__ import annotations

import argparse
import json
import math
import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from app.bundle import Manifest, load_bundle
from app.errors import BundleError, EngineFailure
from app.runtime.kernels import is_native_usable
from app.runtime.ort_runner import LoadedRunner
from app.text.tokenizer import Tokenizer, TokenizerError
from export.bundle_writer import file_entries
from export.cli import add_verify_arguments, run_export, run_verify
from export.golden import GoldenSource, translate_golden
from export.report import Check, Report, ReportError, read_scores
from export.verify import VerifyOptions, verify
from export.verify_scores import MAX_BLEU_LOSS, bleu_check
from model.checkpoint import CheckpointError, Saved, load, save
from model.config import EOS_ID
from model.corpus import CorpusError, Pair
from model.tokenizer_training import train_tokenizer
from tests.bundles.damage import negate_rows, set_golden
from tests.export.tiny import (
    MAX_LENGTH,
    VOCAB_SIZE,
    export_arguments,
    random_model,
    recorded_translations,
    sentences,
    verify_few_sentences,
    write_checkpoint,
)


def rewrite_manifest(bundle: Path) -> None:
    """Update the manifest's file entries of a changed bundle."""
    manifest = manifest_fields(bundle)
    manifest["files"] = {name: entry.model_dump() for name, entry in file_entries(bundle).items()}
    (bundle / "manifest.json").write_text(json.dumps(manifest), "utf-8")


def manifest_fields(bundle: Path) -> dict[str, object]:
    fields: dict[str, object] = json.loads((bundle / "manifest.json").read_text("utf-8"))
    return fields


def verify_arguments(*arguments: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    add_verify_arguments(parser)
    return parser.parse_args(arguments)


OTHER = "perhaps source.spm is the vocabulary of another model"
NATIVE_GOLDEN_IDS = ["int8 golden ids, native kernels"] if is_native_usable() else []


def failed(bundle: Path, options: VerifyOptions) -> list[str]:
    return [check.name for check in verify(bundle, options).checks if not check.is_passed]


@pytest.fixture
def _few_sentences(monkeypatch: pytest.MonkeyPatch) -> None:
    verify_few_sentences(monkeypatch)


@pytest.mark.seconds
def test_a_valid_bundle_passes_against_its_checkpoint_and_its_own_weights(
    tiny: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    report = tmp_path / "report.json"
    arguments = (str(tiny / "bundle"), "--checkpoint", str(tiny / "checkpoint"), "--json", str(report))
    assert run_verify(verify_arguments(*arguments)) == 0
    fields = json.loads(report.read_text("utf-8"))
    assert fields["is_passed"] is True
    names = [check["name"] for check in fields["checks"]]
    assert "fp32 log-probabilities" in names
    assert "int8 alone and in a batch" in names
    limits = {check["name"]: check["limit"] for check in fields["checks"]}
    assert limits["int8 golden ids"] == 0
    num_golden = len((tiny / "bundle" / "golden.jsonl").read_text("utf-8").splitlines())
    assert [limits[name] for name in NATIVE_GOLDEN_IDS] == [num_golden // 5] * len(NATIVE_GOLDEN_IDS)
    assert fields["skipped"]
    assert "FAILED" not in capsys.readouterr().err
    assert failed(tiny / "bundle", VerifyOptions()) == []


@pytest.mark.parametrize("option", ["--limit", "--beam-size", "--num-threads"])
def test_a_number_below_1_is_a_usage_error(option: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        verify_arguments("bundle", option, "0")
    assert f"argument {option}: '0' is not a whole number of at least 1" in capsys.readouterr().err


def test_the_checks_are_printed_if_the_report_cannot_be_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    report = Report("tiny", "1", (Check("fp32 ids", False, "1 differs", 1, 0),), (), ())
    monkeypatch.setattr("export.verify.verify", lambda _path, _options: report)
    (tmp_path / "file").touch()
    with pytest.raises(FileExistsError, match="file"):
        run_verify(verify_arguments("bundle", "--json", str(tmp_path / "file" / "report.json")))
    assert "FAILED fp32 ids" in capsys.readouterr().err


@pytest.mark.seconds
def test_a_checkpoint_with_other_weights_fails(
    tiny: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    saved = load(tiny / "checkpoint")
    weights = dict(saved.model)
    # Only one unit changes, because a norm cancels a number that is added to all units.
    weights["decoder.0.feed_forward.w_2.bias"][0] += 1e-2
    changed = tmp_path / "changed"
    save(changed, Saved(weights, saved.config, {}, {}), tiny / "checkpoint" / "tokenizer.spm")
    assert run_verify(verify_arguments(str(tiny / "bundle"), "--checkpoint", str(changed))) == 1
    lines = [line for line in capsys.readouterr().err.splitlines() if line.startswith("FAILED")]
    native = ["FAILED fp32 log-probabilities, native kernels"] if is_native_usable() else []
    assert [line.split(":")[0] for line in lines] == ["FAILED fp32 log-probabilities", *native]


@pytest.mark.seconds
@pytest.mark.usefixtures("_few_sentences")
def test_int8_graphs_with_another_models_weights_fail(tiny: Path, tmp_path: Path) -> None:
    """Golden ids and BLEU do not detect this difference."""
    other = tmp_path / "other"
    model = random_model(seed=2, max_length=32)
    save(
        other,
        Saved(model.state_dict(), {"model": model.config.to_json()}, {}, {}),
        tiny / "checkpoint/tokenizer.spm",
    )
    assert "int8 golden scores" in failed(tiny / "bundle", VerifyOptions(checkpoint=other))


@pytest.mark.seconds
@pytest.mark.usefixtures("_few_sentences")
def test_a_vocabulary_of_another_model_is_suggested_as_the_reason(own_bundle: Path) -> None:
    reversed_pairs = [Pair(pair.target[::-1], pair.source[::-1], "tiny") for pair in sentences()]
    for name in ("source.spm", "target.spm"):
        train_tokenizer(reversed_pairs, own_bundle / name, vocab_size=VOCAB_SIZE, character_coverage=1.0)
    rewrite_manifest(own_bundle)
    with pytest.raises(BundleError, match=rf"source has \d+ subwords: .* at most {MAX_LENGTH}; {OTHER}"):
        verify(own_bundle, VerifyOptions())


@pytest.mark.seconds
@pytest.mark.usefixtures("_few_sentences")
def test_wrong_golden_ids_fail(own_bundle: Path) -> None:
    """If all are wrong, another vocabulary may be the reason."""
    file = own_bundle / "golden.jsonl"
    lines = [json.loads(line) for line in file.read_text("utf-8").splitlines()]
    for index, line in enumerate(lines):
        line["ids"]["fp16"] = [9, 9, 9]
        if index < 3:
            line["ids"]["int8"] = [9, 9, 9]
    file.write_text("".join(f"{json.dumps(line)}\n" for line in lines), "utf-8")
    rewrite_manifest(own_bundle)
    details = {
        check.name: check.detail
        for check in verify(own_bundle, VerifyOptions()).checks
        if not check.is_passed
    }
    assert list(details) == ["int8 golden ids", *NATIVE_GOLDEN_IDS, "fp16 golden ids"]
    assert [OTHER in detail for detail in details.values()] == [name == "fp16 golden ids" for name in details]


def unused_ids(bundle: Path, number: int) -> list[int]:
    """Return the last `number` subwords that neither a golden sentence nor a golden translation has."""
    loaded = load_bundle(bundle)
    tokenizer = Tokenizer(bundle / "source.spm")
    used = {each for line in loaded.golden for each in tokenizer.encode(line.source).ids}
    used |= {each for line in loaded.golden for ids in line.ids.values() for each in ids}
    return [each for each in range(EOS_ID + 1, VOCAB_SIZE) if each not in used][-number:]


@pytest.mark.seconds
@pytest.mark.parametrize(
    ("precision", "number", "name"),
    [
        ("int8", 1, "int8 log-probabilities"),
        ("fp16", 1, "fp16 log-probabilities"),
        ("fp32", 8, "fp32 log-probabilities, the bundle's own graphs"),
    ],
)
def test_wrong_weights_of_subwords_that_no_golden_sentence_has_fail(
    precision: str, number: int, name: str, own_bundle: Path
) -> None:
    negate_rows(precision, unused_ids(own_bundle, number))(own_bundle)
    native = [f"{name}, native kernels"] if is_native_usable() and precision != "fp16" else []
    found = failed(own_bundle, VerifyOptions())
    assert [check for check in found if "log-probabilities" in check] == [name, *native]


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"source": "house " * 40}, r"source has \d+ subwords: the model takes at most 32; perhaps .*"),
        (
            {"ids": {"int8": [9] * MAX_LENGTH, "fp16": [], "fp32": []}},
            r"ids has 32 subwords: the model takes at most 31",
        ),
    ],
)
def test_a_golden_sentence_that_is_too_long_is_an_error(
    fields: dict[str, object], message: str, own_bundle: Path
) -> None:
    set_golden(**fields)(own_bundle)
    with pytest.raises(BundleError) as raised:
        verify(own_bundle, VerifyOptions())
    assert re.fullmatch(rf"bundle bundle: golden\.jsonl: line 2: {message}", str(raised.value))


@pytest.mark.seconds
@pytest.mark.usefixtures("_few_sentences")
def test_a_golden_sentence_that_cannot_be_decoded_is_named(
    tiny: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    third = load_bundle(tiny / "bundle").golden[2]

    def translated(
        runner: LoadedRunner, manifest: Manifest, cases: Sequence[tuple[GoldenSource, int]]
    ) -> list[tuple[int, ...]]:
        if any((source.text, beam_size) == (third.source, third.beam_size) for source, beam_size in cases):
            raise EngineFailure("the scores are not finite")
        return translate_golden(runner, manifest, cases)

    monkeypatch.setattr("export.verify.translate_golden", translated)
    message = r"^bundle bundle: golden\.jsonl: line 3: the scores are not finite$"
    with pytest.raises(BundleError, match=message):
        verify(tiny / "bundle", VerifyOptions())


@pytest.mark.parametrize("max_length", [16, 31])
def test_a_checkpoint_of_fewer_positions_is_an_error(tiny: Path, tmp_path: Path, max_length: int) -> None:
    checkpoint = write_checkpoint(tmp_path, random_model(max_length=max_length))
    message = f"the checkpoint has {max_length} positions, and the bundle needs 32"
    with pytest.raises(CheckpointError, match=message):
        verify(tiny / "bundle", VerifyOptions(checkpoint=checkpoint))


def test_a_checkpoint_of_another_size_is_an_error(tiny: Path, tmp_path: Path) -> None:
    checkpoint = write_checkpoint(tmp_path, random_model(max_length=32, d_ff=64))
    with pytest.raises(CheckpointError, match="different dimensions"):
        verify(tiny / "bundle", VerifyOptions(checkpoint=checkpoint))


@pytest.mark.seconds
@pytest.mark.usefixtures("_few_sentences")
def test_test_sets_are_scored_and_their_scores_can_be_exported(tiny: Path, tmp_path: Path) -> None:
    data = tmp_path / "made.tsv"
    data.write_text("".join(f"{pair.source}\t{pair.target}\n" for pair in sentences()[:6]), "utf-8")
    report = verify(tiny / "bundle", VerifyOptions(data=(str(data),), limit=4, beam_size=1))
    assert [(score.test_set, score.precision) for score in report.scores] == [
        ("made", "int8"),
        ("made", "fp32"),
    ]
    assert report.checks[-1].name == "int8 BLEU on made"
    assert report.skipped == ()
    file = tmp_path / "report.json"
    file.write_text(json.dumps(report.to_json()), "utf-8")
    assert read_scores(file) == report.scores


def test_a_value_that_is_no_number_is_null_in_the_report() -> None:
    checks = tuple(Check("name", False, "detail", value, 1.0) for value in (math.nan, math.inf, None, 0.5))
    written = json.dumps(Report("b", "1", checks, (), ()).to_json(), allow_nan=False)
    assert [check["value"] for check in json.loads(written)["checks"]] == [None, None, None, 0.5]


@pytest.mark.seconds
@pytest.mark.usefixtures("_few_sentences")
def test_a_source_of_a_test_set_is_translated_as_the_server_does(
    tiny: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A source that is too long loses subwords before its end token."""
    short, long = sentences()[0].source, " ".join(pair.source for pair in sentences()[:9])
    data = tmp_path / "made.tsv"
    data.write_text(f"{short}\tx\n{long}\tx\n", "utf-8")
    translated = recorded_translations(monkeypatch)
    verify(tiny / "bundle", VerifyOptions(data=(str(data),), beam_size=1))
    encode = Tokenizer(tiny / "bundle" / "source.spm").encode
    sources = [source for source, _ in translated["made fp32"]]
    assert sources == [encode(short).ids, (*encode(long).ids[: MAX_LENGTH - 1], EOS_ID)]


@pytest.mark.parametrize(
    ("content", "error", "message"),
    [
        (None, CorpusError, r"odd\.tsv does not exist"),
        ("", CorpusError, r"odd\.tsv holds no pair"),
        ("A house.\tx\n" + "\u732b house " * 9 + "\tx\n", TokenizerError, "odd: text 2: more than 8 runs"),
    ],
    ids=["missing", "empty", "unknown characters"],
)
def test_an_unusable_test_set_is_named_before_the_checks(
    content: str | None,
    error: type[ValueError],
    message: str,
    tiny: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def load(*_: object, **__: object) -> LoadedRunner:
        raise AssertionError("a check has begun before the test sets were read")

    monkeypatch.setattr("export.verify.load_variant", load)
    data = [tmp_path / "good.tsv", tmp_path / "odd.tsv"]
    data[0].write_text("A house.\tx\n", "utf-8")
    if content is not None:
        data[1].write_text(content, "utf-8")
    with pytest.raises(error, match=message):
        verify(tiny / "bundle", VerifyOptions(data=tuple(map(str, data))))


@pytest.mark.parametrize(("int8", "is_passed"), [(29.6, False), (29.8, True), (30.0, True), (30.5, True)])
def test_bleu_of_int8_may_lose_at_most_the_limit(int8: float, is_passed: bool) -> None:
    check = bleu_check("a test set", int8=int8, fp32=30.0)
    assert check.is_passed == is_passed
    assert f"{int8:.2f}, fp32 30.00" in check.line()
    assert bleu_check("a test set", int8=0.0, fp32=MAX_BLEU_LOSS).is_passed


@pytest.mark.seconds
@pytest.mark.usefixtures("_few_sentences")
def test_the_bundles_golden_sentences_are_compared_if_no_sentence_of_the_export_fits(
    tiny: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("export.verify.golden_sources", lambda _tokenizer, _manifest: [])
    report = verify(tiny / "bundle", VerifyOptions())
    assert [check.name for check in report.checks if not check.is_passed] == []
    num_lines = len(load_bundle(tiny / "bundle").golden)
    assert any(f"of {num_lines} sentences differ alone" in check.detail for check in report.checks)


def test_a_file_without_scores_is_an_error(tmp_path: Path) -> None:
    file = tmp_path / "scores.json"
    for content in ("{}", "[1]", "no JSON", '[{"test_set": "x"}]', "[" * 100_000):
        file.write_text(content)
        with pytest.raises(ReportError, match="holds no scores"):
            read_scores(file)


def test_the_command_writes_a_bundle(tiny: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = export_arguments(
        tiny / "checkpoint", tmp_path / "new", tmp_path / "facts.toml", "--precisions", "int8"
    )
    assert run_export(arguments) == 0
    assert "files" in capsys.readouterr().out
    manifest = load_bundle(tmp_path / "new").manifest
    assert (manifest.name, manifest.version, list(manifest.variants)) == ("tiny", "3", ["int8"])


@pytest.mark.server
@pytest.mark.parametrize("command", ["export", "verify"])
def test_help_does_not_import_torch_or_onnx(command: str) -> None:
    code = (
        "import sys\n"
        "for name in ('torch', 'onnx', 'onnxruntime', 'safetensors'): sys.modules[name] = None\n"
        f"from transduce.cli import main; main(['{command}', '--help'])"
    )
    root = Path(__file__).parents[2]
    done = subprocess.run([sys.executable, "-c", code], cwd=root, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "usage" in done.stdout
