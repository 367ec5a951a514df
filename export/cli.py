"""The subcommands `export` and `verify`. They import PyTorch, onnx and ONNX Runtime only when they run."""

from __future__ import annotations

import argparse
import json
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from model.data_arguments import positive

if TYPE_CHECKING:
    from app.bundle import DecodingDefaults

PRECISIONS = ("int8", "fp16", "fp32")
DEFAULT_PRECISIONS = ("int8", "fp16")
FORMATS = ("bundle", "ctranslate2", "huggingface")
# Options that a bundle needs.
NEEDED = ("--name", "--version", "--source", "--target", "--card")


def precisions_argument(text: str) -> tuple[str, ...]:
    """Parse a list such as `int8,fp16`. Raises ArgumentTypeError."""
    names = tuple(dict.fromkeys(text.split(",")))
    unknown = [name for name in names if name not in PRECISIONS]
    if unknown:
        raise argparse.ArgumentTypeError(f"{', '.join(unknown)!r} is none of {', '.join(PRECISIONS)}")
    return names


def alignment_argument(text: str) -> tuple[int, tuple[int, ...]]:
    """Parse `LAYER:HEAD,HEAD...`, numbers from 0. Raises ArgumentTypeError."""
    if re.fullmatch(r"[0-9]{1,9}:[0-9]{1,9}(,[0-9]{1,9})*", text) is None:
        raise argparse.ArgumentTypeError(f"{text!r} is not of the form LAYER:HEAD,HEAD..., numbers from 0")
    layer, heads = text.split(":")
    return int(layer), tuple(map(int, heads.split(",")))


def add_precisions_argument(parser: argparse.ArgumentParser) -> None:
    """The option --precisions of `transduce export` and `transduce import`."""
    parser.add_argument(
        "--precisions",
        type=precisions_argument,
        default=DEFAULT_PRECISIONS,
        metavar="LIST",
        help="variants: int8 for CPUs, fp16 for GPUs, fp32 as the reference (default: int8,fp16); a decoder of SSRUs "
        "has no fp16",
    )


def add_export_arguments(parser: argparse.ArgumentParser) -> None:
    """Arguments of `transduce export`."""
    model = parser.add_mutually_exclusive_group(required=True)
    model.add_argument(
        "--checkpoint",
        type=Path,
        metavar="DIR",
        help="folder with model.safetensors, config.json and tokenizer.spm; "
        "with --to ctranslate2 or huggingface also the folder `weights` of a bundle",
    )
    model.add_argument(
        "--bundle",
        type=Path,
        metavar="DIR",
        help="with --to ctranslate2 or huggingface: the bundle to convert",
    )
    parser.add_argument(
        "--to",
        choices=FORMATS,
        default="bundle",
        help="format of the output: a bundle to serve, or another project's format (default: bundle). "
        "The options after --output are only for a bundle",
    )
    parser.add_argument(
        "--output",
        type=Path,
        required=True,
        metavar="DIR",
        help="the new folder; a new bundle replaces an existing one, other formats replace nothing",
    )
    _add_bundle_arguments(parser)


def _add_bundle_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of `transduce export` that describe a bundle. An option with its default value counts as absent."""
    add = parser.add_argument
    add("--name", help="the model's name, such as en-de-small")
    add("--version", dest="model_version", metavar="VERSION", help="the weights' version")
    add("--source", metavar="LANGUAGE", help="source language, such as en")
    add("--target", metavar="LANGUAGE", help="target language, such as de")
    add(
        "--tag",
        metavar="SUBWORD",
        help="subword before each source, for a model with several targets: '>>de<<'",
    )
    add(
        "--reverse-tag",
        metavar="SUBWORD",
        help="subword before each source of the reverse direction, if the model has this direction",
    )
    add_precisions_argument(parser)
    add(
        "--card",
        type=Path,
        metavar="FACTS.toml",
        help="facts for model card and manifest; see docs/serve-your-model.md",
    )
    add(
        "--max-source-length",
        type=positive,
        metavar="N",
        help="subwords of the longest training source; the server splits longer sources",
    )
    add(
        "--alpha",
        type=float,
        metavar="X",
        help="default exponent of the length penalty; a larger one makes longer translations (default: 0.6)",
    )
    add(
        "--alignment",
        type=alignment_argument,
        metavar="LAYER:HEADS",
        help="layer and heads of the cross-attention that aligns best, counted from 0, such as 1:0,2 (default: all "
        "heads of the second to last layer)",
    )
    add(
        "--scores",
        type=Path,
        metavar="FILE.json",
        help="scores for manifest and card: a report of `transduce verify --json`",
    )


def run_export(args: argparse.Namespace) -> int:
    """Write a bundle or another project's format, and return 0.

    Raises ArgumentError for a wrong command line, and other errors whose message is one clear line.
    """
    if args.to == "bundle":
        return _export_bundle(args)
    if present := [option for option, value, default in _bundle_options(args) if value != default]:
        message = f"{', '.join(present)}: only for a bundle; leave out with --to {args.to}"
        raise argparse.ArgumentError(None, message)
    from export.ctranslate2_writer import write_ctranslate2
    from export.huggingface_writer import write_huggingface
    from export.portable import read_bundle, read_checkpoint, write_new_folder

    write = write_ctranslate2 if args.to == "ctranslate2" else write_huggingface
    portable = read_bundle(args.bundle) if args.bundle else read_checkpoint(args.checkpoint)
    write_new_folder(args.output, lambda folder: write(portable, folder))
    size = sum(path.stat().st_size for path in args.output.iterdir())
    print(f"{args.output}: {len(list(args.output.iterdir()))} files, {size / 1e6:.1f} MB")
    return 0


def _bundle_options(args: argparse.Namespace) -> list[tuple[str, object, object]]:
    """Name, value and default of each option that describes a bundle."""
    parser = argparse.ArgumentParser()
    _add_bundle_arguments(parser)
    return [
        (action.option_strings[0], getattr(args, action.dest), action.default)
        for action in parser._actions
        if action.dest != "help"
    ]


def decoding_defaults(alpha: float | None) -> DecodingDefaults:
    """The default decoding options of a bundle. Raises ArgumentError for an alpha out of range."""
    from export.bundle_writer import DEFAULT_DECODING

    if alpha is None:
        return DEFAULT_DECODING
    if not 0 <= alpha <= 10:
        raise argparse.ArgumentError(None, f"--alpha must be from 0 to 10, and is {alpha}")
    return DEFAULT_DECODING.model_copy(update={"alpha": alpha})


def _export_bundle(args: argparse.Namespace) -> int:
    """Write a bundle. Raises ArgumentError for a missing option."""
    if args.checkpoint is None:
        message = "a bundle is made from a checkpoint: give --checkpoint, or name another format with --to"
        raise argparse.ArgumentError(None, message)
    if missing := [
        option for option, value, _ in _bundle_options(args) if option in NEEDED and value is None
    ]:
        raise argparse.ArgumentError(None, f"{', '.join(missing)}: needed for a bundle")
    from tqdm import tqdm

    from app.bundle import Alignment
    from export.bundle_writer import BundleRequest, write_bundle
    from export.model_card import read_facts
    from export.report import read_scores

    request = BundleRequest(
        name=args.name,
        version=args.model_version,
        source=args.source,
        target=args.target,
        tag=args.tag,
        reverse_tag=args.reverse_tag,
        precisions=args.precisions,
        facts=read_facts(args.card),
        scores=read_scores(args.scores) if args.scores else (),
        max_source_length=args.max_source_length,
        alignment=Alignment(layer=args.alignment[0], heads=args.alignment[1]) if args.alignment else None,
        decoding=decoding_defaults(args.alpha),
    )
    with tqdm(total=len(args.precisions) + 2, unit=" stages") as bar:

        def on_progress(stage: str) -> None:
            bar.set_description(stage)
            bar.update()

        bundle = write_bundle(args.checkpoint, args.output, request, on_progress=on_progress)
    if left_out := [name for name in args.precisions if name not in bundle.manifest.variants]:
        print(f"{', '.join(left_out)} is left out: a decoder of SSRUs runs on a CPU only", file=sys.stderr)
    size = sum(entry.size for entry in bundle.manifest.files.values())
    print(f"{args.output}: {len(bundle.manifest.files)} files, {size / 1e6:.1f} MB")
    return 0


def add_verify_arguments(parser: argparse.ArgumentParser) -> None:
    """Arguments of `transduce verify`."""
    add = parser.add_argument
    add("bundle", type=Path, metavar="BUNDLE", help="folder of the bundle")
    add(
        "--checkpoint",
        type=Path,
        metavar="DIR",
        help="checkpoint to compare with (default: the bundle's own fp16 weights)",
    )
    add(
        "--data",
        action="append",
        default=[],
        metavar="FILE.tsv",
        help="test set on which the BLEU of int8 and fp32 is compared; may be repeated",
    )
    add("--limit", type=positive, metavar="N", help="use only the first N pairs of each test set")
    add("--beam-size", type=positive, default=4, help="beam size for the test sets (default: 4)")
    add("--num-threads", type=positive, default=1, help="threads of ONNX Runtime and PyTorch (default: 1)")
    add("--seed", type=int, default=1, help="seed of the random batches (default: 1)")
    add("--json", type=Path, metavar="FILE", help="write the report to FILE; `-` is standard output")


def run_verify(args: argparse.Namespace) -> int:
    """Compare a bundle with PyTorch. Returns 0 if every check passes, else 1."""
    from export.verify import VerifyOptions, verify
    from model.output_files import write_file

    options = VerifyOptions(
        checkpoint=args.checkpoint,
        data=tuple(args.data),
        limit=args.limit,
        beam_size=args.beam_size,
        num_threads=args.num_threads,
        seed=args.seed,
    )
    report = verify(args.bundle, options)
    for check in report.checks:
        print(check.line(), file=sys.stderr)
    text = json.dumps(report.to_json(), indent=1, allow_nan=False) + "\n"
    if args.json == Path("-"):
        sys.stdout.write(text)
    elif args.json:
        write_file(args.json, text.encode())
    return 0 if report.is_passed else 1
