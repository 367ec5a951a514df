"""The commands of training, as a user runs them, on generated text."""

from __future__ import annotations

import argparse
import json
import re
from pathlib import Path

import pytest
from sacrebleu.metrics.bleu import BLEU

from app.text.tokenizer import Tokenizer
from model.cli import add_tokenizer_arguments
from model.corpus import Pair
from tests.forked import run_transduce
from tests.model.sentences import pairs, write_tsv
from transduce.cli import main


@pytest.mark.slow
@pytest.mark.training
def test_the_commands_lead_from_text_to_scores(tmp_path: Path) -> None:
    train = write_tsv(tmp_path / "train.tsv", pairs()[16:])
    too_long = Pair(300 * f"{pairs()[0].source} ", 300 * f"{pairs()[0].target} ", "")
    dev = write_tsv(tmp_path / "dev.tsv", [*pairs()[:3], too_long, *pairs()[3:16]])
    spm, run, averaged = tmp_path / "t.spm", tmp_path / "run", tmp_path / "averaged"
    options = ("--data", train, "--output", spm, "--vocab-size", 400, "--character-coverage", 1.0)
    done = run_transduce("tokenizer", *options)
    assert done.returncode == 0, done.stderr
    run_options = (
        "--data",
        train,
        "--dev",
        dev,
        "--tokenizer",
        spm,
        "--run",
        run,
        "--preset",
        "tiny",
        "--threads",
        1,
    )
    step_options = (
        "--max-steps",
        6,
        "--evaluate-every",
        3,
        "--save-every",
        3,
        "--batch-tokens",
        500,
        "--bleu-sentences",
        4,
    )
    trained = run_transduce("train", *run_options, *step_options)
    assert trained.returncode == 0, trained.stderr
    assert "data: 240 pairs" in trained.stderr
    longest = max(len(Tokenizer(spm).encode(pair.source).ids) for pair in pairs()[:16])
    (of_dev,) = (line for line in trained.stderr.splitlines() if line.startswith("dev: "))
    assert f"longest source {longest}; left out: 1 too long" in of_dev
    assert run_transduce("average", "--run", run, "--last", 2, "--output", averaged).returncode == 0
    for beam_size in (1, 2):
        scored = run_transduce(
            "evaluate",
            "--checkpoint",
            averaged,
            "--data",
            dev,
            "--limit",
            3,
            "--json",
            "--beam-size",
            beam_size,
            "--threads",
            1,
            "--write",
            tmp_path / "written",
        )
        assert scored.returncode == 0, scored.stderr
        row = json.loads(scored.stdout)
        assert (row["num_pairs"], row["beam_size"]) == (3, beam_size)
        assert 0 <= row["bleu"] <= 100
        assert "nrefs:1|case:mixed|eff:no|tok:13a" in row["bleu_signature"]
        assert "nrefs:1|case:mixed|eff:yes|nc:6" in row["chrf_signature"]
        written = {
            name: (tmp_path / "written" / f"dev.tsv.{name}").read_text("utf-8").splitlines()
            for name in ("source", "translation", "reference")
        }
        assert [*zip(written["source"], written["reference"], strict=True)] == [
            (pair.source, pair.target) for pair in pairs()[:3]
        ]
        assert BLEU().corpus_score(written["translation"], [written["reference"]]).score == row["bleu"]
    empty = write_tsv(tmp_path / "empty.tsv", [])
    failed = run_transduce("evaluate", "--checkpoint", averaged, "--data", empty)
    assert failed.returncode == 1
    assert failed.stderr.endswith("empty.tsv holds no pair\n")
    for beam_size in (1, 2):
        options = ("--checkpoint", averaged, "--data", dev, "--limit", 4, "--beam-size", beam_size)
        failed = run_transduce("evaluate", *options)
        assert failed.returncode == 1
        assert re.search(r"dev\.tsv: text 4 has \d+ subwords, and the model takes at most 256", failed.stderr)


@pytest.mark.server
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("evaluate", "--checkpoint", "nowhere", "--data", "x.tsv"), "nowhere is not a checkpoint"),
        (("tokenizer", "--data", "none.tsv", "--output", "t.spm"), "none.tsv does not exist"),
        (
            ("lexicon", "--data", __file__, "--data", "none.tsv", "--output", "l.tsv"),
            "none.tsv does not exist",
        ),
    ],
)
def test_an_error_is_printed_as_one_line(arguments: tuple[str, ...], message: str) -> None:
    failed = run_transduce(*arguments)
    assert failed.returncode == 1
    assert message in failed.stderr
    assert "unexpected" not in failed.stderr
    assert len(failed.stderr.splitlines()) == 1


@pytest.mark.parametrize("choice", ["--last", "--best"])
@pytest.mark.parametrize("number", ["0", "-2"])
def test_an_average_is_of_at_least_one_checkpoint(
    choice: str, number: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["average", "--run", str(tmp_path), f"{choice}={number}", "--output", str(tmp_path / "out")])
    assert ended.value.code == 2
    assert f"argument {choice}: {number!r} is not a whole number of at least 1" in capsys.readouterr().err


@pytest.mark.parametrize(
    "arguments",
    [
        ("evaluate", "--checkpoint", "c", "--data", "x.tsv", "--limit", "-1"),
        ("evaluate", "--checkpoint", "c", "--data", "x.tsv", "--limit", "0"),
        ("evaluate", "--checkpoint", "c", "--data", "x.tsv", "--beam-size", "0"),
        ("evaluate", "--checkpoint", "c", "--data", "x.tsv", "--threads", "-1"),
        ("import", "folder", "--output", "bundle", "--max-length", "0"),
        ("tokenizer", "--data", "x.tsv", "--output", "t.spm", "--vocab-size", "0"),
        ("tokenizer", "--data", "x.tsv", "--output", "t.spm", "--character-coverage", "0.97"),
        ("tokenizer", "--data", "x.tsv", "--output", "t.spm", "--character-coverage", "1.5"),
        ("tokenizer", "--data", "x.tsv", "--output", "t.spm", "--character-coverage", "nan"),
        ("tokenizer", "--data", "x.tsv", "--output", "t.spm", "--vocab-size", "\u0664\u0660\u0660"),
        ("tokenizer", "--data", "x.tsv", "--output", "t.spm", "--domain", "a=inf"),
        ("tokenizer", "--data", "x.tsv", "--output", "t.spm", "--domain", "a=-1"),
    ],
)
def test_a_number_out_of_range_is_a_wrong_command_line(
    arguments: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as caught:
        main(arguments)
    assert caught.value.code == 2
    assert f"argument {arguments[-2]}: {arguments[-1]!r} is not " in capsys.readouterr().err


@pytest.mark.parametrize("number", ["0.98", "1"])
def test_a_character_coverage_may_be_a_limit_of_its_range(number: str) -> None:
    parser = argparse.ArgumentParser()
    add_tokenizer_arguments(parser)
    args = parser.parse_args(["--output", "t.spm", "--character-coverage", number])
    assert args.character_coverage == float(number)


@pytest.mark.parametrize("origin", [(), ("--data", "x.tsv", "--start-from", "old.spm")])
def test_a_vocabulary_is_made_either_from_data_or_from_another_vocabulary(
    origin: tuple[str, ...], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["tokenizer", *origin, "--output", str(tmp_path / "t.spm")]) == 2
    assert capsys.readouterr().err == "transduce tokenizer: give either --data or --start-from\n"


@pytest.mark.parametrize(
    "data",
    [
        ("--data", "a/dev.tsv", "--data", "b/dev.tsv"),
        ("--data", "the dev.tsv", "--data", "the.dev.tsv"),
        ("--data", "dev.tsv", "--data", "dev.tsv.reversed", "--reverse-tag", ">>en<<", "--tag", ">>de<<"),
    ],
)
def test_evaluate_refuses_data_whose_files_would_have_the_same_name(
    data: tuple[str, ...], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["evaluate", "--checkpoint", "c", *data, "--write", str(tmp_path)]) == 2
    assert "--write needs files of different names in --data" in capsys.readouterr().err


def test_evaluate_refuses_a_folder_that_it_cannot_write_before_it_reads_the_checkpoint(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").touch()
    options = ("--checkpoint", "nowhere", "--data", "x.tsv", "--write", str(tmp_path / "file" / "scored"))
    assert main(["evaluate", *options]) == 1
    assert "Not a directory" in capsys.readouterr().err


@pytest.fixture
def right_translations(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make `evaluate` return the references of two pairs as its translations, without a checkpoint."""
    monkeypatch.setattr("model.loading.load_with_tokenizers", lambda checkpoint: (None, None, None))
    monkeypatch.setattr("model.trainer.set_num_threads", lambda number: None)
    monkeypatch.setattr("model.evaluate.encode_texts", lambda *_: [])
    monkeypatch.setattr(
        "model.evaluate.translate_encoded", lambda *_, **__: [pair.target for pair in pairs()[:2]]
    )


@pytest.mark.usefixtures("right_translations")
def test_evaluate_prints_the_scores_before_it_writes(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data = write_tsv(tmp_path / "dev.tsv", pairs()[:2])
    (tmp_path / "scored" / "dev.tsv.source").mkdir(parents=True)
    options = ("--checkpoint", "c", "--data", str(data), "--write", str(tmp_path / "scored"))
    assert main(["evaluate", *options]) == 1
    out, error = capsys.readouterr()
    assert out.startswith("dev.tsv: BLEU 100.00")
    assert "Is a directory" in error


@pytest.mark.usefixtures("right_translations")
def test_data_in_the_current_folder_is_named_after_the_folder(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    data = tmp_path / "dev"
    data.mkdir()
    write_tsv(data / "part.tsv", pairs()[:2])
    monkeypatch.chdir(data)
    assert main(["evaluate", "--checkpoint", "c", "--data", ".", "--write", str(tmp_path / "scored")]) == 0
    assert capsys.readouterr().out.startswith("dev: BLEU 100.00")
    names = {path.name for path in (tmp_path / "scored").iterdir()}
    assert names == {"dev.source", "dev.translation", "dev.reference"}


@pytest.mark.usefixtures("right_translations")
def test_a_line_end_inside_a_sentence_is_written_as_a_space(tmp_path: Path) -> None:
    first, second = pairs()[:2]
    parted = Pair(first.source.replace(" ", "\u2028", 1), first.target, first.domain)
    data = write_tsv(tmp_path / "dev.tsv", [parted, second])
    options = ("--checkpoint", "c", "--data", str(data), "--write", str(tmp_path / "scored"))
    assert main(["evaluate", *options]) == 0
    lines = (tmp_path / "scored" / "dev.tsv.source").read_text("utf-8").splitlines()
    assert lines == [first.source, second.source]
