"""One server, several models: the pair, a model's name or each text's language selects the model."""

from __future__ import annotations

import json
from collections.abc import Iterator

import httpx
import pytest

from tests.api.server_process import ServerProcess

ENGLISH = "Anna sees the river today, and the children play near the old house."
GERMAN = "Anna sieht heute den Fluss, und die Kinder spielen bei dem alten Haus."
FRENCH = "Anna voit la rivière aujourd'hui, et les enfants jouent près de la vieille maison."


@pytest.fixture(scope="module")
def many(echo_command: list[str]) -> Iterator[httpx.Client]:
    """Three models. Both the first and the third translate en to de."""
    pairs = "pairs=en>de,de>en;fr>en;en>de,en>it"
    with ServerProcess([*echo_command, pairs]) as server, server.ready().client() as client:
        yield client


def translate(client: httpx.Client, **fields: object) -> httpx.Response:
    return client.post("/v1/translate", json={"text": ENGLISH, **fields})


@pytest.mark.parametrize(
    ("source", "target", "model"),
    [
        ("en", "de", "echo"),
        ("de", "en", "echo"),
        ("fr", "en", "echo-2"),
        ("en", "it", "echo-3"),
        ("EN-us", "IT", "echo-3"),
    ],
)
def test_the_first_model_of_a_pair_translates(
    many: httpx.Client, source: str, target: str, model: str
) -> None:
    answer = translate(many, source=source, target=target).json()
    assert answer["model"] == {"name": model, "version": "1"}
    assert answer["translations"][0]["text"] == ENGLISH


def test_a_request_can_name_its_model(many: httpx.Client) -> None:
    answer = translate(many, source="en", target="de", model="echo-3").json()
    assert answer["model"]["name"] == "echo-3"
    scored = many.post(
        "/v1/score",
        json={"text": ENGLISH, "translation": ENGLISH, "source": "en", "target": "de", "model": "echo-3"},
    )
    assert scored.json()["model"]["name"] == "echo-3"
    unknown = translate(many, source="en", target="de", model="echo-9")
    assert unknown.status_code == 422
    assert unknown.json()["error"]["field"] == "model"
    assert "echo, echo-2, echo-3" in unknown.json()["error"]["message"]
    other_pair = translate(many, source="en", target="de", model="echo-2")
    assert other_pair.status_code == 422
    assert "fr to en" in other_pair.json()["error"]["message"]


def test_an_unserved_pair_lists_the_pairs_of_all_models(many: httpx.Client) -> None:
    answer = translate(many, source="it", target="fr")
    assert answer.status_code == 422
    for pair in ("de to en", "en to de", "en to it", "fr to en"):
        assert pair in answer.json()["error"]["message"]


def test_texts_of_several_models_in_one_request(many: httpx.Client) -> None:
    """Each text goes to the model of its language; a text in the target language is unchanged."""
    texts = [FRENCH, ENGLISH, GERMAN, FRENCH]
    answer = many.post("/v1/translate", json={"text": texts, "source": "auto", "target": "en"}).json()
    found = answer["translations"]
    assert [each["text"] for each in found] == texts
    assert [each["source"] for each in found] == ["fr", "en", "de", "fr"]
    assert answer["model"]["name"] == "echo-2", "the model of the first text"
    german = many.post("/v1/translate", json={"text": GERMAN, "source": "auto", "target": "en"}).json()
    assert german["model"]["name"] == "echo"


def test_a_short_deadline_ends_a_request_of_several_models(many: httpx.Client) -> None:
    body = {"text": [FRENCH, GERMAN], "source": "auto", "target": "en", "timeout_ms": 1}
    answer = many.post("/v1/translate", json=body)
    assert answer.status_code == 504
    assert translate(many, source="en", target="de").status_code == 200


def test_a_stream_has_one_model(many: httpx.Client) -> None:
    def events(body: dict[str, object]) -> httpx.Response:
        return many.post("/v1/translate/stream", json={"beam_size": 1, **body})

    started = events({"text": FRENCH, "source": "auto", "target": "en"}).text
    data = next(line for line in started.splitlines() if line.startswith("data: "))
    assert json.loads(data.removeprefix("data: "))["model"]["name"] == "echo-2"
    mixed = events({"text": [FRENCH, GERMAN], "source": "auto", "target": "en"})
    assert mixed.status_code == 422
    assert mixed.json()["error"]["field"] == "source"


def test_the_lists_have_all_models_and_pairs(many: httpx.Client) -> None:
    models = many.get("/v1/models").json()["models"]
    assert [model["name"] for model in models] == ["echo", "echo-2", "echo-3"]
    languages = {row["code"]: row["targets"] for row in many.get("/languages").json()}
    assert languages == {
        "de": ["de", "en"], "en": ["de", "en", "it"], "fr": ["en", "fr"], "it": ["it"],
    }  # fmt: skip
    sources = many.get("/v2/languages", params={"type": "source"}).json()
    assert [row["language"] for row in sources] == ["DE", "EN", "FR"]


def test_the_other_apis_select_a_model_by_the_pair(many: httpx.Client) -> None:
    simple = many.post("/translate", json={"q": FRENCH, "source": "fr", "target": "en"})
    assert simple.json()["translatedText"] == FRENCH
    mixed = many.post("/v2/translate", json={"text": [FRENCH, GERMAN], "target_lang": "EN-GB"})
    assert [row["detected_source_language"] for row in mixed.json()["translations"]] == ["FR", "DE"]


def test_the_inference_protocol_names_the_model(many: httpx.Client) -> None:
    for name, path in (("echo-2", "/v2/models/echo-2"), ("echo-3", "/v2/models/echo-3/versions/1")):
        assert many.get(path).json()["name"] == name
    tensor = {"name": "text", "datatype": "BYTES", "shape": [1], "data": [FRENCH]}
    answer = many.post("/v2/models/echo-2/infer", json={"inputs": [tensor]})
    assert answer.json()["model_name"] == "echo-2", answer.text
    missing = many.get("/v2/models/echo-9")
    assert missing.status_code == 404
    assert "echo-2, version 1" in missing.json()["error"]


def test_the_metrics_name_all_models(many: httpx.Client) -> None:
    text = many.get("/metrics").text
    for name in ("echo", "echo-2", "echo-3"):
        assert f'transduce_model_info{{model="{name}",precision="fp32",version="1"}} 1.0' in text
