"""Attention weights of each token over the source's subwords, with the bundled model."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import httpx
import pytest

TEXT = "Could Elisabeth Wordsworth bring \U0001f600 two chairs into the kitchen, please?"
SEVERAL = f"Why?\n\n{TEXT} Nobody uses it."
REQUEST = {"source": "en", "target": "de", "alignment": True, "attention": True}


def post(client: httpx.Client, path: str, **fields: Any) -> dict[str, Any]:
    answer = client.post(path, json={**REQUEST, **fields})
    assert answer.status_code == 200, answer.text
    result: dict[str, Any] = answer.json()
    return result


def segments_of(client: httpx.Client, text: str, **options: Any) -> list[dict[str, Any]]:
    (translation,) = post(client, "/v1/translate", text=text, **options)["translations"]
    segments: list[dict[str, Any]] = translation["segments"]
    return segments


def check_weights(source_tokens: list[dict[str, int]], tokens: list[dict[str, Any]]) -> None:
    """Check that each token has one weight per subword, and that the largest one agrees with its alignment."""
    assert tokens[-1]["text"] is None
    for token in tokens:
        if token["text"] is None:
            assert "weights" not in token
            continue
        weights = token["weights"]
        assert len(weights) == len(source_tokens)
        assert all(0 <= weight <= 1 and weight == round(weight, 4) for weight in weights)
        assert sum(weights) == pytest.approx(1, abs=len(weights) * 5e-5 + 1e-6)
        seen = [
            (weight, (span["start"], span["end"]))
            for weight, span in zip(weights, source_tokens, strict=True)
            if span["end"] > span["start"]
        ]
        assert max(seen)[0] == pytest.approx(token["attention"], abs=5.1e-5)
        place = (token["source"]["start"], token["source"]["end"])
        assert max(seen)[0] in [weight for weight, span in seen if span == place]


def test_the_spans_of_source_subwords_refer_to_the_callers_text(bundled: httpx.Client) -> None:
    segments = segments_of(bundled, SEVERAL)
    assert len(segments) == 3
    for segment in segments:
        spans = [(each["start"], each["end"]) for each in segment["source_tokens"]]
        assert spans[0][0] == segment["source"]["start"]
        assert spans[-1] == (segment["source"]["end"],) * 2, "the end token"
        assert all(left[1] == right[0] for left, right in pairwise(spans))
        check_weights(segment["source_tokens"], segment["tokens"])


def test_without_attention_the_answer_has_none(bundled: httpx.Client) -> None:
    (segment,) = segments_of(bundled, TEXT, attention=False)
    assert "source_tokens" not in segment
    assert all("weights" not in token for token in segment["tokens"])


def test_every_hypothesis_has_its_own_attention(bundled: httpx.Client) -> None:
    (segment,) = segments_of(bundled, TEXT, num_hypotheses=3)
    rows = set()
    for hypothesis in segment["hypotheses"]:
        check_weights(segment["source_tokens"], hypothesis["tokens"])
        rows.add(tuple(tuple(token["weights"]) for token in hypothesis["tokens"][:-1]))
    assert len(rows) == 3
    assert segment["tokens"] == segment["hypotheses"][0]["tokens"]


@pytest.mark.parametrize(
    ("text", "options", "word"),
    [
        ("<p>It is <b>late</b> &amp; I am <i>hungry</i>.</p>", {"format": "html"}, "hungry"),
        ("Open {name} at https://a.example/b?c=1 now.", {}, "now"),
        ("NOBODY SEES THE HOUSE OF ANNA!", {}, "HOUSE"),
        ("  Cafe\u0301s  are \u201cclosed\u201d.", {}, " are"),
        ("The water is cold.", {"glossary": {"terms": {"water": "Brause"}}}, "water"),
    ],
    ids=["markup", "placeholders", "capitals", "decomposed", "glossary"],
)
def test_positions_are_right_after_any_preprocessing(
    bundled: httpx.Client, text: str, options: dict[str, Any], word: str
) -> None:
    (segment,) = segments_of(bundled, text, **options)
    spans = segment["source_tokens"]
    check_weights(spans, segment["tokens"])
    edges = [edge for span in spans for edge in (span["start"], span["end"])]
    assert edges == sorted(edges)
    assert edges[-1] <= segment["source"]["end"]
    assert any(text[span["start"] : span["end"]].endswith(word) for span in spans)


def test_parts_of_an_over_long_sentence(bundled: httpx.Client) -> None:
    """A sentence whose translation does not end is halved, repeatedly if needed. Parts do not attend to each other."""
    text = " ".join(["the old man said that the house is old"] * 20 + ["x"] * 100) + "."
    segments = segments_of(bundled, text, beam_size=1)
    num_halved = 0
    for segment in segments:
        assert segment["is_part"] is True
        spans, tokens = segment["source_tokens"], segment["tokens"]
        check_weights(spans, tokens)
        empty = [index for index, span in enumerate(spans) if span["start"] == span["end"]]
        assert empty[0] == 0, "the language tag"
        ends = empty[1::2]  # each part has a tag, its subwords and an end token
        assert ends[-1] == len(spans) - 1
        if segment.get("fallbacks") != ["length_split"]:
            assert len(ends) == 1
            continue
        num_halved += 1
        assert len(ends) >= 2
        borders = pairwise([0, *(end + 1 for end in ends)])
        num_ended, (start, stop) = 0, next(borders)
        for token in tokens:
            if token["text"] is None:
                num_ended, (start, stop) = num_ended + 1, next(borders, (stop, stop))
                continue
            assert sum(token["weights"][:start]) + sum(token["weights"][stop:]) == 0
        assert num_ended == len(ends)
        assert all(text[spans[end]["start"] :].startswith(" ") for end in ends[:-1])
    assert 0 < num_halved < len(segments)


def test_a_scored_pair_has_the_same_attention(bundled: httpx.Client) -> None:
    text = "Could you bring two chairs into the kitchen, please?"
    (own,) = segments_of(bundled, text, beam_size=1)
    (translation,) = post(bundled, "/v1/translate", text=text, beam_size=1)["translations"]
    (score,) = post(bundled, "/v1/score", text=text, translation=translation["text"])["scores"]
    assert score["source_tokens"] == own["source_tokens"]
    check_weights(score["source_tokens"], score["tokens"])
    for one, other in zip(own["tokens"][:-1], score["tokens"][:-1], strict=True):
        assert one["weights"] == pytest.approx(other["weights"], abs=1e-3)


@pytest.mark.parametrize("fields", [{}, {"alignment": False}])
@pytest.mark.parametrize("path", ["/v1/translate", "/v1/score"])
def test_attention_without_an_alignment_is_refused(
    bundled: httpx.Client, path: str, fields: dict[str, Any]
) -> None:
    body = {"text": "a", "source": "en", "target": "de", "attention": True, **fields}
    if path == "/v1/score":
        body["translation"] = "a"
    answer = bundled.post(path, json=body)
    assert answer.status_code == 422
    error = answer.json()["error"]
    assert (error["field"], error["message"]) == ("attention", "attention needs alignment, which is off")


def test_long_sources_count_towards_the_limit(bundled: httpx.Client) -> None:
    """The limit is 512 token lists (`max_token_lists`).

    Each text counts as 6 lists: itself, 3 alternatives, and 2 for attention, one per 32 source subwords, rounded up.
    """
    sentence = "It is late and the water is cold and nobody is here"
    longer = f"{sentence} and {sentence} and {sentence}."
    num_subwords = post(bundled, "/v1/translate", text=longer)["usage"]["source_tokens"]
    assert 32 < num_subwords <= 64
    body = {**REQUEST, "text": [longer] * 101, "num_hypotheses": 1, "num_alternatives": 3, "beam_size": 1}
    answer = bundled.post("/v1/translate", json=body)
    assert answer.status_code == 413
    error = answer.json()["error"]
    assert error["field"] == "attention"
    assert "3 alternatives and attention makes 606 lists, the limit is 512" in error["message"]
    assert "late" not in error["message"]
