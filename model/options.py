"""Options of training. This module imports no PyTorch, so the command line can show the defaults at once."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class TrainingOptions:
    """The options of training. A default is the paper's value if the paper has one.

    max_steps: maximum number of updates of the weights. max_time_s: seconds after which training stops even before
        max_steps; 0 is off.
    accumulate: batches in each update, over all processes. max_gradient_norm: clipping; 0 is off.
    label_smoothing, warmup_steps: as in sections 5.4 and 5.3. learning_rate_factor: multiplies equation (3).
    cooldown_steps: number of last updates over which the learning rate falls linearly towards 0; 0 is off.
    cooldown_s: the same for the last seconds before max_time_s.
    optimizer: "adam" is the paper's; "muon" uses Muon for the layers' matrices and Adam for the rest.
    precision: "bf16" runs matrix products in bfloat16 (autocast), "fp32" does not. "auto" is bf16 if the device has
        instructions for it: without them, bf16 is several times slower than fp32 on a CPU.
    evaluate_every, save_every: in updates; save_every 0 saves at the end only.
    keep: number of newest checkpoints to keep; 0 keeps all.
    patience: evaluations without an improvement before training stops; 0 is off.
    patience_on: the measure that has to improve, the dev loss or the dev BLEU.
    seed: of the weights, the variants of pairs, the order of the data and dropout.
    """

    max_steps: int = 100_000
    max_time_s: float = 0.0
    accumulate: int = 1
    max_gradient_norm: float = 1.0
    label_smoothing: float = 0.1
    warmup_steps: int = 4000
    learning_rate_factor: float = 1.0
    cooldown_steps: int = 0
    cooldown_s: float = 0.0
    optimizer: Literal["adam", "muon"] = "adam"
    precision: Literal["auto", "bf16", "fp32"] = "auto"
    evaluate_every: int = 500
    save_every: int = 500
    keep: int = 10
    patience: int = 0
    patience_on: Literal["loss", "bleu"] = "loss"
    seed: int = 1


# One line each, for the command line.
HELP = {
    "max_steps": "maximum number of updates of the weights",
    "max_time_s": "stop after this many seconds; 0: never",
    "accumulate": "batches in each update, over all processes",
    "max_gradient_norm": "clip gradients at this norm; 0: never",
    "label_smoothing": "the epsilon of label smoothing, section 5.4",
    "warmup_steps": "updates until the learning rate is highest, section 5.3",
    "learning_rate_factor": "multiplies the learning rate of equation (3)",
    "cooldown_steps": "number of last updates over which the learning rate falls towards 0",
    "cooldown_s": "seconds before --max-time-s over which the learning rate falls towards 0",
    "optimizer": "adam: the paper's; muon: Muon for the layers' matrices, Adam for the rest",
    "precision": "of matrix products: bf16 by autocast, or fp32; auto: bf16 if the device has instructions for it",
    "evaluate_every": "updates between two evaluations",
    "save_every": "updates between two checkpoints; 0: only at the end",
    "keep": "number of newest checkpoints to keep; 0: all",
    "patience": "stop after this many evaluations without an improvement; 0: never",
    "patience_on": "the measure that has to improve",
    "seed": "of weights, variants of pairs, order of data and dropout",
}
