"""Clients of the dialect at the root, over a socket to the bundled model or the echo server."""

from __future__ import annotations

import re
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


def test_the_client_raises_errors_and_sends_its_key(locked: ServerProcess) -> None:
    with_key = LibreTranslateAPI(f"{locked.url}/", api_key=KEY)
    assert with_key.translate("Anna & 7 cats.", "en", "de") == "Anna & 7 cats."
    assert with_key.languages()
    for key, status in ((None, 400), ("wrong", 403)):
        with pytest.raises(HTTPError) as caught:
            LibreTranslateAPI(f"{locked.url}/", api_key=key).translate("Anna.", "en", "de")
        assert caught.value.code == status
        caught.value.close()


def test_the_request_of_a_translation_platform(bundled: httpx.Client) -> None:
    """The platform sends a batch without a format."""
    body = {"api_key": "", "q": [SENTENCE] * 20, "source": "en", "target": "de"}
    texts = bundled.post("/translate", json=body).json()["translatedText"]
    assert len(texts) == 20
    assert all("Haus" in text for text in texts)


def test_the_request_of_an_older_translation_platform(bundled: httpx.Client) -> None:
    """The request has one text, urlencoded."""
    body = {"api_key": "", "q": SENTENCE, "source": "en", "target": "de"}
    assert "Haus" in bundled.post("/translate", data=body).json()["translatedText"]


@pytest.mark.parametrize("source", ["auto", "en"])
def test_the_request_of_a_social_network(bundled: httpx.Client, source: str) -> None:
    """The network posts HTML in one batch, then requests the language pairs."""
    post = (
        '<p>The <a href="https://a.test/tags/house" class="mention hashtag" rel="tag">#<span>house</span></a> is '
        "small and old.<br />See you tomorrow!</p>"
    )
    texts = [post, "A warning", "<p></p>", "🎉"]
    body = {"q": texts, "source": source, "target": "de", "format": "html", "api_key": None}
    found = bundled.post("/translate", json=body).json()
    assert len(found["translatedText"]) == 4
    translated = found["translatedText"][0]
    assert re.findall(r"<[^>]+>|&\w+;", translated) == re.findall(r"<[^>]+>|&\w+;", post)
    assert translated.startswith("<p>")
    assert "Bis morgen!</p>" in translated
    assert found["translatedText"][2:] == texts[2:]
    if source == "auto":
        assert [each["language"] for each in found["detectedLanguage"]][:2] == ["en", "en"]
    targets = {each["code"]: each["targets"] for each in bundled.get("/languages").json()}
    assert {code: [to for to in each if to != code] for code, each in targets.items()} == {
        "de": ["en"],
        "en": ["de"],
    }


def test_html_has_no_alternatives(bundled: httpx.Client) -> None:
    body = {"q": f"<b>{SENTENCE}</b>", "source": "en", "target": "de", "alternatives": 2}
    found = bundled.post("/translate", json={**body, "format": "html"}).json()
    assert found["alternatives"] == []
    assert found["translatedText"].startswith("<b>")
    assert len(bundled.post("/translate", json={**body, "q": SENTENCE}).json()["alternatives"]) == 2
