"""Compares translations under load with references, or with the responses of the idle server.

A server may answer from its cache. Responses that it marks as cached are left out. If all responses are left out, the
figures are None (docs/load-testing.md describes how to avoid this).
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
    """The expected translations.

    Attributes:
        against: their origin, for the report.
        texts: by workload entry; entries may be missing.
    """

    against: str
    texts: Mapping[int, Texts]


def references_of(workload: Workload) -> Expectation | None:
    """The workload's references; None without references."""
    if workload.references is None:
        return None
    return Expectation("references", dict(enumerate(workload.references)))


def compare(samples: Sequence[Sample], expected: Expectation) -> dict[str, Any] | None:
    """chrF and the share of exact matches with the expected translations.

    samples: with the texts of their responses (`RunPlan.keeps_texts`). Returns None if no response has an expected
    translation. Responses with cached sentences are left out; `num_known` counts them. If all are left out, both
    figures are None.

    Raises:
        ModuleNotFoundError: sacrebleu is not installed.
    """
    import sacrebleu  # slow to import: a second

    found = [
        sample
        for sample in samples
        if sample.response is not None
        and sample.number in expected.texts
        and sample.scheduled_s >= 0  # negative during the warm-up
    ]
    if not found:
        return None
    pairs = [
        pair
        for sample in found
        if sample.response is not None and not sample.num_cached
        for pair in zip(sample.response.texts, expected.texts[sample.number], strict=True)
    ]
    figures: dict[str, Any] = {
        "against": expected.against,
        "num_texts": len(pairs),
        "num_known": sum(bool(sample.num_cached) for sample in found),
        "chrf": None,
        "exact_share": None,
    }
    if pairs:
        metric = sacrebleu.CHRF()
        score = metric.corpus_score([text for text, _ in pairs], [[wanted for _, wanted in pairs]])
        figures["chrf"] = score.score
        figures["signature"] = str(metric.get_signature())
        figures["exact_share"] = sum(text == wanted for text, wanted in pairs) / len(pairs)
    return figures
