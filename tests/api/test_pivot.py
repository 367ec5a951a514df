"""A server that translates through another language: which pairs it lists, and which requests it serves."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from tests.api.server_process import ServerProcess

ENGLISH = "Anna sees the river today, and the children play near the old house."
GERMAN = "Anna sieht heute den Fluss, und die Kinder spielen bei dem alten Haus."
FRENCH = "Anna voit la rivière aujourd'hui, et les enfants jouent près de la vieille maison."
PAIRS = "pairs=de>en,en>de;en>fr;de>it,it>fr"


@pytest.fixture(scope="module")
def pivoting(echo_command: list[str]) -> Iterator[httpx.Client]:
    """A client of a server that pivots only German to French. Both pivots are possible, and English is preferred."""
    with (
        ServerProcess([*echo_command, PAIRS], {"pivot": "en, it"}) as server,
        server.ready().client() as client,
    ):
        yield client


@pytest.fixture(scope="module")
def direct(echo_command: list[str]) -> Iterator[httpx.Client]:
    """A client of a server that has the same models and no pivot."""
    with ServerProcess([*echo_command, PAIRS]) as server, server.ready().client() as client:
        yield client


def translate(client: httpx.Client, **fields: Any) -> httpx.Response:
    return client.post("/v1/translate", json={"text": GERMAN, "source": "de", "target": "fr", **fields})


def test_the_answer_of_a_pivoted_pair_names_both_models(pivoting: httpx.Client) -> None:
    answer = translate(pivoting).json()
    (translation,) = answer["translations"]
    assert translation["text"] == GERMAN
    assert (translation["source"], translation["pivot"]) == ("de", "en")
    assert answer["model"] == {"name": "echo-2", "version": "1"}
    assert answer["models"] == [{"name": "echo", "version": "1"}, {"name": "echo-2", "version": "1"}]
    assert answer["usage"]["sentences"] == 1
    timing = translate(pivoting, text="Der Fluss ist alt.").headers["server-timing"]
    assert [part.split(";")[0] for part in timing.split(", ")] == [
        "tokenise", "queue", "encode", "decode", "detokenise",
    ]  # fmt: skip


def test_a_model_of_the_pair_is_preferred_to_a_pivot(pivoting: httpx.Client) -> None:
    answer = translate(pivoting, target="it").json()
    assert answer["model"]["name"] == "echo-3"
    assert "models" not in answer
    assert "pivot" not in answer["translations"][0]


def test_pivots_are_off_by_default(direct: httpx.Client) -> None:
    answer = translate(direct)
    assert answer.status_code == 422
    assert answer.json()["error"]["code"] == "unsupported_languages"
    assert "de to fr" not in answer.json()["error"]["message"]
    assert "pivoted_pairs" not in direct.get("/v1/models").json()


def test_a_request_can_refuse_a_pivot(pivoting: httpx.Client) -> None:
    for source in ("de", "auto"):
        answer = translate(pivoting, source=source, pivot=False)
        assert answer.status_code == 422
        assert answer.json()["error"]["code"] == "unsupported_languages"
        assert "de to fr" not in answer.json()["error"]["message"]
    assert translate(pivoting, target="en", pivot=False).status_code == 200


def test_a_named_model_has_its_own_pairs_only(pivoting: httpx.Client) -> None:
    answer = translate(pivoting, model="echo-2")
    assert answer.status_code == 422
    assert "supported: en to fr" in answer.json()["error"]["message"]


def test_the_lists_have_the_pivoted_pairs(pivoting: httpx.Client) -> None:
    pairs = pivoting.get("/v1/models").json()["pivoted_pairs"]
    assert {(each["source"], each["target"]): (each["pivot"], each["models"]) for each in pairs} == {
        ("de", "fr"): ("en", ["echo", "echo-2"])
    }
    languages = {row["code"]: row["targets"] for row in pivoting.get("/languages").json()}
    assert languages["de"] == ["de", "en", "fr", "it"]
    supported = translate(pivoting, source="fr", target="it").json()["error"]["message"]
    assert "de to fr" in supported


def test_the_log_lists_the_pivoted_pairs(echo_command: list[str]) -> None:
    settings: dict[str, object] = {"pivot": "en"}
    for pairs, expected in (("de>en,en>fr", "de-en-fr"), ("de>fr", "")):
        with ServerProcess([*echo_command, f"pairs={pairs}"], settings) as server:
            assert server.wait_for("ready")["pivoted"] == expected


def test_one_model_may_translate_both_halves(echo_command: list[str]) -> None:
    settings: dict[str, object] = {"pivot": "en"}
    with (
        ServerProcess([*echo_command, "pairs=de>en,en>fr"], settings) as server,
        server.ready().client() as client,
    ):
        answer = translate(client).json()
        assert answer["translations"][0]["pivot"] == "en"
        assert [model["name"] for model in answer["models"]] == ["echo"]
        detected = translate(client, source="auto").json()
        assert detected["translations"][0]["text"] == GERMAN
        stream = client.post("/v1/translate/stream", json={"text": GERMAN, "source": "de", "target": "fr"})
        sent = [line for line in stream.text.splitlines() if line.startswith("data: ")]
        start, done = (json.loads(line.removeprefix("data: ")) for line in (sent[0], sent[-1]))
        assert start["models"] == done["models"] == answer["models"]


def test_texts_in_several_languages(pivoting: httpx.Client) -> None:
    """German is pivoted, English has a model, and French stays as it is."""
    texts = [FRENCH, ENGLISH, GERMAN]
    answer = translate(pivoting, text=texts, source="auto").json()
    found = answer["translations"]
    assert [each["text"] for each in found] == texts
    assert [(each["source"], each.get("pivot")) for each in found] == [
        ("fr", None),
        ("en", None),
        ("de", "en"),
    ]
    assert all(each["confidence"] > 0.9 for each in found)
    assert [model["name"] for model in answer["models"]] == ["echo-2", "echo"]


def test_the_events_of_a_pivoted_stream_add_up_to_the_translation(pivoting: httpx.Client) -> None:
    body = {"text": f"{GERMAN} Anna malt.", "target": "fr", "beam_size": 1}
    for source in ("de", "auto"):
        answer = pivoting.post("/v1/translate/stream", json={**body, "source": source})
        assert answer.status_code == 200, answer.text
        events = [chunk.split("\n") for chunk in answer.text.split("\n\n") if "event: " in chunk]
        named = [
            (lines[-2].removeprefix("event: "), json.loads(lines[-1].removeprefix("data: ")))
            for lines in events
        ]
        start, done = named[0][1], named[-1][1]
        assert [model["name"] for model in start["models"]] == ["echo", "echo-2"]
        assert start["model"] == done["model"]
        texts = ["", ""]
        for name, data in named[1:-1]:
            if name == "delta":
                texts[data["segment"]] += data["text"]
            elif name == "replace":
                texts[data["segment"]] = data["text"]
        assert " ".join(texts) == done["translations"][0]["text"] == body["text"]
    mixed = pivoting.post("/v1/translate/stream", json={**body, "text": [GERMAN, ENGLISH], "source": "auto"})
    assert mixed.status_code == 422
    assert mixed.json()["error"]["field"] == "source"


def test_a_pivoted_pair_has_no_scores(pivoting: httpx.Client) -> None:
    body = {"text": GERMAN, "translation": FRENCH, "source": "de", "target": "fr"}
    error = pivoting.post("/v1/score", json=body).json()["error"]
    assert (error["code"], error["field"]) == ("unsupported_languages", "target")
    assert "through en, and has no scores; score de to en and en to fr" in error["message"]


def test_a_short_deadline_ends_a_pivoted_request(pivoting: httpx.Client) -> None:
    answer = translate(pivoting, text=f"{GERMAN} " * 20, timeout_ms=1)
    assert answer.status_code in {429, 504}
    assert translate(pivoting).status_code == 200


def test_the_dialects_serve_a_pivoted_pair_but_the_inference_protocol_does_not(
    pivoting: httpx.Client,
) -> None:
    simple = pivoting.post("/translate", json={"q": GERMAN, "source": "de", "target": "fr"})
    assert simple.json()["translatedText"] == GERMAN
    v2 = pivoting.post("/v2/translate", json={"text": [GERMAN, ENGLISH], "target_lang": "FR"})
    assert [row["detected_source_language"] for row in v2.json()["translations"]] == ["DE", "EN"]
    tensor = {"name": "text", "datatype": "BYTES", "shape": [1], "data": [GERMAN]}
    inferred = pivoting.post(
        "/v2/models/echo-2/infer", json={"inputs": [tensor], "parameters": {"source": "de", "target": "fr"}}
    )
    assert inferred.status_code >= 400, "the path names one model"


def test_a_document_is_translated_through_a_pivot(pivoting: httpx.Client) -> None:
    content = f"# {GERMAN}\n\n- {GERMAN}\n".encode()
    files = {"file": ("text.md", content, "text/markdown")}
    answer = pivoting.post("/translate_file", files=files, data={"source": "de", "target": "fr"})
    assert answer.status_code == 200, answer.text
    path = httpx.URL(answer.json()["translatedFileUrl"]).path
    assert pivoting.get(path).content == content
