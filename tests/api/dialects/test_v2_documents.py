"""/v2/document accepts the same options as /v2/translate."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import deepl
import httpx
import pytest

from tests.api.server_process import ServerProcess

GLOSSARY = {"name": "a", "source_lang": "EN", "target_lang": "DE", "entries": "a\tb", "entries_format": "tsv"}


@pytest.fixture
def glossary_id(http: httpx.Client) -> Iterator[str]:
    made = str(http.post("/v2/glossaries", json=GLOSSARY).json()["glossary_id"])
    yield made
    http.delete(f"/v2/glossaries/{made}")


OPTIONS: list[tuple[dict[str, str], str | None]] = [
    ({"glossary_id": "GLOSSARY"}, "source_lang is required with a glossary"),
    ({"glossary_id": "GLOSSARY", "source_lang": "EN"}, None),
    ({"glossary_ids": "GLOSSARY"}, "source_lang is required with a glossary"),
    ({"glossary_ids": "GLOSSARY", "source_lang": "EN"}, None),
    ({"glossary_ids": "GLOSSARY,other", "source_lang": "EN"}, "at most one glossary is used in a request"),
    ({"glossary_ids": "GLOSSARY", "source_lang": "DE"}, "glossary_id: this glossary is for EN to DE"),
    ({"glossary_id": "", "glossary_ids": "", "formality": ""}, None),
    ({"formality": "PREFER_MORE"}, None),
    ({"formality": "default"}, None),
    ({"formality": "more"}, "formality is not supported for target language DE; prefer_more is accepted"),
    ({"formality": "invalid"}, "formality must be one of default, more, less, prefer_more, prefer_less"),
    ({"translation_memory_threshold": "70", "style_id": "", "translation_memory_id": ""}, None),
    ({"style_id": "a"}, "style_id is not offered here"),
    ({"translation_memory_id": "a"}, "translation_memory_id is not offered here"),
    ({"custom_instructions": "a"}, "custom_instructions is not offered here"),
]


@pytest.mark.parametrize(("fields", "message"), OPTIONS, ids=[str(index) for index in range(len(OPTIONS))])
def test_a_document_and_a_text_have_the_same_options(
    http: httpx.Client, glossary_id: str, fields: dict[str, str], message: str | None
) -> None:
    form = {"target_lang": "DE"}
    form |= {name: value.replace("GLOSSARY", glossary_id) for name, value in fields.items()}
    answers = [
        http.post("/v2/translate", data={**form, "text": "Anna."}),
        http.post("/v2/document", data=form, files={"file": ("a.txt", b"Anna.")}),
    ]
    for answer in answers:
        if message is None:
            assert answer.status_code == 200, answer.text
        else:
            assert (answer.status_code, answer.json()) == (400, {"message": message})


def test_the_unmodified_client_sends_the_glossaries_of_a_document(
    echo: ServerProcess, glossary_id: str
) -> None:
    client = deepl.DeepLClient("any", server_url=echo.url)

    def upload(**options: Any) -> deepl.DocumentHandle:
        return client.translate_document_upload(
            "Anna.", source_lang="EN", target_lang="DE", filename="a.txt", **options
        )

    for ids in ([glossary_id], []):
        assert upload(glossary_ids=ids).document_id
    for options, message in (
        ({"glossary_ids": ["missing"]}, "glossary_id: there is no glossary with this id"),
        ({"style_rule": "a"}, "style_id is not offered here"),
        ({"translation_memory": "a"}, "translation_memory_id is not offered here"),
    ):
        with pytest.raises(deepl.DeepLException, match=message):
            upload(**options)
