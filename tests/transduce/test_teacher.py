"""Which texts `transduce distill` sends, and which requests it divides."""

from __future__ import annotations

import json

import pytest

from tests.transduce.bad_server import bad_server, silent
from tests.transduce.conftest import Answer, ScriptedServer
from transduce.client import Client, ModelName
from transduce.errors import CommandError
from transduce.teacher import RequestParams, Teacher
from transduce.translate_lines import MAX_ITEM_CHARACTERS

LATE = Answer(504, json.dumps({"error": {"code": "deadline_exceeded", "message": "late"}}).encode())


def translations(client: Client, *texts: str) -> list[tuple[str, str | None]]:
    """All texts with their translations, in one batch."""
    params = RequestParams("en", "de")
    teacher = Teacher(client, params, model=ModelName(), batch_size=len(texts), concurrency=1)
    return [pair for batch in teacher.translations(texts) for pair in batch]


def test_blank_and_very_long_texts_are_not_sent(server: ScriptedServer) -> None:
    longest = "x" * MAX_ITEM_CHARACTERS
    with Client(server.url) as client:
        found = translations(client, "", " \t", longest, longest + "x", "one")
    assert [translation for _, translation in found] == [None, None, longest.upper(), None, "ONE"]
    assert [request["text"] for request in server.requests] == [[longest, "one"]]


def test_a_request_whose_deadline_has_passed_is_sent_in_halves(server: ScriptedServer) -> None:
    server.answers = [LATE]
    with Client(server.url) as client:
        found = translations(client, "one", "two", "three")
    assert found == [("one", "ONE"), ("two", "TWO"), ("three", "THREE")]
    assert [request["text"] for request in server.requests] == [
        ["one", "two", "three"],
        ["one"],
        ["two", "three"],
    ]


def test_a_single_text_whose_deadline_has_passed_ends_the_run(server: ScriptedServer) -> None:
    server.answers = [LATE]
    with Client(server.url) as client, pytest.raises(CommandError, match="the server answered 504: late"):
        translations(client, "one")
    assert len(server.requests) == 1


def test_a_request_without_an_answer_is_not_sent_in_halves() -> None:
    with (
        bad_server(silent) as server,
        Client(server.url, timeout_s=0.1) as client,
        pytest.raises(CommandError, match="--timeout sets a longer limit"),
    ):
        translations(client, "one", "two")
    assert server.num_connections == 1
