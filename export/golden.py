"""Golden sentences: expected translations of a bundle's graphs, decoded with the server's runner and engine."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from dataclasses import dataclass

from tqdm import tqdm

from app.bundle import Bundle, Golden, LanguagePair, Manifest
from app.decoding.options import DecodingOptions
from app.engine.engine import Engine
from app.engine.limits import EngineLimits
from app.engine.sequence import SequenceResult
from app.graphs import Precision
from app.runtime.interface import Runner
from app.runtime.memory import release_memory
from app.runtime.ort_runner import load_runner
from app.text.tokenizer import Tokenizer
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
# The golden sentences by source language. Other languages use the English ones.
SENTENCES = {"en": ENGLISH, "de": GERMAN}
BEAM_SIZES = (1, 4)
# Cache rows. If larger, they take more memory. If smaller, a batch has fewer sentences.
NUM_ROWS = 48
# Bytes of the caches while golden sentences are made. If larger, an import takes more memory. If smaller, more time.
MAX_CACHE_BYTES = 100_000_000
# Seconds that a translation may take. The time is long because no client waits.
DEADLINE_S = 24 * 3600.0


def golden_options(manifest: Manifest, beam_size: int) -> DecodingOptions:
    """The decoding options of golden sentences, as documented at `app.bundle.Golden`."""
    return DecodingOptions(
        beam_size=beam_size,
        length_penalty=manifest.decoding.length_penalty,
        alpha=manifest.decoding.alpha,
        max_target_length=manifest.max_target_length - 1,
    )


@dataclass(frozen=True)
class GoldenSource:
    """A sentence for one language pair.

    pair: the pair's index in the manifest. ids: the pair's tag first, if it has one, and the end token last.
    """

    text: str
    pair: int
    ids: tuple[int, ...]


def source_ids(tokenizer: Tokenizer, text: str, pair: LanguagePair) -> tuple[int, ...]:
    """The ids of a sentence, with the pair's tag and the end token. Raises TokenizerError."""
    return tokenizer.encode_tagged(text, pair.source_prefix).ids


def golden_sources(tokenizer: Tokenizer, manifest: Manifest) -> list[GoldenSource]:
    """The golden sentences of every pair, without those that are longer than max_source_length."""
    return [
        GoldenSource(text, number, ids)
        for number, pair in enumerate(manifest.language_pairs)
        for text in SENTENCES.get(pair.source, ENGLISH)
        if len(ids := source_ids(tokenizer, text, pair)) <= manifest.max_source_length
    ]


def make_golden(bundle: Bundle, *, num_threads: int) -> tuple[Golden, ...]:
    """Decode the golden sentences with every variant of a bundle, on the CPU with ONNX Runtime's own operators.

    Raises BundleError if a variant does not load, and EngineFailure.
    """
    tokenizer = Tokenizer(bundle.path / "source.spm", ends_source=bundle.manifest.ends_source)
    sources = golden_sources(tokenizer, bundle.manifest)
    ids: dict[tuple[int, int], dict[Precision, tuple[int, ...]]] = {}
    for precision in bundle.manifest.variants:
        found = _ids_of_variant(bundle, precision, sources, num_threads=num_threads)
        for key, target in found.items():
            ids.setdefault(key, {})[precision] = target
    return tuple(
        Golden(source=source.text, beam_size=beam_size, pair=source.pair, ids=ids[index, beam_size])
        for index, source in enumerate(sources)
        for beam_size in BEAM_SIZES
    )


def _ids_of_variant(
    bundle: Bundle, precision: Precision, sources: Sequence[GoldenSource], *, num_threads: int
) -> dict[tuple[int, int], tuple[int, ...]]:
    """The translations with one variant, by source and beam size. The variant is in memory only meanwhile."""
    runner = load_runner(
        bundle,
        precision=precision,
        device="cpu",
        kernels="standard",
        num_rows=num_golden_rows(bundle.manifest),
        num_threads=num_threads,
    )
    found = {}
    for beam_size in BEAM_SIZES:
        options = golden_options(bundle.manifest, beam_size)
        for index, target in enumerate(translate_ids(runner, [source.ids for source in sources], options)):
            found[index, beam_size] = target
    del runner
    release_memory()
    return found


def num_golden_rows(manifest: Manifest) -> int:
    """Rows whose caches take at most MAX_CACHE_BYTES in fp32, from one beam to NUM_ROWS."""
    sizes = manifest.dimensions
    row_bytes = 4 * 4 * sizes.num_decoder_layers * sizes.d_model * manifest.max_target_length
    return min(NUM_ROWS, max(*BEAM_SIZES, MAX_CACHE_BYTES // row_bytes))


def translate_ids(
    runner: Runner, sources: Sequence[Sequence[int]], options: DecodingOptions, *, progress: str = ""
) -> list[tuple[int, ...]]:
    """The best hypotheses of sentences, decoded together by the server's engine.

    sources: ids, the end token last. progress: label of a progress bar on stderr; empty for none. Raises InvalidRequest
    and EngineFailure.
    """
    results = asyncio.run(_translate(runner, sources, options, progress))
    return [result.hypotheses[0].ids for result in results]


async def _translate(
    runner: Runner, sources: Sequence[Sequence[int]], options: DecodingOptions, progress: str
) -> list[SequenceResult]:
    engine = Engine([ThreadWorker(runner)], settings=EngineLimits())
    engine.start()
    try:
        deadline = time.monotonic() + DEADLINE_S
        futures = [
            engine.submit(source, options, request_id="golden", caller="", deadline=deadline)
            for source in sources
        ]
        with tqdm(total=len(futures), desc=progress, unit=" sentences", disable=not progress) as bar:
            for future in futures:
                future.add_done_callback(lambda _: bar.update())
            return await asyncio.gather(*futures)
    finally:
        await engine.close(drain_timeout_s=0.0)
