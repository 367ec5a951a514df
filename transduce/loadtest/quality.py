"""Whether translations are as good under load as at rest: against references, or against the answers at rest.

A server that keeps translations answers what was asked at rest from its store; then this compares nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from transduce.loadtest.sample import Sample
from transduce.loadtest.workload import Workload

Texts = tuple[str, ...]


@dataclass(frozen=True)
class Expectation:
    """What translations are compared with.

    Attributes:
        against: what that is, for the report.
        texts: by the entry of the workload; entries may be missing.
    """

    against: str
    texts: Mapping[int, Texts]


def references_of(workload: Workload) -> Expectation | None:
    """The workload's own references; None where it has none."""
    if workload.references is None:
        return None
    return Expectation("references", dict(enumerate(workload.references)))


def compare(samples: Sequence[Sample], expected: Expectation) -> dict[str, Any] | None:
    """chrF and the share of exact matches of the answers that something is expected of; None where there is none.

    Raises:
        ModuleNotFoundError: sacrebleu is not installed.
    """
    import sacrebleu  # takes a second

    pairs = [
        (found, wanted)
        for sample in samples
        if sample.told is not None and sample.number in expected.texts and sample.scheduled_s >= 0
        for found, wanted in zip(sample.told.texts, expected.texts[sample.number], strict=True)
    ]
    if not pairs:
        return None
    metric = sacrebleu.CHRF()
    score = metric.corpus_score([found for found, _ in pairs], [[wanted for _, wanted in pairs]])
    return {
        "against": expected.against,
        "num_texts": len(pairs),
        "chrf": score.score,
        "signature": str(metric.get_signature()),
        "exact_share": sum(found == wanted for found, wanted in pairs) / len(pairs),
    }
