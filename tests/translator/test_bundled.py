"""The bundled model translates the structured texts of benchmarks/roundtrip.py without losses."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from html import unescape

import pytest

from app.decoding.option_changes import OptionChanges
from app.main import Application
from app.settings import Settings
from app.text.parsed_text import TextFormat
from app.translator import Translation, TranslationRequest, Translator
from benchmarks.roundtrip import Loss, count, read_texts
from tests.api.server_process import ROOT


class Bundled:
    """The bundled model in this process."""

    def __init__(self, loop: asyncio.AbstractEventLoop, translator: Translator) -> None:
        self._loop = loop
        self.translator = translator

    def __call__(self, text: str, text_format: TextFormat, *, beam_size: int = 1) -> Translation:
        request = TranslationRequest(
            texts=(text,),
            source="en",
            target="de",
            request_id="r",
            caller="",
            deadline=time.monotonic() + 60,
            text_format=text_format,
            options=OptionChanges.of(beam_size=beam_size),
        )
        (translation,) = self._loop.run_until_complete(self.translator.translate(request)).translations
        return translation


@pytest.fixture(scope="module")
def bundled() -> Iterator[Bundled]:
    # Without the cache, each sentence is decoded in every text that it is part of.
    settings = Settings(
        bundle=ROOT / "bundles" / "en-de",
        device="cpu",
        precision="int8",
        num_threads=1,
        sentence_cache_bytes=0,
    )
    application = Application(settings)
    loop = asyncio.new_event_loop()
    loop.run_until_complete(application._open())
    assert application.service.models is not None
    translator = application.service.models.default
    assert isinstance(translator, Translator)
    yield Bundled(loop, translator)
    loop.run_until_complete(application.close_engine())
    loop.close()


@pytest.mark.seconds
def test_nothing_is_lost(bundled: Bundled) -> None:
    num_segments = 0

    def translate(text: str, text_format: TextFormat) -> str:
        nonlocal num_segments
        translation = bundled(text, text_format)
        num_segments += len(translation.segments)
        return translation.text

    loss = count(read_texts(), translate, "en", "de")
    assert loss == Loss()
    assert num_segments > 300


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        ("Not&nbsp;suitable for children under&nbsp;three years.", ()),
        ("Please read&nbsp;the terms and&nbsp;conditions before you order.", ()),
        ("Call&nbsp;us&nbsp;now&nbsp;for&nbsp;free.", ()),
        ("It is&nbsp;10&nbsp;km to the sea.", ("10&nbsp;km",)),
        ("It is 10&nbsp;{unit} long.", ("10&nbsp;{unit}",)),
        ("The weath&shy;er is good.", ()),
        ("The Euro&shy;pean Union is&#8203; big.", ()),
    ],
)
def test_no_break_spaces_and_soft_hyphens_change_no_word(
    bundled: Bundled, text: str, kept: tuple[str, ...]
) -> None:
    plain = text.replace("&nbsp;", " ").replace("&shy;", "").replace("&#8203;", "")
    expected = bundled(plain, TextFormat.PLAIN, beam_size=4).text
    translation = bundled(text, TextFormat.HTML, beam_size=4).text
    assert translation.replace("&nbsp;", " ") == expected
    assert all(each in translation for each in kept)
    unescaped = bundled(unescape(text), TextFormat.PLAIN, beam_size=4).text
    assert unescaped == unescape(translation)


def test_a_plain_sentence_is_the_same_in_a_document(bundled: Bundled) -> None:
    sentences = ["The water is cold.", "Where is the station?", "It is late and I am going home."]
    alone = [bundled(sentence, TextFormat.PLAIN, beam_size=4) for sentence in sentences]
    together = bundled("\n\n".join(sentences), TextFormat.PLAIN, beam_size=4)
    page = bundled(f"<p>{'</p><p>'.join(sentences)}</p>", TextFormat.HTML, beam_size=4)
    assert together.text == "\n\n".join(each.text for each in alone)
    assert page.text == f"<p>{'</p><p>'.join(each.text for each in alone)}</p>"
    scores = [segment.hypotheses[0].score for each in alone for segment in each.segments]
    assert [segment.hypotheses[0].score for segment in together.segments] == scores
    assert [segment.hypotheses[0].score for segment in page.segments] == scores
