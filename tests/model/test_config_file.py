"""Training options from a file. Invalid options and invalid files are one-line errors."""

from __future__ import annotations

import argparse
import gzip
from pathlib import Path

import pytest
import yaml

from model.config_file import write_config
from model.train_cli import add_train_arguments, model_config, training_options
from tests.forked import run_transduce
from tests.model.sentences import pairs, write_tsv
from transduce.cli import main

# The beginnings of the messages about a wrong command line.
USAGE = ("--data is missing", "--cooldown-s", "--strange-share", "--bleu-sentences")
RECIPES = Path(__file__).parents[2] / "docs" / "recipes"


def parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(prog="train")
    add_train_arguments(made)
    return made


def written(folder: Path, text: str) -> str:
    path = folder / "run.yaml"
    path.write_text(text, "utf-8")
    return str(path)


def test_a_file_sets_every_kind_of_option(tmp_path: Path) -> None:
    text = """
data: [one.tsv, two.tsv]
domain: {tatoeba: 3, chat: 0}
max-steps: 7
learning_rate_factor: 0.5
tag: ">>de<<"
resume: true
norm: null
"""
    args = parser().parse_args(["--config", written(tmp_path, text), "--max-steps", "9", "--data", "3.tsv"])
    assert args.data == ["one.tsv", "two.tsv", "3.tsv"]
    assert dict(args.domain) == {"tatoeba": 3.0, "chat": 0.0}
    assert (args.max_steps, args.learning_rate_factor, args.tag) == (9, 0.5, ">>de<<")
    assert args.resume is True
    assert args.norm is None


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("max-step: 7", "unknown option 'max-step'; did you mean 'max-steps'?"),
        ("max-steps: many", "argument --max-steps: 'many' is not a whole number of at least 1"),
        ("max-steps: [1, 2]", "max-steps has 2 values: it takes one"),
        ("domain: {x: .nan}", "'x=nan' is not NAME=WEIGHT with a finite weight of at least 0"),
        ("domain: {x: .inf}", "'x=inf' is not NAME=WEIGHT with a finite weight of at least 0"),
        ("resume: 3", "resume is 3: true or false is needed"),
        ("norm: middle", "argument --norm: invalid choice: 'middle'"),
        ("- max-steps", "is not a mapping of options to values"),
        ("a: [", "is not YAML"),
        ("config: other.yaml", "unknown option 'config'"),
    ],
)
def test_an_invalid_option_is_a_one_line_error(
    text: str, problem: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        parser().parse_args(["--config", written(tmp_path, text)])
    assert ended.value.code == 2
    assert problem in capsys.readouterr().err.splitlines()[-1]


@pytest.mark.parametrize(
    ("option", "problem"),
    [
        ("--max-steps=0", "'0' is not a whole number of at least 1"),
        ("--accumulate=0", "'0' is not a whole number of at least 1"),
        ("--evaluate-every=0", "'0' is not a whole number of at least 1"),
        ("--warmup-steps=0", "'0' is not a whole number of at least 1"),
        ("--batch-tokens=0", "'0' is not a whole number of at least 1"),
        ("--save-every=-1", "'-1' is not a whole number of at least 0"),
        ("--patience=-1", "'-1' is not a whole number of at least 0"),
        ("--seed=-1", "'-1' is not a whole number of at least 0"),
        ("--threads=-1", "'-1' is not a whole number of at least 0"),
        ("--bleu-sentences=-1", "'-1' is not a whole number of at least 0"),
        ("--max-time-s=nan", "'nan' is not a finite number of at least 0"),
        ("--max-gradient-norm=-1", "'-1' is not a finite number of at least 0"),
        ("--learning-rate-factor=inf", "'inf' is not a finite number of at least 0"),
        ("--cooldown-s=x", "'x' is not a finite number of at least 0"),
        ("--domain-temperature=0.5", "'0.5' is not a finite number of at least 1"),
        ("--label-smoothing=1.5", "'1.5' is not a number from 0 to 1"),
        ("--strange-share=-0.1", "'-0.1' is not a number from 0 to 1"),
        ("--typed-share=2", "'2' is not a number from 0 to 1"),
    ],
)
def test_a_number_outside_its_range_is_refused_when_it_is_parsed(
    option: str, problem: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        parser().parse_args([option])
    assert ended.value.code == 2
    assert f"argument {option.partition('=')[0]}: {problem}" in capsys.readouterr().err


def test_zero_is_accepted_by_the_options_that_it_turns_off(tmp_path: Path) -> None:
    names = (
        "max_time_s",
        "max_gradient_norm",
        "label_smoothing",
        "cooldown_steps",
        "save_every",
        "keep",
        "patience",
    )
    text = "".join(f"{name}: 0\n" for name in (*names, "strange-share", "threads"))
    args = parser().parse_args(["--config", written(tmp_path, text)])
    assert not any(getattr(args, name) for name in (*names, "strange_share", "threads"))


def test_the_config_file_of_a_run_gives_the_same_options(tmp_path: Path) -> None:
    flags = ["--data", "a.tsv", "--dev", "b.tsv", "--tokenizer", "t.spm", "--run", "r", "--domain", "x=0.5"]
    args = parser().parse_args([*flags, "--warmup-steps", "11", "--reverse-tag", ">>en<<"])
    write_config(tmp_path / "config.yaml", args)
    again = parser().parse_args(["--config", str(tmp_path / "config.yaml")])
    again.config = None
    assert vars(again) == vars(args)
    assert yaml.safe_load((tmp_path / "config.yaml").read_text())["domain"] == {"x": 0.5}


@pytest.mark.parametrize(
    ("name", "d_model", "steps"), [("paper-base", 512, 100_000), ("paper-big", 1024, 300_000)]
)
def test_the_recipes_have_the_papers_values(name: str, d_model: int, steps: int) -> None:
    args = parser().parse_args(["--config", str(RECIPES / f"{name}.yaml")])
    assert model_config(args, 37_000).d_model == d_model
    options = training_options(args)
    assert (options.max_steps, options.warmup_steps, options.label_smoothing) == (steps, 4000, 0.1)
    assert args.batch_tokens * options.accumulate == 25_000


@pytest.mark.slow
@pytest.mark.training
def test_each_error_at_the_start_is_one_line(
    tmp_path: Path, tokenizer_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data = write_tsv(tmp_path / "train.tsv", pairs())
    broken = tmp_path / "broken.tsv"
    broken.write_bytes(b"a\tb\n\xff\xfe\tc\n")
    cut = tmp_path / "cut.tsv.xz"
    cut.write_bytes(b"\xfd7zXZ\x00\x00")
    corrupt = tmp_path / "corrupt.tsv.gz"
    packed = gzip.compress(b"one\teins\n" * 500)
    corrupt.write_bytes(packed[:12] + bytes(20) + packed[32:])
    run = tmp_path / "deep" / "er" / "run"
    run_options = (
        "--dev",
        data,
        "--tokenizer",
        tokenizer_path,
        "--run",
        run,
        "--preset",
        "tiny",
        "--threads",
        1,
    )
    shares = ("--strange-share", 0.5, "--typed-share", 0.5)  # not above 1 together
    small = ("--max-length", 64, "--batch-tokens", 300, "--max-steps", 1, *shares)
    assert run_transduce("train", "--data", data, *run_options, *small).returncode == 0
    assert yaml.safe_load((run / "config.yaml").read_text())["precision"] in ("bf16", "fp32")  # not "auto"
    other = ("--resume", "--d-ff", 64)
    for arguments, problem in (
        (run_options, "--data is missing: give it, or put it into the --config file"),
        (
            ("--data", data, *run_options, "--device", "cuda"),
            "--device is cuda, but PyTorch sees no GPU here",
        ),
        (
            ("--data", data, *run_options, *small, "--resume", "--domain", "news=2"),
            "no pair has the domain news",
        ),
        (("--data", data, *run_options, *small, *other), "is of another model: d_ff is 64, the run has 128"),
        (
            ("--data", data, *run_options, "--cooldown-s", 60),
            "--cooldown-s is 60, but --max-time-s, which contains it, is 0",
        ),
        (
            ("--data", data, *run_options, "--strange-share", 0.6, "--typed-share", 0.5),
            "--strange-share 0.6 and --typed-share 0.5 are above 1 together",
        ),
        (
            ("--data", data, *run_options, "--patience-on", "bleu"),
            "--bleu-sentences is 0, but --patience-on bleu needs at least 1",
        ),
        (("--data", broken, *run_options, "--resume"), "broken.tsv, line 2: not UTF-8"),
        (("--data", cut, *run_options, "--resume"), "the compressed file is broken"),
        (("--data", corrupt, *run_options, "--resume"), "the compressed file is broken"),
    ):
        status = main(["train", *map(str, arguments)])
        error = capsys.readouterr().err
        lines = [line for line in error.splitlines() if line.startswith("transduce train: ")]
        assert status == (2 if problem.startswith(USAGE) else 1), error
        assert len(lines) == 1, error
        assert problem in lines[0]
        assert "unexpected" not in lines[0]
