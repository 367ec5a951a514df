"""CTranslate2 with the same weights, in fp32."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import Any

from app.decoding.options import EarlyStop
from benchmarks.oracles.answers import Answer, Task, answer_of

# With a penalty of exactly 0, CTranslate2 ignores `patience`: it stops when its best continuation ends. With 1e-9 it
# follows `patience`, and length^1e-9 is 1 in fp32.
LENGTH_PENALTIES = {EarlyStop.FIRST: 1e-9, EarlyStop.BOUND: 0.0}
BATCH_SIZE = 32


class CTranslate2Oracle:
    """CTranslate2 with a model that `benchmarks.engine.ctranslate2_model` has written. Its tokens are decimal ids."""

    name = "CTranslate2"

    def __init__(self, path: Path, *, num_threads: int) -> None:
        ctranslate2: Any = import_module("ctranslate2")
        self._translator = ctranslate2.Translator(
            str(path), device="cpu", compute_type="float32", inter_threads=1, intra_threads=num_threads
        )

    def rule(self, early_stop: EarlyStop) -> str:
        """As `Oracle.rule`."""
        return f"patience=1, length_penalty={LENGTH_PENALTIES[early_stop]:g}"

    def answer(self, task: Task) -> list[Answer]:
        """As `Oracle.answer`. CTranslate2 counts the end token in a length, so no score is divided by a length of 0.

        It also counts the end token in the length limit, and returns a hypothesis at the limit without an end token.
        Transduce has one more step for the end token. So the score of a hypothesis at the limit differs. The best
        hypothesis rarely reaches the limit.
        """
        found = self._translator.translate_batch(
            [[str(index) for index in source] for source in task.sources],
            beam_size=task.beam_size,
            patience=1,
            length_penalty=LENGTH_PENALTIES[task.early_stop],
            max_input_length=0,
            min_decoding_length=1,
            max_decoding_length=task.max_target_length,
            max_batch_size=BATCH_SIZE,
            return_end_token=True,
            return_scores=True,
        )
        return [
            answer_of([int(token) for token in one.hypotheses[0]], log_probability=one.scores[0])
            for one in found
        ]
