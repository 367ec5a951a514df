"""Properties of the bundled model's responses: words, numbers and lengths. No test needs an exact translation."""

from __future__ import annotations

import re
from collections import Counter
from typing import Any

import httpx
import pytest

WORDS = re.findall(
    r"\w+",
    "Home Age Car Hospital Air Has More Page Right Did Mind Person Might Again Mode Inside Done Item Often Death Makes "
    "Making Passed Main Against Came Matter Human Light Pain Son House Water Child Money Road Bread Field Winter",
)
NUMBERED = (
    "Three cats and 2 dogs are 4 animals, and 7 are hungry.",
    "The shop sold 1,200 lamps and 45 chairs in 2019, which is 12 % more than in 2018.",
    "Between 8 and 10 of the 36 pupils came at 9:15 with 3 teachers.",
    "He paid 250 euros for 16 nights, 20 euros for the boat and 4 for coffee.",
    "In 1987 the 5 brothers bought 80 sheep, 14 goats and 2 horses for 9,500 crowns.",
)


def translate(client: httpx.Client, text: str | list[str], **fields: Any) -> list[dict[str, Any]]:
    answer = client.post("/v1/translate", json={"text": text, "source": "en", "target": "de", **fields})
    assert answer.status_code == 200, answer.text
    translations: list[dict[str, Any]] = answer.json()["translations"]
    return translations


@pytest.mark.parametrize(
    "options",
    [{}, {"beam_size": 1}, {"beam_size": 8}, {"sampling": {"seed": 5}}, {"no_repeat_ngram_size": 2}],
    ids=["default", "greedy", "wide", "sampled", "guided"],
)
def test_no_word_is_lost(bundled: httpx.Client, options: dict[str, Any]) -> None:
    found = translate(bundled, WORDS, **options)
    assert [word for word, each in zip(WORDS, found, strict=True) if not re.search(r"\w", each["text"])] == []


def test_buttons_and_table_headings_keep_their_words(bundled: httpx.Client) -> None:
    (page,) = translate(
        bundled, "<button>Home</button><table><tr><th>Age</th><th>Car</th></tr></table>", format="html"
    )
    for tag, number in (("button", 1), ("th", 2)):
        contents = re.findall(rf"<{tag}>(.*?)</{tag}>", page["text"])
        assert len(contents) == number
        assert all(re.search(r"\w", content) for content in contents), contents


def test_no_number_is_lost(bundled: httpx.Client) -> None:
    for text, each in zip(NUMBERED, translate(bundled, list(NUMBERED)), strict=True):
        assert "  " not in each["text"]
        assert not re.search(r" [.,](\s|$)", each["text"])
        assert Counter(re.findall(r"\d+", text)) <= Counter(re.findall(r"\d+", each["text"])), each["text"]
        assert not any(segment.get("changed_numbers", {}).get("missing") for segment in each["segments"]), (
            text
        )


def test_a_sample_with_high_temperature_has_a_plausible_length(bundled: httpx.Client) -> None:
    text = (
        "The old man walked along the river and saw many birds, two boats and a small house near the bridge."
    )
    answer = bundled.post(
        "/v1/translate",
        json={"text": text, "source": "en", "target": "de", "sampling": {"temperature": 5, "seed": 3}},
    ).json()
    usage = answer["usage"]
    assert usage["target_tokens"] <= 3 * (usage["source_tokens"] + 50)


@pytest.mark.parametrize("text", [". a" * 400, "very " * 300])
def test_a_shortened_repetition_is_reported(bundled: httpx.Client, text: str) -> None:
    (found,) = translate(bundled, text)
    is_shorter = len(found["text"].split()) < len(text.split()) / 2
    reasons = {segment["finish_reason"] for segment in found["segments"]}
    assert not is_shorter or reasons & {"repetition", "length"}
