"""Train Hugging Face's MarianMTModel with its Seq2SeqTrainer. Runs in a separate environment without Transduce.

python -m venv .venv-hf && .venv-hf/bin/pip install torch==2.13.0 transformers accelerate
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from transformers import (  # type: ignore[import-not-found,unused-ignore]
    MarianConfig,
    MarianMTModel,
    Seq2SeqTrainer,
    Seq2SeqTrainingArguments,
    TrainerCallback,
)

from benchmarks.training.encoded import (
    BOS_ID,
    D_FF,
    D_MODEL,
    DROPOUT,
    EOS_ID,
    NUM_DECODER_LAYERS,
    NUM_ENCODER_LAYERS,
    NUM_HEADS,
    NUM_SENTENCES,
    PAD_ID,
    Encoded,
    padded,
)
from benchmarks.training.measure import Stopwatch, trainer_arguments

IGNORED = -100  # the label of padding in Hugging Face's losses


class PairDataset(torch.utils.data.Dataset):  # type: ignore[type-arg]
    """The sentence pairs in the trainer's format."""

    def __init__(self, encoded: Encoded) -> None:
        self._pairs = encoded.pairs()

    def __len__(self) -> int:
        return len(self._pairs)

    def __getitem__(self, index: int) -> dict[str, Any]:
        source, labels = self._pairs[index]
        return {"input_ids": source, "labels": labels}


class TimeLimitCallback(TrainerCallback):  # type: ignore[misc,unused-ignore]
    """Stops the training when the time is over. counts: the target subwords of each batch, in order."""

    def __init__(self, counts: Iterator[int], watch: Stopwatch) -> None:
        self._counts = counts
        self._watch = watch

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> Any:
        """Count the batch of this update, and stop the training if the time is over."""
        control.should_training_stop = not self._watch.record_update(next(self._counts))
        return control


def main() -> None:
    """Measure."""
    args = trainer_arguments()
    torch.set_num_threads(args.threads)
    torch.manual_seed(1)
    encoded = Encoded.load(args.data)
    config = MarianConfig(
        vocab_size=encoded.vocab_size,
        d_model=D_MODEL,
        encoder_layers=NUM_ENCODER_LAYERS,
        decoder_layers=NUM_DECODER_LAYERS,
        encoder_attention_heads=NUM_HEADS,
        decoder_attention_heads=NUM_HEADS,
        encoder_ffn_dim=D_FF,
        decoder_ffn_dim=D_FF,
        dropout=DROPOUT,
        activation_function="relu",
        scale_embedding=True,
        max_position_embeddings=512,
        pad_token_id=PAD_ID,
        bos_token_id=BOS_ID,
        eos_token_id=EOS_ID,
        decoder_start_token_id=BOS_ID,
        forced_eos_token_id=None,
    )
    counts: list[int] = []

    def collate(items: list[dict[str, Any]]) -> dict[str, torch.Tensor]:
        source, labels = padded([one["input_ids"] for one in items]), [one["labels"] for one in items]
        target = padded([np.concatenate(([BOS_ID], one[:-1])) for one in labels])
        counts.append(sum(map(len, labels)))
        return {
            "input_ids": torch.from_numpy(source),
            "attention_mask": torch.from_numpy((source != PAD_ID).astype(np.int64)),
            "decoder_input_ids": torch.from_numpy(target),
            "labels": torch.from_numpy(padded(labels, IGNORED)),
        }

    def target_counts() -> Iterator[int]:
        number = 0
        while True:
            yield counts[number]
            number += 1

    watch = Stopwatch(args.seconds)
    with tempfile.TemporaryDirectory() as folder:
        options = Seq2SeqTrainingArguments(
            folder,
            per_device_train_batch_size=NUM_SENTENCES,
            max_steps=1_000_000,
            label_smoothing_factor=0.1,
            bf16=args.precision == "bf16",
            use_cpu=True,
            report_to=[],
            save_strategy="no",
            logging_strategy="no",
            disable_tqdm=True,
        )
        trainer = Seq2SeqTrainer(
            MarianMTModel(config),
            options,
            data_collator=collate,
            train_dataset=PairDataset(encoded),
            callbacks=[TimeLimitCallback(target_counts(), watch)],
        )
        trainer.train()
    watch.print()


if __name__ == "__main__":
    main()
