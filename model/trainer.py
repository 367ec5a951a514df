"""The training loop of section 5. A resumed run continues at the same batch."""

from __future__ import annotations

import dataclasses
import math
import os
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from tqdm import tqdm

from model import checkpoint
from model.batches import Batch, Batches, Position
from model.checkpoint import CheckpointError, Saved
from model.config import PAD_ID, ModelConfig
from model.loss import label_smoothed_loss
from model.optimizers import Optimizers
from model.options import TrainingOptions
from model.parallel import ProcessGroup
from model.precision import resolve_precision
from model.schedule import cooldown, cooldown_by_time, learning_rate
from model.training_log import LOG, TrainingLog, drop_rows_after
from model.transformer import Transformer, source_padding

Bleu = Callable[[Transformer], float]
Draw = Callable[[Path, Path], None]


class Trainer:
    """One run: model, optimiser, data position and log, in a folder.

    best: the lowest dev loss so far, or with patience_on "bleu" the highest dev BLEU, negated.
    num_worse: evaluations since the one that gave `best`.
    window: sums over the updates since the last row of the log, for the next row; empty without such an update.
    """

    def __init__(
        self,
        model: Transformer,
        batches: Batches,
        *,
        run: Path,
        tokenizer: Path,
        options: TrainingOptions,
        description: dict[str, Any] | None = None,
    ) -> None:
        """description: JSON that is stored in each checkpoint's config beside the model's sizes.

        Raises ParallelError if `accumulate` is no multiple of the number of processes.
        """
        self.group = ProcessGroup()
        self.group.check(options.accumulate)
        self.model = model
        self.batches = batches
        self.run = run
        self.tokenizer = tokenizer
        self.options = options
        self.config = {"model": model.config.to_json(), **(description or {})}
        self.device = model.embedding.weight.device
        self.precision = resolve_precision(options.precision, self.device)
        self.optimizers = Optimizers(model, options.optimizer, self.precision)
        self.rate = 0.0
        self.step = 0
        self.position = Position()
        self.best = math.inf
        self.num_worse = 0
        self.last_dev_loss = math.inf
        self.elapsed_s = 0.0
        self.window = Window()

    # --- the loop ---

    def train(
        self,
        dev: Batches,
        bleu: Bleu | None = None,
        *,
        draw: Draw | None = None,
        is_stopping: Callable[[], bool] = lambda: False,
    ) -> None:
        """Train until a limit of the options is reached, then save. A resumed run may be at a limit already.

        bleu: scores the model on dev text; None for no BLEU.
        draw: called in the first process with the log and the file of its figure, after each row of the log.
        is_stopping: called before the first update and after each. Once it returns True, the run saves and ends, or
        only ends if it has made no update. It does not evaluate then, because that can take minutes. If an evaluation
        was due, the resumed run begins with it.
        """
        started = time.monotonic() - self.elapsed_s
        self.window.started = time.monotonic() - self.window.elapsed_s
        stream = self.batches.since(self.position)
        self._seed_dropout()
        with (
            TrainingLog(self.run, [name for name, _ in dev_sets(dev)], is_new=self.step == 0)
            if self.group.is_first
            else nullcontext() as log,
            tqdm(
                total=self.options.max_steps,
                initial=self.step,
                unit=" steps",
                disable=None if self.group.is_first else True,
            ) as bar,
        ):
            is_start = True
            while True:
                is_interrupted, is_ended = self._any(is_stopping()), self._is_ended()
                is_evaluated = not is_interrupted and self._is_due(is_ended)
                if is_evaluated:
                    if log is not None:
                        row = self._evaluate(dev, bleu)
                        log.write(row)
                        bar.set_postfix(train=f"{row['train_loss']:.3f}", dev=f"{row['dev_loss']:.3f}")
                        if bar.disable:
                            print(progress_line(row, self.options), file=sys.stderr, flush=True)
                        if draw is not None:
                            draw(log.path, self.run / "curve.png")
                    self.window = Window()
                    is_ended = self._is_ended()
                is_last = is_ended or is_interrupted
                is_saving = is_last or is_multiple(self.step, self.options.save_every)
                if is_start:  # before this run's first update, only an evaluation gives something new to save
                    is_saving = is_evaluated
                if is_saving:
                    self.save()
                if is_last:
                    return
                self.update(stream, self.window)
                self.elapsed_s = time.monotonic() - started
                bar.update()
                is_start = False

    def _is_ended(self) -> bool:
        """Whether a limit of the options is reached: of updates, time or patience."""
        options = self.options
        is_out_of_time = 0 < options.max_time_s <= self.elapsed_s
        is_out_of_patience = 0 < options.patience <= self.num_worse
        return self._any(self.step >= options.max_steps or is_out_of_time or is_out_of_patience)

    def _is_due(self, is_ended: bool) -> bool:
        """Whether the newest update needs an evaluation and has none."""
        return self.window.num_tokens > 0 and (
            is_ended or is_multiple(self.step, self.options.evaluate_every)
        )

    def _any(self, value: bool) -> bool:
        """Whether `value` is True in any process of the run."""
        return self.group.any(value, self.device)

    def _seed_dropout(self) -> None:
        """Reseed every process but the first. Equal seeds gave equal weights, but dropout must differ."""
        if not self.group.is_first:
            torch.manual_seed(self.batches.seed + self.step * self.group.size + self.group.rank)

    def update(self, stream: Iterator[tuple[Batch, Position]], window: Window) -> None:
        """Make one update from `accumulate` batches. Their summed loss is divided by their number of labels.

        Each of the n processes of a run computes every n-th batch. Then the gradients are summed.
        """
        self.model.train()
        parts = [next(stream) for _ in range(self.options.accumulate)]
        num_tokens = sum(batch.num_target_tokens for batch, _ in parts)
        plain_losses = []
        for batch, _ in parts[self.group.rank :: self.group.size]:
            loss, plain = self.loss(batch)
            (loss / num_tokens).backward()  # type: ignore[no-untyped-call]
            plain_losses.append(plain)
        self.group.sum_gradients(self.model.parameters())
        window.plain_loss = window.plain_loss + self.group.sum(torch.stack(plain_losses).sum())
        if self.options.max_gradient_norm > 0:
            torch.nn.utils.clip_grad_norm_(self.model.parameters(), self.options.max_gradient_norm)
        self.rate = self._next_rate()
        self.optimizers.step(self.rate)
        self.step += 1
        self.position = parts[-1][1]
        window.num_tokens += num_tokens

    def _next_rate(self) -> float:
        """The learning rate of the next update. It is the same in all processes."""
        options, step = self.options, self.step + 1
        rate = learning_rate(
            step,
            d_model=self.model.config.d_model,
            warmup_steps=options.warmup_steps,
            factor=options.learning_rate_factor,
        ) * cooldown(step, max_steps=options.max_steps, cooldown_steps=options.cooldown_steps)
        if options.cooldown_s:
            elapsed_s = self.group.mean(self.elapsed_s, self.device)
            rate *= cooldown_by_time(elapsed_s, max_time_s=options.max_time_s, cooldown_s=options.cooldown_s)
        return rate

    def loss(self, batch: Batch) -> tuple[Tensor, Tensor]:
        """Summed label-smoothed loss of a batch, and the sum of -log p(label) without smoothing, in nats.

        Masks and indices come from the batch before it is copied to the device, so the host never waits for a GPU.
        """
        padding = source_padding(batch.source)
        real = (batch.labels != PAD_ID).flatten().nonzero()[:, 0]
        labels = batch.labels.flatten()[real]
        source, target = self._copied(batch.source), self._copied(batch.target)
        is_bf16 = self.precision == "bf16"
        with torch.autocast(self.device.type, torch.bfloat16) if is_bf16 else nullcontext():
            mask = None if padding is None else self._copied(padding)
            decoded = self.model.decode(target, self.model.encode(source, mask), mask)
        rows = decoded.flatten(0, 1).index_select(0, self._copied(real))
        return label_smoothed_loss(
            rows, self.model.embedding.output_table, self._copied(labels), self.options.label_smoothing
        )

    def _copied(self, tensor: Tensor) -> Tensor:
        """The tensor on the device. Only a copy from pinned memory does not wait for earlier work of a GPU."""
        if self.device.type == "cuda":
            tensor = tensor.pin_memory()
        return tensor.to(self.device, non_blocking=True)

    # --- evaluation ---

    @torch.no_grad()
    def dev_losses(self, dev: Batches) -> dict[str, float]:
        """The mean -log p(label) in nats per subword, without dropout.

        `dev_loss` is that of all pairs and `dev_loss_NAME` that of domain NAME. A corpus of one domain has only
        `dev_loss`.
        """
        self.model.eval()
        sums = [(name, *self._dev_sums(batches)) for name, batches in dev_sets(dev) or [("", dev)]]
        total, num_tokens = (sum(column) for column in list(zip(*sums, strict=True))[1:])
        return {"dev_loss": total / num_tokens, **{name: loss / count for name, loss, count in sums if name}}

    def _dev_sums(self, dev: Batches) -> tuple[float, int]:
        """Sum of -log p(label) over epoch 0, and the number of labels."""
        total, num_tokens = 0.0, 0
        for indices in dev.epoch(0):
            batch = dev.collate(indices)
            total += float(self.loss(batch)[1])
            num_tokens += batch.num_target_tokens
        return total, num_tokens

    def _evaluate(self, dev: Batches, bleu: Bleu | None) -> dict[str, float]:
        """Evaluate, and update `best` and `num_worse`. Returns the row of the log."""
        window = self.window
        row = {
            "step": float(self.step),
            "epoch": float(self.position.epoch),
            "train_loss": float(window.plain_loss) / window.num_tokens,
            **self.dev_losses(dev),
            "learning_rate": self.rate,
            "target_tokens_per_s": window.num_tokens / (time.monotonic() - window.started),
            "elapsed_s": round(self.elapsed_s, 1),
        }
        if bleu is not None:
            self.model.eval()
            row["dev_bleu"] = bleu(self.model)
        watched = -row["dev_bleu"] if self.options.patience_on == "bleu" else row["dev_loss"]
        self.num_worse = 0 if watched < self.best else self.num_worse + 1
        self.best = min(self.best, watched)
        self.last_dev_loss = row["dev_loss"]
        return row

    # --- checkpoints ---

    def save(self) -> Path:
        """Write the checkpoint step-N, then remove the oldest beyond `keep`. Only the first process writes.

        Returns the checkpoint's folder.
        """
        path = self.run / f"step-{self.step}"
        if not self.group.is_first:
            return path
        optimizer = self.optimizers.state()
        optimizer["rng"] = torch.get_rng_state()
        if self.device.type == "cuda":
            optimizer["cuda_rng"] = torch.cuda.get_rng_state()
        state = {
            "step": self.step,
            "position": dataclasses.asdict(self.position),
            "best": self.best if math.isfinite(self.best) else None,
            "num_worse": self.num_worse,
            "dev_loss": self.last_dev_loss if math.isfinite(self.last_dev_loss) else None,
            "elapsed_s": self.elapsed_s,
            "window": self.window.to_json(),
            "learning_rate": self.rate,
            "seed": self.batches.seed,
            "max_tokens": self.batches.max_tokens,
        }
        checkpoint.save(path, Saved(self.model.state_dict(), self.config, optimizer, state), self.tokenizer)
        if self.options.keep:
            for old in checkpoint.step_folders(self.run)[: -self.options.keep]:
                checkpoint.remove(old)
        return path

    def resume(self) -> bool:
        """Continue exactly from the newest checkpoint of the run. Returns False if there is none.

        Raises CheckpointError if the checkpoint has no training state or is of another model, tokenizer or optimizer.
        Another seed or max_tokens is also an error, because the next batch would differ.
        """
        folders = checkpoint.step_folders(self.run)
        if not folders:
            return False
        saved = checkpoint.load(folders[-1])
        if not saved.state:
            raise CheckpointError(f"{folders[-1]} has no training state")
        for name, value in (("seed", self.batches.seed), ("max_tokens", self.batches.max_tokens)):
            if saved.state[name] != value:
                raise CheckpointError(f"{name} is {value}, the run was made with {saved.state[name]}")
        # `from_json` adds the defaults of fields that are newer than the run.
        has = ModelConfig.from_json(saved.config["model"]).to_json()
        if has != self.config["model"]:
            wrong = [
                f"{name} is {value}, the run has {has[name]}"
                for name, value in self.config["model"].items()
                if has[name] != value
            ]
            raise CheckpointError(f"{folders[-1]} is of another model: {'; '.join(wrong)}")
        own = checkpoint.tokenizer_of(folders[-1])
        if own.read_bytes() != self.tokenizer.read_bytes():
            raise CheckpointError(f"{self.tokenizer} is another tokenizer than the run's, {own}")
        if not self.optimizers.can_load(saved.optimizer):
            raise CheckpointError(
                f"{self.run} was made with another --optimizer: resume it with the same one"
            )
        self._restore(saved)
        if self.group.is_first:
            # A run that is killed between an evaluation and its checkpoint makes that evaluation again.
            num_logged = self.step - 1 if self.window.num_tokens else self.step
            drop_rows_after(self.run / LOG, num_logged)
        return True

    def _restore(self, saved: Saved) -> None:
        """Restore weights, optimiser, random numbers and position."""
        self.model.load_state_dict(dict(saved.model))
        self.optimizers.load_state(saved.optimizer)
        torch.set_rng_state(saved.optimizer["rng"])
        if "cuda_rng" in saved.optimizer and self.device.type == "cuda":
            torch.cuda.set_rng_state(saved.optimizer["cuda_rng"])
        state = saved.state
        self.step, self.position = state["step"], Position(**state["position"])
        self.best = math.inf if state["best"] is None else state["best"]
        self.last_dev_loss = math.inf if state["dev_loss"] is None else state["dev_loss"]
        self.num_worse, self.elapsed_s = state["num_worse"], state["elapsed_s"]
        # A checkpoint of an older version has no window and no learning rate.
        self.window, self.rate = Window(**state.get("window", {})), state.get("learning_rate", 0.0)


def dev_sets(dev: Batches) -> list[tuple[str, Batches]]:
    """`dev_loss_NAME` and the batches of each domain of a dev corpus; none if it has one domain only."""
    names = dev.corpus.domain_names
    if len(names) == 1:
        return []
    return [(f"dev_loss_{name}", dev.only(name)) for name in names]


def progress_line(row: Mapping[str, float], options: TrainingOptions) -> str:
    """The line of an evaluation for a log without a terminal: step, losses, speed, and hours left at the mean speed."""
    speed = row["target_tokens_per_s"]
    seconds = row["elapsed_s"] / row["step"] * (options.max_steps - row["step"])
    if options.max_time_s:
        seconds = min(seconds, options.max_time_s - row["elapsed_s"])
    hours = max(0.0, seconds) / 3600
    return (
        f"step {row['step']:,.0f} of {options.max_steps:,}: train {row['train_loss']:.3f}, "
        f"dev {row['dev_loss']:.3f} nats a subword, {speed:,.0f} target subwords/s, {hours:.1f} h left"
    )


class Window:
    """Sums since the last row of the log. elapsed_s: seconds that the window had lasted when it was saved."""

    def __init__(self, plain_loss: float = 0.0, num_tokens: int = 0, elapsed_s: float = 0.0) -> None:
        self.plain_loss = torch.tensor(plain_loss, dtype=torch.float64)
        self.num_tokens = num_tokens
        self.elapsed_s = elapsed_s
        self.started = time.monotonic() - elapsed_s

    def to_json(self) -> dict[str, float]:
        """The arguments that make an equal window."""
        return {
            "plain_loss": float(self.plain_loss),
            "num_tokens": self.num_tokens,
            "elapsed_s": time.monotonic() - self.started,
        }


def is_multiple(step: int, every: int) -> bool:
    """Whether a step is a multiple of `every`. No step is a multiple of 0."""
    return every > 0 and step % every == 0


def set_num_threads(num_threads: int) -> None:
    """Use this many threads; 0 uses all processors that this process may run on."""
    torch.set_num_threads(num_threads or len(os.sched_getaffinity(0)))
