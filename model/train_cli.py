"""The subcommand `transduce train`. PyTorch is imported only when it runs."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

from model.data_arguments import (
    add_data_arguments,
    add_direction_arguments,
    add_one_way_arguments,
    directions_of,
    not_negative,
    number_from,
    pairs_of,
    positive,
    share,
)

if TYPE_CHECKING:
    from app.text.tokenizer import Tokenizer
    from model.config import ModelConfig
    from model.options import TrainingOptions
    from model.trainer import Draw
    from model.transformer import Transformer

CHOICES = {
    "optimizer": ("adam", "muon"),
    "precision": ("auto", "bf16", "fp32"),
    "patience_on": ("loss", "bleu"),
}
# Parsers of some training options, by name. KINDS has the parsers of the others, by the type of the option's default.
OPTION_TYPES: dict[str, Callable[[str], Any]] = {
    **dict.fromkeys(("max_steps", "accumulate", "warmup_steps", "evaluate_every"), positive),
    "label_smoothing": share,
}
KINDS: dict[type, Callable[[str], Any]] = {int: not_negative, float: number_from(0), str: str}
MODEL_FIELDS = (
    "d_model",
    "num_heads",
    "d_ff",
    "num_encoder_layers",
    "num_decoder_layers",
    "max_length",
    "dropout",
    "norm",
    "activation",
    "positions",
    "decoder",
)


def add_train_arguments(parser: argparse.ArgumentParser) -> None:
    """Arguments of `transduce train`."""
    from model.config_file import ConfigFile

    parser.add_argument(
        "--config",
        action=ConfigFile,
        metavar="FILE.yaml",
        help="read options from a file; those that follow on the command line replace its values, or add to them "
        "if they may be repeated",
    )
    add_data_arguments(parser, is_required=False)
    add_direction_arguments(parser)
    add_one_way_arguments(parser)
    parser.add_argument(
        "--lexicon",
        type=Path,
        metavar="FILE.tsv",
        help="word translations from `transduce lexicon`: placeholders replace some of these words in sentences, and "
        "the words are also training pairs, in the domain `lexicon`",
    )
    parser.add_argument(
        "--dev", action="append", metavar="FILES", help="held-out pairs, in the format of --data"
    )
    parser.add_argument("--tokenizer", type=Path, metavar="FILE.spm", help="made by `transduce tokenizer`")
    parser.add_argument("--run", type=Path, metavar="DIR", help="folder for checkpoints and logs")
    parser.add_argument(
        "--resume",
        action="store_true",
        help="continue from the run's newest checkpoint, with the batch after it; without one, begin the run",
    )
    parser.add_argument(
        "--start-from",
        type=Path,
        metavar="CHECKPOINT",
        help="start with this checkpoint's weights and sizes, and a new optimiser",
    )
    parser.add_argument(
        "--device", choices=("auto", "cpu", "cuda"), default="auto", help="auto: a GPU if there is one"
    )
    parser.add_argument(
        "--threads",
        type=not_negative,
        default=0,
        help="threads of this process; 0: all available processors (default: 0)",
    )
    _model_arguments(parser.add_argument_group("model", "the defaults are the preset's"))
    loop = parser.add_argument_group(
        "training", "sections and equations are those of 'Attention Is All You Need'"
    )
    loop.add_argument(
        "--batch-tokens",
        type=positive,
        default=4096,
        help="maximum subwords on a batch's longer side (default: 4096)",
    )
    loop.add_argument(
        "--strange-share",
        type=share,
        default=0.06,
        help="share of pairs with unknown characters, which the model learns to copy (default: 0.06)",
    )
    loop.add_argument(
        "--typed-share",
        type=share,
        default=0.0,
        help="share of pairs written as people type: no final mark, lower case, title case (default: 0)",
    )
    loop.add_argument(
        "--domain-temperature",
        type=number_from(1),
        default=1.0,
        metavar="T",
        help="at least 1; a domain with n pairs has a share in proportion to n^(1/T), times its --domain weight: the "
        "shares of small domains grow with T (default: 1)",
    )
    _option_arguments(loop)
    loop.add_argument(
        "--bleu-sentences",
        type=not_negative,
        default=0,
        help="number of dev sentences that each evaluation translates for BLEU; 0: none (default: 0)",
    )


def _model_arguments(group: Any) -> None:
    """One argument for each field of ModelConfig that may be changed."""
    add = group.add_argument
    add("--preset", default="small", help="tiny, small, base, fast or big (default: small)")
    add("--d-model", type=int, metavar="N", help="width of the residual stream")
    add("--num-heads", type=int, metavar="N", help="number of attention heads, a divisor of d-model")
    add("--d-ff", type=int, metavar="N", help="width of the feed-forward networks")
    add("--num-encoder-layers", type=int, metavar="N", help="layers of the encoder")
    add("--num-decoder-layers", type=int, metavar="N", help="layers of the decoder")
    add("--max-length", type=int, metavar="N", help="longest source or target, in subwords")
    add("--dropout", type=float, metavar="P", help="of sub-layer outputs and embeddings, 0-1")
    add("--norm", choices=("post", "pre"), help="post: the paper's; pre: more stable with small batches")
    add("--activation", choices=("relu", "gelu", "silu"), help="of the feed-forward networks")
    add("--positions", choices=("sinusoidal", "learned"), help="positional encoding")
    add(
        "--decoder",
        choices=("attention", "ssru"),
        help="first sub-layer of a decoder layer: masked self-attention, or an SSRU, whose steps cost less",
    )


def _option_arguments(group: Any) -> None:
    """One argument for each field of TrainingOptions, with its meaning and default."""
    import dataclasses

    from model.options import HELP, TrainingOptions

    for field in dataclasses.fields(TrainingOptions):
        flag = "--" + field.name.replace("_", "-")
        choices = CHOICES.get(field.name)
        text = f"{HELP[field.name]} (default: {field.default})"
        kind = OPTION_TYPES.get(field.name) or KINDS[type(field.default)]
        group.add_argument(flag, type=kind, default=field.default, choices=choices, help=text)


def model_config(args: argparse.Namespace, vocab_size: int) -> ModelConfig:
    """The preset with the changes of the arguments. Raises ConfigError."""
    from model.config import preset

    changes = {name: getattr(args, name) for name in MODEL_FIELDS if getattr(args, name) is not None}
    return preset(args.preset, vocab_size, **changes)


def training_options(args: argparse.Namespace) -> TrainingOptions:
    """The training options among the arguments."""
    import dataclasses

    from model.options import TrainingOptions

    return TrainingOptions(
        **{field.name: getattr(args, field.name) for field in dataclasses.fields(TrainingOptions)}
    )


def run_train(args: argparse.Namespace) -> int:
    """Train a model, or continue its training. SIGINT and SIGTERM save a checkpoint and end the run.

    Under `torchrun` every process runs this and trains on its share of the batches.
    """
    import torch

    from app.text.tokenizer import Tokenizer
    from model import checkpoint
    from model.config_file import check_required, write_config
    from model.corpus import check_file
    from model.file_lock import locked
    from model.interrupt import stop_signals
    from model.parallel import ProcessGroup
    from model.train_data import batches_of, domain_counts
    from model.trainer import Trainer, set_num_threads

    check_required(args, ("data", "dev", "tokenizer", "run"))
    _check_options(args)
    device = _device(args.device)
    if device == "cuda":
        # cuDNN's attention builds a plan for each shape, and nearly every batch has another shape.
        torch.backends.cuda.enable_cudnn_sdp(False)
    set_num_threads(args.threads)
    check_file(args.tokenizer)
    tokenizer = Tokenizer(args.tokenizer)
    model = _model(args, tokenizer.vocab_size)
    if args.start_from is not None:
        _check_vocabulary(args.start_from, args.tokenizer)
    with ProcessGroup(device) as group, ExitStack() as stack:
        with group.first_before_others():
            if group.is_first:
                args.run.mkdir(parents=True, exist_ok=True)
                stack.enter_context(locked(args.run / ".lock", args.run))
                checkpoint.finish_writes(args.run)
                _check_run(args)
            batches, dev = batches_of(args, tokenizer, model.config)
        torch.manual_seed(args.seed)
        trainer = Trainer(
            model.to(device),
            batches,
            run=args.run,
            tokenizer=args.tokenizer,
            options=training_options(args),
            description={"data": {name: int(n) for name, n in domain_counts(batches).items()}},
        )
        if args.resume and trainer.resume() and group.is_first:
            print(f"resumed at step {trainer.step}", file=sys.stderr)
        args.precision = trainer.precision
        if group.is_first:
            write_config(args.run / "config.yaml", args)
        draw = _draw() if group.is_first else None
        with stop_signals() as is_stopping:
            trainer.train(dev, _bleu(args, tokenizer, model.config), draw=draw, is_stopping=is_stopping)
    return 0


def _draw() -> Draw:
    """The function that draws the figure of a run. The import of matplotlib takes time and memory."""
    from model.run_figures import draw

    return draw


def _check_options(args: argparse.Namespace) -> None:
    """Raise ArgumentError for options that contradict each other."""
    if args.cooldown_s > args.max_time_s:
        raise argparse.ArgumentError(
            None,
            f"--cooldown-s is {args.cooldown_s:g}, but --max-time-s, which contains it, is {args.max_time_s:g}",
        )
    if args.strange_share + args.typed_share > 1:
        raise argparse.ArgumentError(
            None,
            f"--strange-share {args.strange_share:g} and --typed-share {args.typed_share:g} are above 1 together",
        )
    if args.patience_on == "bleu" and args.bleu_sentences < 1:
        raise argparse.ArgumentError(
            None, f"--bleu-sentences is {args.bleu_sentences}, but --patience-on bleu needs at least 1"
        )


def _check_run(args: argparse.Namespace) -> None:
    """Raise CheckpointError if the folder has checkpoints and --resume is not given. The caller has the run's lock."""
    from model.checkpoint import CheckpointError, step_folders

    if not args.resume and step_folders(args.run):
        raise CheckpointError(f"{args.run} holds a run already: --resume continues it")


def _device(name: str) -> str:
    """The device to train on. Raises ValueError if a GPU is requested and PyTorch finds none."""
    import torch

    if name == "cuda" and not torch.cuda.is_available():
        raise ValueError("--device is cuda, but PyTorch sees no GPU here: use --device cpu or auto")
    return "cuda" if name != "cpu" and torch.cuda.is_available() else "cpu"


def _model(args: argparse.Namespace, vocab_size: int) -> Transformer:
    """A new model, or the model of --start-from, whose sizes stay.

    Raises ConfigError for impossible sizes of a new model. With --start-from, raises CheckpointError if an argument
    other than --dropout contradicts the weights, the vocabulary has another size, or the weights have an output bias.
    """
    import dataclasses

    import torch

    from model import checkpoint
    from model.transformer import Transformer

    if args.start_from is None:
        torch.manual_seed(args.seed)
        return Transformer(model_config(args, vocab_size))
    model = checkpoint.load_model(args.start_from)
    if model.config.output_bias:
        raise checkpoint.CheckpointError(
            f"{args.start_from} has an output bias, as imported models do; only models without one are trained"
        )
    wanted = {name: value for name in MODEL_FIELDS if (value := getattr(args, name)) is not None}
    for name, value in {**wanted, "vocab_size": vocab_size}.items():
        has = getattr(model.config, name)
        if has != value and name != "dropout":
            raise checkpoint.CheckpointError(
                f"{name} is {value}, the weights of {args.start_from} have {has}"
            )
    if args.dropout is not None:
        changed = Transformer(dataclasses.replace(model.config, dropout=args.dropout))
        changed.load_state_dict(model.state_dict())
        return changed
    return model


def _check_vocabulary(start: Path, tokenizer: Path) -> None:
    """Raise CheckpointError if an id is another subword in `tokenizer` than in the checkpoint `start`.

    A new tag may have the place of a subword: `transduce tokenizer --start-from` puts tags in the places of rare
    subwords. The weights of a bundle have the bundle's source.spm. A checkpoint without a tokenizer is not compared.
    """
    from model.checkpoint import TOKENIZER, CheckpointError
    from model.imported import read_sentencepiece

    own = next((file for file in (start / TOKENIZER, start.parent / "source.spm") if file.is_file()), None)
    if own is None:
        return
    pieces = [read_sentencepiece(file).pieces for file in (own, tokenizer)]
    for number, (old, new) in enumerate(zip(*pieces, strict=False)):
        symbols = {new.CONTROL, new.USER_DEFINED}
        is_new_tag = new.type in symbols and old.type not in symbols
        if old.piece != new.piece and not is_new_tag:
            raise CheckpointError(
                f"{tokenizer} has the subword {new.piece!r} as number {number}, the weights of {start} have "
                f"{old.piece!r}"
            )


def _bleu(args: argparse.Namespace, tokenizer: Tokenizer, config: ModelConfig) -> Any:
    """A function that scores a model on the first --bleu-sentences pairs that the dev loss uses; None for 0."""
    if args.bleu_sentences == 0:
        return None
    from itertools import islice

    from model.corpus import is_kept
    from model.evaluate import greedy_bleu
    from model.train_data import dev_filter

    keep, directions = dev_filter(args, config), directions_of(args)
    kept = (pair for pair in pairs_of(args.dev) if is_kept(pair, tokenizer, keep, directions))
    pairs = list(islice(kept, args.bleu_sentences))

    def mean_bleu(model: Transformer) -> float:
        """The mean over the directions."""
        scores = [
            greedy_bleu(model, tokenizer, [d.of(pair) for pair in pairs], tag=d.tag) for d in directions
        ]
        return sum(scores) / len(scores)

    return mean_bleu
