"""The model card, which describes the weights to a user. Made from a file of facts and the manifest."""

from __future__ import annotations

import tomllib
from collections.abc import Sequence
from pathlib import Path

from pydantic import Field, ValidationError

from app.bundle import Manifest, Training
from app.language_pairs import ManifestPart

# For a bundle with scores in fp32 and without that variant: `verify` then builds graphs in fp32 as the reference.
FP32_NOTE = """

The scores in fp32 are those of the model with weights that are not rounded to int8. \
The bundle has no variant in fp32."""


class CardError(ValueError):
    """The file of facts is invalid. The message lists every problem."""


class Facts(ManifestPart):
    """The contents of the TOML file of option --card.

    summary: one or two sentences: what the model translates and how it was made.
    good_at, bad_at: lists of lines, from reading the model's output.
    weights_licence: SPDX name. attribution: the text that the data's licences require, in Markdown.
    training: commit, num_steps and one [[training.data]] table (name, num_pairs, licence) for each corpus.
    """

    summary: str = Field(min_length=1)
    good_at: tuple[str, ...] = Field(min_length=1)
    bad_at: tuple[str, ...] = Field(min_length=1)
    weights_licence: str = Field(min_length=1)
    attribution: str = ""
    training: Training


def read_facts(path: Path) -> Facts:
    """Read a file of facts, in UTF-8, with or without a byte order mark. Raises CardError."""
    try:
        return Facts.model_validate(tomllib.loads(path.read_text("utf-8-sig")))
    except OSError as error:
        raise CardError(f"{path} cannot be read ({error.strerror})") from error
    except ValidationError as error:
        problems = [f"{'.'.join(map(str, e['loc']))}: {e['msg']}" for e in error.errors()]
        raise CardError(f"{path}: {'; '.join(problems)}") from error
    except ValueError as error:
        raise CardError(f"{path} is not TOML: {error}") from error


def described_pairs(manifest: Manifest) -> str:
    """The language pairs of a model in words."""
    if manifest.languages is not None:
        return f"between any two of {', '.join(manifest.languages)}"
    return ", ".join(f"{pair.source} to {pair.target}" for pair in manifest.language_pairs)


def render_card(
    facts: Facts, manifest: Manifest, *, num_parameters: int, has_shared_embedding: bool = True
) -> str:
    """The card in Markdown."""
    pairs = described_pairs(manifest)
    sections = [
        f"# {manifest.name} {manifest.version}",
        facts.summary,
        "## The model",
        _model_table(manifest, pairs, num_parameters, has_shared_embedding=has_shared_embedding),
        "## Good at",
        _bullets(facts.good_at),
        "## Bad at",
        _bullets(facts.bad_at),
        "## Scores",
        _scores(manifest),
        "## Training",
        *_training(manifest),
        "## Licences",
        f"Weights: {manifest.weights_licence}."
        + " The data's licences stand beside each corpus above." * bool(manifest.training.data),
        *([facts.attribution.strip()] if facts.attribution else []),
    ]
    return "\n\n".join(sections) + "\n"


def _model_table(manifest: Manifest, pairs: str, num_parameters: int, *, has_shared_embedding: bool) -> str:
    d = manifest.dimensions
    embedding = "shared embedding" if has_shared_embedding else "separate embeddings"
    is_recurrent = d.decoder == "ssru"
    decoder = "; SSRUs (Kim et al. 2019) in the place of the decoder's self-attention" * is_recurrent
    # max_source_length counts the end token and the tag, which are no subwords of the text.
    num_added = manifest.ends_source + any(pair.source_prefix is not None for pair in manifest.language_pairs)
    return _table(
        ("", ""),
        [
            ("languages", pairs),
            ("architecture", f"Transformer of Vaswani et al. 2017, encoder and decoder, {embedding}{decoder}"),
            ("parameters", f"{num_parameters / 1e6:.1f} M"),
            ("layers", f"{d.num_encoder_layers} encoder, {d.num_decoder_layers} decoder"),
            ("sub-layers", f"{d.norm}-norm, {d.activation}"),
            ("width", f"d_model {d.d_model}, {d.num_heads} heads, d_ff {d.d_ff}"),
            ("vocabulary", f"{d.vocab_size:,} subwords" + ", joint" * has_shared_embedding),
            ("longest source", f"{manifest.max_source_length - num_added} subwords"),
            ("longest target", f"{manifest.max_target_length - 1} subwords"),
            ("variants", ", ".join(sorted(manifest.variants))),
        ],
    )  # fmt: skip


def _scores(manifest: Manifest) -> str:
    if not manifest.scores:
        return "Not measured."
    rows = [
        (s.test_set, s.precision, str(s.beam_size), f"{s.bleu:.1f}", f"{s.chrf:.1f}") for s in manifest.scores
    ]
    signatures = sorted(
        {s.bleu_signature for s in manifest.scores} | {s.chrf_signature for s in manifest.scores}
    )
    notes = "\n".join(f"- `{signature}`" for signature in signatures)
    table = _table(("test set", "precision", "beam", "BLEU", "chrF"), rows)
    has_other = "fp32" not in manifest.variants and any(s.precision == "fp32" for s in manifest.scores)
    return f"{table}{FP32_NOTE * has_other}\n\nsacreBLEU signatures:\n\n{notes}"


def _training(manifest: Manifest) -> tuple[str, ...]:
    training = manifest.training
    if not training.commit and not training.data:
        return ("Trained elsewhere. The bundle does not record how, or on which data.",)
    code = f", by the code of commit `{training.commit}`" if training.commit else ""
    return f"{training.num_steps:,} steps{code}.", _data(manifest)


def _data(manifest: Manifest) -> str:
    if not manifest.training.data:
        return "The data is not recorded."
    rows = [(data.name, f"{data.num_pairs:,}", data.licence) for data in manifest.training.data]
    return _table(("corpus", "pairs", "licence"), rows)


def _bullets(lines: tuple[str, ...]) -> str:
    return "\n".join(f"- {line}" for line in lines)


def _table(head: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> str:
    lines = [head, tuple("---" for _ in head), *rows]
    return "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines)
