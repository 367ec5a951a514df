"""Clients of the dialect at the root, and requests as others send them, over a socket to the bundled model."""

from __future__ import annotations

from urllib.error import HTTPError

import httpx
import pytest
from libretranslatepy import LibreTranslateAPI  # type: ignore[import-untyped]

from tests.api.dialects.conftest import KEY
from tests.api.server_process import ServerProcess

SENTENCE = "The house is small."


def test_the_client_on_the_model(bundled: httpx.Client) -> None:
    api = LibreTranslateAPI(f"{bundled.base_url}/")
    assert "Haus" in api.translate(SENTENCE, "en", "de")
    assert "Haus" in api.translate(SENTENCE, "auto", "de")
    assert api.detect(SENTENCE)[0]["language"] == "en"
    assert [language["code"] for language in api.languages()] == ["de", "en"]


def test_the_client_is_told_of_errors_and_sends_its_key(locked: ServerProcess) -> None:
    with_key = LibreTranslateAPI(f"{locked.url}/", api_key=KEY)
    assert with_key.translate("Anna & 7 cats.", "en", "de") == "Anna & 7 cats."
    assert with_key.languages()
    for key, status in ((None, 400), ("wrong", 403)):
        with pytest.raises(HTTPError) as caught:
            LibreTranslateAPI(f"{locked.url}/", api_key=key).translate("Anna.", "en", "de")
        assert caught.value.code == status
        caught.value.close()


def test_the_request_of_a_translation_platform(bundled: httpx.Client) -> None:
    """A batch without a format, then the languages by code."""
    body = {"api_key": "", "q": [SENTENCE] * 20, "source": "en", "target": "de"}
    texts = bundled.post("/translate", json=body).json()["translatedText"]
    assert len(texts) == 20
    assert all("Haus" in text for text in texts)
