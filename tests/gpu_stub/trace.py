"""Reads the trace that the stand-ins for CUDA's libraries write (tests/gpu_stub/trace.h)."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

# Events that make the GPU work. During a capture they become nodes of a graph, except a replay.
LAUNCHES = ("kernel", "product", "memset", "copy", "replay")
# Names of the kernels of interest, by a part of their symbols. The first match counts.
KERNELS = {
    "kernel_mha": "XQA",
    "flash_fwd_splitkv_combine": "flash combine",
    "flash_fwd": "flash",
    "GetSequenceLengths": "lengths of rows",
    "UnpackRoPEAppend": "append to the cache",
    "SkipLayerNorm": "sum and norm",
    "BroadcastBias": "copy of a bias",
    "copy_rows": "copy of cache rows",
    "advance_greedy": "greedy step",
    "advance_beams": "beam step",
    "attend_rows": "attention",
    "Relu": "ReLU",
    "Gather": "gather",
    "softmax": "log-softmax",
    "TopK": "top-k",
    "OP_Add": "add",
    "LayerNorm": "norm",
    "Cast": "cast",
}


@dataclass(frozen=True)
class Event:
    """One call. is_captured: it became a node of a graph and was not executed. amount: bytes, blocks or nodes."""

    kind: str
    detail: str
    amount: int
    stream: int
    is_captured: bool

    @property
    def name(self) -> str:
        """What is launched, in short."""
        if self.kind != "kernel":
            return self.kind if self.kind != "copy" else f"copy {self.detail}"
        return next((name for part, name in KERNELS.items() if part in self.detail), self.detail)


class Trace:
    """Events by section, in order."""

    def __init__(self, path: Path) -> None:
        self._sections: defaultdict[str, list[list[Event]]] = defaultdict(list)
        current: list[Event] = []
        self._sections[""].append(current)  # before the first section
        for line in path.read_text("utf-8").splitlines():
            first, *rest = line.split("\t")
            if first == "section":
                current = []
                self._sections[rest[0]].append(current)
            else:
                kind, detail, amount, stream = rest
                current.append(Event(kind, detail, int(amount), int(stream), first == "captured"))

    def section(self, name: str) -> list[Event]:
        """The events of a section's last run."""
        return self._sections[name][-1]

    def captured(self) -> list[Event]:
        """The nodes of all graphs."""
        return [event for event in self._events() if event.is_captured]

    def kinds(self) -> Counter[str]:
        """How many events of each kind there are in all sections."""
        return Counter(event.kind for event in self._events())

    def _events(self) -> Iterator[Event]:
        """The events of all sections."""
        for runs in self._sections.values():
            for events in runs:
                yield from events


def launches(events: Iterable[Event]) -> Counter[str]:
    """How often each thing is launched, outside a capture."""
    return Counter(event.name for event in events if event.kind in LAUNCHES and not event.is_captured)


def nodes(events: Iterable[Event]) -> Counter[str]:
    """The nodes of the graphs that are captured in these events."""
    return Counter(event.name for event in events if event.is_captured)
