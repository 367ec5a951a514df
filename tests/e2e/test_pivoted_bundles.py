"""A pair through another language, with two real bundles.

Both are copies of the bundled model. The second has the code fr for German. So a translation from de to fr is German,
translated into English and back.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from tests.api.server_process import ROOT, ServerProcess
from tests.bundles.copies import copy_bundle
from tests.e2e.conftest import SERVE_BY_FORK

BUNDLED = ROOT / "bundles" / "en-de"
SENTENCES = (
    "Wo ist der Bahnhof?",
    "Die Kinder spielen im Garten, und der Hund schläft.",
    "Der Zug kommt um 17:45 Uhr an und kostet 12 Euro.",
)


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[httpx.Client]:
    folder = tmp_path_factory.mktemp("bundles")
    copy_bundle(BUNDLED, folder / "one", name="one")
    copy_bundle(BUNDLED, folder / "two", name="two", languages={"de": "fr"})
    settings = {"num_threads": 2, "num_lanes": 1, "device": "cpu", "precision": "int8", "pivot": "en"}
    with (
        ServerProcess([*SERVE_BY_FORK, "--bundles", str(folder)], settings) as process,
        process.ready().client() as client,
    ):
        yield client


def translate(client: httpx.Client, text: str, **fields: Any) -> dict[str, Any]:
    answer = client.post("/v1/translate", json={"text": text, "source": "de", "target": "fr", **fields})
    assert answer.status_code == 200, answer.text
    translation: dict[str, Any] = answer.json()["translations"][0]
    return translation


@pytest.mark.parametrize("text", SENTENCES)
def test_a_pivoted_translation_equals_two_single_ones(client: httpx.Client, text: str) -> None:
    english = translate(client, text, target="en")
    french = translate(client, english["text"], source="en")
    pivoted = translate(client, text)
    assert pivoted["text"] == french["text"]
    assert pivoted["segments"][0]["score"] == french["segments"][0]["score"]
    assert pivoted["segments"][0]["source"] == {"start": 0, "end": len(text)}


def test_a_text_of_several_sentences_keeps_its_form(client: httpx.Client) -> None:
    text = "\t" + "  ".join(SENTENCES) + "\n\n- " + "\n- ".join(SENTENCES) + "\n"
    translation = translate(client, text)
    single = [translate(client, sentence)["text"] for sentence in SENTENCES]
    assert translation["text"] == "\t" + "  ".join(single) + "\n\n- " + "\n- ".join(single) + "\n"
    for segment, sentence in zip(translation["segments"], SENTENCES * 2, strict=True):
        source, target = segment["source"], segment["target"]
        assert text[source["start"] : source["end"]] == sentence
        assert translation["text"][target["start"] : target["end"]] == single[SENTENCES.index(sentence)]


def test_the_alignment_reaches_from_the_target_to_the_source(client: httpx.Client) -> None:
    text = "Am Montag sehen die Kinder den alten Hund im Garten."
    for options in ({"beam_size": 1}, {"num_hypotheses": 3}):
        translation = translate(client, text, alignment=True, attention=True, **options)
        (segment,) = translation["segments"]
        sources = [text[span["start"] : span["end"]] for span in segment["source_tokens"]]
        assert "".join(sources) == text
        named = {}
        for token in segment["tokens"][:-1]:
            assert len(token["weights"]) == len(sources)
            assert sum(token["weights"]) == pytest.approx(1, abs=0.002)
            assert max(token["weights"]) >= round(token["attention"], 4) - 1e-4
            named[token["text"].strip()] = text[token["source"]["start"] : token["source"]["end"]].strip()
        assert "weights" not in segment["tokens"][-1]
        for word in ("Montag", "Kinder", "Hund"):
            assert named[word] == word


def test_markup_moves_with_its_words(client: httpx.Client) -> None:
    markup = '<p>Das <b>rote</b> Haus ist <a href="/alt?a=1&amp;b=2">sehr alt</a>.</p><ul><li>Wasser<br/>Brot</li></ul>'
    text = translate(client, markup, format="html")["text"]
    assert "<b>rote</b>" in text
    assert '<a href="/alt?a=1&amp;b=2">sehr alt</a>' in text
    assert sorted(re.findall("<[^>]*>", text)) == sorted(re.findall("<[^>]*>", markup))


def test_placeholders_addresses_and_numbers_are_kept(client: httpx.Client) -> None:
    text = "Hallo {name}, am 24.12.2025 kosten 3 Karten %s Euro: https://example.org/a?b=1 \N{GRINNING FACE}."
    translation = translate(client, text)
    for kept in ("{name}", "%s", "https://example.org/a?b=1", "\N{GRINNING FACE}", "2025", "3"):
        assert translation["text"].count(kept) == text.count(kept), translation["text"]
    assert "changed_numbers" not in translation["segments"][0]
    assert "1\u00a0234,50" in translate(client, "Das Haus kostet 1.234,50 Euro.")["text"], (
        "as French writes it"
    )


def test_a_term_is_forced(client: httpx.Client) -> None:
    text = "Die Kinder spielen im Garten."
    translation = translate(client, text, glossary={"terms": {"Garten": "Lustgarten"}})
    assert "Lustgarten" in translation["text"]
    (hit,) = translation["glossary_hits"]
    assert text[hit["source"]["start"] : hit["source"]["end"]] == "Garten"


def test_a_prefix_begins_the_translation_and_suppressed_text_is_absent(client: httpx.Client) -> None:
    assert translate(client, "Können Sie mir helfen?", target_prefix="Kannst du")["text"].startswith(
        "Kannst du"
    )
    assert "Sie" not in translate(client, "Können Sie mir helfen?", suppress="Sie")["text"]


def test_a_repeated_text_is_answered_from_the_cache(client: httpx.Client) -> None:
    body = {"text": "Der Mond scheint heute hell.", "source": "de", "target": "fr"}
    answers = [client.post("/v1/translate", json=body) for _ in range(2)]
    assert [answer.headers["x-transduce-cached-sentences"] for answer in answers] == ["0", "1"]
    assert answers[0].json() == answers[1].json()
