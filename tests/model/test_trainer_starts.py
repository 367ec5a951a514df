"""How a run begins: after a killed one, with another tokenizer, and from the weights of another run."""

from __future__ import annotations

import csv
import re
import shutil
from pathlib import Path

import pytest

from app.text.tokenizer import Tokenizer
from model import checkpoint
from model.checkpoint import CheckpointError, Saved
from model.config import preset
from model.corpus import Pair
from model.tokenizer_training import add_tags, train_tokenizer
from model.training_log import TrainingLog
from model.transformer import Transformer
from tests.forked import run_transduce
from tests.model.sentences import pairs
from tests.model.test_trainer import dev_of, train_arguments, trainer_in
from transduce.cli import main

pytestmark = pytest.mark.training


@pytest.fixture(scope="module")
def other_tokenizer(tmp_path_factory: pytest.TempPathFactory, tokenizer: Tokenizer) -> Path:
    """A vocabulary of the same size, learnt from the same text with the letters in reverse order."""
    path = tmp_path_factory.mktemp("other") / "other.spm"
    backwards = [Pair(pair.source[::-1], pair.target[::-1], "") for pair in pairs()]
    train_tokenizer(backwards, path, vocab_size=tokenizer.vocab_size, character_coverage=1.0)
    return path


def test_resume_with_another_tokenizer_is_refused(
    tmp_path: Path, tokenizer: Tokenizer, tokenizer_path: Path, other_tokenizer: Path
) -> None:
    trainer_in(tmp_path, tokenizer, tokenizer_path).save()
    with pytest.raises(CheckpointError, match=r"other\.spm is another tokenizer than the run's, .*step-0/"):
        trainer_in(tmp_path, tokenizer, other_tokenizer).resume()
    copy = shutil.copyfile(tokenizer_path, tmp_path / "copy.spm")
    assert trainer_in(tmp_path, tokenizer, copy).resume()


def test_a_run_that_begins_has_no_rows_of_one_that_was_killed(
    tmp_path: Path, tokenizer: Tokenizer, tokenizer_path: Path
) -> None:
    with TrainingLog(tmp_path, ["dev_loss_news"]) as log:
        log.write({"step": 1.0, "dev_loss_news": 1.5})
    trainer = trainer_in(tmp_path, tokenizer, tokenizer_path)
    assert not trainer.resume()
    trainer.train(dev_of(trainer))
    with (tmp_path / "train.csv").open(encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert [row["step"] for row in rows] == ["3.0", "6.0"]
    assert "dev_loss_news" not in rows[0]


def test_a_run_removes_what_a_killed_one_left(tmp_path: Path, tokenizer_path: Path) -> None:
    (tmp_path / "run" / ".step-9.71.tmp").mkdir(parents=True)
    done = run_transduce(*train_arguments(tmp_path, tokenizer_path, "run"), "--max-steps", "1")
    assert done.returncode == 0, done.stderr
    assert not list((tmp_path / "run").glob(".*"))


def test_a_killed_runs_last_checkpoint_counts_as_a_run(tmp_path: Path, tokenizer_path: Path) -> None:
    """The killed process had moved the old checkpoint away, but not yet moved the new one to its place."""
    for suffix in ("old", "tmp"):
        (tmp_path / "run" / f".step-9.71.{suffix}").mkdir(parents=True)
    refused = run_transduce(*train_arguments(tmp_path, tokenizer_path, "run"), "--max-steps", "1")
    assert refused.returncode == 1
    message = f"{tmp_path / 'run'} holds a run already: --resume continues it"
    assert refused.stderr == f"transduce train: {message}\n"
    assert [path.name for path in (tmp_path / "run").iterdir()] == ["step-9"]


@pytest.mark.parametrize("kind", ["checkpoint", "weights of a bundle"])
def test_a_start_from_weights_of_another_vocabulary_is_refused(
    kind: str, tmp_path: Path, tokenizer: Tokenizer, tokenizer_path: Path, other_tokenizer: Path
) -> None:
    """A vocabulary in which tags take the places of subwords is accepted."""
    weights = trainer_in(tmp_path / "first", tokenizer, tokenizer_path).save()
    if kind != "checkpoint":
        (weights / checkpoint.TOKENIZER).replace(weights.parent / "source.spm")
    start = ("--start-from", weights, "--max-steps", "1", "--device", "cpu")
    refused = run_transduce(*train_arguments(tmp_path, other_tokenizer, "run"), *start)
    assert refused.returncode == 1
    assert f"{other_tokenizer} has the subword " in refused.stderr
    assert f", the weights of {weights} have " in refused.stderr
    tagged = tmp_path / "tagged.spm"
    add_tags(tokenizer_path, tagged, [">>de<<", ">>en<<"])
    tags = ("--tag", ">>de<<", "--reverse-tag", ">>en<<")
    done = run_transduce(*train_arguments(tmp_path, tagged, "run"), *start, *tags)
    assert done.returncode == 0, done.stderr


def test_a_start_from_weights_with_an_output_bias_is_refused(
    tmp_path: Path, tokenizer: Tokenizer, tokenizer_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model = Transformer(preset("tiny", tokenizer.vocab_size, max_length=64, output_bias=True))
    weights = tmp_path / "imported"
    checkpoint.save(
        weights, Saved(model.state_dict(), {"model": model.config.to_json()}, {}, {}), tokenizer_path
    )
    assert main([*train_arguments(tmp_path, tokenizer_path, "run"), "--start-from", str(weights)]) == 1
    message = f"{weights} has an output bias, as imported models do; only models without one are trained"
    assert f"transduce train: {message}\n" in capsys.readouterr().err


@pytest.mark.parametrize("tags", [[">>de<<", ">>en<<"], []])
def test_a_start_from_weights_of_other_tags_is_refused(
    tags: list[str], tmp_path: Path, tokenizer: Tokenizer, tokenizer_path: Path
) -> None:
    """The other vocabulary has the tags in exchanged places, or the subwords that the tags replaced."""
    exchanged, other = tmp_path / "exchanged.spm", tmp_path / "other.spm"
    add_tags(tokenizer_path, exchanged, [">>en<<", ">>de<<"])
    add_tags(tokenizer_path, other, tags)
    weights = trainer_in(tmp_path / "first", tokenizer, exchanged).save()
    start = ("--start-from", weights, "--max-steps", "1", "--device", "cpu")
    refused = run_transduce(*train_arguments(tmp_path, other, "run"), *start)
    assert refused.returncode == 1
    assert re.search(r"other\.spm has the subword .*, the weights of .* have '>>\w\w<<'\n", refused.stderr)
