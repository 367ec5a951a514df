"""The subcommands tokenizer, lexicon, average and evaluate. Their libraries are imported only when one of them runs."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import repeat
from pathlib import Path
from typing import TYPE_CHECKING

from model.data_arguments import (
    DATA_HELP,
    add_data_arguments,
    add_direction_arguments,
    directions_of,
    not_negative,
    number_from,
    number_or_nan,
    pairs_of,
    positive,
)
from model.output_files import write_file

if TYPE_CHECKING:
    from model.corpus import Direction, Pair


# --- tokenizer ---


# The least character coverage that SentencePiece accepts.
MIN_COVERAGE = 0.98


def add_tokenizer_arguments(parser: argparse.ArgumentParser) -> None:
    """Arguments of `transduce tokenizer`."""
    add_data_arguments(parser, is_required=False)
    parser.add_argument(
        "--output", required=True, type=Path, metavar="FILE.spm", help="the SentencePiece model to write"
    )
    parser.add_argument(
        "--vocab-size", type=positive, default=8000, help="number of subwords (default: %(default)s)"
    )
    parser.add_argument(
        "--character-coverage",
        type=_coverage,
        default=0.99999,
        help="share of the text's characters that are subwords, 0.98-1; placeholders replace the others "
        "(default: %(default)s)",
    )
    parser.add_argument(
        "--tag",
        action="append",
        default=[],
        metavar="SUBWORD",
        help="a subword that names a target language, such as '>>de<<'",
    )
    parser.add_argument(
        "--start-from",
        type=Path,
        metavar="FILE.spm",
        help="keep this vocabulary; the tags take the places of its rarest subwords",
    )


def _coverage(text: str) -> float:
    """Parse a character coverage. Raises ArgumentTypeError."""
    found = number_or_nan(text)
    if not MIN_COVERAGE <= found <= 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number from {MIN_COVERAGE} to 1")
    return found


def run_tokenizer(args: argparse.Namespace) -> int:
    """Train a joint vocabulary on pairs that are repeated by their domain's weight, or add tags to a vocabulary."""
    from model.tokenizer_training import add_tags, train_tokenizer

    if (args.start_from is None) == (not args.data):
        print("transduce tokenizer: give either --data or --start-from", file=sys.stderr)
        return 2
    if args.start_from is not None:
        add_tags(args.start_from, args.output, args.tag)
        return 0
    repeated = weighted(pairs_of(args.data), dict(args.domain))
    train_tokenizer(
        repeated,
        args.output,
        vocab_size=args.vocab_size,
        character_coverage=args.character_coverage,
        tags=args.tag,
    )
    return 0


def weighted(pairs: Iterable[Pair], weights: Mapping[str, float]) -> Iterator[Pair]:
    """Repeat or skip each domain's pairs evenly. Weight 2.5 yields them two and three times in turn.

    Raises CorpusError after the last pair if one of the domains of `weights` has no pair. Without any pair there is no
    error.
    """
    from model.corpus import check_domains

    fractions: dict[str, float] = {}
    for pair in pairs:
        copies = fractions.get(pair.domain, 0.0) + weights.get(pair.domain, 1.0)
        fractions[pair.domain] = copies - int(copies)
        yield from repeat(pair, int(copies))
    if fractions:
        check_domains(weights, fractions)


# --- lexicon ---


def add_lexicon_arguments(parser: argparse.ArgumentParser) -> None:
    """Arguments of `transduce lexicon`."""
    add_data_arguments(parser)
    parser.add_argument(
        "--output", required=True, type=Path, metavar="FILE.tsv", help="the word translations to write"
    )


def run_lexicon(args: argparse.Namespace) -> int:
    """Learn word translations from parallel text and write them."""
    from model.lexicon import learn_lexicon, write_lexicon

    entries = learn_lexicon(weighted(pairs_of(args.data), dict(args.domain)))
    count = write_lexicon(args.output, entries)
    print(f"{args.output}: {count:,} words", file=sys.stderr)
    return 0


# --- average ---


def add_average_arguments(parser: argparse.ArgumentParser) -> None:
    """Arguments of `transduce average`."""
    parser.add_argument(
        "--run", type=Path, metavar="DIR", help="the folder of a training run; needs --last or --best"
    )
    group = parser.add_mutually_exclusive_group(required=True)
    group.add_argument("--last", type=positive, metavar="N", help="the N newest checkpoints of the run")
    group.add_argument(
        "--best", type=positive, metavar="N", help="the N checkpoints of the run with the lowest dev loss"
    )
    group.add_argument(
        "--checkpoint",
        action="append",
        type=Path,
        metavar="DIR",
        help="a checkpoint of any run; repeat the option for each checkpoint",
    )
    parser.add_argument(
        "--output",
        required=True,
        type=Path,
        metavar="CHECKPOINT",
        help="the checkpoint to write: a new or empty folder, or a checkpoint to replace",
    )


def run_average(args: argparse.Namespace) -> int:
    """Average checkpoints into one that can be evaluated and exported.

    Those of one run are averaged as in section 6.1 of the paper, those of several runs as in a model soup (Wortsman et
    al. 2022). Raises CheckpointError, and ValueError for --run with --checkpoint or for --last or --best without --run.
    """
    from model import checkpoint

    output = checkpoint.check_output(args.output)
    if (args.run is None) == (args.checkpoint is None):
        raise ValueError("--last and --best need --run, and --checkpoint stands without it")
    folders: list[Path] = args.checkpoint or (
        checkpoint.step_folders(args.run)[-args.last :]
        if args.last
        else checkpoint.best_folders(args.run, args.best)
    )
    if not folders:
        raise checkpoint.CheckpointError(f"{args.run} has no checkpoint, a folder step-N")
    weights = checkpoint.average(folders)
    last = checkpoint.load(folders[-1])
    config = {**last.config, "averaged": [path.name for path in folders]}
    checkpoint.save(output, checkpoint.Saved(weights, config, {}, {}), checkpoint.tokenizer_of(folders[-1]))
    print(f"averaged {', '.join(path.name for path in folders)}", file=sys.stderr)
    return 0


# --- evaluate ---


def add_evaluate_arguments(parser: argparse.ArgumentParser) -> None:
    """Arguments of `transduce evaluate`."""
    parser.add_argument(
        "--checkpoint", required=True, type=Path, metavar="DIR", help="a checkpoint, or a bundle's weights"
    )
    parser.add_argument("--data", required=True, action="append", metavar="FILES", help=DATA_HELP)
    add_direction_arguments(parser)
    parser.add_argument("--limit", type=positive, metavar="N", help="only the first N pairs of each test set")
    parser.add_argument(
        "--beam-size",
        type=positive,
        default=1,
        help="1: greedy search, in batches; larger: beam search, sentence by sentence, which is slow (default: 1)",
    )
    parser.add_argument(
        "--alpha",
        type=number_from(0),
        default=0.6,
        metavar="X",
        help="length penalty of a beam (Wu et al. 2016); 0: none. A bundle's own penalty is not used (default: 0.6)",
    )
    parser.add_argument(
        "--threads", type=not_negative, default=0, help="0: all available processors (default: 0)"
    )
    parser.add_argument(
        "--json", action="store_true", help="print one JSON object for each test set and direction, not text"
    )
    parser.add_argument(
        "--write",
        type=Path,
        metavar="DIR",
        help="write NAME.source, NAME.translation and NAME.reference for other metrics, one sentence a line",
    )


def run_evaluate(args: argparse.Namespace) -> int:
    """Print BLEU and chrF of a checkpoint on test sets, by the reference search in PyTorch."""
    import dataclasses
    import json
    import tempfile
    from itertools import islice, product

    from model.corpus import read_data
    from model.evaluate import encode_texts, score, translate_encoded
    from model.loading import load_with_tokenizers
    from model.trainer import set_num_threads

    runs = [
        (_set_name(specification, direction), specification, direction)
        for specification, direction in product(args.data, directions_of(args))
    ]
    if args.write is not None:
        if len({_file_name(name) for name, _, _ in runs}) < len(runs):
            raise argparse.ArgumentError(None, "--write needs files of different names in --data")
        args.write.mkdir(parents=True, exist_ok=True)
        tempfile.TemporaryFile(dir=args.write).close()  # fails before the work if no file can be written
    set_num_threads(args.threads)
    model, tokenizer, target_tokenizer = load_with_tokenizers(args.checkpoint)
    for name, specification, direction in runs:
        pairs = [direction.of(pair) for pair in islice(read_data(specification), args.limit)]
        if not pairs:
            raise ValueError(f"{specification} holds no pair")
        sources, references = [pair.source for pair in pairs], [pair.target for pair in pairs]
        try:
            encoded = encode_texts(model, tokenizer, sources, direction.tag)
        except ValueError as error:
            raise ValueError(f"{name}: {error}") from error
        found = translate_encoded(
            model, encoded, target_tokenizer, beam_size=args.beam_size, alpha=args.alpha
        )
        scores = score(found, references)
        if args.json:
            row = {"test_set": name, "num_pairs": len(pairs), "beam_size": args.beam_size}
            of_beam = {"alpha": args.alpha} if args.beam_size > 1 else {}
            print(json.dumps(row | of_beam | dataclasses.asdict(scores)))
        else:
            print(f"{name}: BLEU {scores.bleu:.2f} ({scores.bleu_signature})")
            print(f"{name}: chrF {scores.chrf:.2f} ({scores.chrf_signature})")
        if args.write is not None:
            columns = {"source": sources, "translation": found, "reference": references}
            _write_lines(args.write / _file_name(name), columns)
    return 0


def _set_name(specification: str, direction: Direction) -> str:
    """The name of a test set in one direction: the name of its file or folder, even if the path is `.` or `..`."""
    path = Path(specification)
    name = path.resolve().name if path.name in ("", "..") else path.name
    return name + (" reversed" if direction.is_reversed else "")


def _file_name(set_name: str) -> str:
    """What the files of `--write` begin with."""
    return set_name.replace(" ", ".")


def _write_lines(path: Path, columns: Mapping[str, Sequence[str]]) -> None:
    """Write each column to PATH.NAME, one sentence a line. A line end inside a sentence becomes a space."""
    for name, sentences in columns.items():
        lines = [" ".join(sentence.splitlines()) + "\n" for sentence in sentences]
        write_file(path.with_name(f"{path.name}.{name}"), "".join(lines).encode())
