"""Several models with different limits and defaults. An option that a request leaves out has the default of its model.

The model of a text is the one that translates it, also if the server detects the language of the text.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from tests.api.server_process import ServerProcess

GERMAN = "Anna sieht heute den Fluss, und die Kinder spielen bei dem alten Haus."
FRENCH = "Anna voit la rivière aujourd'hui, et les enfants jouent près de la vieille maison."
SHORT_FRENCH = "Anna voit la rivière."
# The options of each body. Only the second body sets the beam size, and none sets the length penalty.
OPTIONS: list[dict[str, Any]] = [{}, {"beam_size": 1}, {"num_hypotheses": 2}, {"num_alternatives": 1}]


@pytest.fixture(scope="module")
def different(echo_command: list[str]) -> Iterator[httpx.Client]:
    """Two models into English. The second one has a smaller max_target_length, and no length penalty."""
    arguments = ["pairs=de>en;fr>en", "lengths=71;47", "alphas=0.6;0"]
    with ServerProcess([*echo_command, *arguments]) as server, server.ready().client() as client:
        yield client


def body(text: str | list[str], source: str, **fields: Any) -> dict[str, Any]:
    return {"text": text, "source": source, "target": "en", **fields}


def answer_of(client: httpx.Client, path: str, content: dict[str, Any]) -> dict[str, Any]:
    answer = client.post(path, json=content)
    assert answer.status_code == 200, answer.text
    if not path.endswith("stream"):
        return answer.json()  # type: ignore[no-any-return]
    data = [line for line in answer.text.splitlines() if line.startswith("data: ")][-1]
    return json.loads(data.removeprefix("data: "))  # type: ignore[no-any-return]


@pytest.mark.parametrize("path", ["/v1/translate", "/v1/translate/stream"])
@pytest.mark.parametrize("options", OPTIONS)
@pytest.mark.parametrize(("text", "source"), [(GERMAN, "de"), (SHORT_FRENCH, "fr")])
def test_a_detected_language_gives_the_same_answer_as_the_named_one(
    different: httpx.Client, path: str, options: dict[str, Any], text: str, source: str
) -> None:
    named = answer_of(different, path, body(text, source, **options))
    detected = answer_of(different, path, body(text, "auto", **options))
    assert detected["translations"][0].pop("confidence") > 0.5
    assert detected == named


def test_the_texts_of_one_request_have_the_options_of_their_models(different: httpx.Client) -> None:
    both = answer_of(different, "/v1/translate", body([GERMAN, SHORT_FRENCH], "auto", alignment=False))
    scores = [each["segments"][0]["score"] for each in both["translations"]]
    alone = [
        answer_of(different, "/v1/translate", body(text, source))["translations"][0]["segments"][0]["score"]
        for text, source in ((GERMAN, "de"), (SHORT_FRENCH, "fr"))
    ]
    assert scores == alone


def test_a_limit_is_that_of_the_model_that_translates(different: httpx.Client) -> None:
    """The limit is 47 subwords for French and 71 for German. No model accepts more than 71."""
    for path in ("/v1/translate", "/v1/translate/stream"):
        for source in ("de", "auto"):
            answer_of(different, path, body(GERMAN, source, max_target_length=60))
        for text in (FRENCH, [FRENCH, GERMAN]):
            refused = different.post(path, json=body(text, "auto", max_target_length=60))
            assert refused.status_code == 422
            # A stream with texts of several models is refused for that reason, whatever its options are.
            if path == "/v1/translate" or isinstance(text, str):
                error = refused.json()["error"]
                assert error["field"] == "max_target_length"
                assert "47" in error["message"]
        refused = different.post(path, json=body(GERMAN, "auto", max_target_length=72))
        assert refused.status_code == 422
        assert refused.json()["error"]["message"] == "max_target_length must be at most 71"


@pytest.mark.parametrize("path", ["/v1/translate", "/v1/translate/stream"])
def test_a_length_penalty_is_that_of_the_model_that_translates(echo_command: list[str], path: str) -> None:
    arguments = ["pairs=de>en;fr>en", "alphas=0.6;0"]
    with ServerProcess([*echo_command, *arguments]) as server, server.ready().client() as client:
        for source in ("fr", "auto"):
            answer = answer_of(client, path, body(SHORT_FRENCH, source, token_scores=True))
            (segment,) = answer["translations"][0]["segments"]
            assert segment["score"] == segment["log_probability"], "alpha is 0"


def test_a_larger_limit_of_the_second_model_is_used(echo_command: list[str]) -> None:
    arguments = ["pairs=de>en;fr>en", "lengths=40;71"]
    with ServerProcess([*echo_command, *arguments]) as server, server.ready().client() as client:
        for source, target in itertools.product(("fr", "auto"), ("en", "EN", "en-GB")):
            content = {**body(SHORT_FRENCH, source, max_target_length=60), "target": target}
            for path in ("/v1/translate", "/v1/translate/stream"):
                answer_of(client, path, content)


def test_contradictory_options_are_refused_for_a_detected_language(different: httpx.Client) -> None:
    refused = different.post("/v1/translate", json=body(FRENCH, "auto", beam_size=2, num_hypotheses=3))
    assert (refused.status_code, refused.json()["error"]["field"]) == (422, "num_hypotheses")


@pytest.mark.parametrize("num_alternatives", [0, 2])
def test_the_simple_api_has_the_options_of_each_model(different: httpx.Client, num_alternatives: int) -> None:
    content = {"q": FRENCH, "source": "fr", "target": "en", "alternatives": num_alternatives}
    named = answer_of(different, "/translate", content)
    detected = answer_of(different, "/translate", {**content, "source": "auto"})
    assert detected.pop("detectedLanguage")["language"] == "fr"
    assert detected == named
    assert len(named.get("alternatives", [])) == num_alternatives


def test_a_pivoted_text_has_the_options_of_its_last_model(echo_command: list[str]) -> None:
    """The first model into French translates from Italian, not German. Its max_target_length of 20 must not be used."""
    arguments = ["pairs=it>fr;de>en;en>fr", "lengths=20;71;71", "alphas=0;0.6;0.6"]
    with (
        ServerProcess([*echo_command, *arguments], {"pivot": "en"}) as server,
        server.ready().client() as client,
    ):
        for options in OPTIONS:
            content = {"text": GERMAN, "target": "fr", **options}
            named = answer_of(client, "/v1/translate", {**content, "source": "de"})
            detected = answer_of(client, "/v1/translate", {**content, "source": "auto"})
            assert detected["translations"][0].pop("confidence") > 0.5
            assert detected == named
            assert detected["translations"][0]["pivot"] == "en"
