"""The subcommands that need PyTorch: tokenizer, train, average, evaluate. It is imported only when one runs."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable, Iterator, Mapping
from itertools import chain, repeat
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from app.text.tokenizer import Tokenizer
    from model.batches import Batches
    from model.config import ModelConfig
    from model.corpus import Pair
    from model.options import TrainingOptions
    from model.transformer import Transformer

DATA_HELP = (
    "FILE.tsv[.gz|.xz] with source and target, or domain, source and target; or SOURCE:TARGET, two files"
)


def weights_argument(text: str) -> tuple[str, float]:
    """Parse `NAME=WEIGHT`. Raises ArgumentTypeError."""
    name, separator, weight = text.partition("=")
    try:
        value = float(weight)
    except ValueError:
        value = -1.0
    if not separator or not name or value < 0:
        raise argparse.ArgumentTypeError(f"{text!r} is not NAME=WEIGHT with a weight of at least 0")
    return name, value


def data_arguments(parser: argparse.ArgumentParser) -> None:
    """Arguments that say which text is read and what is kept of it."""
    parser.add_argument("--data", required=True, action="append", metavar="FILES", help=DATA_HELP)
    parser.add_argument(
        "--domain",
        type=weights_argument,
        action="append",
        default=[],
        metavar="NAME=WEIGHT",
        help="how often an epoch holds a pair of this domain; 0 leaves it out; 1 where not given",
    )


def pairs_of(specifications: list[str]) -> Iterator[Pair]:
    """All pairs of all files, in the order given."""
    from model.corpus import read_data

    return chain.from_iterable(read_data(specification) for specification in specifications)


# --- tokenizer ---


def add_tokenizer_arguments(parser: argparse.ArgumentParser) -> None:
    """Arguments of `transduce tokenizer`."""
    data_arguments(parser)
    parser.add_argument("--output", required=True, type=Path, metavar="FILE.spm")
    parser.add_argument("--vocab-size", type=int, default=8000)
    parser.add_argument("--character-coverage", type=float, default=0.99999)


def run_tokenizer(args: argparse.Namespace) -> int:
    """Train a joint vocabulary on each domain's pairs as often as its weight says."""
    from model.tokenizer_training import train_tokenizer

    repeated = weighted(pairs_of(args.data), dict(args.domain))
    train_tokenizer(
        repeated, args.output, vocab_size=args.vocab_size, character_coverage=args.character_coverage
    )
    return 0


def weighted(pairs: Iterable[Pair], weights: Mapping[str, float]) -> Iterator[Pair]:
    """Each domain's pairs, repeated or left out evenly: 2.5 is twice and three times in turn, 0.5 every second."""
    owed: dict[str, float] = {}
    for pair in pairs:
        due = owed.get(pair.domain, 0.0) + weights.get(pair.domain, 1.0)
        owed[pair.domain] = due - int(due)
        yield from repeat(pair, int(due))


# --- train ---


def add_train_arguments(parser: argparse.ArgumentParser) -> None:
    """Arguments of `transduce train`."""
    data_arguments(parser)
    parser.add_argument(
        "--dev", required=True, action="append", metavar="FILES", help="held-out pairs, as --data"
    )
    parser.add_argument("--tokenizer", required=True, type=Path, metavar="FILE.spm")
    parser.add_argument(
        "--run", required=True, type=Path, metavar="DIR", help="where checkpoints and logs go"
    )
    parser.add_argument(
        "--resume", action="store_true", help="go on from the run's newest checkpoint, to the batch"
    )
    parser.add_argument(
        "--start-from", type=Path, metavar="CHECKPOINT", help="weights to begin with, optimiser fresh"
    )
    parser.add_argument("--device", choices=("auto", "cpu", "cuda"), default="auto")
    parser.add_argument("--threads", type=int, default=0, help="0: the processors that there are")
    model = parser.add_argument_group("model")
    model.add_argument("--preset", default="small", help="tiny, small, base or big")
    for name in ("d-model", "num-heads", "d-ff", "num-encoder-layers", "num-decoder-layers", "max-length"):
        model.add_argument(f"--{name}", type=int)
    model.add_argument("--dropout", type=float)
    model.add_argument("--norm", choices=("post", "pre"))
    model.add_argument("--activation", choices=("relu", "gelu", "silu"))
    model.add_argument("--positions", choices=("sinusoidal", "learned"))
    loop = parser.add_argument_group("training")
    loop.add_argument("--batch-tokens", type=int, default=4096, help="most subwords of a batch's longer side")
    loop.add_argument(
        "--strange-share", type=float, default=0.06, help="pairs given unknown characters to carry"
    )
    _option_arguments(loop)
    loop.add_argument(
        "--bleu-sentences", type=int, default=0, help="dev sentences scored by BLEU at each evaluation"
    )


def _option_arguments(group: Any) -> None:
    """One argument a field of TrainingOptions, with its default."""
    import dataclasses

    from model.options import TrainingOptions

    for field in dataclasses.fields(TrainingOptions):
        flag = "--" + field.name.replace("_", "-")
        choices = {"precision": ("bf16", "fp32"), "patience_on": ("loss", "bleu")}.get(field.name)
        group.add_argument(flag, type=type(field.default), default=field.default, choices=choices)


def model_config(args: argparse.Namespace, vocab_size: int) -> ModelConfig:
    """The preset with what the arguments change. Raises ConfigError."""
    from model.config import preset

    sizes = ("d_model", "num_heads", "d_ff", "num_encoder_layers", "num_decoder_layers", "max_length")
    names = (*sizes, "dropout", "norm", "activation", "positions")
    changes = {name: getattr(args, name) for name in names if getattr(args, name) is not None}
    return preset(args.preset, vocab_size, **changes)


def training_options(args: argparse.Namespace) -> TrainingOptions:
    """The training options among the arguments."""
    import dataclasses

    from model.options import TrainingOptions

    return TrainingOptions(
        **{field.name: getattr(args, field.name) for field in dataclasses.fields(TrainingOptions)}
    )


def run_train(args: argparse.Namespace) -> int:
    """Train a model, or go on training it."""
    import torch

    from app.text.tokenizer import Tokenizer
    from model import checkpoint
    from model.trainer import Trainer, set_num_threads

    set_num_threads(args.threads)
    if not args.resume and args.run.exists() and checkpoint.step_folders(args.run):
        print(f"transduce train: {args.run} holds a run already: --resume goes on with it", file=sys.stderr)
        return 1
    tokenizer = Tokenizer(args.tokenizer)
    config = model_config(args, tokenizer.vocab_size)
    batches, dev = _batches(args, tokenizer, config)
    device = (
        "cuda" if args.device == "cuda" or (args.device == "auto" and torch.cuda.is_available()) else "cpu"
    )
    torch.manual_seed(args.seed)
    model = _model(args, config).to(device)
    trainer = Trainer(
        model,
        batches,
        run=args.run,
        tokenizer=args.tokenizer,
        options=training_options(args),
        description={"data": {name: int(n) for name, n in _domain_counts(batches).items()}},
    )
    if args.resume and trainer.resume():
        print(f"resumed at step {trainer.step}", file=sys.stderr)
    trainer.train(dev, _bleu(args, tokenizer))
    return 0


def _model(args: argparse.Namespace, config: ModelConfig) -> Transformer:
    """A new model, or the weights of --start-from. Raises CheckpointError where their sizes differ."""
    from model import checkpoint
    from model.transformer import Transformer

    if args.start_from is None:
        return Transformer(config)
    saved = checkpoint.load(args.start_from)
    return checkpoint.build_model(checkpoint.Saved(saved.model, {"model": config.to_json()}, {}, {}))


def _batches(args: argparse.Namespace, tokenizer: Tokenizer, config: ModelConfig) -> tuple[Batches, Batches]:
    """Encode both corpora; says on stderr what was left out."""
    from model.batches import Batches
    from model.corpus import Filter, encode_corpus

    weights = dict(args.domain)
    excluded = frozenset(name for name, weight in weights.items() if weight == 0)
    keep = Filter(max_length=min(128, config.max_length), strange_share=args.strange_share, excluded=excluded)
    corpus = encode_corpus(pairs_of(args.data), tokenizer, keep=keep, seed=args.seed)
    dev_keep = Filter(max_length=keep.max_length, max_ratio=100.0, strange_share=0.0, excluded=excluded)
    dev = encode_corpus(pairs_of(args.dev), tokenizer, keep=dev_keep)
    for name, one in (("data", corpus), ("dev", dev)):
        left_out = ", ".join(f"{count:,} {reason}" for reason, count in one.dropped.items()) or "none"
        print(f"{name}: {len(one):,} pairs, {len(one.ids):,} subwords; left out: {left_out}", file=sys.stderr)
    kept = {name: weight for name, weight in weights.items() if weight > 0}
    return (
        Batches(corpus, max_tokens=args.batch_tokens, seed=args.seed, weights=kept),
        Batches(dev, max_tokens=args.batch_tokens, seed=0),
    )


def _domain_counts(batches: Batches) -> dict[str, int]:
    """Pairs a domain."""
    import numpy as np

    counts = np.bincount(batches.corpus.domains, minlength=len(batches.corpus.domain_names))
    return dict(zip(batches.corpus.domain_names, counts.tolist(), strict=True))


def _bleu(args: argparse.Namespace, tokenizer: Tokenizer) -> Any:
    """A function that scores a model on the first dev sentences, or None."""
    if args.bleu_sentences == 0:
        return None
    from itertools import islice

    from model.evaluate import greedy_bleu

    pairs = list(islice(pairs_of(args.dev), args.bleu_sentences))
    return lambda model: greedy_bleu(model, tokenizer, pairs)


# --- average ---


def add_average_arguments(parser: argparse.ArgumentParser) -> None:
    """Arguments of `transduce average`."""
    parser.add_argument("--run", required=True, type=Path, metavar="DIR")
    group = parser.add_mutually_exclusive_group(required=True)
    group.add_argument("--last", type=int, metavar="N", help="the N newest checkpoints")
    group.add_argument("--best", type=int, metavar="N", help="the N with the lowest dev loss")
    parser.add_argument("--output", required=True, type=Path, metavar="CHECKPOINT")


def run_average(args: argparse.Namespace) -> int:
    """Average checkpoints of a run (section 6.1) into one that can be evaluated and exported."""
    from model import checkpoint

    folders = (
        checkpoint.step_folders(args.run)[-args.last :]
        if args.last
        else checkpoint.best_folders(args.run, args.best)
    )
    weights = checkpoint.average(folders)
    newest = checkpoint.load(folders[-1])
    config = {**newest.config, "averaged": [path.name for path in folders]}
    checkpoint.save(
        args.output, checkpoint.Saved(weights, config, {}, {}), folders[-1] / checkpoint.TOKENIZER
    )
    print(f"averaged {', '.join(path.name for path in folders)}", file=sys.stderr)
    return 0


# --- evaluate ---


def add_evaluate_arguments(parser: argparse.ArgumentParser) -> None:
    """Arguments of `transduce evaluate`."""
    parser.add_argument("--checkpoint", required=True, type=Path, metavar="DIR")
    parser.add_argument("--data", required=True, action="append", metavar="FILES", help=DATA_HELP)
    parser.add_argument("--limit", type=int, metavar="N", help="only the first N pairs of each")
    parser.add_argument(
        "--beam-size", type=int, default=1, help="1: greedy, in batches; more: one by one, slow"
    )
    parser.add_argument("--threads", type=int, default=0, help="0: the processors that there are")
    parser.add_argument("--json", action="store_true", help="one JSON object a test set instead of a line")


def run_evaluate(args: argparse.Namespace) -> int:
    """Print BLEU and chrF of a checkpoint on test sets, by the reference search in PyTorch."""
    import dataclasses
    import json
    from itertools import islice

    from app.text.tokenizer import Tokenizer
    from model import checkpoint
    from model.corpus import read_data
    from model.evaluate import score, translate
    from model.trainer import set_num_threads

    set_num_threads(args.threads)
    model = checkpoint.load_model(args.checkpoint)
    tokenizer = Tokenizer(args.checkpoint / checkpoint.TOKENIZER)
    for specification in args.data:
        pairs = list(islice(read_data(specification), args.limit))
        translations = translate(model, tokenizer, [pair.source for pair in pairs], beam_size=args.beam_size)
        scores = score(translations, [pair.target for pair in pairs])
        name = Path(specification).name
        if args.json:
            row = {"test_set": name, "num_pairs": len(pairs), "beam_size": args.beam_size}
            print(json.dumps(row | dataclasses.asdict(scores)))
        else:
            print(f"{name}: BLEU {scores.bleu:.2f} ({scores.bleu_signature})")
            print(f"{name}: chrF {scores.chrf:.2f} ({scores.chrf_signature})")
    return 0
