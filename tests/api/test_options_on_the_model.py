"""The effect of each decoding option, on a server with the bundled model."""

from __future__ import annotations

import json
import math
from itertools import pairwise
from typing import Any

import httpx
import pytest

TEXT = "Could you bring two chairs into the kitchen, please?"
SEVERAL = "The old bridge was closed in 1987. Nobody uses it \U0001f600 today.\n\nWhy?"


def post(client: httpx.Client, path: str, **fields: Any) -> dict[str, Any]:
    answer = client.post(path, json={"source": "en", "target": "de", **fields})
    assert answer.status_code == 200, answer.text
    result: dict[str, Any] = answer.json()
    return result


def translated(client: httpx.Client, text: str = TEXT, **options: Any) -> dict[str, Any]:
    """The translation of the only text."""
    (translation,) = post(client, "/v1/translate", text=text, **options)["translations"]
    result: dict[str, Any] = translation
    return result


def segment_of(client: httpx.Client, text: str = TEXT, **options: Any) -> dict[str, Any]:
    (segment,) = translated(client, text, **options)["segments"]
    result: dict[str, Any] = segment
    return result


def num_subwords(segment: dict[str, Any]) -> int:
    """The number of tokens of a segment, without the end token."""
    return sum(token["text"] is not None for token in segment["tokens"])


def test_an_answer_has_no_field_that_the_request_does_not_set(bundled: httpx.Client) -> None:
    answer = post(
        bundled, "/v1/translate", text=TEXT, beam_size=2, patience=1, loop_guard=False, alignment=False
    )
    assert set(answer) == {"translations", "model", "usage"}
    assert set(answer["translations"][0]) == {"text", "source", "segments"}
    assert set(answer["translations"][0]["segments"][0]) == {"source", "target", "score", "finish_reason"}


def test_tokens_join_to_the_translation_and_sum_to_its_score(bundled: httpx.Client) -> None:
    translation = translated(
        bundled, SEVERAL, token_scores=True, length_penalty={"formula": "power", "alpha": 1}
    )
    assert len(translation["segments"]) == 3
    for segment in translation["segments"]:
        spans = [(token["target"]["start"], token["target"]["end"]) for token in segment["tokens"]]
        assert spans[0][0] == segment["target"]["start"]
        assert spans[-1] == (segment["target"]["end"],) * 2
        assert all(left[1] == right[0] for left, right in pairwise(spans))
        for (start, end), token in zip(spans[:-1], segment["tokens"][:-1], strict=True):
            assert token["text"] == translation["text"][start:end]
            assert set(token) == {"text", "target", "log_probability"}
        assert segment["tokens"][-1]["text"] is None
        total = sum(token["log_probability"] for token in segment["tokens"])
        assert segment["log_probability"] == pytest.approx(total, abs=1e-4)
        assert segment["score"] == pytest.approx(total / len(segment["tokens"]), abs=1e-4)


def test_tokens_of_every_hypothesis(bundled: httpx.Client) -> None:
    segment = segment_of(bundled, num_hypotheses=3, token_scores=True)
    assert len(segment["hypotheses"]) == 3
    for hypothesis in segment["hypotheses"]:
        assert "".join(token["text"] or "" for token in hypothesis["tokens"]) == hypothesis["text"]
        assert hypothesis["tokens"][0]["target"]["start"] == 0
    assert segment["tokens"] == segment["hypotheses"][0]["tokens"]


def test_the_alternatives_are_the_most_probable_tokens_at_each_position(bundled: httpx.Client) -> None:
    segment = segment_of(bundled, beam_size=1, num_alternatives=4)
    for token in segment["tokens"]:
        found = [each["log_probability"] for each in token["alternatives"]]
        assert len(found) == 4
        assert found == sorted(found, reverse=True)
        assert token["log_probability"] == pytest.approx(found[0], abs=1e-5), (
            "greedy search takes the most probable token"
        )
        assert token["text"] is None or token["text"].strip() in {
            (each["text"] or "").strip() for each in token["alternatives"]
        }
    assert segment["tokens"][-1]["alternatives"][0]["text"] is None


def test_alignment_points_into_the_callers_text(bundled: httpx.Client) -> None:
    segments = translated(bundled, SEVERAL, alignment=True)["segments"]
    found = {}
    for segment in segments:
        for token in segment["tokens"]:
            if token["text"] is None:
                assert "source" not in token
                continue
            source = token["source"]
            assert segment["source"]["start"] <= source["start"] < source["end"] <= segment["source"]["end"]
            assert 0 < token["attention"] <= 1
            found[token["text"].strip()] = SEVERAL[source["start"] : source["end"]].strip()
    assert (found["alte"], found["geschlossen"], found["Warum"]) == ("old", "closed", "Why")
    assert (found["9"], found["8"], found["7"]) == ("9", "8", "7")
    assert found["\U0001f600"] == "\U0001f600"


def test_the_list_of_models_says_that_the_model_has_alignment(bundled: httpx.Client) -> None:
    (model,) = bundled.get("/v1/models").json()["models"]
    assert model["alignment"] is True


def test_the_coverage_penalty_lowers_the_score(bundled: httpx.Client) -> None:
    plain, covered = (
        segment_of(bundled, beam_size=4, coverage_penalty=beta, token_scores=True) for beta in (0, 2.5)
    )
    assert covered["score"] < plain["score"]


@pytest.mark.parametrize("word", ["in die", "bitte", "Könnten Sie"])
def test_suppressed_text_is_not_in_the_translation(bundled: httpx.Client, word: str) -> None:
    assert word in translated(bundled)["text"]
    assert word not in translated(bundled, suppress=word)["text"]
    assert word not in translated(bundled, suppress=["Haus", word])["text"]


def test_a_prefix_begins_its_own_text_only(bundled: httpx.Client) -> None:
    texts = ["Could you help me? I am late.", "Where is he?", "Where is she?"]
    prefixes = ["Kannst du", "", "Und wo"]
    answer = post(bundled, "/v1/translate", text=texts, target_prefix=prefixes)
    found = [translation["text"] for translation in answer["translations"]]
    assert [text.startswith(prefix) for text, prefix in zip(found, prefixes, strict=True)] == [True] * 3
    assert found[1] == translated(bundled, texts[1])["text"]
    assert found[0].endswith(translated(bundled, "I am late.")["text"])


@pytest.mark.parametrize(
    "text",
    [
        "The file {name} is missing.",
        "You have %d new messages.",
        "Visit https://example.org/a?b=1 or write to info@example.org, {name}.",
    ],
)
def test_a_whole_translation_as_the_prefix_is_returned_again(bundled: httpx.Client, text: str) -> None:
    whole = translated(bundled, text)["text"]
    again = translated(bundled, text, target_prefix=whole)
    assert again["text"] == whole
    assert "fallbacks" not in again["segments"][0]


def test_length_limits_are_kept(bundled: httpx.Client) -> None:
    free = num_subwords(segment_of(bundled, token_scores=True))
    assert num_subwords(segment_of(bundled, min_target_length=free + 5, token_scores=True)) >= free + 5
    assert num_subwords(segment_of(bundled, min_target_length=80, token_scores=True, beam_size=1)) >= 80
    short = segment_of(bundled, max_target_length=free - 5, token_scores=True, beam_size=1)
    assert (num_subwords(short), short["finish_reason"]) == (free - 5, "length")
    num_source = post(bundled, "/v1/translate", text=TEXT)["usage"]["source_tokens"] - 1
    half = segment_of(bundled, max_target_ratio=0.5, token_scores=True, beam_size=1)
    assert num_subwords(half) == math.floor(0.5 * num_source)
    double = segment_of(bundled, min_target_ratio=2, token_scores=True, beam_size=1)
    assert num_subwords(double) >= 2 * num_source


def test_no_ngram_occurs_twice(bundled: httpx.Client) -> None:
    text = "He runs and runs and runs and runs and runs and runs."

    def pairs_of(**options: Any) -> list[tuple[str, ...]]:
        tokens = segment_of(bundled, text, beam_size=1, token_scores=True, **options)["tokens"]
        return list(pairwise(token["text"] for token in tokens))

    plain, limited = pairs_of(), pairs_of(no_repeat_ngram_size=2)
    assert len(set(plain)) < len(plain)
    assert len(set(limited)) == len(limited)


def test_the_repetition_penalty_lowers_repeated_tokens(bundled: httpx.Client) -> None:
    text = "He runs and runs and runs and runs and runs and runs."
    plain, penalised = (
        translated(bundled, text, beam_size=1, repetition_penalty=penalty)["text"].split()
        for penalty in (1, 5)
    )
    assert len(penalised) - len(set(penalised)) < len(plain) - len(set(plain))


def test_the_loop_guard_ends_repetitions_and_reports_them(bundled: httpx.Client) -> None:
    """With a minimum length far beyond the end of the sentence, the model repeats itself in some of these sentences."""
    options = {"beam_size": 1, "min_target_length": 100, "loop_guard": True}
    sentences = (
        "The dog is old.",
        "Yes.",
        "I have a red house.",
        "Where is the station?",
        "Good morning.",
        "She sings.",
    )
    found = [segment_of(bundled, text, **options, token_scores=True) for text in sentences]
    looped = next(each for each in found if each["has_looped"])
    # The first token's text lacks the space that tells a word's first subword from others. Some subwords have no text.
    texts = [token["text"] for token in looped["tokens"][1:]]
    triples = [triple for triple in zip(texts, texts[1:], texts[2:], strict=False) if all(triple)]
    assert len(set(triples)) == len(triples) > 50
    assert segment_of(bundled, loop_guard=True)["has_looped"] is False


def test_a_seed_draws_the_same_again(bundled: httpx.Client) -> None:
    sampling = {"temperature": 1.3, "top_p": 0.95, "top_k": 50}
    drawn = [
        post(bundled, "/v1/translate", text=TEXT, sampling={**sampling, "seed": seed})
        for seed in (1, 2, 3, 1)
    ]
    texts = [answer["translations"][0]["text"] for answer in drawn]
    assert [answer["seed"] for answer in drawn] == [1, 2, 3, 1]
    assert texts[0] == texts[3]
    assert len(set(texts)) > 1
    free = [post(bundled, "/v1/translate", text=TEXT, sampling=sampling) for _ in range(2)]
    assert free[0]["seed"] != free[1]["seed"]
    again = post(bundled, "/v1/translate", text=TEXT, sampling={**sampling, "seed": free[0]["seed"]})
    assert again["translations"] == free[0]["translations"]


def test_several_samples_are_those_of_the_seeds_that_follow(bundled: httpx.Client) -> None:
    """The samples have consecutive seeds, in order. `text` is the first sample."""
    sampling = {"temperature": 1.3, "top_p": 0.95, "seed": 11}
    one_by_one = [
        post(bundled, "/v1/translate", text=TEXT, sampling={**sampling, "seed": seed})["translations"][0][
            "text"
        ]
        for seed in (11, 12, 13, 14)
    ]
    answer = post(bundled, "/v1/translate", text=TEXT, sampling=sampling, num_hypotheses=4)
    (translation,) = answer["translations"]
    assert answer["seed"] == 11
    assert [each["text"] for each in translation["hypotheses"]] == one_by_one
    assert translation["text"] == one_by_one[0]
    assert len(set(one_by_one)) > 1
    (segment,) = translation["segments"]
    assert len(segment["hypotheses"]) == 4
    assert segment["score"] == segment["hypotheses"][0]["score"]


def test_several_samples_of_the_last_seed(bundled: httpx.Client) -> None:
    """The seed after the largest one is 0."""
    last = 2**63 - 1
    pair = post(bundled, "/v1/translate", text=TEXT, sampling={"seed": last}, num_hypotheses=2)
    first = post(bundled, "/v1/translate", text=TEXT, sampling={"seed": 0})
    assert pair["translations"][0]["hypotheses"][1]["text"] == first["translations"][0]["text"]


def test_without_a_seed_several_samples_can_be_drawn_again(bundled: httpx.Client) -> None:
    drawn = post(bundled, "/v1/translate", text=TEXT, sampling={}, num_hypotheses=3)
    again = post(bundled, "/v1/translate", text=TEXT, sampling={"seed": drawn["seed"]}, num_hypotheses=3)
    assert again["translations"] == drawn["translations"]


def test_several_samples_in_a_stream(bundled: httpx.Client) -> None:
    """The first sample is streamed during decoding."""
    body = {"text": TEXT, "source": "en", "target": "de", "sampling": {"seed": 11}, "num_hypotheses": 3}
    whole = bundled.post("/v1/translate", json=body).json()
    events = bundled.post("/v1/translate/stream", json=body).text
    done = json.loads(events.split("event: done\ndata: ")[1].split("\n")[0])
    assert done["translations"] == whole["translations"]
    assert "event: delta" in events


def test_a_sentence_counts_once_a_sample(bundled: httpx.Client) -> None:
    """A request may have 1,024 sentences. The 300 sentences of this request count as 900 or 1,200."""
    body = {"text": "Why?\n" * 300, "source": "en", "target": "de", "sampling": {"top_k": 1}}
    assert bundled.post("/v1/translate", json={**body, "num_hypotheses": 3}).status_code == 200
    refused = bundled.post("/v1/translate", json={**body, "num_hypotheses": 4})
    assert (refused.status_code, refused.json()["error"]["field"]) == (413, "text")
    assert "1024 sentences, each counted once a sample" in refused.json()["error"]["message"]


def test_cold_or_narrow_sampling_is_greedy(bundled: httpx.Client) -> None:
    greedy = translated(bundled, beam_size=1)
    for sampling in ({"temperature": 0.01, "seed": 5}, {"top_k": 1, "seed": 5}, {"top_p": 0.001, "seed": 5}):
        assert translated(bundled, sampling=sampling)["text"] == greedy["text"]


def test_a_longer_search_finds_no_worse_translation(bundled: httpx.Client) -> None:
    first = segment_of(bundled, beam_size=4)["score"]
    assert segment_of(bundled, beam_size=4, early_stop="bound")["score"] >= first - 1e-4
    assert segment_of(bundled, beam_size=4, patience=3)["score"] >= first - 1e-4


def test_scoring_the_models_own_translation_gives_the_same_scores(bundled: httpx.Client) -> None:
    texts = [TEXT, "The water is cold.", "Nobody knows \u4f60\u597d \U0001f600 here."]
    own = [segment_of(bundled, text, token_scores=True) for text in texts]
    translations = [translated(bundled, text)["text"] for text in texts]
    answer = post(bundled, "/v1/score", text=texts, translation=translations, token_scores=True)
    assert len(answer["scores"]) == 3
    for segment, score, translation in zip(own, answer["scores"], translations, strict=True):
        assert [token["text"] for token in score["tokens"]] == [token["text"] for token in segment["tokens"]]
        assert score["log_probability"] == pytest.approx(segment["log_probability"], abs=1e-3)
        assert score["score"] == pytest.approx(segment["score"], abs=1e-3)
        assert score["num_tokens"] == len(score["tokens"])
        assert "".join(token["text"] or "" for token in score["tokens"]) == translation
    assert answer["usage"]["target_tokens"] == sum(score["num_tokens"] for score in answer["scores"])


def test_a_wrong_translation_scores_lower_where_it_is_wrong(bundled: httpx.Client) -> None:
    right, wrong = " Das Wasser ist kalt. ", "Das Wasser ist blau."
    answer = post(
        bundled,
        "/v1/score",
        text=["The water is cold."] * 2,
        translation=[right, wrong],
        token_scores=True,
        num_alternatives=3,
    )
    good, bad = answer["scores"]
    assert set(good) == {"log_probability", "score", "num_tokens", "tokens"}
    assert bad["score"] < good["score"]
    least = min(bad["tokens"], key=lambda token: token["log_probability"])
    assert least["target"]["start"] == wrong.index(" blau")
    assert " kalt" in [each["text"] for each in least["alternatives"]]
    first = good["tokens"][0]["target"]
    assert right[first["start"] : first["end"]] == "Das"


def test_a_decomposed_translation_is_returned_as_sent(bundled: httpx.Client) -> None:
    translation = "Es ist spa\u0308t."
    answer = post(bundled, "/v1/score", text="It is late.", translation=translation, token_scores=True)
    assert "".join(token["text"] or "" for token in answer["scores"][0]["tokens"]) == translation
