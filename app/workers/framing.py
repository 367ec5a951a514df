"""Frames on a stream socket. A frame is four bytes of length, little-endian, and one message as MessagePack."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from app.workers.messages import FromWorker, ToWorker

LENGTH_BYTES = 4
# The maximum number of bytes of one read. If smaller, a report takes more system calls.
RECEIVE_BYTES = 1 << 18

_encoder = msgspec.msgpack.Encoder()


def encode_frame(message: ToWorker | FromWorker) -> bytes:
    """Return a message as one frame."""
    data = _encoder.encode(message)
    return len(data).to_bytes(LENGTH_BYTES, "little") + data


class FrameReader:
    """Splits received bytes into whole frames."""

    def __init__(self) -> None:
        self._received = bytearray()

    def first(self, receive: Callable[[], bytes]) -> list[bytes]:
        """Receive until a frame is whole. Return the messages of all whole frames; none if the other side has closed.

        receive: returns the next bytes, or no bytes at the end of the stream.
        """
        messages: list[bytes] = []
        while not messages and (data := receive()):
            messages = self.take(data)
        return messages

    def take(self, data: bytes) -> list[bytes]:
        """Add received bytes. Return the messages of the frames that they complete, as MessagePack."""
        self._received += data
        messages, position = [], 0
        while len(self._received) - position >= LENGTH_BYTES:
            begin = position + LENGTH_BYTES
            end = begin + int.from_bytes(self._received[position:begin], "little")
            if end > len(self._received):
                break
            messages.append(bytes(self._received[begin:end]))
            position = end
        del self._received[:position]
        return messages
