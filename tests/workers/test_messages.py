"""Every message between the server and a worker process arrives complete and unchanged."""

from __future__ import annotations

import errno
import time
from dataclasses import fields, is_dataclass, replace
from enum import Enum
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, Union, get_args, get_origin, get_type_hints

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from app.decoding.options import DecodingOptions, EarlyStop, FinishReason, Hypothesis, LengthPenalty, Sampling
from app.engine.messages import Submit
from app.engine.sequence import SequenceResult
from app.engine.stats import StepStats
from app.workers import framing, messages
from app.workers.shared_status import SharedWorkerStatus
from app.workers.worker_main import SequenceTable
from tests.engine.fake_runner import LIMITS

SIMPLE: dict[Any, st.SearchStrategy[Any]] = {
    bool: st.booleans(),
    int: st.integers(-(2**63), 2**63 - 1),
    float: st.floats(allow_nan=False),
    str: st.text(max_size=5),
    bytes: st.binary(max_size=9),
    NoneType: st.none(),
}


def anything(kind: Any) -> st.SearchStrategy[Any]:
    """Return a strategy for values of a type. Raises TypeError for a type that no message uses."""
    if kind in SIMPLE:
        return SIMPLE[kind]
    origin, arguments = get_origin(kind), get_args(kind)
    if origin in (Union, UnionType):
        return st.one_of(*map(anything, arguments))
    if origin is list:
        return st.lists(anything(arguments[0]), max_size=2)
    if origin is tuple and arguments[-1] is Ellipsis:
        return st.lists(anything(arguments[0]), max_size=2).map(tuple)
    if origin is tuple:
        return st.tuples(*map(anything, arguments))
    if isinstance(kind, type) and issubclass(kind, Enum):
        return st.sampled_from(kind)
    if is_dataclass(kind) or issubclass(kind, msgspec.Struct) or hasattr(kind, "_fields"):
        return st.builds(kind, **{name: anything(hint) for name, hint in get_type_hints(kind).items()})
    raise TypeError(f"no known message has a value of type {kind}")


def assert_same(found: Any, expected: Any) -> None:
    """Assert equality, and the same types at every level."""
    assert type(found) is type(expected)
    assert found == expected
    if isinstance(expected, list | tuple):
        for one, other in zip(found, expected, strict=True):
            assert_same(one, other)
    elif is_dataclass(expected):
        for field in fields(expected):
            assert_same(getattr(found, field.name), getattr(expected, field.name))
    elif isinstance(expected, msgspec.Struct):
        for name in expected.__struct_fields__:
            assert_same(getattr(found, name), getattr(expected, name))


@pytest.mark.parametrize("kind", [*get_args(messages.ToWorker), *get_args(messages.FromWorker)])
def test_every_field_of_every_message_arrives(kind: Any) -> None:
    direction = messages.ToWorker if kind in get_args(messages.ToWorker) else messages.FromWorker
    decoder = msgspec.msgpack.Decoder(direction)

    @settings(max_examples=25, deadline=None)
    @given(anything(kind))
    def holds(message: Any) -> None:
        (data,) = framing.FrameReader().take(framing.encode_frame(message))
        assert_same(decoder.decode(data), message)

    holds()


OPTIONS = DecodingOptions(
    beam_size=3,
    num_hypotheses=2,
    length_penalty=LengthPenalty.POWER,
    alpha=0.1 + 0.2,
    max_target_length=11,
    patience=1.5,
    early_stop=EarlyStop.BOUND,
    sampling=Sampling(temperature=0.7, top_k=3, top_p=0.9, seed=2**63 - 1, is_seeded=False),
    forced_target=(),
    coverage_penalty=0.3,
    min_target_length=2,
    min_target_ratio=0.5,
    max_target_ratio=1.5,
    suppress_sequences=((5,), (6, 7)),
    no_repeat_ngram_size=3,
    repetition_penalty=1.2,
    target_prefix=(8, 9),
    loop_guard=True,
    num_alternatives=4,
    alignment=True,
    start_id=7,
    shortlist=1,
)
SUBMITTED = messages.SubmitSequence(
    7, b"\x05\0\0\0\x03\0\0\0", OPTIONS, "request", "caller", 1e9 + 0.1, 1.5, True
)


def test_a_submitted_sentence_arrives_unchanged() -> None:
    for field in fields(DecodingOptions):
        assert getattr(OPTIONS, field.name) != field.default, f"{field.name} is not covered"
    sentences = SequenceTable(LIMITS)
    options = replace(OPTIONS, sampling=None, forced_target=None)  # a beam search cannot have these options
    submitted = msgspec.structs.replace(SUBMITTED, options=options)
    (data,) = framing.FrameReader().take(framing.encode_frame(submitted))
    message = sentences.from_wire(msgspec.msgpack.decode(data, type=messages.ToWorker))
    assert isinstance(message, Submit)
    sequence = message.sequence
    assert sequence.source_ids.tolist() == [5, 3]
    assert_same(sequence.options, options)
    assert (sequence.request_id, sequence.caller) == ("request", "caller")
    assert (sequence.deadline, sequence.submitted_at, message.streams) == (1e9 + 0.1, 1.5, True)
    assert sequence.search.eos_id == LIMITS.eos_id


def test_frames_may_arrive_in_any_pieces() -> None:
    result = SequenceResult([Hypothesis((1, 2), -0.5, -0.25, FinishReason.STOP)], 0.1, 0.2, 0.3, 4)
    sent: list[messages.ToWorker | messages.FromWorker] = [
        SUBMITTED,
        messages.StopWorker(),
        messages.WorkerReport(
            [(1, messages.Answer(result)), (2, messages.Failure("E", "ü"))], [StepStats(worker=3)], []
        ),
    ]
    data = b"".join(framing.encode_frame(message) for message in sent)
    whole = framing.FrameReader().take(data)
    assert len(whole) == len(sent)
    for cut in range(len(data) + 1):
        frames = framing.FrameReader()
        assert frames.take(data[:cut]) + frames.take(data[cut:]) == whole
    frames = framing.FrameReader()
    bytewise = [frames.take(data[at : at + 1]) for at in range(len(data))]
    assert [found for step in bytewise for found in step] == whole
    assert max(map(len, bytewise)) == 1
    assert frames.take(b"") == []


def test_shared_memory_that_cannot_be_made_keeps_no_descriptor(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(descriptor: int, size: int) -> None:
        raise OSError(errno.ENOMEM, "no memory")

    monkeypatch.setattr("app.workers.shared_status.os.ftruncate", fails)
    before = len([*Path("/proc/self/fd").iterdir()])
    with pytest.raises(OSError, match="no memory"):
        SharedWorkerStatus.create(3)
    assert len([*Path("/proc/self/fd").iterdir()]) == before


def test_the_status_is_shared_by_all_its_mappings() -> None:
    status = SharedWorkerStatus.create(3)
    other = SharedWorkerStatus(status.descriptor, 3)
    assert [other.get(number) for number in range(3)] == [None] * 3
    now = time.monotonic()
    status.set(0, now)
    other.set(2, 0.0)
    assert [status.get(number) for number in range(3)] == [now, None, 0.0]
    assert (status.num_busy(), other.num_busy()) == (2, 2)
    status.set(2, None)
    assert other.num_busy() == 1
    status.wake_others(1)
    assert [wake_flag.is_set for wake_flag in other.wake_flags] == [True, False, True]
    other.wake_flags[0].clear()
    assert [wake_flag.is_set for wake_flag in status.wake_flags] == [False, False, True]
    assert (status.num_busy(), status.get(0)) == (1, now)
    assert other.get(0) == now
