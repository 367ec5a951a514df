"""CTranslate2 and Hugging Face as engines of the peers' HTTP server. `marian_engine` has Marian.

Each engine translates a list of texts. Texts are single sentences, so nothing splits them. Both engines have the
bundle's weights, and get ids from the bundle's tokeniser. The language pair is the bundle's first.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

from app.bundle import load_bundle
from app.decoding.options import EXTRA_TARGET_LENGTH
from benchmarks.engine.jobs import ALPHA, PeerSettings
from benchmarks.tagged_tokenizer import TaggedTokenizer

TranslateBatch = Callable[[list[str]], list[str]]


@dataclass(frozen=True)
class Search:
    """Search options. A score is the log-probability over length^alpha.

    CTranslate2, Marian and Hugging Face have no other divisor. So Transduce gets the same divisor with each request
    (`benchmarks.http.traffic.TextsDialect`), even if the bundle has another one.
    """

    beam_size: int
    alpha: float


def search_of(bundle: Path) -> Search:
    """The bundle's beam size, with the exponent of `benchmarks.engine`."""
    return Search(load_bundle(bundle).manifest.decoding.beam_size, ALPHA)


def ctranslate2_engine(
    model: Path, tokenizer: TaggedTokenizer, search: Search, settings: PeerSettings
) -> TranslateBatch:
    """CTranslate2 in int8, with a model that `benchmarks.engine.ctranslate2_model` has written."""
    translator: Any = import_module("ctranslate2").Translator(
        str(model),
        device="cpu",
        compute_type="int8",
        inter_threads=settings.inter_threads,
        intra_threads=settings.intra_threads,
    )

    def translate(texts: list[str]) -> list[str]:
        encoded = [tokenizer.encode(text) for text in texts]
        found = translator.translate_batch(
            [list(map(str, each.ids)) for each in encoded],
            beam_size=search.beam_size,
            length_penalty=search.alpha if search.beam_size > 1 else 0.0,
            max_decoding_length=max(len(each.ids) for each in encoded) + EXTRA_TARGET_LENGTH,
            max_input_length=0,
            max_batch_size=settings.max_batch_size,
            batch_type=settings.batch_type,
        )
        return [
            tokenizer.decode([int(token) for token in result.hypotheses[0]], each.verbatim_spans)
            for result, each in zip(found, encoded, strict=True)
        ]

    return translate


def transformers_engine(
    weights: Path, tokenizer: TaggedTokenizer, search: Search, *, num_threads: int
) -> TranslateBatch:
    """Hugging Face's `generate` in fp32 on PyTorch, with padded batches."""
    import torch

    from benchmarks.oracles.transformers_oracle import m2m100, marian
    from model.checkpoint import load_model
    from model.config import EOS_ID, PAD_ID
    from model.search import pad

    torch.set_num_threads(num_threads)
    import_module("transformers").logging.set_verbosity_error()
    trained = load_model(weights)
    model = marian(trained) if trained.config.norm == "post" else m2m100(trained)

    def translate(texts: list[str]) -> list[str]:
        encoded = [tokenizer.encode(text) for text in texts]
        sources = pad([each.ids for each in encoded])
        with torch.inference_mode():
            targets = model.generate(
                input_ids=sources,
                attention_mask=(sources != PAD_ID).long(),
                do_sample=False,
                num_beams=search.beam_size,
                length_penalty=search.alpha,
                early_stopping=True,
                max_new_tokens=sources.shape[1] + EXTRA_TARGET_LENGTH,
            )
        rows = [[each for each in row if each not in (EOS_ID, PAD_ID)] for row in targets[:, 1:].tolist()]
        return [tokenizer.decode(row, each.verbatim_spans) for row, each in zip(rows, encoded, strict=True)]

    return translate
