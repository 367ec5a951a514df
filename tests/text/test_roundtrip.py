"""The round-trip texts have no losses. The counter detects each kind of loss."""

from __future__ import annotations

import itertools
import json
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

import pytest

from app.text.parsed_text import ParseOptions, TextFormat
from app.text.segmentation import Offsets
from app.text.segments import Fallback, SegmentTranslation, source_as_translation
from benchmarks.roundtrip import Loss, Text, count, main, read_texts, run_text_layer
from benchmarks.roundtrip_models import MODELS, copied, in_order, without_alignment
from tests.text.fake_models import translate_with


def test_there_are_more_than_200_texts_of_many_kinds() -> None:
    texts = read_texts()
    assert len({(text.text_format, text.text) for text in texts}) == len(texts) > 200
    kinds = Counter(text.kind for text in texts)
    assert len(kinds) >= 15
    assert min(kinds.values()) >= 5


@pytest.mark.parametrize("name", MODELS)
def test_nothing_is_lost(name: str) -> None:
    def translate(text: str, text_format: TextFormat) -> str:
        return run_text_layer(text, ParseOptions("en", "de", text_format), MODELS[name]).text

    loss = count(read_texts(), translate, "en", "de")
    assert loss == Loss()


def gaps(text: str, spans: Iterable[Offsets]) -> list[str]:
    """The text before, between and after the spans."""
    edges = [0, *itertools.chain.from_iterable(spans), len(text)]
    return [text[start:end] for start, end in zip(edges[::2], edges[1::2], strict=True)]


@pytest.mark.parametrize("name", MODELS)
def test_the_text_between_the_segments_is_copied(name: str) -> None:
    texts = [
        *read_texts(),
        Text("x", TextFormat.HTML, "A &NotEqualTilde;<i> b</i><!-- c --><br/>. <b><u>D</u> e.</b>"),
    ]
    for text in texts:
        finished = run_text_layer(text.text, ParseOptions("en", "de", text.text_format), MODELS[name])
        sources, targets = (
            [getattr(each, side) for each in finished.segments] for side in ("source", "target")
        )
        assert gaps(text.text, sources) == gaps(finished.text, targets)


@pytest.mark.parametrize(("source", "target"), [("en", "de"), ("de", "en")])
def test_a_source_that_replaces_its_translation_stays_as_it_is(source: str, target: str) -> None:
    """The last text has quotation marks and emphasis that the model reads in another form."""
    for text in [*read_texts(), Text("x", TextFormat.PLAIN, "Man darf »alte Türen« NICHT öffnen.")]:
        options = ParseOptions(source, target, text.text_format)
        assert translate_with(text.text, options, source_as_translation).text == text.text


def test_a_changed_number_is_decoded_as_a_placeholder() -> None:
    model = without_alignment(lambda source: SegmentTranslation(source.replace("1", "7")))
    finished = run_text_layer(
        "In 1998 it was 12 metres and 3 years old, {name}.", ParseOptions("en", "de"), model
    )
    assert finished.text == "In 1998 it was 12 metres and 3 years old, {name}."
    assert finished.segments[0].fallbacks == (Fallback.NUMBERS_CARRIED,)
    assert not finished.segments[0].changed_numbers


def test_the_parts_around_a_lost_placeholder_are_translated_separately() -> None:
    model = without_alignment(lambda source: in_order(source, [0]) if "Dear" in source else copied(source))
    finished = run_text_layer("Dear Anna, {link} is open", ParseOptions("en", "de"), model)
    assert finished.text == "Dear {link} is open"
    assert finished.segments[0].fallbacks == (Fallback.PLACEHOLDER_SPLIT,)


@pytest.mark.parametrize(
    ("text_format", "source", "result", "field"),
    [
        ("html", "<p>a <b>b</b></p>", "<p>a <b>b</p>", "tags"),
        ("html", "<a href='x'>b</a>", "<a href='y'>b</a>", "tags"),
        ("html", "<code>b c</code> d", "<code>b</code> d", "untouched"),
        ("text", "see {a}", "see {b}", "placeholders"),
        ("text", "see {a}", "see {a} {a}", "placeholders"),
        ("text", "take 5", "nimm 6", "numbers"),
        ("text", "a\r\nb", "a\nb", "line_breaks"),
        ("xml", "a\nb", "a b", "line_breaks"),
        ("xml", "<b><i>a</i></b>", "<b><i>a</b></i>", "malformed"),
    ],
)
def test_a_loss_is_counted(text_format: str, source: str, result: str, field: str) -> None:
    loss = count([Text("x", TextFormat(text_format), source)], lambda _text, _format: result, "en", "de")
    assert getattr(loss, field) > 0
    assert loss.texts == [source]


@pytest.mark.seconds
def test_the_command_writes_its_counts(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    output = tmp_path / "roundtrip.json"
    assert main(["--output", str(output)]) == 0
    result = json.loads(output.read_text("utf-8"))
    assert set(result["models"]) == set(MODELS)
    assert result["num_texts"] == len(read_texts())
    assert "copied" in capsys.readouterr().out
