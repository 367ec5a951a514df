"""The p-value of a difference in BLEU by paired bootstrap resampling, the sentences, and the engines' threads."""

from __future__ import annotations

from typing import Any

import pytest

from app.bundle import Bundle, load_bundle
from benchmarks.engine.jobs import JobResult, PeerSettings
from benchmarks.engine.quality import TestSet as Sentences
from benchmarks.engine.quality import compare, job_of, p_of_difference, read_test_sets
from benchmarks.machine import ROOT

REFERENCES = [
    f"the {size} house by the {place} was sold last year"
    for size in ("old", "small", "red", "grey", "new")
    for place in ("river", "station", "church", "lake")
]


def changed(every: int, *, beginning: int = 0) -> list[str]:
    """The references. Each `every`-th reference lacks two words, and number `beginning` is the first of these."""
    return [
        text.replace(" was sold", "") if number % every == beginning else text
        for number, text in enumerate(REFERENCES)
    ]


def test_the_same_translations_do_not_differ() -> None:
    assert p_of_difference(changed(3), changed(3), REFERENCES) == 1.0


def test_translations_with_the_same_score_do_not_differ() -> None:
    first = [text.replace(" was sold", " xyz") for text in REFERENCES]
    second = [text.replace(" was sold", " zyx") for text in REFERENCES]
    assert p_of_difference(first, second, REFERENCES) == 1.0


def test_a_gain_in_every_sentence_is_significant() -> None:
    assert p_of_difference(REFERENCES, changed(1), REFERENCES) < 0.01


def test_gains_and_losses_in_almost_as_many_sentences_are_not_significant() -> None:
    first, second, references = (texts[1:] for texts in (changed(2), changed(2, beginning=1), REFERENCES))
    assert p_of_difference(first, second, references) == pytest.approx(0.5, abs=0.4)


class Engine:
    """A fake of an engine's process, which keeps the settings of the last call."""

    def translate(self, _: object, *settings: PeerSettings) -> JobResult:
        self.settings = settings
        return JobResult([1.0], [])


def test_the_peer_has_as_many_threads_as_transduce() -> None:
    ours: Any = Engine()
    peer: Any = Engine()
    tokenizer: Any = None
    sentences = Sentences("none", [], [])
    compare(ours, peer, sentences, job_of(sentences, 1, 9), tokenizer, num_threads=3)
    (settings,) = peer.settings
    assert (settings.inter_threads, settings.intra_threads) == (1, 3)


def test_sentences_that_are_too_long_for_the_model_are_left_out() -> None:
    bundle = load_bundle(ROOT / "bundles" / "en-de")
    (every,) = read_test_sets(bundle, None, [], 100)
    manifest = bundle.manifest.model_copy(update={"max_source_length": 12})
    (found,) = read_test_sets(Bundle(bundle.path, manifest, ()), None, [], 100)
    assert found.sources == [source for source in every.sources if len(source.ids) <= 12]
    assert 0 < len(found.sources) < len(every.sources)
