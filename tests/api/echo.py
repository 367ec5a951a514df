"""A fake model that repeats its source. Responses show how texts are split, copied and joined."""

from __future__ import annotations

import contextlib
import functools
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from app.bundle import DecodingDefaults, Golden, Manifest, SpecialIds, Training
from app.decoding.options import LengthPenalty
from app.dimensions import Dimensions
from app.errors import EngineFailure
from app.graphs import GraphSpec, Variant
from app.language_pairs import LanguagePair
from app.runtime.interface import Floats, Int32s, Limits, StepInput, StepOutput
from app.settings import Settings
from app.startup import LoadedModel, LoadedModels, lazy_detector
from app.text.detection import LazyDetector
from app.text.tokenizer import Tokenizer
from app.workers.thread_worker import ThreadWorker
from tests.engine.fake_runner import FakeRunner

GOLDEN = "Anna sees the river today."
POISON = "Nobody greets 42 cats again."  # a decoder step with this sentence fails
MAX_LENGTH = 64


@dataclass(frozen=True)
class Behaviour:
    """What the echo model does.

    step_s: seconds that each decoder step takes once `is_started` is set. Earlier steps take no time.
    hang_file: while this file exists, only as many steps return as it has bytes.
    golden_source, golden_target: the golden sentence and its translation.
    pairs: source and target of each served pair.
    name: the model's name.
    max_target_length: the maximum number of subwords of a translation.
    alpha, beam_size: the defaults of these options for the model.
    """

    step_s: float = 0.0
    is_started: threading.Event = field(default_factory=threading.Event)
    hang_file: Path | None = None
    golden_source: str = GOLDEN
    golden_target: str = GOLDEN
    pairs: tuple[tuple[str, str], ...] = (("en", "de"),)
    name: str = "echo"
    max_target_length: int = MAX_LENGTH + 7
    alpha: float = 0.6
    beam_size: int = 4


def release_steps(hang_file: Path, num_steps: int) -> None:
    """Let `num_steps` more steps return."""
    with hang_file.open("ab") as file:
        file.write(bytes(num_steps))


class EchoRunner(FakeRunner):
    """Repeats the source's subwords. Further hypotheses differ in the first subword."""

    def __init__(self, limits: Limits, behaviour: Behaviour, poison: tuple[int, ...]) -> None:
        super().__init__(limits)
        self._behaviour = behaviour
        self._poison = poison
        self._num_returned = 0

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
            while file.stat().st_size <= self._num_returned:
                time.sleep(0.01)
            self._num_returned += 1
            return
        self._num_returned = 0

    def next_scores(self, source: Int32s, prefix: Int32s) -> Floats:
        scores: Floats = np.full(self.limits.vocab_size, -30.0, np.float32)
        # The next subword of the source is the most probable (below). The others are more probable towards the end of
        # the vocabulary, because its last subwords are letters, and its first subwords do not occur in texts.
        scores += np.arange(self.limits.vocab_size, dtype=np.float32) * 1e-3
        # No hypothesis ends before the source does. Otherwise a beam search would stop at hypotheses that end early.
        scores[self.limits.eos_id] = -1000.0
        scores[source[min(len(prefix) - 1, len(source) - 1)]] = -0.01
        return scores


def echo_model(tokenizer: Tokenizer, behaviour: Behaviour, *, num_rows: int) -> LoadedModel:
    """A model of the behaviour's pairs, with `tokenizer` for both sides."""
    limits = Limits(
        num_rows=num_rows,
        max_source_length=MAX_LENGTH,
        max_target_length=behaviour.max_target_length + 1,
        vocab_size=tokenizer.vocab_size,
        bos_id=tokenizer.bos_id,
        eos_id=tokenizer.eos_id,
    )
    runner = EchoRunner(limits, behaviour, tokenizer.encode(POISON).ids)
    golden = Golden(
        source=behaviour.golden_source,
        beam_size=4,
        ids={"fp32": tokenizer.encode(behaviour.golden_target).ids[:-1]},
    )
    workers = [ThreadWorker(runner)]
    return LoadedModel(
        behaviour.name,
        _manifest(tokenizer, behaviour),
        (golden,),
        "fp32",
        tokenizer,
        tokenizer,
        workers,
    )


def echo_models(tokenizer: Tokenizer, behaviours: Sequence[Behaviour], *, num_rows: int) -> LoadedModels:
    """A model for each behaviour, with a language detector.

    The detector knows the languages of all pairs. For a single model it knows en and de.
    """
    pairs = [pair for behaviour in behaviours for pair in behaviour.pairs]
    languages = {code for pair in pairs for code in pair} if len(behaviours) > 1 else {"en", "de"}
    models = [echo_model(tokenizer, behaviour, num_rows=num_rows) for behaviour in behaviours]
    return LoadedModels(models, _detector(frozenset(languages)))


class EchoLoader:
    """Loads an echo model for each behaviour. Without behaviours, it loads one model with the default behaviour."""

    def __init__(self, tokenizer: Tokenizer, behaviours: Sequence[Behaviour] = ()) -> None:
        self._tokenizer = tokenizer
        self._behaviours = behaviours or [Behaviour()]

    def load_all(self, settings: Settings) -> LoadedModels:
        return echo_models(self._tokenizer, self._behaviours, num_rows=settings.rows_on("cpu"))

    def load_one(self, path: Path, settings: Settings) -> LoadedModel:
        raise NotImplementedError("the echo models have no bundle")


@functools.cache
def _detector(languages: frozenset[str]) -> LazyDetector:
    return lazy_detector(languages)


def _manifest(tokenizer: Tokenizer, behaviour: Behaviour) -> Manifest:
    graph = GraphSpec(file="fp32/graph.onnx", inputs=(), outputs=())
    return Manifest(
        format_version=1,
        name=behaviour.name,
        version="1",
        language_pairs=tuple(
            LanguagePair(source=source, target=target) for source, target in behaviour.pairs
        ),
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
        max_target_length=behaviour.max_target_length + 1,
        variants={"fp32": Variant(opset=21, encoder=graph, decoder=graph)},
        decoding=DecodingDefaults(
            beam_size=behaviour.beam_size, length_penalty=LengthPenalty.WU, alpha=behaviour.alpha
        ),
        scores=(),
        training=Training(commit="none", num_steps=0, data=()),
        weights_licence="Apache-2.0",
        files={},
    )
