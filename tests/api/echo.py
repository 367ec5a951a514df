"""A fake model that repeats its source, so that responses show how texts are split, copied and joined."""

from __future__ import annotations

import contextlib
import functools
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from app.bundle import DecodingDefaults, Dimensions, Golden, LanguagePair, Manifest, SpecialIds, Training
from app.decoding.options import LengthPenalty
from app.errors import EngineFailure
from app.graphs import GraphSpec, Variant
from app.runtime.interface import Floats, Int32s, Limits, StepInput, StepOutput
from app.startup import LoadedModel, lazy_detector
from app.text.detection import LazyDetector
from app.text.tokenizer import Tokenizer
from app.workers.thread_worker import ThreadWorker
from tests.engine.fake_runner import FakeRunner

GOLDEN = "Anna sees the river today."
POISON = "Nobody greets 42 cats again."  # a forward with it fails
MAX_LENGTH = 64


@dataclass(frozen=True)
class Behaviour:
    """step_s: how long each decoder step takes once `is_started` is set, so that no test waits for a slow start.

    hang_file: while it exists, only as many steps return as it has bytes.
    pairs: source and target of each pair that is served.
    """

    step_s: float = 0.0
    is_started: threading.Event = field(default_factory=threading.Event)
    hang_file: Path | None = None
    golden_source: str = GOLDEN
    golden_says: str = GOLDEN
    pairs: tuple[tuple[str, str], ...] = (("en", "de"),)


def let_through(hang_file: Path, num_steps: int) -> None:
    """Let `num_steps` more steps return."""
    with hang_file.open("ab") as file:
        file.write(bytes(num_steps))


class EchoRunner(FakeRunner):
    """Repeats the source's subwords; other hypotheses differ in the first."""

    def __init__(self, limits: Limits, behaviour: Behaviour, poison: tuple[int, ...]) -> None:
        super().__init__(limits)
        self._behaviour = behaviour
        self._poison = poison
        self._num_let_through = 0

    def decode(self, step: StepInput) -> StepOutput:
        if self._behaviour.is_started.is_set():
            time.sleep(self._behaviour.step_s)
        if self._behaviour.hang_file is not None:
            self._hang(self._behaviour.hang_file)
        rows = range(len(step.ids))
        if any(tuple(self.source_of(row).tolist()) == self._poison for row in rows):
            raise EngineFailure("the forward failed")
        return super().decode(step)

    def _hang(self, file: Path) -> None:
        with contextlib.suppress(FileNotFoundError):
            while file.stat().st_size <= self._num_let_through:
                time.sleep(0.01)
            self._num_let_through += 1
            return
        self._num_let_through = 0

    def next_scores(self, source: Int32s, prefix: Int32s) -> Floats:
        scores: Floats = np.full(self.limits.vocab_size, -30.0, np.float32)
        # The last pieces of a vocabulary are letters; the first ones do not occur in texts.
        scores += np.arange(self.limits.vocab_size, dtype=np.float32) * 1e-3
        scores[
            self.limits.eos_id
        ] = -1000.0  # never early, because a beam search ends with enough ended hypotheses
        scores[source[min(len(prefix) - 1, len(source) - 1)]] = -0.01
        return scores


def echo_model(tokenizer: Tokenizer, behaviour: Behaviour, *, num_rows: int) -> LoadedModel:
    """A model of the behaviour's pairs, with `tokenizer` for both sides."""
    limits = Limits(
        num_rows=num_rows,
        max_source_length=MAX_LENGTH,
        max_target_length=MAX_LENGTH + 8,
        vocab_size=tokenizer.vocab_size,
        bos_id=tokenizer.bos_id,
        eos_id=tokenizer.eos_id,
    )
    runner = EchoRunner(limits, behaviour, tokenizer.encode(POISON).ids)
    golden = Golden(
        source=behaviour.golden_source,
        beam_size=4,
        ids={"fp32": tokenizer.encode(behaviour.golden_says).ids[:-1]},
    )
    workers = [ThreadWorker(runner)]
    return LoadedModel(
        "echo",
        _manifest(tokenizer, behaviour.pairs),
        (golden,),
        "fp32",
        tokenizer,
        tokenizer,
        workers,
        _detector(),
    )


@functools.cache
def _detector() -> LazyDetector:
    return lazy_detector(("en", "de"))


def _manifest(tokenizer: Tokenizer, pairs: tuple[tuple[str, str], ...]) -> Manifest:
    graph = GraphSpec(file="fp32/graph.onnx", inputs=(), outputs=())
    return Manifest(
        format_version=1,
        name="echo",
        version="1",
        language_pairs=tuple(LanguagePair(source=source, target=target) for source, target in pairs),
        dimensions=Dimensions(
            vocab_size=tokenizer.vocab_size,
            d_model=8,
            num_heads=2,
            d_ff=8,
            num_encoder_layers=1,
            num_decoder_layers=1,
            norm="post",
            activation="relu",
            positions="sinusoidal",
        ),
        special_ids=SpecialIds(pad=0, bos=tokenizer.bos_id, eos=tokenizer.eos_id, unk=tokenizer.unk_id),
        max_source_length=MAX_LENGTH,
        max_target_length=MAX_LENGTH + 8,
        variants={"fp32": Variant(opset=21, encoder=graph, decoder=graph)},
        decoding=DecodingDefaults(beam_size=4, length_penalty=LengthPenalty.WU, alpha=0.6),
        scores=(),
        training=Training(commit="none", num_steps=0, data=()),
        weights_licence="Apache-2.0",
        files={},
    )
