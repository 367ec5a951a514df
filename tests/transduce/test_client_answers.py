"""Which exception, with which message, the client raises for responses that other software may send."""

from __future__ import annotations

import pytest

import transduce
from tests.transduce.bad_server import START, TIMEOUT_S, Act, answer, bad_server, cut, stream
from transduce.client.events import EventReader


def raised_after(act: Act) -> transduce.TransduceError:
    """The error of a request that is not repeated. act: the server's response."""
    with (
        bad_server(act) as server,
        transduce.Client(server.url, timeout_s=TIMEOUT_S, max_retries=0) as client,
        pytest.raises(transduce.TransduceError) as raised,
    ):
        client.translate("yes", source="en", target="de")
    return raised.value


@pytest.mark.parametrize("body", [{"message": "no such route"}, {"error": "no such route"}, "no such route"])
def test_the_message_of_other_software_is_found(body: object) -> None:
    error = raised_after(answer(404, body))
    assert isinstance(error, transduce.RequestRefused)
    assert (error.message, error.code, error.field) == ("no such route", "", None)


@pytest.mark.parametrize("body", [{"detail": "no such route"}, ["no such route"], {"error": {"code": 7}}])
def test_a_body_without_a_message_is_the_message(body: object) -> None:
    error = raised_after(answer(403, body))
    assert isinstance(error, transduce.RequestRefused)
    assert error.message.startswith(('{"', '["'))
    assert error.code == ""


@pytest.mark.parametrize(
    ("status", "kind"),
    [(404, transduce.RequestRefused), (500, transduce.AnswerLost), (502, transduce.AnswerLost)],
)
def test_the_message_of_an_empty_response_is_its_reason_phrase(
    status: int, kind: type[transduce.TransduceError]
) -> None:
    error = raised_after(cut(b"HTTP/1.1 %d Gone Away\r\nContent-Length: 0\r\n\r\n" % status))
    assert type(error) is kind
    assert (error.status, error.message) == (status, "Gone Away")


@pytest.mark.parametrize(
    "data", [{}, {"error": "failed"}, {"error": {"message": "failed"}}, {"error": {"code": 5}}]
)
def test_an_error_event_without_a_code_is_a_failure_of_the_server(data: object) -> None:
    with (
        bad_server(cut(stream(("start", START), ("error", data)))) as server,
        transduce.Client(server.url, timeout_s=TIMEOUT_S) as client,
        pytest.raises(transduce.ServerFailed) as raised,
    ):
        list(client.stream("yes", source="en", target="de"))
    assert raised.value.status == 500


def test_an_event_longer_than_the_limit_is_an_invalid_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    """The limit is of each event: many short ones may be longer together."""
    event = b'data: {"text": "ja"}\n\n'
    monkeypatch.setattr("transduce.client.events.MAX_EVENT_BYTES", 2 * len(event))
    reader = EventReader()
    for _ in range(5):
        assert list(reader.feed(event)) == [("message", {"text": "ja"})]
    assert list(reader.feed(b"data: ")) == []
    with pytest.raises(transduce.InvalidAnswer, match="an event is longer than"):
        list(reader.feed(b"x" * 2 * len(event)))


def test_the_kind_of_an_event_does_not_apply_to_the_next_one() -> None:
    reader = EventReader()
    events = b'event: delta\ndata: {"text":\ndata: "ja"}\n\ndata: {}\n\n'
    assert list(reader.feed(events)) == [("delta", {"text": "ja"}), ("message", {})]
