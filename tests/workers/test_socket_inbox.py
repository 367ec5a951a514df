"""How a worker's inbox begins, and which sequences a worker reports."""

from __future__ import annotations

import socket

import pytest

from app.decoding.options import DecodingOptions
from app.engine.limits import EngineLimits
from app.engine.messages import Report, Submit
from app.engine.sequence import Sequence, SequenceResult
from app.engine.token_deltas import TokenDelta
from app.runtime.stop_condition import WakeFlag
from app.workers import framing, messages
from app.workers.worker_main import SequenceTable, SocketInbox
from tests.engine.fake_runner import LIMITS

START = messages.StartWorker(EngineLimits())


def submission(key: int) -> messages.SubmitSequence:
    return messages.SubmitSequence(
        key, b"\x05\0\0\0\x03\0\0\0", DecodingOptions(beam_size=1), "request", "caller", 1e9, 1.5, True
    )


def started_inbox(*sent: messages.ToWorker) -> tuple[SocketInbox, messages.StartWorker | None]:
    """Return an inbox and its first message. The server sends these messages at once and closes the connection."""
    server, worker = socket.socketpair()
    with worker:
        with server:
            server.sendall(b"".join(map(framing.encode_frame, sent)))
        inbox = SocketInbox(worker, SequenceTable(LIMITS), WakeFlag())
        return inbox, inbox.get_start()


def test_messages_that_arrive_with_the_start_are_kept() -> None:
    inbox, start = started_inbox(START, submission(7), submission(8))
    assert start == START
    received = [inbox.get() for _ in range(2)]
    assert [type(message) for message in received] == [Submit, Submit]


@pytest.mark.parametrize("sent", [[messages.StopWorker()], [messages.StopWorker(), START], []])
def test_a_worker_that_the_server_stops_or_leaves_has_no_start(sent: list[messages.ToWorker]) -> None:
    _, start = started_inbox(*sent)
    assert start is None


def test_a_report_leaves_out_cancelled_sequences() -> None:
    table = SequenceTable(LIMITS)
    sequences: list[Sequence] = []
    for key in (7, 8):
        message = table.from_wire(submission(key))
        assert isinstance(message, Submit)
        message.sequence.outcome = SequenceResult([], 0.1, 0.2, 0.3, 4)
        sequences.append(message.sequence)
    table.from_wire(messages.CancelSequence(7))
    report = table.to_wire(Report(sequences, [], [TokenDelta(each, 0, (5,)) for each in sequences]))
    assert [key for key, _ in report.ended] == [8]
    assert report.deltas == [messages.Delta(8, 0, (5,))]
