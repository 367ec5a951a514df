"""Measure the time that the text layer adds to a request, without the tokenizer.

Each text is translated repeatedly with greedy search. From the second time on its sentences are cached, so almost only
the text layer runs. The figure is the time that the request spends before and after the engine, minus two other times:
the tokenizer's for the same text, and that of the request's hops to the text thread and back. Figures are medians.

    python -m benchmarks.text_layer --bundle bundles/en-de --output benchmarks/results/text_layer.json
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import time
from collections.abc import Sequence
from concurrent.futures import Future
from pathlib import Path
from statistics import median
from typing import Any

from app.decoding.option_changes import OptionChanges
from app.engine.engine import Engine
from app.engine.limits import EngineLimits
from app.settings import Settings
from app.startup import LoadedModel, lazy_detector, load_model
from app.text.glossary import Term
from app.text.parsed_text import ParseOptions, TextFormat, parse_text
from app.text.segmentation import sentence_spans
from app.translator import Extras, TranslationRequest, Translator
from app.translator.caching_submitter import CachingSubmitter, SubmitterSettings
from app.translator.text_threads import TextThreads
from benchmarks.machine import ROOT, describe_run

RESULT = Path(__file__).with_name("results") / "text_layer.json"
BUNDLE = ROOT / "bundles" / "en-de"
NUM_REPEATS = 2000
NUM_WARM = 200
TIMEOUT_S = 60.0
SENTENCE = "The old library behind the harbour is open until late in the evening."
# By name: the text and the request's fields.
CASES: dict[str, tuple[str, dict[str, Any]]] = {
    "4 words": ("The water is cold.", {}),
    "13 words": (SENTENCE, {}),
    "13 words, source detected": (SENTENCE, {"source": None}),
    "13 words, a term": (SENTENCE, {"terms": (Term("library", "Bibliothek"),)}),
    "13 words, HTML, two elements": (
        "<p>The <b>old library</b> behind the <a href='/h'>harbour</a> is open until late in the evening.</p>",
        {"text_format": TextFormat.HTML},
    ),
    "13 words, a placeholder and a number": (
        "The old library behind {place} is open until 10:30 in the evening, they say.",
        {},
    ),
    "8 sentences": (" ".join([SENTENCE, "It is late.", "Nobody knows why.", "We have seen it."] * 2), {}),
}


class CountingThreads(TextThreads):
    """Text threads that count their calls in num_hops."""

    num_hops = 0

    def submit(self, *args: Any, **kwargs: Any) -> Future[Any]:
        """Count the call, and run it as the base class does."""
        self.num_hops += 1
        return super().submit(*args, **kwargs)


class Bench:
    """The bundle's model, engine and translator, without a server."""

    def __init__(self, model: LoadedModel, engine: Engine) -> None:
        self.model = model
        self.text_threads = CountingThreads(1)
        self.translator = Translator(
            model.manifest,
            engine,
            source_tokenizer=model.source_tokenizer,
            target_tokenizer=model.target_tokenizer,
            text_threads=self.text_threads,
            extras=Extras(
                detector=lazy_detector({"en", "de"}),
                submitter=CachingSubmitter(engine, settings=SubmitterSettings(cache_bytes=10_000_000)),
            ),
        )

    def request(self, text: str, changes: dict[str, Any]) -> TranslationRequest:
        """A request for a text with greedy search. changes: other fields of the request."""
        fields: dict[str, Any] = {
            "texts": (text,),
            "source": "en",
            "target": "de",
            "request_id": "",
            "caller": "",
            "deadline": time.monotonic() + TIMEOUT_S,
            "options": OptionChanges.of(beam_size=1),
        }
        return TranslationRequest(**{**fields, **changes})

    async def hop_ms(self, num_repeats: int) -> float:
        """Median milliseconds of a hop: from the event loop to a thread and back."""
        times = []
        for _ in range(num_repeats):
            started = time.perf_counter()
            await self.text_threads.run(lambda: None, caller="")
            times.append(time.perf_counter() - started)
        return median(times) * 1000

    async def measure(self, text: str, changes: dict[str, Any], num_repeats: int) -> dict[str, float | int]:
        """Median milliseconds of one text, and its number of hops. NUM_WARM untimed repeats come first."""
        times = []
        num_segments = num_hops = 0
        for index in range(num_repeats + NUM_WARM):
            before = self.text_threads.num_hops
            result = await self.translator.translate(self.request(text, changes))
            num_hops, num_segments = self.text_threads.num_hops - before, result.num_sentences
            if index >= NUM_WARM:
                times.append(result.timings.tokenise + result.timings.detokenise)
        text_format = changes.get("text_format", TextFormat.PLAIN)
        prose = parse_text(text, ParseOptions("en", "de", text_format)).prose
        tokenizer_ms, hop_ms = self._tokenizer_ms(prose, num_repeats), await self.hop_ms(num_repeats)
        spent_ms = median(times)
        return {
            "num_segments": num_segments,
            "hops": num_hops,
            "spent_ms": round(spent_ms, 3),
            "tokenizer_ms": round(tokenizer_ms, 3),
            "hops_ms": round(hop_ms * num_hops, 3),
            "added_ms": round(spent_ms - tokenizer_ms - hop_ms * num_hops, 3),
        }

    def _tokenizer_ms(self, text: str, num_repeats: int) -> float:
        """Median milliseconds to encode each sentence of a text without markup, and to decode its subwords."""
        sentences = [span.of(text) for span in sentence_spans(text, "en")]
        times = []
        for _ in range(num_repeats):
            started = time.perf_counter()
            for sentence in sentences:
                encoded = self.model.source_tokenizer.encode(sentence)
                self.model.target_tokenizer.decode(encoded.ids[:-1], encoded.verbatim_spans)
            times.append(time.perf_counter() - started)
        return median(times) * 1000


async def measure(bundle: Path, num_repeats: int) -> dict[str, dict[str, float | int]]:
    """Measure every case."""
    model = load_model(bundle, Settings(bundle=bundle))
    engine = Engine(model.workers, settings=EngineLimits())
    engine.start()
    bench = Bench(model, engine)
    try:
        return {
            name: await bench.measure(text, changes, num_repeats) for name, (text, changes) in CASES.items()
        }
    finally:
        await engine.close(0.0)
        bench.text_threads.shutdown()


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, print a table, write JSON."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--bundle", type=Path, default=BUNDLE)
    parser.add_argument("--num-repeats", type=int, default=NUM_REPEATS)
    parser.add_argument("--output", type=Path, default=RESULT)
    args = parser.parse_args(arguments)
    run = describe_run("benchmarks.text_layer", arguments, python=None)
    found = asyncio.run(measure(args.bundle, args.num_repeats))
    for name, figures in found.items():
        print(f"{name:40} {figures}")
    result = {**run, "cases": found}
    args.output.parent.mkdir(parents=True, exist_ok=True)
    args.output.write_text(json.dumps(result, indent=1) + "\n", "utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
