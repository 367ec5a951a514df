"""Several varieties of one language at /v2. The server accepts every code and pair that its lists name."""

from __future__ import annotations

import random
from collections.abc import Iterator

import deepl
import httpx
import pytest

from app.api.v2.languages import base_pair, read_languages, read_pair, source_rows, target_rows
from app.errors import InvalidRequest
from tests.api.server_process import ServerProcess

CODES = [
    "en",
    "en-GB",
    "en-US",
    "pt",
    "pt-BR",
    "pt-PT",
    "zh",
    "zh-Hans",
    "zh-Hant",
    "sr-Latn",
    "sr-Cyrl",
    "de",
]
PAIRS = "en>zh-Hans,en>zh-Hant,en>pt-BR,en>pt-PT,pt-BR>en,pt-PT>en"
TEXT = "Anna sees the river today."


@pytest.fixture(scope="module")
def server(echo_command: list[str]) -> Iterator[ServerProcess]:
    with ServerProcess([*echo_command, f"pairs={PAIRS}"]) as process:
        yield process.ready()


@pytest.fixture
def client(server: ServerProcess) -> deepl.DeepLClient:
    return deepl.DeepLClient("any", server_url=server.url)


def test_every_listed_code_and_pair_is_accepted() -> None:
    draw = random.Random(1)
    for _ in range(2000):
        pairs = {(draw.choice(CODES), draw.choice(CODES)) for _ in range(draw.randint(1, 8))}
        targets = [row["language"] for row in target_rows(pairs)]
        for code in targets:
            assert read_languages("", code, pairs)[1] in {target for _, target in pairs}
        sources = [row["language"] for row in source_rows(pairs)]
        assert len(set(sources)) == len(sources)
        found = {read_languages(code, targets[0], pairs)[0] for code in sources}
        assert found == {source for source, _ in pairs}
        for source, target in map(base_pair, pairs):
            pair = read_pair(source, target, pairs)
            assert pair in pairs
            assert base_pair(pair) == (source, target)


def test_a_glossary_is_stored_for_a_served_pair_of_its_languages() -> None:
    pairs = {("en", "pt-BR"), ("en", "pt-PT"), ("en", "zh-Hans"), ("en", "zh-Hant"), ("de", "fr")}
    assert read_pair("EN", "PT-PT", pairs) == ("en", "pt-PT")
    assert read_pair("en-GB", "ZH-HANT", pairs) == ("en", "zh-Hant")
    assert read_pair("EN", "PT", pairs) == ("en", "pt-BR")
    assert read_pair("EN", "PT-AO", pairs) == ("en", "pt-BR")
    for source, target in (
        ("EN", "FR"),
        ("EN", "EN"),
        ("XX", "FR"),
        ("PT", "EN"),
        ("DE", "FR-"),
        ("DE-NONSENSE", "FR"),
    ):
        with pytest.raises(InvalidRequest, match="_lang is not supported"):
            read_pair(source, target, pairs)


def test_a_source_may_be_of_another_variety_than_a_target() -> None:
    assert read_languages("PT", "EN-US", {("pt-BR", "en"), ("en", "pt-PT")}) == ("pt-BR", "en")
    assert read_languages("PT", "PT-PT", {("en", "pt-PT")}) == ("pt-PT", "pt-PT")


def test_the_languages_and_their_names(client: deepl.DeepLClient) -> None:
    sources = {language.code: language.name for language in client.get_source_languages()}
    assert sources == {
        "EN": "English",
        "PT-BR": "Portuguese (Brazilian)",
        "PT-PT": "Portuguese (European)",
    }
    targets = {language.code: language.name for language in client.get_target_languages()}
    assert targets == {
        "EN-GB": "English (British)",
        "EN-US": "English (American)",
        "PT-BR": "Portuguese (Brazilian)",
        "PT-PT": "Portuguese (European)",
        "ZH-HANS": "Chinese (simplified)",
        "ZH-HANT": "Chinese (traditional)",
    }
    for source, target in [(source, "EN-GB") for source in sources] + [("EN", target) for target in targets]:
        found = client.translate_text(TEXT, source_lang=source, target_lang=target)
        assert isinstance(found, deepl.TextResult)


@pytest.mark.parametrize(
    ("source", "target", "targets"),
    [
        ("EN", "PT-BR", ["PT-BR", "PT-PT"]),
        ("EN", "ZH-HANT", ["ZH-HANS", "ZH-HANT"]),
        ("PT", "EN-GB", ["EN-US"]),
    ],
)
def test_one_glossary_is_for_all_varieties(
    client: deepl.DeepLClient, source: str, target: str, targets: list[str]
) -> None:
    pairs = {(pair.source_lang, pair.target_lang) for pair in client.get_glossary_languages()}
    assert pairs == {("en", "pt"), ("en", "zh"), ("pt", "en")}
    made = client.create_glossary("name", source, target, {"river": "river"})
    assert (made.source_lang, made.target_lang) == (source, target[:2])
    for code in targets:
        for each in ["PT-BR", "PT-PT"] if source == "PT" else ["EN"]:
            found = client.translate_text(TEXT, source_lang=each, target_lang=code, glossary=made.glossary_id)
            assert isinstance(found, deepl.TextResult)
    with pytest.raises(deepl.DeepLException, match=f"this glossary is for {source} to {target[:2]}"):
        client.translate_text(TEXT, source_lang="EN", target_lang="EN-US", glossary=made.glossary_id)


def test_a_glossary_of_a_region_that_is_not_served(server: ServerProcess) -> None:
    body = {
        "name": "a",
        "source_lang": "en-IE",
        "target_lang": "pt-AO",
        "entries": "a\tb",
        "entries_format": "tsv",
    }
    with server.client() as http:
        made = http.post("/v2/glossaries", json=body)
        assert made.status_code == 201, made.text
        form = {
            "text": TEXT,
            "source_lang": "EN",
            "target_lang": "PT-PT",
            "glossary_id": made.json()["glossary_id"],
        }
        answer: httpx.Response = http.post("/v2/translate", data=form)
        assert answer.status_code == 200, answer.text
