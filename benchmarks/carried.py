"""Check that characters outside the training text survive translation: emoji, other scripts, zero-width characters.

A run of such characters becomes a placeholder that the model copies. If the model drops a placeholder, the text layer
appends it to the sentence. The benchmark counts for each kind of character: runs that the translation contains
unchanged, runs that the model placed, runs that were appended, and lost characters. The exit code is 1 if a
translation lacks a run or a character.

    python -m benchmarks.carried --bundle bundles/en-de --output benchmarks/results/carried.json
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import time
import unicodedata
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from app.bundle_folders import find_bundles
from app.engine.engine import Engine
from app.engine.limits import EngineLimits
from app.settings import load_settings
from app.startup import LoadedModel, load_model
from app.text.segmentation import fitting_spans, sentence_spans
from app.text.tokenizer import Encoded
from app.translator import AnswerLimits, Extras, TranslationRequest, Translator
from app.translator.text_threads import TextThreads
from benchmarks.carried_sentences import SENTENCES
from benchmarks.machine import describe_run

RESULT = Path(__file__).with_name("results") / "carried.json"
TIMEOUT_S = 300.0


@dataclass
class Count:
    """Counts for one kind of sentences.

    num_runs: runs of unknown characters, each a placeholder in the model's input. num_whole: runs that the translation
    contains unchanged. num_placed: runs that the model placed. num_appended: runs that were appended. num_lost:
    occurrences of characters outside the vocabulary that the translation of the whole sentence lacks.
    """

    num_sentences: int = 0
    num_runs: int = 0
    num_whole: int = 0
    num_placed: int = 0
    num_appended: int = 0
    num_lost: int = 0


class PlaceholderCounter:
    """Counts what becomes of placeholders. It has the bundle's model, engine and translator, but no server."""

    def __init__(self, model: LoadedModel, engine: Engine, text_threads: TextThreads) -> None:
        self.model = model
        self.engine = engine
        self.pair = model.manifest.language_pairs[0]
        self.translator = Translator(
            model.manifest,
            engine,
            source_tokenizer=model.source_tokenizer,
            target_tokenizer=model.target_tokenizer,
            text_threads=text_threads,
            extras=Extras(limits=AnswerLimits(max_sentences=100)),
        )

    async def count(self, sentence: str, count: Count) -> tuple[str, bool]:
        """Count one sentence. Returns its translation, and whether the model placed all of its runs."""
        count.num_sentences += 1
        placed = [await self._count_piece(encoded, count) for encoded in self._pieces(sentence)]
        result = await self.translator.translate(self._request(sentence))
        text = result.translations[0].text
        count.num_lost += self._num_lost(sentence, text)
        return text, all(placed)

    async def _count_piece(self, encoded: Encoded, count: Count) -> bool:
        """Count one part of a sentence. Returns whether the model placed all of its runs."""
        options = self.translator.options(self._request(""), num_source_tokens=len(encoded.ids))
        result = await self.engine.submit(
            encoded.ids, options, request_id="", caller="", deadline=time.monotonic() + TIMEOUT_S
        )
        decoded = self.model.target_tokenizer.decode(result.hypotheses[0].ids, encoded.verbatim_spans)
        count.num_runs += len(encoded.verbatim_spans)
        count.num_whole += sum(
            min(number, decoded.text.count(run)) for run, number in Counter(encoded.verbatim_spans).items()
        )
        count.num_appended += decoded.num_appended
        count.num_placed += len(encoded.verbatim_spans) - decoded.num_appended
        return not decoded.num_appended

    def _pieces(self, sentence: str) -> list[Encoded]:
        """The parts of a sentence as the translator splits it, encoded for the model."""
        pieces = []
        for span in sentence_spans(sentence, self.pair.source):
            for part in fitting_spans(
                sentence, span, lambda text: self.translator.encode(text, self.pair) is not None
            ):
                encoded = self.translator.encode(part.of(sentence), self.pair)
                assert encoded is not None
                pieces.append(encoded)
        return pieces

    def _request(self, text: str) -> TranslationRequest:
        return TranslationRequest(
            texts=(text,),
            source=self.pair.source,
            target=self.pair.target,
            request_id="",
            caller="",
            deadline=time.monotonic() + TIMEOUT_S,
        )

    def _num_lost(self, source: str, answer: str) -> int:
        """The number of occurrences of characters outside the vocabulary that the translation lacks."""
        source, answer = unicodedata.normalize("NFC", source), unicodedata.normalize("NFC", answer)
        unknown = Counter(
            character for character in source if self.model.source_tokenizer.num_verbatim_spans(character)
        )
        return sum((unknown - Counter(answer)).values())


async def measure(model: LoadedModel) -> tuple[dict[str, Count], list[dict[str, str]]]:
    """Translate the sentences in order. Returns the counts by kind, and the sentences with appended runs."""
    engine = Engine(
        model.workers, settings=EngineLimits(), on_steps=lambda _steps: None, on_death=lambda: None
    )
    engine.start()
    counts: dict[str, Count] = {}
    appended: list[dict[str, str]] = []
    with TextThreads(1) as text_threads:
        counter = PlaceholderCounter(model, engine, text_threads)
        for kind, sentences in SENTENCES.items():
            counts[kind] = Count()
            for sentence in sentences:
                translation, is_placed = await counter.count(sentence, counts[kind])
                if not is_placed:
                    appended.append({"source": sentence, "translation": translation})
    await engine.close(drain_timeout_s=0.0)
    return counts, appended


def total_of(counts: Sequence[Count]) -> Count:
    """The sum of the counts."""
    fields = asdict(Count())
    return Count(**{name: sum(getattr(count, name) for count in counts) for name in fields})


def main(arguments: Sequence[str] | None = None) -> int:
    """Count, print a table, write JSON; returns the exit code."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--bundle", type=Path, help="the bundle that is checked (default: the bundled model)")
    parser.add_argument("--output", type=Path, default=RESULT, help="JSON; the table goes beside it as .md")
    args = parser.parse_args(arguments)
    run = describe_run("benchmarks.carried", arguments)
    settings = load_settings({"bundle": args.bundle} if args.bundle else None)
    model = load_model(find_bundles(settings)[0], settings)
    counts, appended = asyncio.run(measure(model))
    total = total_of(list(counts.values()))
    result = {
        **run,
        "model": {
            "name": model.manifest.name,
            "version": model.manifest.version,
            "precision": model.precision,
        },
        "total": asdict(total),
        "by_kind": {kind: asdict(count) for kind, count in counts.items()},
        "with_appended_runs": appended,
    }
    rows = [*counts.items(), ("all", total)]
    table = "\n".join([
        "| | sentences | runs | unchanged | placed by the model | appended | characters lost |",
        "|---|---|---|---|---|---|---|",
        *(f"| {name} | {' | '.join(str(value) for value in asdict(count).values())} |" for name, count in rows),
    ])  # fmt: skip
    args.output.parent.mkdir(parents=True, exist_ok=True)
    # json.dumps writes ASCII escapes, because some characters have no width.
    args.output.write_text(json.dumps(result, indent=1) + "\n", "utf-8")
    args.output.with_suffix(".md").write_text(
        f"# Characters outside the training text\n\n{model.manifest.name} {model.manifest.version} in "
        f"{model.precision}, commit {result['commit']}.\n\n```\n{result['command']}\n```\n\n{table}\n",
        "utf-8",
    )
    print(table)
    return 1 if total.num_lost or total.num_whole < total.num_runs else 0


if __name__ == "__main__":
    sys.exit(main())
