"""The unmodified Python client of the dialect at /v2, over a socket to the bundled model or the echo server."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable
from pathlib import Path

import deepl
import httpx
import pytest
from deepl.api_data import ModelType

from tests.api.dialects.conftest import KEY
from tests.api.server_process import ServerProcess

SENTENCE = "The house is small."
ANNA = "Anna sees the river."
Client = deepl.DeepLClient


@pytest.fixture
def client(bundled: httpx.Client) -> Client:
    return connected(str(bundled.base_url))


def set_retries(monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    monkeypatch.setattr(deepl.http_client, "max_network_retries", number)


def connected(url: str, key: str = "any") -> Client:
    return Client(key, server_url=url, send_platform_info=False)


def german(client: Client, text: str = ANNA) -> str:
    return str(client.translate_text(text, source_lang="EN", target_lang="DE"))


def test_a_text_and_several(client: Client) -> None:
    found = client.translate_text(SENTENCE, target_lang="DE")
    assert isinstance(found, deepl.TextResult)
    assert "Haus" in found.text
    assert (found.detected_source_lang, found.billed_characters) == ("EN", len(SENTENCE))
    assert found.model_type_used is None
    several = client.translate_text((text for text in (SENTENCE, "Good night!")), target_lang="de")
    assert isinstance(several, list)
    assert ["Haus" in several[0].text, "Nacht" in several[1].text] == [True, True]


def test_the_clients_language_codes_are_accepted(client: Client) -> None:
    sources, targets = client.get_source_languages(), client.get_target_languages()
    assert [one.code for one in sources] == ["DE", "EN"]
    (source,) = [one for one in sources if one.code == "EN"]
    (target,) = [one for one in targets if one.code == "DE"]
    assert (source.code, source.name, source.supports_formality) == ("EN", "English", None)
    assert (target.code, target.name, target.supports_formality) == ("DE", "German", False)
    found = client.translate_text(SENTENCE, source_lang=source, target_lang=target)
    again = client.translate_text(
        SENTENCE, source_lang=deepl.Language.ENGLISH, target_lang=deepl.Language.GERMAN
    )
    assert str(found) == str(again)


@pytest.mark.parametrize("model_type", list(ModelType))
def test_model_types(client: Client, model_type: ModelType) -> None:
    found = client.translate_text(SENTENCE, target_lang="DE", model_type=model_type)
    assert isinstance(found, deepl.TextResult)
    assert found.model_type_used is not None


def test_every_option_of_the_client(client: Client) -> None:
    found = client.translate_text(
        SENTENCE,
        source_lang="En",
        target_lang="De",
        context="It stands by the sea.",
        split_sentences=deepl.SplitSentences.NO_NEWLINES,
        preserve_formatting=True,
        formality=deepl.Formality.PREFER_MORE,
        tag_handling="xml",
        tag_handling_version="v2",
        outline_detection=False,
        non_splitting_tags="span",
        splitting_tags=["title", "par"],
        ignore_tags="raw,x",
        extra_body_parameters={"debug": "1"},
    )
    assert "Haus" in str(found)


@pytest.mark.parametrize("splitting", list(deepl.SplitSentences))
def test_only_the_mode_nonewlines_joins_lines(client: Client, splitting: deepl.SplitSentences) -> None:
    text = "The house is\nsmall. The garden is large."
    found = str(client.translate_text(text, target_lang="DE", split_sentences=splitting))
    assert ("\n" in found) is (splitting is not deepl.SplitSentences.NO_NEWLINES)


DOCUMENT = """<?xml version="1.0"?>
<manual>
    <title>The small house</title>
    <par><span>The garden of the house</span> <span>is very large.</span></par>
    <raw>This is not translated.</raw>
</manual>
"""


def test_a_document_of_xml(client: Client) -> None:
    found = str(
        client.translate_text(
            DOCUMENT,
            target_lang="DE",
            tag_handling="xml",
            outline_detection=False,
            non_splitting_tags="span",
            splitting_tags=["title", "par"],
            ignore_tags=["raw"],
        )
    )
    assert found.startswith('<?xml version="1.0"?>\n<manual>')
    assert re.search(r"\n    <title>[^<]*Haus</title>\n    <par>", found)
    assert "    <raw>This is not translated.</raw>\n</manual>\n" in found
    assert sorted(re.findall("<[^>]+>", found)) == sorted(re.findall("<[^>]+>", DOCUMENT))
    assert "Garten" in found


def test_a_page_of_html(client: Client) -> None:
    page = '<!DOCTYPE html>\n<body class="a b">\n<h1>The house</h1>\n<p translate="no">Left as it is.</p>\n</body>\n'
    found = str(client.translate_text(page, target_lang="DE", tag_handling="html"))
    assert re.fullmatch(re.escape(page).replace("The\\ house", "[^<]*Haus"), found)


def test_xml_that_is_not_well_formed(client: Client) -> None:
    with pytest.raises(deepl.DeepLException, match=r"Bad request.*line 1") as caught:
        client.translate_text("<a>Secret words</b>", target_lang="DE", tag_handling="xml")
    assert "Secret" not in str(caught.value)


def test_a_translation_platform_marks_what_it_keeps(bundled: httpx.Client) -> None:
    """Every text is XML. An element replaces each placeholder."""
    texts = [
        'The file <x id="9"></x> is not there.',
        "Fish &amp; chips &lt; 5",
        "Good night!",
        '<x id="0"></x> of <x id="8"></x> houses',
    ]
    body = {
        "text": texts,
        "source_lang": "EN",
        "target_lang": "DE",
        "formality": "default",
        "tag_handling": "xml",
        "ignore_tags": ["x"],
    }
    key = {"Authorization": "DeepL-Auth-Key any"}
    found = bundled.post("/v2/translate", json=body, headers=key).raise_for_status().json()["translations"]
    for text, each in zip(texts, found, strict=True):
        assert sorted(re.findall(r"<[^>]+>|&\w+;", each["text"])) == sorted(
            re.findall(r"<[^>]+>|&\w+;", text)
        )
    assert "Nacht" in found[2]["text"]


def test_usage(client: Client) -> None:
    before = client.get_usage().character
    client.translate_text(SENTENCE, target_lang="DE")
    after = client.get_usage()
    assert before.count is not None
    assert after.character.count == before.count + len(SENTENCE)
    assert not after.any_limit_reached
    assert "Characters" in str(after)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda c: c.translate_text("Test", target_lang="XX"), r"Bad request.*target_lang.*not supported"),
        (
            lambda c: c.translate_text("Test", source_lang="XX", target_lang="DE"),
            "source_lang.*not supported",
        ),
        (
            lambda c: c.translate_text("Test", target_lang="DE", formality="more"),
            "formality is not supported for target language",
        ),
        (lambda c: c.translate_text("Test", target_lang="DE", formality="invalid"), "formality"),
        (lambda c: c.translate_text("Test", target_lang="DE", split_sentences="invalid"), "split_sentences"),
        (lambda c: c.translate_text("x" * 5001, target_lang="DE"), "413.*limit is 5000"),
        (
            lambda c: c.translate_text("Test", target_lang="DE", source_lang="EN", glossary="none"),
            "Not found",
        ),
        (lambda c: c.translate_text(SENTENCE, target_lang="DE", tag_handling="pdf"), "tag_handling"),
        (lambda c: c.rephrase_text(SENTENCE), "Not found"),
        (lambda c: c.get_all_style_rules(), "Not found"),
    ],
)
def test_the_client_raises_the_servers_errors(
    client: Client, call: Callable[[Client], object], message: str
) -> None:
    with pytest.raises(deepl.DeepLException, match=message):
        call(client)


def test_documents_are_refused_if_files_are_off(locked: ServerProcess, tmp_path: Path) -> None:
    client = connected(locked.url, KEY)
    source = tmp_path / "text.txt"
    source.write_text(SENTENCE)
    with pytest.raises(deepl.DeepLException, match="Not found"):
        client.translate_document_from_filepath(source, tmp_path / "out.txt", target_lang="DE")
    assert not (tmp_path / "out.txt").exists()


def test_every_route_needs_a_known_key(locked: ServerProcess) -> None:
    assert str(connected(locked.url, KEY).translate_text(ANNA, target_lang="DE")) == ANNA
    unknown_caller = connected(locked.url, "wrong")
    calls: list[Callable[[], object]] = [
        lambda: unknown_caller.translate_text(ANNA, target_lang="DE"),
        unknown_caller.get_usage,
        unknown_caller.get_source_languages,
        unknown_caller.get_glossary_languages,
        unknown_caller.list_glossaries,
    ]
    for call in calls:
        with pytest.raises(deepl.AuthorizationException, match="Authorization failure"):
            call()


def test_the_client_raises_when_the_quota_is_used_up(echo_command: list[str], tmp_path: Path) -> None:
    file = tmp_path / "keys.toml"
    file.write_text(f'[team]\nkey = "0123456789abcdef"\ncharacters_per_month = {len(ANNA)}\n', "utf-8")
    with ServerProcess(echo_command, {"api_keys_file": file}) as server:
        client = connected(server.ready().url, "0123456789abcdef")
        german(client)
        assert client.get_usage().character.limit_reached
        with pytest.raises(deepl.QuotaExceededException, match="limit of this API key"):
            german(client)


FULL: dict[str, object] = {"max_items": 1, "max_request_sentences": 1, "max_pending_sentences": 1}


def test_a_full_queue_is_refused_at_once_and_a_retry_succeeds(
    echo_command: list[str], hang_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with ServerProcess([*echo_command, f"hang_file={hang_file}"], FULL) as server:
        client = connected(server.ready().url)
        hang_file.touch()
        first = threading.Thread(target=german, args=(connected(server.url),))
        first.start()
        server.wait_until("transduce_queue_depth", 1)
        with pytest.raises(deepl.TooManyRequestsException):
            german(client, "No, 8 cats.")
        assert first.is_alive()
        hang_file.unlink()
        set_retries(monkeypatch, 5)
        assert german(client, "No, 8 cats.") == "No, 8 cats."
        first.join()


def test_the_client_waits_for_a_loading_server(
    echo_command: list[str], load_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with ServerProcess([*echo_command, f"load_file={load_file}"]) as server:
        client = connected(server.listening().url)
        with pytest.raises(deepl.DeepLException, match=r"Service unavailable.*loading") as caught:
            german(client)
        assert caught.value.should_retry
        set_retries(monkeypatch, 5)
        loaded = threading.Timer(1.0, load_file.unlink)
        loaded.start()
        assert german(client) == ANNA
        loaded.join()


def test_the_server_cancels_a_request_that_the_client_abandons(
    echo_command: list[str], hang_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(deepl.http_client, "min_connection_timeout", 0.3)
    with ServerProcess([*echo_command, f"hang_file={hang_file}"]) as server:
        client = connected(server.ready().url)
        hang_file.touch()
        with pytest.raises(deepl.ConnectionException, match="timed out"):
            german(client)
        server.wait_until('transduce_rejected_total{reason="cancelled"}', 1)
        assert server.metric("transduce_inflight_requests") == 0


def test_a_deadline_gives_an_error(echo_command: list[str]) -> None:
    with ServerProcess([*echo_command, "step_s=0.1"], {"compat_timeout_s": 0.2}) as server:
        client = connected(server.ready().url)
        with pytest.raises(deepl.DeepLException, match="504"):
            german(client)
