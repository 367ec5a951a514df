"""POST /v1/translate responds as documented, with the echo model, which returns its input."""

from __future__ import annotations

import re
import unicodedata
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from app.api.native.models import DetectBody, ScoreBody, TranslateBody
from tests.api.echo import GOLDEN, POISON
from tests.api.server_process import ServerProcess


def translate(client: httpx.Client, text: object, **options: object) -> httpx.Response:
    return client.post("/v1/translate", json={"text": text, "source": "en", "target": "de", **options})


def translated(client: httpx.Client, text: object, **options: object) -> dict[str, Any]:
    answer = translate(client, text, **options)
    assert answer.status_code == 200, answer.text
    result: dict[str, Any] = answer.json()
    return result


def test_a_response_has_all_fields(client: httpx.Client) -> None:
    answer = translated(client, ["Anna draws. Nobody sees 42 cats!"])
    score = answer["translations"][0]["segments"][0].pop("score")
    other = answer["translations"][0]["segments"][1].pop("score")
    tokens = answer["usage"].pop("source_tokens")
    assert score < 0
    assert other < 0
    assert answer == {
        "translations": [
            {
                "text": "Anna draws. Nobody sees 42 cats!",
                "source": "en",
                "segments": [
                    {
                        "source": {"start": 0, "end": 11},
                        "target": {"start": 0, "end": 11},
                        "finish_reason": "stop",
                    },
                    {
                        "source": {"start": 12, "end": 32},
                        "target": {"start": 12, "end": 32},
                        "finish_reason": "stop",
                    },
                ],
            }
        ],
        "model": {"name": "echo", "version": "1"},
        "usage": {"target_tokens": tokens, "sentences": 2},
    }


def test_a_string_is_answered_with_a_list_of_one(client: httpx.Client) -> None:
    assert [each["text"] for each in translated(client, GOLDEN)["translations"]] == [GOLDEN]


def test_texts_come_back_in_order(client: httpx.Client) -> None:
    texts = [f"Anna sees {number} cats." for number in range(100)]
    assert [each["text"] for each in translated(client, texts)["translations"]] == texts


@pytest.mark.parametrize("text", ["", " ", "\n\t ", "\u200b\ufeff\u00a0", "\u2028", "--- ...", "\U0001f600"])
def test_a_text_without_words_does_not_reach_the_model(
    client: httpx.Client, server: ServerProcess, text: str
) -> None:
    before = server.metric("transduce_decode_steps_total")
    answer = translated(client, text)
    assert answer["translations"] == [{"text": text, "source": "en", "segments": []}]
    assert answer["usage"] == {"source_tokens": 0, "target_tokens": 0, "sentences": 0}
    assert server.metric("transduce_decode_steps_total") == before


@pytest.mark.parametrize(
    "text",
    [
        "a\u0000b",
        "Anna \U0001f468\u200d\U0001f469\u200d\U0001f467 draws \U0001f1e9\U0001f1ea.",
        "\u4f60\u597d\uff0c world",
        "</s> <pad> >>fra<< <2de> \u2581 Anna",
        "\ue000 Anna \ue001",
        "<script>alert(1)</script>",
        "\u202eAnna\u202c sees",
        "  one\r\n\r\n\ttwo  \u2028three\x85\x0bfour\n",
        "Anna sees " * 150,
        "a" * 1500,
        "\U0001f600 a " * 40,
        "e\u0301" * 200,
    ],
)
def test_text_that_the_model_repeats_is_unchanged(client: httpx.Client, text: str) -> None:
    """Both texts are compared in composed form (NFC), because the tokenizer composes its input."""
    found = translated(client, text)["translations"][0]["text"]
    assert unicodedata.normalize("NFC", found) == unicodedata.normalize("NFC", text)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.text(alphabet=st.characters(exclude_categories=["Cs"]), max_size=80))
def test_any_text_is_answered_with_correct_spans(client: httpx.Client, text: str) -> None:
    answer = translated(client, text, beam_size=1)["translations"][0]
    source_end = target_end = 0
    for segment in answer["segments"]:
        source, target = segment["source"], segment["target"]
        assert text[source_end : source["start"]] == answer["text"][target_end : target["start"]]
        source_end, target_end = source["end"], target["end"]
    assert text[source_end:] == answer["text"][target_end:]


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.text(alphabet="Anna sees 42 cats.\u00fcu\u0308\u4f60\U0001f600\ue000\n\t", max_size=60))
def test_tokens_of_any_text_have_correct_spans(client: httpx.Client, text: str) -> None:
    """Scoring a text with its translation returns the tokens of the translation."""
    answer = translated(client, text, beam_size=1, token_scores=True)["translations"][0]
    for segment in answer["segments"]:
        end = segment["target"]["start"]
        for token in segment["tokens"]:
            assert end == token["target"]["start"] <= token["target"]["end"]
            end = token["target"]["end"]
            assert (token["text"] or "") == answer["text"][token["target"]["start"] : end]
        source, target = segment["source"], segment["target"]
        pair = {
            "text": text[source["start"] : source["end"]],
            "translation": answer["text"][target["start"] : end],
        }
        scored = client.post("/v1/score", json={**pair, "source": "en", "target": "de", "token_scores": True})
        (score,) = scored.json()["scores"]
        assert "".join(token["text"] or "" for token in score["tokens"]) == pair["translation"].strip()


def test_n_best_joins_the_kth_hypothesis_of_each_segment(client: httpx.Client) -> None:
    text = "Anna draws.\n\nNobody sees 42 cats!"
    answer = translated(client, text, beam_size=4, num_hypotheses=3)["translations"][0]
    first, second = (segment["hypotheses"] for segment in answer["segments"])
    assert len({each["text"] for each in first}) == len({each["text"] for each in second}) == 3
    assert [each["text"] for each in answer["hypotheses"]] == [
        f"{left['text']}\n\n{right['text']}" for left, right in zip(first, second, strict=True)
    ]
    assert answer["hypotheses"][0]["text"] == answer["text"] == text
    assert [each["score"] for each in first] == sorted((each["score"] for each in first), reverse=True)


def test_without_n_best_there_are_no_hypotheses(client: httpx.Client) -> None:
    answer = translated(client, GOLDEN)["translations"][0]
    assert "hypotheses" not in answer
    assert "hypotheses" not in answer["segments"][0]


def test_a_reached_length_limit_is_reported(client: httpx.Client) -> None:
    segment = translated(client, GOLDEN, max_target_length=2)["translations"][0]["segments"][0]
    assert segment["finish_reason"] == "length"


def test_the_length_penalty_divides_the_score(client: httpx.Client) -> None:
    def score(**options: object) -> float:
        found: float = translated(client, GOLDEN, beam_size=1, **options)["translations"][0]["segments"][0][
            "score"
        ]
        return found

    plain = score(length_penalty=0)
    num_tokens = translated(client, GOLDEN)["usage"]["target_tokens"]
    assert score(length_penalty=1) == pytest.approx(plain / ((5 + num_tokens) / 6))
    assert score(length_penalty={"formula": "power", "alpha": 1}) == pytest.approx(plain / num_tokens)
    assert score() == score(length_penalty=0.6) == score(length_penalty={"formula": "wu", "alpha": 0.6})


def test_the_header_has_the_time_of_each_phase(client: httpx.Client) -> None:
    timing = translate(client, GOLDEN).headers["server-timing"]
    phases = re.fullmatch(r"(?:(?:^|, )\w+;dur=\d+\.\d\d)+", timing)
    assert phases, timing
    assert re.findall(r"(\w+);", timing) == ["tokenise", "queue", "encode", "decode", "detokenise"]


def test_a_poisoned_sentence_fails_alone(echo_command: list[str], hang_file: Path) -> None:
    """Its first step fails together with the steps of seven other sentences."""
    with (
        ServerProcess([*echo_command, f"hang_file={hang_file}"]) as server,
        server.ready().client() as client,
        ThreadPoolExecutor(8) as pool,
    ):
        hang_file.touch()
        others = [pool.submit(translate, client, f"Nobody draws {index} cats.") for index in range(7)]
        server.wait_until("transduce_queue_depth", 7)
        poisoned = pool.submit(translate, client, POISON)
        server.wait_until("transduce_queue_depth", 8)
        hang_file.unlink()
        assert [answer.result().status_code for answer in others] == [200] * 7
        assert poisoned.result().status_code == 500
        assert poisoned.result().json()["error"]["code"] == "engine_failure"
        assert client.get("/livez").status_code == 200


def test_models(client: httpx.Client) -> None:
    (model,) = client.get("/v1/models").json()["models"]
    assert model["name"] == "echo"
    assert model["alignment"] is False
    assert model["language_pairs"] == [{"source": "en", "target": "de"}]
    assert model["defaults"] == {"beam_size": 4, "length_penalty": {"formula": "wu", "alpha": 0.6}}


def test_the_openapi_document_describes_every_field_of_the_bodies(client: httpx.Client) -> None:
    document = client.get("/openapi.json").json()
    for path, model in (
        ("/v1/translate", TranslateBody),
        ("/v1/translate/stream", TranslateBody),
        ("/v1/score", ScoreBody),
        ("/v1/detect", DetectBody),
    ):
        content = document["paths"][path]["post"]["requestBody"]["content"]
        name = content["application/json"]["schema"]["$ref"].rpartition("/")[2]
        properties = document["components"]["schemas"][name]["properties"]
        assert set(properties) == set(model.model_fields)
        assert all(field["description"] for field in properties.values())


def test_the_openapi_document_has_the_limits_that_are_settings(client: httpx.Client) -> None:
    properties = client.get("/openapi.json").json()["components"]["schemas"]["TranslateBody"]["properties"]
    assert properties["beam_size"]["maximum"] == 16
    one, several = properties["text"]["oneOf"]
    assert one["maxLength"] == several["items"]["maxLength"] == 2000
    assert (several["minItems"], several["maxItems"]) == (1, 128)
    assert "maximum" not in properties["max_target_length"], (
        "the model's limits are unknown before it is loaded"
    )


def test_the_api_page_loads_no_other_file(client: httpx.Client) -> None:
    page = client.get("/docs")
    assert page.headers["content-type"].startswith("text/html")
    assert all(name in page.text for name in ("/v1/translate", "/v1/score", "sampling", "translation"))
    assert not re.search(r"src=|https?://|@import|url\(", page.text)
