"""The deltas of a streamed translation add up to it, however many subwords arrive at once."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest

from app.decoding.options import FinishReason
from app.text.tokenizer import Tokenizer
from app.translator.live_text import REPLACEMENT_CHARACTER, LiveSegment, partial_text
from tests.api.server_process import ROOT

SENTENCES = (
    ("Das Wasser ist kalt.", ()),
    ("Grüße aus Österreich: 3,5 % mehr als im Jahr 1998 (heute)!", ()),
    ("Sie sah 🎉 und ging dann nach 東京 weiter.", ("🎉", "東京")),
    ("Żółw, œuvre und ďábel", ()),
    ("  zwei   Räume  ", ()),
)


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return Tokenizer(ROOT / "bundles" / "en-de" / "target.spm")


class StreamObserver:
    """An observer that keeps the streamed text."""

    def __init__(self) -> None:
        self.text = ""
        self.num_replaced = 0
        self.final: str | None = None

    def on_segments(self, texts: object) -> None: ...

    def on_delta(self, text_index: int, segment_index: int, text: str) -> None:
        assert (text_index, segment_index) == (2, 5)
        assert text
        self.text += text

    def on_replacement(self, text_index: int, segment_index: int, text: str) -> None:
        self.text = text
        self.num_replaced += 1

    def on_final(self, text_index: int, segment_index: int, text: str, finish_reason: FinishReason) -> None:
        assert self.final is None
        self.final = text


def live_segment(
    tokenizer: Tokenizer, show: Callable[[str], str] = str
) -> tuple[StreamObserver, LiveSegment]:
    """show: restores the casing of the model's output. The default, `str`, changes nothing."""
    observer = StreamObserver()
    return observer, LiveSegment(observer, (2, 5), tokenizer, show, is_greedy=True)


@pytest.mark.parametrize(("text", "verbatim_spans"), SENTENCES)
@pytest.mark.parametrize("seed", range(5))
def test_deltas_add_up_to_the_text(
    tokenizer: Tokenizer, text: str, verbatim_spans: tuple[str, ...], seed: int
) -> None:
    rng = random.Random(seed)
    ids = tokenizer.encode_target(text, verbatim_spans)[:-1]
    whole = tokenizer.decode(ids, verbatim_spans)
    assert whole.num_appended == 0  # no span was lost
    observer, segment = live_segment(tokenizer)
    position = 0
    while position < len(ids):
        count = rng.randint(1, 3)
        segment.on_tokens(position, ids[position : position + count], verbatim_spans)
        position += count
        assert whole.text.startswith(observer.text)
        assert REPLACEMENT_CHARACTER not in observer.text
    assert observer.text.rstrip() == whole.text.rstrip()
    segment.finish(whole.text, FinishReason.STOP)
    assert observer.text == observer.final == whole.text
    assert observer.num_replaced == 0


def test_a_character_in_bytes_is_sent_whole(tokenizer: Tokenizer) -> None:
    ids = tokenizer.encode_target("ab 🎉 c", ())[:-1]
    seen = {partial_text(tokenizer, ids[:length], ()) for length in range(len(ids) + 1)}
    assert "ab " in seen
    assert "ab 🎉" in seen
    assert not any(REPLACEMENT_CHARACTER in text for text in seen)


def test_a_verbatim_span_is_sent_at_its_placeholder_and_not_before(tokenizer: Tokenizer) -> None:
    # The target has a placeholder for 東京 only. 🎉 is lost, so it is appended to the final text.
    verbatim_spans = ("東京", "🎉")
    ids = tokenizer.encode_target("Er mag 東京 sehr", verbatim_spans[:1])[:-1]
    observer, segment = live_segment(tokenizer)
    for position, token_id in enumerate(ids):
        segment.on_tokens(position, (token_id,), verbatim_spans)
        assert "🎉" not in observer.text
    assert observer.text == "Er mag 東京 sehr"
    final = tokenizer.decode(ids, verbatim_spans).text
    segment.finish(final, FinishReason.STOP)
    assert observer.text == final == "Er mag 東京 sehr 🎉"


def test_a_restart_withdraws_the_text(tokenizer: Tokenizer) -> None:
    first, second = (tokenizer.encode_target(text)[:-1] for text in ("Das Haus", "Die Stadt"))
    observer, segment = live_segment(tokenizer)
    segment.on_tokens(0, first, ())
    assert observer.text == "Das Haus"
    segment.on_tokens(0, (), ())
    assert observer.text == ""
    segment.on_tokens(0, second, ())
    assert observer.text == "Die Stadt"
    segment.restart()
    assert observer.text == ""
    segment.restart()  # no text is shown, so none is withdrawn
    assert observer.num_replaced == 2
    segment.on_tokens(0, first, ())
    segment.finish("DAS Haus", FinishReason.LENGTH)
    assert observer.text == observer.final == "DAS Haus"
    assert observer.num_replaced == 3


def test_deltas_have_the_casing_of_the_final_text(tokenizer: Tokenizer) -> None:
    observer, segment = live_segment(tokenizer, str.upper)
    segment.on_tokens(0, tokenizer.encode_target("Straße frei")[:-1], ())
    assert observer.text == "STRASSE FREI"
    segment.finish("STRASSE FREI", FinishReason.STOP)
    assert observer.num_replaced == 0


def test_without_tokens_the_whole_text_is_sent_at_the_end(tokenizer: Tokenizer) -> None:
    observer, segment = live_segment(tokenizer)
    segment.finish("Aus dem Vorrat", FinishReason.STOP)
    assert observer.text == observer.final == "Aus dem Vorrat"


def test_of_a_beam_only_the_final_text_is_sent(tokenizer: Tokenizer) -> None:
    observer = StreamObserver()
    segment = LiveSegment(observer, (2, 5), tokenizer, str, is_greedy=False)
    segment.finish("Das Haus", FinishReason.STOP)
    assert (observer.text, observer.final, observer.num_replaced) == ("", "Das Haus", 0)
