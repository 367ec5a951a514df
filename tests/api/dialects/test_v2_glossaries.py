"""Glossaries at /v2, with the unmodified Python client and with the requests of other programs."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import deepl
import httpx
import pytest

from tests.api.server_process import ServerProcess

ENTRIES = {"Apple": "Apfel", "A%=&": "B&=%", "Δぁ": "深", "🪨": "🪵", "Ann's": "Ann's"}
MISSING = "96ab91fd-e715-41a1-adeb-5d701f84a483"
TSV = {"name": "wood", "source_lang": "en", "target_lang": "de", "entries_format": "tsv", "entries": "a\tb"}
KEYS = ("the first key", "the second key")


@pytest.fixture
def client(bundled: httpx.Client) -> Iterator[deepl.DeepLClient]:
    client = deepl.DeepLClient("any", server_url=str(bundled.base_url))
    yield client
    for glossary in client.list_glossaries():
        client.delete_glossary(glossary)


def test_the_life_of_a_glossary(client: deepl.DeepLClient) -> None:
    made = client.create_glossary("fruit", "en-US", "DE", ENTRIES)
    assert (made.name, made.source_lang, made.target_lang, made.entry_count) == ("fruit", "EN", "DE", 5)
    assert made.ready
    assert abs(datetime.now(UTC) - made.creation_time) < timedelta(minutes=1)
    found = client.get_glossary(made.glossary_id)
    assert (found.name, found.creation_time, found.entry_count) == (made.name, made.creation_time, 5)
    assert client.get_glossary_entries(made) == ENTRIES
    assert [each.glossary_id for each in client.list_glossaries()] == [made.glossary_id]
    client.delete_glossary(made)
    assert client.list_glossaries() == []


def test_a_csv_table_may_have_language_columns(client: deepl.DeepLClient) -> None:
    made = client.create_glossary_from_csv("fruit", "EN", "DE", 'Apple,Apfel,en,de\n"a, b",c,en,de\n')
    assert client.get_glossary_entries(made) == {"Apple": "Apfel", "a, b": "c"}


def test_ten_thousand_entries(client: deepl.DeepLClient) -> None:
    entries = {f"Source-{index}": f"Target-{index}" for index in range(10_000)}
    made = client.create_glossary("large", "EN", "DE", entries)
    assert made.entry_count == 10_000
    assert client.get_glossary_entries(made.glossary_id) == entries
    found = client.translate_text("It is Source-7.", source_lang="EN", target_lang="DE", glossary=made)
    assert isinstance(found, deepl.TextResult)


def test_terms_stand_in_the_translation(client: deepl.DeepLClient) -> None:
    made = client.create_glossary(
        "art", "EN", "DE", {"artist": "Malerin", "prize": "Gewinn", "London": "London"}
    )
    found = client.translate_text_with_glossary(
        ["The artists won a prize in London.", "The house is small."], made
    )
    assert isinstance(found, list)
    assert [term in found[0].text for term in ("Malerin", "Gewinn", "London")] == [True] * 3
    html = client.translate_text(
        "<p>The <b>artist</b> is here.</p>",
        source_lang="EN",
        target_lang="DE",
        glossary=made.glossary_id,
        tag_handling="html",
    )
    assert "<b>Malerin</b>" in str(html)
    plain = client.translate_text("The house is small.", source_lang="EN", target_lang="DE")
    assert found[1].text == str(plain)


def test_the_language_pairs_of_glossaries(client: deepl.DeepLClient) -> None:
    pairs = {(pair.source_lang, pair.target_lang) for pair in client.get_glossary_languages()}
    assert pairs == {("en", "de"), ("de", "en")}


@pytest.mark.parametrize("glossary_id", [MISSING, "invalid", "a b'--"])
def test_a_glossary_that_is_not_there(client: deepl.DeepLClient, glossary_id: str) -> None:
    for call in (client.get_glossary, client.get_glossary_entries, client.delete_glossary):
        with pytest.raises(deepl.GlossaryNotFoundException):
            call(glossary_id)


def test_a_pair_that_is_not_served(client: deepl.DeepLClient) -> None:
    for source, target in (("EN", "XX"), ("EN", "EN"), ("DE", "DE")):
        with pytest.raises(deepl.DeepLException, match=r"Bad request.*target_lang"):
            client.create_glossary("name", source, target, {"a": "b"})


REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"entries": ""}, "the glossary cannot be used: entries: there are none"),
    (
        {"entries": "a\tb\na\tc\nx"},
        "line 2: it repeats the term of line 1; line 3: 1 columns between tabs, not 2",
    ),
    ({"entries_format": "csv", "entries": "b,a,de,en"}, "line 1: column 3 names another language than en"),
    ({"entries_format": "xls"}, "entries_format must be one of tsv, csv"),
    ({"entries_format": None}, "entries_format is required"),
    ({"entries": ["a\tb"]}, "entries must be a string"),
    ({"name": None}, "name is required"),
    ({"name": " "}, "name: 0 characters, not 1 to 256"),
    ({"name": "x" * 257}, "name has 257 characters, the limit is 256"),
    ({"source_lang": None}, "source_lang is required"),
    ({"entries": "\n".join(f"{n}\tx" for n in range(10_001))}, "entries: more than 10000"),
]


@pytest.mark.parametrize(("changes", "message"), REFUSED, ids=[str(index) for index in range(len(REFUSED))])
def test_what_is_refused(http: httpx.Client, changes: dict[str, Any], message: str) -> None:
    answer = http.post("/v2/glossaries", json={**TSV, **changes})
    assert answer.status_code == 400
    assert message in answer.json()["message"]
    assert http.get("/v2/glossaries").json() == {"glossaries": []}


def test_a_glossary_from_a_form_is_returned_as_tsv(http: httpx.Client) -> None:
    made = http.post("/v2/glossaries", data=TSV)
    assert made.status_code == 201
    own = f"/v2/glossaries/{made.json()['glossary_id']}"
    entries = http.get(f"{own}/entries", headers={"accept": "text/tab-separated-values"})
    assert entries.headers["content-type"] == "text/tab-separated-values; charset=utf-8"
    assert entries.content == b"a\tb\n"
    deleted = http.delete(own)
    assert (deleted.status_code, deleted.content) == (204, b"")


def test_a_glossary_of_another_pair(http: httpx.Client) -> None:
    made = http.post("/v2/glossaries", json=TSV).json()["glossary_id"]
    body = {"text": ["a"], "source_lang": "DE", "target_lang": "DE", "glossary_id": made}
    answer = http.post("/v2/translate", json=body)
    assert answer.status_code == 400
    assert answer.json() == {"message": "glossary_id: this glossary is for EN to DE"}
    http.delete(f"/v2/glossaries/{made}")


def test_a_file_stores_glossaries_and_each_key_has_its_own(echo_command: list[str], tmp_path: Path) -> None:
    digests = ",".join(hashlib.sha256(key.encode()).hexdigest() for key in KEYS)
    settings: dict[str, object] = {"api_keys": digests, "glossary_path": tmp_path / "glossaries.sqlite"}
    with ServerProcess(echo_command, settings) as server:
        url = server.ready().url
        ours, theirs = (deepl.DeepLClient(key, server_url=url) for key in KEYS)
        made = ours.create_glossary("ours", "EN", "DE", {"river": "river"})
        assert theirs.list_glossaries() == []
        for call in (theirs.get_glossary, theirs.get_glossary_entries, theirs.delete_glossary):
            with pytest.raises(deepl.GlossaryNotFoundException):
                call(made.glossary_id)
        with pytest.raises(deepl.DeepLException, match="glossary_id"):
            theirs.translate_text("Anna.", source_lang="EN", target_lang="DE", glossary=made.glossary_id)
    with ServerProcess(echo_command, settings) as server:
        ours = deepl.DeepLClient(KEYS[0], server_url=server.ready().url)
        assert ours.get_glossary_entries(made.glossary_id) == {"river": "river"}
        assert ours.get_glossary(made.glossary_id).name == "ours"
        assert [each.glossary_id for each in ours.list_glossaries()] == [made.glossary_id]
        ours.delete_glossary(made.glossary_id)
        assert ours.list_glossaries() == []


def test_a_file_that_cannot_be_used_stops_the_start(echo_command: list[str], tmp_path: Path) -> None:
    path = tmp_path / "missing" / "glossaries.sqlite"
    with ServerProcess(echo_command, {"glossary_path": path}) as server:
        assert server.ended() != 0
        assert "TRANSDUCE_GLOSSARY_PATH" in "".join(server.errors)


def test_the_requests_of_a_translation_platform(http: httpx.Client) -> None:
    """The platform uses entries, names, ids and the creation time, and deletes a glossary twice."""
    pairs = http.get("/v2/glossary-language-pairs").json()["supported_languages"]
    assert ("EN", "DE") in {(pair["source_lang"].upper(), pair["target_lang"].upper()) for pair in pairs}
    http.post("/v2/glossaries", json={**TSV, "name": "weblate:1:EN:DE:abc"})
    (found,) = http.get("/v2/glossaries").json()["glossaries"]
    assert found["name"] == "weblate:1:EN:DE:abc"
    assert datetime.fromisoformat(found["creation_time"]).tzinfo is not None
    assert http.delete(f"/v2/glossaries/{found['glossary_id']}").is_success
    assert http.delete(f"/v2/glossaries/{found['glossary_id']}").status_code == 404
