"""Count what 243 structured texts lose in translation: markup, placeholders, numbers and line breaks.

`count` takes any function that translates a whole text. The command runs the texts through the text layer with word
translators that copy, reverse, shuffle, drop and repeat words, with and without an alignment.

    python -m benchmarks.roundtrip --output benchmarks/results/roundtrip.json
"""

from __future__ import annotations

import argparse
import json
import re
import sys
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from statistics import median
from xml.etree import ElementTree

from app.text.finished import FinishedText
from app.text.number_check import changed_numbers
from app.text.parsed_text import ParseOptions, TextFormat, parse_text
from app.text.protected_spans import protected_spans
from app.text.segments import SegmentTranslation, SourceSegment, join_parts, spans_between_placeholders
from benchmarks.machine import describe_run
from benchmarks.roundtrip_models import MODELS, Model, copied

TEXTS = Path(__file__).with_name("roundtrip_texts.json")
RESULT = Path(__file__).with_name("results") / "roundtrip.json"
MAX_CHARACTERS = 200
Translate = Callable[[str, TextFormat], str]
# Own patterns, because a count with the patterns of the code under test would repeat their faults.
_TAG = re.compile(r"<!--.*?-->|<!\[CDATA\[.*?\]\]>|<[A-Za-z/!?][^<>]*>", re.DOTALL)
_UNTOUCHED = re.compile(r"<(code|pre|script|style|textarea|svg|kbd|samp|var)\b.*?</\1>", re.DOTALL)
_LINE_BREAK = re.compile("\r\n|[\n\r\t\f\u2028\u2029]")
_ENTITY = re.compile(r"&[#\w]+;")


@dataclass(frozen=True)
class Text:
    """A structured text. kind: what it is an example of."""

    kind: str
    text_format: TextFormat
    text: str


@dataclass
class Loss:
    """The number of elements that translations have more or less often than their sources; 0 is the aim.

    untouched: `code` and similar elements. placeholders: in plain text, and in markup outside its tags. numbers:
    numbers that the number check reports. line_breaks: plain texts and XML texts whose line breaks differ; in HTML, a
    line break is a space. malformed: XML translations that are not well formed. texts: texts with any loss.
    """

    tags: int = 0
    untouched: int = 0
    placeholders: int = 0
    numbers: int = 0
    line_breaks: int = 0
    malformed: int = 0
    texts: list[str] = field(default_factory=list)


def read_texts() -> list[Text]:
    """All texts, in the order of the file."""
    entries = json.loads(TEXTS.read_text("utf-8"))
    return [Text(entry["kind"], TextFormat(entry["format"]), entry["text"]) for entry in entries]


def count(texts: Sequence[Text], translate: Translate, source_language: str, target_language: str) -> Loss:
    """Translate every text and compare the parts that must not change."""
    loss = Loss()
    for text in texts:
        result = translate(text.text, text.text_format)
        is_markup = text.text_format is not TextFormat.PLAIN
        before, after = (_prose(text.text), _prose(result)) if is_markup else (text.text, result)
        found = {
            "tags": _difference(_TAG.findall, text.text, result) if is_markup else 0,
            "untouched": _difference(_untouched, text.text, result) if is_markup else 0,
            "placeholders": _difference(_placeholders, before, after),
            "numbers": _num_changed_numbers(before, after, source_language, target_language),
            "line_breaks": 0
            if text.text_format is TextFormat.HTML
            else _LINE_BREAK.findall(text.text) != _LINE_BREAK.findall(result),
            "malformed": text.text_format is TextFormat.XML and not _is_xml(result),
        }
        for name, number in found.items():
            setattr(loss, name, getattr(loss, name) + int(number))
        if any(found.values()):
            loss.texts.append(text.text)
    return loss


def _difference(find: Callable[[str], list[str]], source: str, result: str) -> int:
    before, after = Counter(find(source)), Counter(find(result))
    return ((before - after) + (after - before)).total()


def _untouched(text: str) -> list[str]:
    return [match.group() for match in _UNTOUCHED.finditer(text)]


def _placeholders(text: str) -> list[str]:
    return [span.of(text) for span in protected_spans(text)]


def _prose(text: str) -> str:
    """The translatable text, approximately: without code elements, tags and character references."""
    return _ENTITY.sub(" ", _TAG.sub("", _UNTOUCHED.sub("", text)))


def _num_changed_numbers(source: str, result: str, source_language: str, target_language: str) -> int:
    changed = changed_numbers(
        _without_placeholders(source), _without_placeholders(result), source_language, target_language
    )
    return len(changed.missing) + len(changed.added)


def _without_placeholders(text: str) -> str:
    for span in reversed(protected_spans(text)):
        text = text[: span.start] + text[span.end :]
    return text


def _is_xml(text: str) -> bool:
    whole = text if text.startswith(("<?xml", "<!DOCTYPE")) else f"<r>{text}</r>"
    try:
        ElementTree.fromstring(whole.encode())
    except ElementTree.ParseError:
        return False
    return True


def run_text_layer(text: str, options: ParseOptions, model: Model) -> FinishedText:
    """Run a text through the text layer, with retries if a number or a placeholder is lost."""
    parsed_text = parse_text(text, options)
    segments = parsed_text.segments(fits)
    translations = []
    for index, segment in enumerate(segments):
        translation = _translate_segment(segment, model)
        retries = parsed_text.number_retries(segment, translation, fits)
        if retries:
            segments[index], translation = retries[-1], _translate_segment(retries[-1], model)
        translations.append(translation)
    return parsed_text.finish(segments, translations)


def fits(source: str) -> bool:
    """Whether a word translator accepts the whole source."""
    return len(source) <= MAX_CHARACTERS


def _translate_segment(segment: SourceSegment, model: Model) -> SegmentTranslation:
    translation = model(segment.source)
    parts = spans_between_placeholders(segment, translation)
    if not parts:
        return translation
    return join_parts(segment, parts, [model(part.of(segment.source)) for part in parts])


def text_layer_milliseconds(texts: Sequence[Text]) -> float:
    """Median time that the text layer adds to a text, with a translator that takes no time."""
    times = []
    for text in texts:
        options = ParseOptions("en", "de", text.text_format)
        parsed_text = parse_text(text.text, options)
        translations = [copied(segment.source) for segment in parsed_text.segments(lambda _source: True)]
        started = time.perf_counter()
        parsed_text = parse_text(text.text, options)
        parsed_text.finish(parsed_text.segments(lambda _source: True), translations)
        times.append((time.perf_counter() - started) * 1e3)
    return median(times)


def main(arguments: Sequence[str] | None = None) -> int:
    """Count, print a table, write JSON. Exit code 1 if something is lost."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--output", type=Path, default=RESULT)
    args = parser.parse_args(arguments)
    run = describe_run("benchmarks.roundtrip", arguments, python=None)
    texts = read_texts()
    losses: dict[str, Loss] = {}
    fallbacks: dict[str, Counter[str]] = {}
    for name, model in MODELS.items():
        seen = fallbacks[name] = Counter[str]()

        def translate(
            text: str, text_format: TextFormat, model: Model = model, seen: Counter[str] = seen
        ) -> str:
            finished = run_text_layer(text, ParseOptions("en", "de", text_format), model)
            seen.update(fallback.value for segment in finished.segments for fallback in segment.fallbacks)
            return finished.text

        losses[name] = count(texts, translate, "en", "de")
        print(f"{name:24} {asdict(losses[name]) | {'texts': len(losses[name].texts)}} {dict(seen)}")
    result = {
        **run,
        "num_texts": len(texts),
        "text_layer_median_ms": round(text_layer_milliseconds(texts), 3),
        "models": {
            name: {"loss": asdict(loss), "fallbacks": dict(fallbacks[name])} for name, loss in losses.items()
        },
    }
    args.output.parent.mkdir(parents=True, exist_ok=True)
    args.output.write_text(json.dumps(result, indent=1) + "\n", "utf-8")
    return 1 if any(loss.texts for loss in losses.values()) else 0


if __name__ == "__main__":
    sys.exit(main())
