"""Training: exact resumption after a kill, early stopping, losses, gradients, and the checkpoints of a run."""

from __future__ import annotations

import copy
import csv
import shutil
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from app.text.tokenizer import Tokenizer
from model import checkpoint
from model.batches import Batches, Position
from model.checkpoint import CheckpointError, Saved
from model.config import preset
from model.corpus import Filter, Pair, encode_corpus
from model.dropout import Dropout
from model.file_lock import locked
from model.options import TrainingOptions
from model.schedule import learning_rate
from model.trainer import Trainer, Window, progress_line
from model.training_log import TrainingLog
from model.transformer import Transformer
from tests.forked import ForkedProcess, run_transduce
from tests.model.sentences import pairs, write_tsv

pytestmark = pytest.mark.training

NUM_TRIALS = 5


def trainer_in(run: Path, tokenizer: Tokenizer, tokenizer_path: Path, **changes: Any) -> Trainer:
    options = TrainingOptions(
        **{"max_steps": 6, "evaluate_every": 3, "save_every": 3, "warmup_steps": 10, **changes}
    )
    corpus = encode_corpus(pairs(), tokenizer, keep=Filter(strange_share=0.1), seed=options.seed)
    torch.manual_seed(options.seed)
    model = Transformer(preset("tiny", tokenizer.vocab_size, max_length=64))
    batches = Batches(corpus, max_tokens=300, seed=options.seed)
    return Trainer(model, batches, run=run, tokenizer=tokenizer_path, options=options)


def dev_of(trainer: Trainer) -> Batches:
    return Batches(trainer.batches.corpus, max_tokens=2000, seed=0)


def train_arguments(tmp_path: Path, tokenizer_path: Path, run: str) -> list[str]:
    data = write_tsv(tmp_path / "train.tsv", pairs())
    dev = write_tsv(tmp_path / "dev.tsv", pairs()[:16])
    sizes = ["--preset", "tiny", "--max-length", "64", "--batch-tokens", "300", "--threads", "1"]
    step_options = [
        "--evaluate-every",
        "10",
        "--save-every",
        "4",
        "--keep",
        "0",
        "--max-steps",
        "24",
        "--accumulate",
        "2",
    ]
    run_options = [
        "--data",
        str(data),
        "--dev",
        str(dev),
        "--tokenizer",
        str(tokenizer_path),
        "--run",
        str(tmp_path / run),
    ]
    return ["train", *run_options, *sizes, *step_options]


@pytest.mark.slow
@pytest.mark.parametrize("optimizer", ["adam", "muon"])
def test_after_sigkill_training_resumes_exactly(tmp_path: Path, tokenizer_path: Path, optimizer: str) -> None:
    chosen = ["--optimizer", optimizer, "--cooldown-steps", "10"]
    whole = run_transduce(*train_arguments(tmp_path, tokenizer_path, "whole"), *chosen)
    assert whole.returncode == 0, whole.stderr
    for _ in range(NUM_TRIALS):  # until the kill comes before the end of the run
        shutil.rmtree(tmp_path / "killed", ignore_errors=True)
        command = [*train_arguments(tmp_path, tokenizer_path, "killed"), *chosen]
        process = ForkedProcess(["transduce", *command], warnings_action="default")
        while not (tmp_path / "killed" / "step-8").exists() and process.poll() is None:
            time.sleep(0.01)
        process.kill()
        process.communicate()
        if not (tmp_path / "killed" / "step-24").exists():
            break
    assert (tmp_path / "killed" / "step-8").exists()
    assert not (tmp_path / "killed" / "step-24").exists()
    resumed = run_transduce(*command, "--resume")
    assert resumed.returncode == 0, resumed.stderr
    assert "resumed at step" in resumed.stderr
    for name in ("model.safetensors", "optimizer.safetensors"):
        one, other = (load_file(tmp_path / run / "step-24" / name) for run in ("whole", "killed"))
        assert one.keys() == other.keys()
        assert all(torch.equal(one[key], other[key]) for key in one)
    logs = [
        list(csv.DictReader((tmp_path / run / "train.csv").read_text("utf-8").splitlines()))
        for run in ("whole", "killed")
    ]
    assert [row["step"] for row in logs[0]] == [row["step"] for row in logs[1]] == ["10.0", "20.0", "24.0"]
    assert [row["dev_loss"] for row in logs[0]] == [row["dev_loss"] for row in logs[1]]
    assert (tmp_path / "killed" / "curve.png").read_bytes().startswith(b"\x89PNG")
    assert list((tmp_path / "killed" / "tensorboard").iterdir())


def test_a_run_is_not_overwritten_without_resume(
    tmp_path: Path, tokenizer: Tokenizer, tokenizer_path: Path
) -> None:
    trainer_in(tmp_path / "run", tokenizer, tokenizer_path).save()
    refused = run_transduce(*train_arguments(tmp_path, tokenizer_path, "run"))
    assert refused.returncode == 1
    assert "holds a run already" in refused.stderr


def test_a_tokenizer_that_does_not_exist_is_named(tmp_path: Path) -> None:
    refused = run_transduce(*train_arguments(tmp_path, tmp_path / "none.spm", "run"))
    assert refused.returncode == 1
    assert refused.stderr == f"transduce train: {tmp_path / 'none.spm'} does not exist\n"


@pytest.mark.parametrize("more", [(), ("--resume",)])
def test_a_second_process_that_trains_the_same_run_is_refused(
    tmp_path: Path, tokenizer_path: Path, more: tuple[str, ...]
) -> None:
    run = tmp_path / "run"
    run.mkdir()
    with locked(run / ".lock", run):
        refused = run_transduce(*train_arguments(tmp_path, tokenizer_path, "run"), *more)
    assert refused.returncode == 1
    assert refused.stderr == f"transduce train: another run is writing {run}\n"
    assert not list(run.iterdir())


def test_the_oldest_checkpoints_are_deleted(
    tmp_path: Path, tokenizer: Tokenizer, tokenizer_path: Path
) -> None:
    trainer = trainer_in(tmp_path, tokenizer, tokenizer_path, save_every=1, keep=2)
    trainer.train(dev_of(trainer))
    assert [path.name for path in checkpoint.step_folders(tmp_path)] == ["step-5", "step-6"]
    assert not [path.name for path in tmp_path.iterdir() if path.name.startswith(".")]


def test_training_stops_when_the_dev_loss_stops_falling(
    tmp_path: Path, tokenizer: Tokenizer, tokenizer_path: Path
) -> None:
    trainer = trainer_in(
        tmp_path,
        tokenizer,
        tokenizer_path,
        max_steps=50,
        evaluate_every=1,
        patience=3,
        learning_rate_factor=0.0,
    )
    trainer.train(dev_of(trainer))
    assert trainer.step == 4
    assert checkpoint.step_folders(tmp_path)[-1].name == "step-4"


def test_every_domain_of_the_dev_text_has_a_loss(
    tmp_path: Path, tokenizer: Tokenizer, tokenizer_path: Path
) -> None:
    trainer = trainer_in(tmp_path, tokenizer, tokenizer_path, max_steps=2, evaluate_every=1, precision="fp32")
    named = [Pair(p.source, p.target, "news" if i % 3 else "talk") for i, p in enumerate(pairs())]
    corpus = encode_corpus(named, tokenizer, keep=Filter(strange_share=0.0))
    dev = Batches(corpus, max_tokens=500, seed=0)
    trainer.train(dev)
    with (tmp_path / "train.csv").open() as file:
        last = list(csv.DictReader(file))[-1]
    sums = dict.fromkeys(("news", "talk"), 0.0)
    counts = dict.fromkeys(sums, 0)
    trainer.model.eval()
    for index in range(len(corpus)):
        batch = dev.collate(np.array([index]))
        name = corpus.domain_names[corpus.domains[index]]
        with torch.no_grad():
            sums[name] += float(trainer.loss(batch)[1])
        counts[name] += batch.num_target_tokens
    for name, total in sums.items():
        assert float(last[f"dev_loss_{name}"]) == pytest.approx(total / counts[name], abs=1e-4)
    assert float(last["dev_loss"]) == pytest.approx(sum(sums.values()) / sum(counts.values()), abs=1e-4)


def test_training_stops_when_bleu_stops_rising(
    tmp_path: Path, tokenizer: Tokenizer, tokenizer_path: Path
) -> None:
    trainer = trainer_in(
        tmp_path, tokenizer, tokenizer_path, max_steps=50, evaluate_every=1, patience=2, patience_on="bleu"
    )
    scores = iter([1.0, 5.0, 4.0, 4.5, 9.0])
    trainer.train(dev_of(trainer), lambda model: next(scores))
    assert trainer.step == 4


def test_accumulated_batches_are_one_large_batch(
    tmp_path: Path, tokenizer: Tokenizer, tokenizer_path: Path
) -> None:
    trainer = trainer_in(tmp_path, tokenizer, tokenizer_path, precision="fp32", label_smoothing=0.1)
    trainer.model.eval()
    indices = trainer.batches.epoch(0)[:2]
    parts = [trainer.batches.collate(i) for i in indices]
    joined = trainer.batches.collate(torch.cat([torch.from_numpy(i) for i in indices]).numpy())
    gradients = []
    for group in (parts, [joined]):
        trainer.model.zero_grad()
        total = sum(batch.num_target_tokens for batch in group)
        for batch in group:
            (trainer.loss(batch)[0] / total).backward()  # type: ignore[no-untyped-call]
        gradients.append([p.grad.clone() for p in trainer.model.parameters() if p.grad is not None])
    for one, other in zip(*gradients, strict=True):
        torch.testing.assert_close(one, other, atol=1e-5, rtol=1e-3)


def test_an_update_takes_the_mean_over_the_subwords_of_all_its_batches(
    tmp_path: Path, tokenizer: Tokenizer, tokenizer_path: Path
) -> None:
    options = {"precision": "fp32", "max_gradient_norm": 0.0, "accumulate": 3, "max_steps": 1}
    trainer = trainer_in(tmp_path, tokenizer, tokenizer_path, **options)
    for module in trainer.model.modules():
        if isinstance(module, Dropout):
            module.threshold = 0
    before = copy.deepcopy(trainer.model)
    trainer.train(dev_of(trainer))
    state = trainer.optimizers.state()
    moments = [state[f"{name}/exp_avg"] for name, _ in trainer.model.named_parameters()]
    trainer.model = before
    parts = [trainer.batches.collate(i) for i in trainer.batches.epoch(0)[:3]]
    assert len({batch.num_target_tokens for batch in parts}) > 1
    num_tokens = sum(batch.num_target_tokens for batch in parts)
    for batch in parts:
        (trainer.loss(batch)[0] / num_tokens).backward()  # type: ignore[no-untyped-call]
    for moment, parameter in zip(moments, before.parameters(), strict=True):
        assert parameter.grad is not None
        torch.testing.assert_close(moment, 0.1 * parameter.grad, atol=1e-7, rtol=1e-4)


def test_gradients_are_clipped_at_the_maximum_norm(
    tmp_path: Path, tokenizer: Tokenizer, tokenizer_path: Path
) -> None:
    options = {"precision": "fp32", "max_gradient_norm": 1e-3}
    trainer = trainer_in(tmp_path, tokenizer, tokenizer_path, **options)
    trainer.update(trainer.batches.since(Position()), Window())
    state = trainer.optimizers.state()
    moments = [state[f"{name}/exp_avg"].flatten() for name, _ in trainer.model.named_parameters()]
    assert float(torch.cat(moments).norm()) == pytest.approx(0.1 * 1e-3, rel=1e-3)


def test_the_rate_falls_with_the_time_that_is_left(
    tmp_path: Path, tokenizer: Tokenizer, tokenizer_path: Path
) -> None:
    trainer = trainer_in(tmp_path, tokenizer, tokenizer_path, max_time_s=1000.0, cooldown_s=1000.0)
    trainer.elapsed_s = 750.0
    trainer.update(trainer.batches.since(Position()), Window())
    without_cooldown = learning_rate(1, d_model=trainer.model.config.d_model, warmup_steps=10)
    assert trainer.rate == pytest.approx(0.25 * without_cooldown)


@pytest.mark.parametrize("kinds", [("muon", "adam"), ("adam", "muon")])
def test_resume_with_another_optimizer_is_refused(
    tmp_path: Path, tokenizer: Tokenizer, tokenizer_path: Path, kinds: tuple[str, str]
) -> None:
    first, other = (
        trainer_in(tmp_path / "run", tokenizer, tokenizer_path, max_steps=2, optimizer=kind) for kind in kinds
    )
    first.train(dev_of(first))
    with pytest.raises(CheckpointError, match="another --optimizer"):
        other.resume()
    again = trainer_in(tmp_path / "run", tokenizer, tokenizer_path, max_steps=2, optimizer=kinds[0])
    assert again.resume()


def test_the_hours_left_do_not_exceed_the_time_limit_of_the_run() -> None:
    row = {"step": 10, "elapsed_s": 60.0, "train_loss": 2.0, "dev_loss": 2.0, "target_tokens_per_s": 1000.0}
    assert progress_line(row, TrainingOptions(max_steps=1_000_000)).endswith(" 1666.7 h left")
    assert progress_line(row, TrainingOptions(max_steps=1_000_000, max_time_s=3660.0)).endswith(" 1.0 h left")
    late = TrainingOptions(max_steps=1_000_000, max_time_s=60.0)
    assert progress_line({**row, "elapsed_s": 7260.0}, late).endswith(" 0.0 h left")


def test_resume_with_another_batch_size_is_refused(
    tmp_path: Path, tokenizer: Tokenizer, tokenizer_path: Path
) -> None:
    trainer_in(tmp_path, tokenizer, tokenizer_path).save()
    other = trainer_in(tmp_path, tokenizer, tokenizer_path)
    other.batches.max_tokens = 400
    with pytest.raises(CheckpointError, match="max_tokens is 400, the run was made with 300"):
        other.resume()


def test_only_the_first_process_of_a_resumed_run_writes_its_log(
    tmp_path: Path, tokenizer: Tokenizer, tokenizer_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trainer_in(tmp_path, tokenizer, tokenizer_path).save()
    log = tmp_path / "train.csv"
    log.write_text("step,train_loss\n3,2.0\n", "utf-8")
    monkeypatch.setenv("WORLD_SIZE", "2")
    for rank, num_lines in (("1", 2), ("0", 1)):
        monkeypatch.setenv("RANK", rank)
        assert trainer_in(tmp_path, tokenizer, tokenizer_path, accumulate=2).resume()
        assert len(log.read_text("utf-8").splitlines()) == num_lines


def test_an_empty_log_gets_its_header(tmp_path: Path) -> None:
    """A run that was killed at its start may leave an empty file."""
    (tmp_path / "train.csv").touch()
    with TrainingLog(tmp_path, ["dev_loss_news"]) as log:
        log.write({"step": 3.0, "dev_loss_news": 1.5})
    with (tmp_path / "train.csv").open(encoding="utf-8") as file:
        (row,) = csv.DictReader(file)
    assert (row["step"], row["dev_loss_news"]) == ("3.0", "1.5")


def test_a_failed_write_keeps_the_old_checkpoint(
    tmp_path: Path, tokenizer: Tokenizer, tokenizer_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trainer = trainer_in(tmp_path, tokenizer, tokenizer_path)
    path = trainer.save()
    before = {file.name: file.read_bytes() for file in path.iterdir()}

    def out_of_disk(*args: object) -> None:
        raise OSError("no space left")

    monkeypatch.setattr("os.fsync", out_of_disk)
    with pytest.raises(OSError, match="no space left"):
        trainer.save()
    assert {file.name: file.read_bytes() for file in path.iterdir()} == before
    assert checkpoint.step_folders(tmp_path) == [path]
    assert not list(tmp_path.glob(".*")), "the unfinished folder would take space on the full disk"


def test_files_and_folders_with_other_names_are_no_checkpoints_of_a_run(tmp_path: Path) -> None:
    (tmp_path / "step-11").touch()
    for name in ("step-10", "step-9", "step-9-copy", "step-best"):
        (tmp_path / name).mkdir()
    assert [path.name for path in checkpoint.step_folders(tmp_path)] == ["step-9", "step-10"]


def test_the_average_is_the_mean_and_the_best_have_the_lowest_dev_loss(
    tmp_path: Path, tokenizer_path: Path
) -> None:
    for number, value in enumerate((2.0, 6.0, 1.0), 1):
        saved = Saved(
            {"w": torch.full((3,), value)}, {"model": {}}, {"rng": torch.zeros(1)}, {"dev_loss": value}
        )
        checkpoint.save(tmp_path / f"step-{number}", saved, tokenizer_path)
    assert checkpoint.average(checkpoint.step_folders(tmp_path))["w"].tolist() == [3.0, 3.0, 3.0]
    assert [path.name for path in checkpoint.best_folders(tmp_path, 2)] == ["step-3", "step-1"]
    unmeasured = Saved({"w": torch.zeros(3)}, {"model": {}}, {"rng": torch.zeros(1)}, {"dev_loss": None})
    checkpoint.save(tmp_path / "step-0", unmeasured, tokenizer_path)
    assert [path.name for path in checkpoint.best_folders(tmp_path, 4)] == [
        "step-3",
        "step-1",
        "step-2",
        "step-0",
    ]


def test_checkpoints_with_different_weights_have_no_average(tmp_path: Path, tokenizer_path: Path) -> None:
    for number, names in enumerate((("w", "v"), ("w",), ("w", "v")), 1):
        saved = Saved({name: torch.zeros(3) for name in names}, {"model": {}}, {}, {})
        checkpoint.save(tmp_path / f"step-{number}", saved, tokenizer_path)
    with pytest.raises(CheckpointError, match=r"only one of .*step-1 and .*step-2 has v"):
        checkpoint.average(checkpoint.step_folders(tmp_path))
    with pytest.raises(CheckpointError, match=r"only one of .*step-2 and .*step-3 has v"):
        checkpoint.average(checkpoint.step_folders(tmp_path)[1:])


def test_a_broken_checkpoint_is_named(tmp_path: Path, tokenizer_path: Path) -> None:
    with pytest.raises(CheckpointError, match="is not a checkpoint"):
        checkpoint.load(tmp_path)
    saved = Saved({"w": torch.zeros(3)}, {"model": preset("tiny", 20).to_json()}, {}, {})
    checkpoint.save(tmp_path / "wrong", saved, tokenizer_path)
    with pytest.raises(CheckpointError, match="do not agree"):
        checkpoint.load_model(tmp_path / "wrong")
    (tmp_path / "wrong" / "model.safetensors").write_bytes(b"\x00" * 9)
    with pytest.raises(CheckpointError, match="is not a checkpoint"):
        checkpoint.load(tmp_path / "wrong")
