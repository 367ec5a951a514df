"""Whether translations are as good under load as at rest: against references, or against the answers at rest.

A server that keeps translations may answer from its store what was asked at rest. Where it says so, those answers are
left out; where all are, there is nothing to compare (docs/load-testing.md says how to ask for it).
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

    Answers that hold sentences from the server's own store are left out; `num_known` tells how many.

    Raises:
        ModuleNotFoundError: sacrebleu is not installed.
    """
    import sacrebleu  # takes a second

    found = [
        sample
        for sample in samples
        if sample.response is not None and sample.number in expected.texts and sample.scheduled_s >= 0
    ]
    if not found:
        return None
    pairs = [
        pair
        for sample in found
        if sample.response is not None and not sample.num_cached
        for pair in zip(sample.response.texts, expected.texts[sample.number], strict=True)
    ]
    told: dict[str, Any] = {
        "against": expected.against,
        "num_texts": len(pairs),
        "num_known": sum(bool(sample.num_cached) for sample in found),
        "chrf": None,
        "exact_share": None,
    }
    if pairs:
        metric = sacrebleu.CHRF()
        score = metric.corpus_score([text for text, _ in pairs], [[wanted for _, wanted in pairs]])
        told["chrf"] = score.score
        told["signature"] = str(metric.get_signature())
        told["exact_share"] = sum(text == wanted for text, wanted in pairs) / len(pairs)
    return told
