"""The subcommand `import`, which makes a bundle of a foreign model. PyTorch is imported when the subcommand runs."""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from export.archive import SUFFIXES, is_archive, unpack, with_gzip_unpacked
from export.cli import add_precisions_argument
from export.hub import fetch, is_hub_name
from model.data_arguments import positive

if TYPE_CHECKING:
    from collections.abc import Mapping

    from torch import Tensor

    from app.bundle import Bundle, DecodingDefaults
    from model.imported import ImportedModel, ImportedShortlist


def target_argument(text: str) -> tuple[str, str | None]:
    """Parse `LANGUAGE` or `LANGUAGE=TAG`. Raises ArgumentTypeError."""
    language, separator, tag = text.partition("=")
    if not language or (separator and not tag):
        raise argparse.ArgumentTypeError(
            f"{text!r} is not LANGUAGE or LANGUAGE=TAG, such as de or 'de=>>deu<<'"
        )
    return language, tag or None


def language_list(text: str) -> tuple[str, ...]:
    """Parse languages with commas between them. Raises ArgumentTypeError."""
    found = tuple(filter(None, (part.strip() for part in text.split(","))))
    if len(set(found)) < max(2, len(found)):
        raise argparse.ArgumentTypeError(
            f"{text!r} are not two or more different languages, such as en,de,fr"
        )
    return found


def add_import_arguments(parser: argparse.ArgumentParser) -> None:
    """Arguments of `transduce import`."""
    add = parser.add_argument
    add(
        "model",
        metavar="MODEL",
        help="a folder, an archive (.zip, .argosmodel, .tar.gz, .tar), or a name on the Hugging Face hub, such as "
        "Helsinki-NLP/opus-mt-en-de, of one of four kinds. "
        "Hugging Face's Marian, such as OPUS-MT: config.json, vocab.json, source.spm, target.spm, and "
        "model.safetensors or pytorch_model.bin. "
        "Hugging Face's M2M-100 and NLLB: config.json, sentencepiece.bpe.model, vocab.json or tokenizer.json, and the "
        "weights. "
        "Marian's own, such as the Tatoeba Challenge's: *.npz, *vocab.yml, source.spm, target.spm, "
        "decoder.yml; or Firefox's: "
        "model*.bin, *vocab*.spm, lex*.bin. "
        "CTranslate2's: model.bin, config.json, shared_vocabulary.json, sentencepiece.model; also an Argos package",
    )
    add("--revision", help="branch, tag or commit of a model on the hub (default: main)")
    add("--output", type=Path, required=True, metavar="DIR", help="the bundle; an existing one is replaced")
    add("--source", metavar="LANGUAGE", help="source language, such as en (default: the Argos package's)")
    add(
        "--target",
        type=target_argument,
        default=[],
        action="append",
        metavar="LANGUAGE[=TAG]",
        help="target language, such as de; for several, repeat it with the tag of each: --target 'de=>>deu<<'",
    )
    add(
        "--languages",
        type=language_list,
        metavar="LANGUAGE,...",
        help="for M2M-100 and NLLB: the bundle translates between any two of these languages (default: all)",
    )
    add(
        "--reverse-tag",
        metavar="TAG",
        help="the tag of the direction from the first target to the source, if the model has that direction: '>>en<<'",
    )
    add("--licence", required=True, metavar="SPDX", help="licence of the weights, such as CC-BY-4.0")
    add("--name", help="the model's name (default: the last part of MODEL, in lower case)")
    add(
        "--version",
        default="1",
        dest="model_version",
        metavar="VERSION",
        help="the weights' version (default: 1)",
    )
    add_precisions_argument(parser)
    add(
        "--max-length",
        type=positive,
        default=256,
        metavar="N",
        help="subwords of the longest source and target; memory grows with it (default: 256)",
    )


def run_import(args: argparse.Namespace) -> int:
    """Write a bundle and return 0. Raises ValueError and other errors whose message is one clear line."""
    from export.output_folder import check_output

    _check_place(args.model)
    name = _name(args)
    check_output(args.output)
    with tempfile.TemporaryDirectory(prefix="transduce-import-") as folder:
        return _import(args, name, _locate(args, Path(folder)), Path(folder) / "checkpoint")


def _check_place(model: str) -> None:
    """Raise ValueError for a path that does not exist, unless it has the form of a name on the hub."""
    if not Path(model).exists() and not is_hub_name(model):
        raise ValueError(
            f"{model} does not exist, and is no name on the hub, such as Helsinki-NLP/opus-mt-en-de"
        )


def _name(args: argparse.Namespace) -> str:
    """The bundle's name. Raises ExportError as `check_names` does, and ValueError if MODEL gives no name."""
    from export.names import ALLOWED_IN_NAME, check_names, is_name

    name = args.name
    if name is None:
        title = Path(args.model).resolve().name
        name = next((title[: -len(end)] for end in SUFFIXES if title.lower().endswith(end)), title).lower()
        if not is_name(name):
            raise ValueError(f"--name is needed: MODEL gives {name!r}, which is not of {ALLOWED_IN_NAME}")
    languages = [("--source", args.source)] if args.source is not None else []
    check_names(name, args.model_version, [*languages, *(("--target", target) for target, _ in args.target)])
    return str(name)


@dataclass(frozen=True)
class FoundModel:
    """A model's folder. place: the path or the name that the user gave. title: the name for the model card."""

    folder: Path
    place: str
    title: str


def _locate(args: argparse.Namespace, temporary: Path) -> FoundModel:
    """The model in the named folder, in the named archive, or on the hub. Raises ValueError.

    temporary: a folder for unpacked files.
    """
    # `./a/b` and `a/b/` are no names on the hub. A Path would make both `a/b`.
    is_on_hub, path = is_hub_name(args.model), Path(args.model)
    if path.exists():
        if not path.is_dir() and not is_archive(path):
            raise ValueError(f"{path} is neither a folder nor an archive ({', '.join(SUFFIXES)})")
        if args.revision is not None:
            raise ValueError(f"--revision is for a model on the hub; {path} exists here")
        if is_on_hub:
            print(f"{path} exists here, so the model is not fetched from the hub", file=sys.stderr)
        folder = unpack(path, temporary / "archive") if is_archive(path) else path
        return FoundModel(with_gzip_unpacked(folder, temporary / "files"), str(path), path.resolve().name)
    fetched = fetch(args.model, args.revision)
    return FoundModel(fetched.folder, args.model, f"{args.model} (commit {fetched.commit})")


def _import(args: argparse.Namespace, name: str, found: FoundModel, checkpoint: Path) -> int:
    """Read the model, write it to the folder `checkpoint`, and export that checkpoint as a bundle."""
    from app.bundle import Training
    from app.runtime.memory import release_memory
    from export.bundle_writer import BundleRequest, write_bundle
    from export.model_card import Facts, described_pairs
    from model.checkpoint import CONFIG, TARGET_TOKENIZER, TOKENIZER, WEIGHTS, write_folder

    model, kind = _read(found, args.max_length)
    for note in model.notes:
        print(note, file=sys.stderr)
    request = BundleRequest(
        name=name,
        version=args.model_version,
        **_directions(args, model),
        precisions=args.precisions,
        decoding=_decoding(model),
        ends_source=model.ends_source,
        tag_follows_source=model.tag_follows_source,
        has_distinct_placeholders=model.has_distinct_placeholders,
        facts=Facts(
            summary=f"Imported from the {kind} model {found.title}.",
            good_at=("not assessed",),
            bad_at=("not assessed",),
            weights_licence=args.licence,
            training=Training(commit="", num_steps=0, data=()),
        ),
    )
    if model.num_left_out:
        print(
            f"{model.num_left_out} pieces of the SentencePiece models are not in the vocabulary",
            file=sys.stderr,
        )
    config = json.dumps({"model": model.config.to_json()}, indent=1).encode()
    files: dict[str, bytes | Mapping[str, Tensor] | Path] = {
        WEIGHTS: model.state,
        CONFIG: config,
        TOKENIZER: model.source_spm,
        TARGET_TOKENIZER: model.target_spm,
    }
    write_folder(checkpoint, files)
    model.state.clear()  # the export reads the weights from the disk
    release_memory()
    output = args.output if model.shortlist is None else checkpoint.with_name("bundle")
    bundle = write_bundle(
        checkpoint, output, request, on_progress=lambda stage: print(stage, file=sys.stderr)
    )
    pairs = described_pairs(bundle.manifest)
    if model.shortlist is not None:
        bundle = _with_shortlist(bundle, args.output, model.shortlist)
    size = sum(entry.size for entry in bundle.manifest.files.values())
    print(f"{args.output}: {name}, {pairs}, {size / 1e6:.1f} MB")
    return 0


def _with_shortlist(bundle: Bundle, output: Path, shortlist: ImportedShortlist) -> Bundle:
    """Write a copy of the bundle to `output`, with the shortlist of its first direction."""
    from app.bundle import load_bundle
    from export.bundle_shortlist import write_with_shortlist
    from export.shortlist import make_table
    from export.shortlist_cli import MIN_LOG_PROBABILITY

    paths = {side: bundle.file(f"{side}.spm") for side in ("source", "target")}
    table = make_table(shortlist.likely, shortlist.frequent, **paths)
    write_with_shortlist(bundle, output, {0: table}, MIN_LOG_PROBABILITY)
    return load_bundle(output)


def _read(found: FoundModel, max_length: int) -> tuple[ImportedModel, str]:
    """Call `_read_folder`. Its errors name the place that the user gave, not a folder of unpacked files."""
    from model.imported import UnusableModel

    try:
        return _read_folder(found.folder, max_length)
    except UnusableModel as error:
        raise UnusableModel(Path(found.place), error.problems) from error


def _read_folder(source: Path, max_length: int) -> tuple[ImportedModel, str]:
    """Read the model in a folder, and detect its format from its files. Raises UnusableModel."""
    from model.ctranslate2_files import is_ctranslate2, read_ctranslate2
    from model.m2m import is_m2m, read_m2m
    from model.m2m_vocabulary import NLLB_LANGUAGE
    from model.marian import read_marian

    if is_ctranslate2(source):
        return read_ctranslate2(source, max_length=max_length), "CTranslate2"
    if is_m2m(source):
        model = read_m2m(source, max_length=max_length)
        is_nllb = all(map(NLLB_LANGUAGE.fullmatch, model.language_tokens.values()))
        return model, "NLLB" if is_nllb else "M2M-100"
    return read_marian(source, max_length=max_length), "Marian"


def _directions(args: argparse.Namespace, model: ImportedModel) -> dict[str, Any]:
    """The fields of a BundleRequest that name the language pairs. Raises ValueError."""
    if model.language_tokens:
        return _pairs_of_many(args, model.language_tokens)
    if args.languages is not None:
        raise ValueError("--languages is for M2M-100 and NLLB; name --source and --target")
    source, targets = _languages(args, model)
    _check_tags(targets, args.reverse_tag, model)
    (target, tag), *more = targets
    return {
        "source": source,
        "target": target,
        "tag": tag,
        "reverse_tag": args.reverse_tag,
        "more_targets": tuple((other, its_tag) for other, its_tag in more if its_tag is not None),
    }


def _pairs_of_many(args: argparse.Namespace, tokens: Mapping[str, str]) -> dict[str, Any]:
    """`_directions` for a model that translates between any two languages. tokens: each language's subword."""
    from app.language_pairs import LanguagePair

    targets = [language for language, _ in args.target]
    if args.reverse_tag is not None or any(tag is not None for _, tag in args.target):
        raise ValueError(
            "the model's languages have no tags: name a target as --target de, and leave out --reverse-tag"
        )
    if (args.source is None) != (not targets) or (targets and args.languages is not None):
        raise ValueError(
            "name --source and --target together, or --languages, or none of them for all languages"
        )
    named = [args.source, *targets] if targets else list(args.languages or tokens)
    unknown = [language for language in named if language not in tokens]
    if unknown:
        raise ValueError(f"the model has no {', '.join(unknown)}; it has {', '.join(tokens)}")
    if not targets:
        chosen = {language: tokens[language] for language in named}
        return {"source": named[0], "target": named[1], "languages": chosen}
    pairs = tuple(
        LanguagePair(
            source=args.source, target=each, source_prefix=tokens[args.source], target_start=tokens[each]
        )
        for each in targets
        if each != args.source
    )
    if len(pairs) < len(targets):
        raise ValueError(f"--target {args.source} is the source")
    return {"source": args.source, "target": targets[0], "pairs": pairs}


def _languages(args: argparse.Namespace, model: ImportedModel) -> tuple[str, list[tuple[str, str | None]]]:
    """The source language and the targets. Raises ValueError if neither the command nor the files name them."""
    own = model.languages
    source = args.source or (own[0] if own else None)
    targets = args.target or ([(own[1], None)] if own else [])
    if source is None or not targets:
        raise ValueError("--source and --target are needed: the files do not name the languages")
    return source, targets


def _check_tags(targets: list[tuple[str, str | None]], reverse_tag: str | None, model: ImportedModel) -> None:
    """Raise ValueError for an unknown tag, for a missing tag, and for several targets of a model without tags."""
    if reverse_tag is not None and reverse_tag not in model.tags:
        raise ValueError(f"--reverse-tag: the vocabulary has no tag {reverse_tag}")
    for language, tag in targets:
        if model.tags and tag is None:
            known = ", ".join(model.tags[:20]) + (", ..." if len(model.tags) > 20 else "")
            raise ValueError(
                f"--target {language} needs a tag: --target '{language}={model.tags[0]}'; the model has {known}"
            )
        if tag is not None and tag not in model.tags:
            raise ValueError(f"--target {language}: the vocabulary has no tag {tag}")
    if not model.tags and len(targets) > 1:
        raise ValueError("the model has no tags, so it has only one target language: name one --target")


def _decoding(model: ImportedModel) -> DecodingDefaults:
    """The model's own decoding defaults. A beam wider than MAX_BEAM_SIZE becomes MAX_BEAM_SIZE."""
    from app.bundle import DecodingDefaults
    from app.decoding.options import MAX_BEAM_SIZE, LengthPenalty

    return DecodingDefaults(
        beam_size=min(model.beam_size, MAX_BEAM_SIZE),
        length_penalty=LengthPenalty.POWER,
        alpha=model.length_penalty,
    )
