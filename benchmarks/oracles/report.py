"""Checks the criteria of a comparison's result, and formats its table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from benchmarks.oracles.comparison import KINDS

# The smallest share of sentences with equal answers. Larger: rounding alone can fail a comparison. Smaller: a wrong
# search may pass.
MIN_SHARE_SAME = 0.99
# Errors of Transduce's scores are below this. A score is a sum of up to --max-target-length fp32 log-probabilities, and
# each has an error of a few 1e-6.
SCORE_TOLERANCE = 1e-3
# Errors of the other engines' scores are below this. A wrong convention, such as no end token, makes larger ones.
# CTranslate2's scores are up to 0.013 off on an Intel Xeon with tile registers, and 7e-5 on an AMD EPYC. Transduce's
# are up to 5e-5 off on both.
OTHER_SCORE_TOLERANCE = 5e-2


def has_passed(result: Mapping[str, Any]) -> bool:
    """Whether all scores are right, enough answers are equal in each comparison, and all differences are explained.

    False if no score of Transduce could be compared, because all of its answers are at the length limit.
    result: its `own_scores` have the errors of the search's scores against teacher-forced scores of the same answers.
    PyTorch and Transduce itself compute teacher-forced scores.
    """
    rows, own_scores = result["comparisons"], result["own_scores"]
    other_errors = [row["score_error"] for row in rows if row["score_error"] is not None]
    errors = [row[key] for row in own_scores for key in ("error_to_torch", "error_to_forced_target")]
    are_right = [error is None or error < SCORE_TOLERANCE for error in errors]
    are_right += [error < OTHER_SCORE_TOLERANCE for error in other_errors]
    has_compared = any(row["num_compared"] for row in own_scores)
    return (
        has_compared
        and all(are_right)
        and all(
            row["num_same"] >= MIN_SHARE_SAME * row["num_sentences"] and not row["by_kind"]["unexplained"]
            for row in rows
        )
    )


def table(rows: Sequence[dict[str, Any]]) -> str:
    """The comparisons as a Markdown table."""
    head = (
        "model",
        "compared with",
        "beam",
        "early stop",
        "oracle options",
        "equal",
        *KINDS,
        "score error",
    )
    lines = [f"| {' | '.join(head)} |", "|" + "---|" * len(head)]
    for row in rows:
        cells = (
            row["model"],
            row["oracle"],
            row["beam_size"],
            row["early_stop"] if row["beam_size"] > 1 else "",
            row["oracle_options"],
            f"{row['num_same']} of {row['num_sentences']}",
            *row["by_kind"].values(),
            "" if row["score_error"] is None else f"{row['score_error']:.0e}",
        )
        lines.append(f"| {' | '.join(map(str, cells))} |")
    return "\n".join(lines)
