"""Makes the tokenizers of a bundle by its manifest, and checks them against it."""

from __future__ import annotations

from app.bundle import Bundle, Manifest
from app.errors import BundleError
from app.text.tokenizer import Tokenizer, TokenizerError


def source_tokenizer(bundle: Bundle) -> Tokenizer:
    """The tokenizer of a bundle's sources, with the conventions of its manifest. Raises TokenizerError."""
    return Tokenizer(
        bundle.file("source.spm"),
        ends_source=bundle.manifest.ends_source,
        tag_follows_source=bundle.manifest.tag_follows_source,
    )


def load_tokenizers(bundle: Bundle) -> tuple[Tokenizer, Tokenizer]:
    """The source and target tokenizers, one object if their files are equal. Raises BundleError."""
    files = bundle.manifest.files
    try:
        source = source_tokenizer(bundle)
        is_joint = files["source.spm"] == files["target.spm"]
        target = source if is_joint else Tokenizer(bundle.file("target.spm"))
    except TokenizerError as error:
        raise BundleError(bundle.path.name, [str(error)]) from error
    tokenizers = (("source", source), ("target", target))
    vocab_size = bundle.manifest.dimensions.vocab_size
    problems = [
        f"{name}.spm has {tokenizer.vocab_size} pieces, the manifest's dimensions.vocab_size is {vocab_size}"
        for name, tokenizer in tokenizers
        if tokenizer.vocab_size != vocab_size
    ]
    problems += [
        f"{name}.spm has the {special} id {actual}, the manifest's special_ids.{special} is {expected}"
        for name, tokenizer in tokenizers
        for special, expected in bundle.manifest.special_ids
        if (actual := getattr(tokenizer, f"{special}_id")) != expected
    ]
    problems = problems or _pair_problems(bundle.manifest, source, target)
    if problems:
        raise BundleError(bundle.path.name, problems)
    return source, target


def _pair_problems(manifest: Manifest, source: Tokenizer, target: Tokenizer) -> list[str]:
    """A message for each subword of the language pairs that is not in the vocabulary."""
    return [
        f"a {field} of the manifest's language pairs is {piece!r}, which {name}.spm does not have"
        for field, pieces, name, tokenizer in (
            ("source_prefix", {pair.source_prefix for pair in manifest.language_pairs}, "source", source),
            ("target_start", {pair.target_start for pair in manifest.language_pairs}, "target", target),
        )
        for piece in sorted(piece for piece in pieces if piece is not None)
        if not tokenizer.has_piece(piece)
    ]
