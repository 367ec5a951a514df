"""A text whose detected language is not served is refused by every API. The error names the language."""

from __future__ import annotations

import httpx
import pytest

from tests.api.processes import wait_until
from tests.api.test_file_workers import state, status

FRENCH = "Bonjour tout le monde, comment \u00e7a va?"
ENGLISH = "The weather was very good yesterday."
SHORT = ["OK", "Hallo", "42", "Fran\u00e7ois Dupont", "Berlin"]
INFER = "/v2/models/echo/infer"


def infer(texts: list[str]) -> dict[str, object]:
    tensor = {"name": "text", "datatype": "BYTES", "shape": [len(texts)], "data": texts}
    return {"inputs": [tensor], "parameters": {"source": "auto", "target": "de"}}


def test_the_native_api_names_the_language_and_the_index_of_the_text(http: httpx.Client) -> None:
    body = {"text": [ENGLISH, FRENCH], "source": "auto", "target": "de"}
    answer = http.post("/v1/translate", json=body)
    assert answer.status_code == 422
    error = answer.json()["error"]
    assert error["code"] == "unsupported_languages"
    assert (error["field"], error["source"], error["target"]) == ("text[1]", "fr", "de")
    assert "French (fr)" in error["message"]
    assert "en to de" in error["message"]
    assert FRENCH not in answer.text
    streamed = http.post("/v1/translate/stream", json={**body, "text": FRENCH})
    assert "French (fr)" in streamed.text


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/translate", {"q": FRENCH, "source": "auto", "target": "de"}),
        ("/v2/translate", {"text": [FRENCH], "target_lang": "DE"}),
        (INFER, infer([FRENCH])),
    ],
)
def test_every_dialect_names_the_language(http: httpx.Client, path: str, body: object) -> None:
    answer = http.post(path, json=body)
    assert answer.status_code == 400
    assert "French" in answer.text


def test_translate_file_refuses_a_foreign_text(http: httpx.Client) -> None:
    files = {"file": ("a.txt", f"{FRENCH}\n".encode())}
    answer = http.post("/translate_file", files=files, data={"source": "auto", "target": "de"})
    assert answer.status_code == 400
    assert "French (fr)" in answer.json()["error"]


def test_v2_document_refuses_a_foreign_text(http: httpx.Client) -> None:
    files = {"file": ("a.txt", f"{FRENCH}\n".encode())}
    handle = http.post("/v2/document", files=files, data={"target_lang": "DE"}).json()
    wait_until(lambda: status(http, handle) == "error")
    assert "French (fr)" in state(http, handle)["error_message"]


def test_short_texts_and_names_are_translated(http: httpx.Client) -> None:
    native = http.post("/v1/translate", json={"text": SHORT, "source": "auto", "target": "de"})
    root = http.post("/translate", json={"q": SHORT, "source": "auto", "target": "de"})
    v2 = http.post("/v2/translate", json={"text": SHORT, "target_lang": "DE"})
    inferred = http.post(INFER, json=infer(SHORT))
    assert [answer.status_code for answer in (native, root, v2, inferred)] == [200] * 4


def test_detection_finds_a_language_that_is_not_served(http: httpx.Client) -> None:
    (found,) = http.post("/v1/detect", json={"text": FRENCH}).json()["detections"]
    assert found["language"] == "fr"
    assert found["confidence"] > 0.9
    assert http.post("/detect", json={"q": FRENCH}).json()[0]["language"] == "fr"
