"""The subcommand plot: figures of a checkpoint, of runs and of translated test sets."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from model.data_arguments import DATA_HELP

if TYPE_CHECKING:
    from model.attention_maps import AttentionMaps
    from model.picture import Picture

OUTPUT_HELP = "FILE.png or FILE.svg; both if it has neither suffix"


def add_plot_arguments(parser: argparse.ArgumentParser) -> None:
    """Arguments of `transduce plot`: the kind of figure, and the arguments of each kind."""
    kinds = parser.add_subparsers(dest="kind", metavar="KIND", required=True, title="kinds of figures")

    def add(name: str, text: str, draw: Callable[[argparse.Namespace], Picture]) -> argparse.ArgumentParser:
        kind = kinds.add_parser(name, help=text, description=f"{text[0].upper()}{text[1:]}.")
        kind.set_defaults(draw=draw)
        kind.add_argument("--output", required=True, type=Path, metavar="FILE", help=OUTPUT_HELP)
        return kind

    kind = add("attention", "attention weights of every layer and head for a pair of sentences", _attention)
    _pair_arguments(kind)
    kind.add_argument(
        "--part",
        choices=("encoder", "decoder", "cross"),
        default="cross",
        help="self-attention of the encoder or decoder, or cross-attention (default: %(default)s)",
    )
    kind = add("alignment", "cross-attention as an alignment of words", _alignment)
    _pair_arguments(kind)
    kind.add_argument(
        "--layer", type=int, metavar="N", help="the decoder's layer, from 0 (default: the last but one)"
    )
    kind.add_argument(
        "--heads", type=_numbers, metavar="N,N", help="the heads to average, from 0 (default: all)"
    )
    kind = add("positions", "positional encodings", _positions)
    _checkpoint_argument(kind)
    kind.add_argument(
        "--length",
        type=int,
        metavar="N",
        help="number of positions (default: 128, or all if there are fewer)",
    )
    kind = add("curves", "losses and BLEU of training runs", _curves)
    kind.add_argument(
        "--run",
        required=True,
        action="append",
        metavar="[NAME=]DIR",
        help="a run's folder or its train.csv; may be repeated",
    )
    kind.add_argument(
        "--over",
        choices=("steps", "hours"),
        default="steps",
        help="the horizontal axis: updates of the weights, or hours (default: %(default)s)",
    )
    kind = add("lengths", "BLEU of a translated test set by length of the source", _lengths)
    kind.add_argument("--data", required=True, metavar="FILES", help=f"the test set: {DATA_HELP}")
    kind.add_argument(
        "--translations",
        required=True,
        action="append",
        metavar="[NAME=]FILE",
        help="one translation a line, as `transduce translate` writes them; may be repeated",
    )


def run_plot(args: argparse.Namespace) -> int:
    """Draw a figure and write it.

    Raises ValueError for what cannot be drawn, OSError if a file cannot be read or written.
    """
    for path in args.draw(args).save(args.output):
        print(path, file=sys.stderr)
    return 0


def _checkpoint_argument(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--checkpoint", required=True, type=Path, metavar="DIR", help="a checkpoint, or a bundle's weights"
    )


def _pair_arguments(parser: argparse.ArgumentParser) -> None:
    """Arguments that name a model and a pair of sentences."""
    _checkpoint_argument(parser)
    parser.add_argument(
        "--tokenizer",
        type=Path,
        metavar="FILE.spm",
        help="the SentencePiece model of the source, and of the target unless the model has another for targets "
        "(default: from the checkpoint, or from the bundle that holds the checkpoint)",
    )
    parser.add_argument("--source", required=True, metavar="TEXT", help="a sentence")
    parser.add_argument(
        "--target", metavar="TEXT", help="its translation (default: the model's own, by greedy search)"
    )
    parser.add_argument(
        "--tag",
        metavar="SUBWORD",
        help="subword before the source (after it in some imported models); it names a language, such as '>>de<<'",
    )


def _numbers(text: str) -> tuple[int, ...]:
    """Whole numbers with commas between them. Raises ArgumentTypeError."""
    try:
        return tuple(map(int, text.split(",")))
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"{text!r} is not a list of whole numbers such as 0,2") from error


def _by_name(texts: list[str]) -> dict[str, Path]:
    """The path of each `[NAME=]PATH`, by its name. Without NAME, the path's last part is its name.

    Raises ArgumentError for a name that occurs twice.
    """
    found: dict[str, Path] = {}
    for text in texts:
        name, separator, path = text.partition("=")
        if not separator:
            name, path = Path(text).name, text
        if name in found:
            message = f"two inputs are called {name}: rename one of them, as NAME={path}"
            raise argparse.ArgumentError(None, message)
        found[name] = Path(path)
    return found


def _maps(args: argparse.Namespace) -> AttentionMaps:
    from model.attention_maps import maps_of
    from model.loading import load_with_tokenizers

    model, tokenizer, target_tokenizer = load_with_tokenizers(args.checkpoint, args.tokenizer)
    return maps_of(
        model, tokenizer, args.source, args.target, tag=args.tag, target_tokenizer=target_tokenizer
    )


def _attention(args: argparse.Namespace) -> Picture:
    from model.attention_figures import attention_picture

    return attention_picture(_maps(args), args.part)


def _alignment(args: argparse.Namespace) -> Picture:
    from model.attention_figures import alignment_picture
    from model.attention_maps import align_words

    return alignment_picture(align_words(_maps(args), layer=args.layer, heads=args.heads))


def _positions(args: argparse.Namespace) -> Picture:
    from model.attention_figures import positions_picture
    from model.checkpoint import load_model

    positions = load_model(args.checkpoint).embedding.positions
    length = min(128, len(positions)) if args.length is None else args.length
    if not 1 <= length <= len(positions):
        raise ValueError(f"--length {length}: the model has {len(positions)} positions")
    return positions_picture(positions[:length])


def _curves(args: argparse.Namespace) -> Picture:
    from model.run_figures import curves_picture, read_curves

    runs = {name: read_curves(path) for name, path in _by_name(args.run).items()}
    return curves_picture(runs, over=args.over)


def _lengths(args: argparse.Namespace) -> Picture:
    from model.corpus import read_data, read_lines
    from model.run_figures import bleu_by_length, lengths_picture

    pairs = list(read_data(args.data))
    sources, references = [pair.source for pair in pairs], [pair.target for pair in pairs]
    systems = {
        name: bleu_by_length(sources, list(read_lines(path)), references)
        for name, path in _by_name(args.translations).items()
    }
    return lengths_picture(systems)
