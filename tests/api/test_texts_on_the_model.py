"""Formats, terms and languages, on a server with the bundled model."""

from __future__ import annotations

from typing import Any

import httpx
import pytest

GERMAN = "Das Museum am Hafen ist am Montag geschlossen."


def translate(client: httpx.Client, **fields: Any) -> list[dict[str, Any]]:
    answer = client.post("/v1/translate", json={"source": "en", "target": "de", **fields})
    assert answer.status_code == 200, answer.text
    translations: list[dict[str, Any]] = answer.json()["translations"]
    return translations


def test_an_answer_has_no_field_that_the_request_does_not_set(bundled: httpx.Client) -> None:
    (translation,) = translate(bundled, text="The water is cold.")
    assert set(translation) == {"text", "source", "segments"}
    assert set(translation["segments"][0]) == {"source", "target", "score", "finish_reason"}


def test_each_format_keeps_its_markup(bundled: httpx.Client) -> None:
    text = 'The <b>red</b> house & {name} at <a href="https://a.example/?b&c">the harbour</a>.'
    (html,) = translate(bundled, text=text, format="html")
    assert all(part in html["text"] for part in ("<b>", "</b>", '<a href="https://a.example/?b&c">', "&amp;"))
    (xml,) = translate(
        bundled, text="<t>The <k>house</k> is <x>old</x>.</t>", format="xml", ignore_tags=["k"]
    )
    assert "<k>house</k>" in xml["text"]
    assert "<x>alt</x>" in xml["text"]
    span = xml["segments"][0]["target"]
    assert xml["text"][: span["start"]] == "<t>"
    assert xml["text"][span["end"] :] == "</t>"


@pytest.mark.parametrize(
    ("text", "translated"),
    [
        ("The house<sup>1</sup> is old.", "Das Haus<sup>1</sup> ist alt."),
        ("The study<sup>a,b</sup> is good.", "Die Studie<sup>a,b</sup> ist gut."),
        ("There are <b>3</b>new houses.", "Es gibt <b>3</b>neue H\u00e4user."),
        ("The water is H<sub>2</sub>O here.", "Das Wasser ist hier H<sub>2</sub>O."),
    ],
)
def test_a_word_that_touches_a_tag_is_translated(bundled: httpx.Client, text: str, translated: str) -> None:
    (translation,) = translate(bundled, text=text, format="html")
    assert translation["text"] == translated


def test_splitting_decides_where_sentences_end(bundled: httpx.Client) -> None:
    text = "The house\nis old. It is late."
    num_segments = {
        splitting: len(translate(bundled, text=text, splitting=splitting)[0]["segments"])
        for splitting in ("sentences", "no_newlines", "lines")
    }
    assert num_segments == {"sentences": 3, "no_newlines": 2, "lines": 2}


@pytest.mark.parametrize(
    ("tags", "text", "num_segments"),
    [
        ({}, "<d>So <s>the house is old</s><s>and the garden is big</s></d>", 1),
        ({"splitting_tags": ["s"]}, "<d>So <s>the house is old</s><s>and the garden is big</s></d>", 3),
        ({}, "<d><s>The house is old</s><s>and the garden is big</s></d>", 2),
        ({"non_splitting_tags": ["s"]}, "<d><s>The house is old</s><s>and the garden is big</s></d>", 1),
    ],
)
def test_tags_of_the_request_decide_where_xml_splits(
    bundled: httpx.Client, tags: dict[str, list[str]], text: str, num_segments: int
) -> None:
    (translation,) = translate(bundled, text=text, format="xml", **tags)
    assert len(translation["segments"]) == num_segments


def test_terms_and_their_positions(bundled: httpx.Client) -> None:
    text = "We are going to the garden.\nGARDENS are green."
    (translation,) = translate(bundled, text=text, glossary={"terms": {"garden": "Park", "green": "green"}})
    hits = translation["glossary_hits"]
    assert [text[hit["source"]["start"] : hit["source"]["end"]] for hit in hits] == [
        "garden",
        "GARDENS",
        "green",
    ]
    assert [hit["term"] for hit in hits] == ["garden", "garden", "green"]
    assert [hit["translation"] in translation["text"] for hit in hits] == [True, True, True]
    assert [hit["translation"] for hit in hits] == ["Park", "PARK", "green"]


def test_languages_are_detected_text_by_text(bundled: httpx.Client) -> None:
    texts = ["Where is the nearest station?", GERMAN, "Gift", "7"]
    found = translate(bundled, text=texts, source="auto")
    assert [each["source"] for each in found] == ["en", "de", "en", "en"]
    assert found[1]["text"] == GERMAN
    assert found[0]["text"] != texts[0]
    assert all(0 <= each["confidence"] <= 1 for each in found)
    assert [each["confidence"] > 0.95 for each in found] == [True, True, False, False]
    (stated,) = translate(bundled, text=GERMAN)
    assert stated["source"] == "en"
    assert stated["segments"]


def test_detect(bundled: httpx.Client) -> None:
    answer = bundled.post("/v1/detect", json={"text": ["Where is the station?", GERMAN, "7", ""]}).json()
    assert [each["language"] for each in answer["detections"]] == ["en", "de", None, None]
    for detection in answer["detections"][:2]:
        candidates = detection["candidates"]
        assert candidates[0] == {"language": detection["language"], "confidence": detection["confidence"]}
        assert len(candidates) == 5
        assert 0.9 < sum(each["confidence"] for each in candidates) <= 1.001
    one = bundled.post("/v1/detect", json={"text": GERMAN}).json()["detections"]
    assert one == answer["detections"][1:2]


@pytest.mark.parametrize(
    ("body", "status", "field"),
    [
        ({}, 422, "text"),
        ({"text": 5}, 422, "text"),
        ({"text": "a", "source": "en"}, 422, None),
        ({"text": ["a"] * 129}, 413, "text"),
        ({"text": "a" * 5001}, 413, "text"),
    ],
)
def test_what_detect_refuses(bundled: httpx.Client, body: object, status: int, field: str | None) -> None:
    answer = bundled.post("/v1/detect", json=body)
    assert answer.status_code == status
    assert answer.json()["error"].get("field") == field


def test_a_sentence_whose_translation_does_not_end_is_translated_in_parts(bundled: httpx.Client) -> None:
    (translation,) = translate(bundled, text="la " * 30, beam_size=1)
    (segment,) = translation["segments"]
    assert segment["fallbacks"] == ["length_split"]
    assert segment["finish_reason"] == "stop"
    (limited,) = translate(bundled, text="la " * 30, beam_size=1, max_target_length=30)
    assert limited["segments"][0]["finish_reason"] == "length"
    assert "fallbacks" not in limited["segments"][0]


@pytest.mark.parametrize("control", ["\x00", "\x01", "\x1f", "\x7f", "\x92"])
@pytest.mark.parametrize("splitting", ["sentences", "no_newlines", "lines"])
def test_a_control_character_removes_no_letter(bundled: httpx.Client, control: str, splitting: str) -> None:
    def translated(text: str) -> str:
        question = {"text": text, "source": "en", "target": "de", "splitting": splitting}
        return str(bundled.post("/v1/translate", json=question).json()["translations"][0]["text"])

    assert translated(f"a{control}b") == f"{translated('a')}{control}{translated('b')}"
    assert translated(f"It is late.{control} I see it.") == f"Es ist spät.{control} {translated('I see it.')}"
