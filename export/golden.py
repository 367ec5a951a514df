"""Makes the golden translations of a bundle: each variant decodes a dozen test sentences of up to four language pairs.

The server decodes the same sentences at its start and compares the results. Both use the same engine, but the server's
runner may have native kernels or a GPU.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace

from tqdm import tqdm

from app.bundle import Bundle, Golden, Manifest
from app.bundle_tokenizers import source_tokenizer
from app.decoding.options import DecodingOptions
from app.engine.engine import Engine
from app.engine.limits import EngineLimits
from app.graphs import Precision
from app.language_pairs import LanguagePair
from app.runtime.interface import Runner
from app.runtime.memory import release_memory
from app.runtime.ort_runner import load_runner
from app.text.tokenizer import PLACEHOLDER_SYMBOLS, Tokenizer
from app.workers.thread_worker import ThreadWorker

# Short and long sentences, a question, a list, numbers, quotes, a name, and characters that the vocabulary may lack.
ENGLISH = (
    "Where is the station?",
    "The train leaves at 7:45 tomorrow morning.",
    "I have never seen such a small dog in my whole life.",
    "Could you please send me the documents before Friday?",
    "She said: “We will talk about it when you are back.”",
    "The museum is closed on Mondays, but the garden next to it is open all year round.",
    "Bread, milk, eggs and 250 grams of butter, please.",
    "If it rains, we shall stay at home and read.",
    "Dr. Weber lives at 12 Lindenstraße in Köln 🙂.",
    "No.",
    "Because the bridge was being repaired, the bus had to take a long way round, and so most of us were late.",
    "Thank you very much for your help!",
)
GERMAN = (
    "Wo ist der Bahnhof?",
    "Der Zug fährt morgen früh um 7:45 Uhr ab.",
    "Ich habe in meinem ganzen Leben noch nie so einen kleinen Hund gesehen.",
    "Könnten Sie mir die Unterlagen bitte vor Freitag schicken?",
    "Sie sagte: „Wir sprechen darüber, wenn du wieder da bist.“",
    "Das Museum ist montags geschlossen, aber der Garten daneben ist das ganze Jahr über geöffnet.",
    "Brot, Milch, Eier und 250 Gramm Butter, bitte.",
    "Wenn es regnet, bleiben wir zu Hause und lesen.",
    "Dr. Weber wohnt in der Lindenstraße 12 in Köln 🙂.",
    "Nein.",
    "Weil die Brücke repariert wurde, musste der Bus einen weiten Umweg fahren, und die meisten kamen zu spät.",
    "Vielen Dank für Ihre Hilfe!",
)
# The golden sentences by source language. Any other source language gets the English sentences.
SENTENCES = {"en": ENGLISH, "de": GERMAN}
BEAM_SIZES = (1, 4)
# The maximum number of language pairs with golden sentences. If larger, the start of a server with a model of many
# languages takes longer.
MAX_PAIRS = 4
# Rows of the key/value caches, one for each hypothesis in the batch. A larger number takes more memory. With a smaller
# number, batches are smaller and decoding takes more time.
NUM_ROWS = 48
# Bytes of the caches while golden sentences are made. If larger, an import takes more memory. If smaller, it
# takes more time.
MAX_CACHE_BYTES = 100_000_000
# Seconds until a sentence's deadline. It is long because no client waits.
DEADLINE_S = 24 * 3600.0


def golden_options(manifest: Manifest, beam_size: int) -> DecodingOptions:
    """The options that golden sentences are decoded with: the manifest's length penalty and alpha.

    A translation has at most max_target_length - 1 subwords, because max_target_length counts the start token.
    """
    return DecodingOptions(
        beam_size=beam_size,
        length_penalty=manifest.decoding.length_penalty,
        alpha=manifest.decoding.alpha,
        max_target_length=manifest.max_target_length - 1,
    )


@dataclass(frozen=True)
class GoldenSource:
    """A golden sentence of one language pair.

    pair: index of the language pair in the manifest. ids: see `source_ids`. start_id: the pair's start token, if it has
    one.
    """

    text: str
    pair: int
    ids: tuple[int, ...]
    start_id: int | None = None


def source_ids(tokenizer: Tokenizer, text: str, pair: LanguagePair) -> tuple[int, ...]:
    """The ids of a sentence: its subwords, with the tag of the language pair and the end token, if the model has them.

    Raises TokenizerError.
    """
    return tokenizer.encode_tagged(text, pair.source_prefix).ids


def start_id_of(tokenizer: Tokenizer, pair: LanguagePair) -> int | None:
    """The id of the pair's target_start; None if the pair has none. Raises TokenizerError if it is no subword."""
    return None if pair.target_start is None else tokenizer.id_of(pair.target_start)


def golden_pairs(pairs: Sequence[LanguagePair]) -> list[int]:
    """The indices of the language pairs that have golden sentences: at most MAX_PAIRS, evenly spaced.

    If there are more pairs, those whose source language is not in SENTENCES are left out first, unless fewer than
    MAX_PAIRS would remain.
    """
    indices = list(range(len(pairs)))
    if len(indices) <= MAX_PAIRS:
        return indices
    own = [index for index in indices if pairs[index].source in SENTENCES]
    chosen = own if len(own) >= MAX_PAIRS else indices
    return [chosen[number * len(chosen) // MAX_PAIRS] for number in range(MAX_PAIRS)]


def golden_sources(tokenizer: Tokenizer, manifest: Manifest) -> list[GoldenSource]:
    """The golden sentences of the language pairs in `golden_pairs`.

    Sentences that have more than max_source_length ids, or too many runs of characters that the vocabulary lacks, are
    left out.

    tokenizer: the tokenizer of sources. It also gives the id of target_start, because a model with start tokens has one
    vocabulary. Raises TokenizerError.
    """
    return [
        GoldenSource(text, index, ids, start_id_of(tokenizer, manifest.language_pairs[index]))
        for index in golden_pairs(manifest.language_pairs)
        for text in SENTENCES.get(manifest.language_pairs[index].source, ENGLISH)
        if tokenizer.num_verbatim_spans(text) <= len(PLACEHOLDER_SYMBOLS)
        if len(ids := source_ids(tokenizer, text, manifest.language_pairs[index]))
        <= manifest.max_source_length
    ]


def golden_cases(sources: Sequence[GoldenSource]) -> list[tuple[GoldenSource, int]]:
    """The golden sentences with their beam sizes.

    If all are of one language pair, each has every size of BEAM_SIZES. If there are more pairs, each sentence has one
    size, and the sentences of a pair have the two sizes in turn. A pair with an odd index begins with the second size.
    So two pairs take no longer at the server's start than one pair. With all sizes, the check of two pairs would take a
    sixth of the start.
    """
    if len({source.pair for source in sources}) == 1:
        return [(source, beam_size) for source in sources for beam_size in BEAM_SIZES]
    places = Counter[int]()  # the number of sentences so far, by pair
    cases = []
    for source in sources:
        size = BEAM_SIZES[(places[source.pair] + source.pair) % len(BEAM_SIZES)]
        cases.append((source, size))
        places[source.pair] += 1
    return cases


def make_golden(bundle: Bundle, *, num_threads: int) -> tuple[Golden, ...]:
    """Decode the golden sentences with every variant of a bundle.

    The graphs run on the CPU with ONNX Runtime's standard operators, so that the results do not depend on the native
    operators. Raises TokenizerError, BundleError if a variant does not load, and EngineFailure if a forward pass fails.
    """
    cases = golden_cases(golden_sources(source_tokenizer(bundle), bundle.manifest))
    targets = {
        precision: _ids_of_variant(bundle, precision, cases, num_threads=num_threads)
        for precision in bundle.manifest.variants
    }
    return tuple(
        Golden(
            source=source.text,
            beam_size=beam_size,
            pair=source.pair,
            ids={precision: found[index] for precision, found in targets.items()},
        )
        for index, (source, beam_size) in enumerate(cases)
    )


def _ids_of_variant(
    bundle: Bundle, precision: Precision, cases: Sequence[tuple[GoldenSource, int]], *, num_threads: int
) -> list[tuple[int, ...]]:
    """The translations of `translate_golden` with one variant, which is in memory only during the call."""
    runner = load_runner(
        bundle,
        precision=precision,
        device="cpu",
        kernels="standard",
        num_rows=num_golden_rows(bundle.manifest),
        num_threads=num_threads,
    )
    found = translate_golden(runner, bundle.manifest, cases)
    del runner
    release_memory()
    return found


def num_golden_rows(manifest: Manifest) -> int:
    """As many rows as MAX_CACHE_BYTES holds in fp32, but at least as many as the widest beam, and at most NUM_ROWS.

    A row has the caches of both attentions. In a decoder of SSRUs a smaller state replaces the self-attention cache. It
    is counted as if it were as large as the cache.
    """
    sizes = manifest.dimensions
    row_bytes = 4 * 4 * sizes.num_decoder_layers * sizes.d_model * manifest.max_target_length
    return min(NUM_ROWS, max(*BEAM_SIZES, MAX_CACHE_BYTES // row_bytes))


def translate_golden(
    runner: Runner, manifest: Manifest, cases: Sequence[tuple[GoldenSource, int]]
) -> list[tuple[int, ...]]:
    """The ids of the best hypothesis of each pair of sentence and beam size. Raises as `translate_ids`."""
    options = [
        replace(golden_options(manifest, beam_size), start_id=source.start_id) for source, beam_size in cases
    ]
    return asyncio.run(_translate(runner, [source.ids for source, _ in cases], options, progress=""))


def translate_ids(
    runner: Runner,
    sources: Sequence[Sequence[int]],
    options: DecodingOptions,
    *,
    starts: Sequence[int | None] = (),
    progress: str = "",
) -> list[tuple[int, ...]]:
    """The ids of the best hypothesis of each sentence. The server's engine decodes the sentences in batches.

    sources: the ids of each sentence, as `source_ids` gives them. starts: the start_id of each; empty for none.
    progress: label of a progress bar on stderr; empty for no bar. Raises InvalidRequest if a source or an option
    exceeds the model's limits, and EngineFailure if a forward pass fails.
    """
    chosen = [replace(options, start_id=start) for start in starts or [None] * len(sources)]
    return asyncio.run(_translate(runner, sources, chosen, progress))


async def _translate(
    runner: Runner, sources: Sequence[Sequence[int]], options: Sequence[DecodingOptions], progress: str
) -> list[tuple[int, ...]]:
    longest, defaults = runner.limits.max_source_length, EngineLimits()
    limits = replace(
        defaults,
        max_encode_tokens=max(defaults.max_encode_tokens, longest),
        max_pending_tokens=max(defaults.max_pending_tokens, longest),
    )
    engine = Engine([ThreadWorker(runner)], settings=limits)
    engine.start()
    try:
        deadline = time.monotonic() + DEADLINE_S
        futures = [
            engine.submit(source, own_options, request_id="golden", caller="", deadline=deadline)
            for source, own_options in zip(sources, options, strict=True)
        ]
        with tqdm(total=len(futures), desc=progress, unit=" sentences", disable=not progress) as bar:
            for future in futures:
                future.add_done_callback(lambda _: bar.update())
            return [result.hypotheses[0].ids for result in await asyncio.gather(*futures)]
    finally:
        await engine.close(drain_timeout_s=0.0)
