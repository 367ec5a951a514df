"""The counts of `transduce prepare`, as JSON and as a table."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

from model.corpus import Pair
from model.pair_filter import MEANINGS, Reason

# Maximum number of dropped pairs that the report shows for each reason, and of characters that it shows of each side.
NUM_EXAMPLES, MAX_EXAMPLE_CHARACTERS = 5, 160


class Report:
    """Counts of pairs by domain.

    read: pairs of the input. written: pairs of the output, repetitions included. notes: lines for the user.
    """

    def __init__(self) -> None:
        self.read: Counter[str] = Counter()
        self.written: Counter[str] = Counter()
        self.notes: list[str] = []
        self._dropped: dict[Reason, Counter[str]] = {}
        self._examples: dict[Reason, list[list[str]]] = {}

    def drop(self, pair: Pair, reason: Reason) -> None:
        """Count a pair as dropped. The first few of each reason are kept as examples."""
        self._dropped.setdefault(reason, Counter())[pair.domain] += 1
        examples = self._examples.setdefault(reason, [])
        if len(examples) < NUM_EXAMPLES:
            sides = (text[:MAX_EXAMPLE_CHARACTERS] for text in (pair.source, pair.target))
            examples.append([pair.domain, *sides])

    @property
    def num_dropped(self) -> int:
        """Pairs that were dropped for any reason."""
        return sum(counts.total() for counts in self._dropped.values())

    def num_dropped_for(self, reason: Reason) -> int:
        """Pairs that were dropped for one reason."""
        return self._dropped.get(reason, Counter()).total()

    def to_json(self) -> dict[str, Any]:
        """Return all counts and the examples as a JSON object."""
        return {
            "pairs_read": self.read.total(),
            "pairs_dropped": self.num_dropped,
            "pairs_written": self.written.total(),
            "dropped": {str(reason): counts.total() for reason, counts in self._by_count()},
            "domains": {
                domain: {
                    "read": self.read[domain],
                    "written": self.written[domain],
                    "dropped": {
                        str(reason): counts[domain] for reason, counts in self._by_count() if counts[domain]
                    },
                }
                for domain in sorted(self.read)
            },
            "examples": {str(reason): self._examples[reason] for reason, _ in self._by_count()},
        }

    def table(self) -> str:
        """Return two tables: the reasons with their counts, and the domains with their most frequent reason.

        At least one pair must have been read.
        """
        total = self.read.total()
        rows = [("reason", "pairs", "share", "meaning")]
        rows += [
            (str(reason), f"{counts.total():,}", f"{counts.total() / total:.1%}", MEANINGS[reason])
            for reason, counts in self._by_count()
        ]
        domains = [("domain", "read", "dropped", "written", "most dropped for")]
        domains += [self._domain_row(domain) for domain in [*sorted(self.read), None]]
        return f"{aligned(rows)}\n\n{aligned(domains)}"

    def _domain_row(self, domain: str | None) -> tuple[str, str, str, str, str]:
        """Domain, pairs read, share dropped, pairs written, and the reason for which most pairs were dropped.

        domain: None for all domains together.
        """

        def count(by_domain: Counter[str]) -> int:
            return by_domain.total() if domain is None else by_domain[domain]

        counts = {reason: count(dropped) for reason, dropped in self._dropped.items()}
        read, written = count(self.read), count(self.written)
        most = max(counts, key=lambda reason: counts[reason], default=None)
        note = f"{most} {counts[most]:,}" if most is not None and counts[most] else ""
        name = "all" if domain is None else domain
        return name, f"{read:,}", f"{sum(counts.values()) / read:.1%}", f"{written:,}", note

    def _by_count(self) -> list[tuple[Reason, Counter[str]]]:
        """Reasons with their counts, the most frequent first."""
        return sorted(self._dropped.items(), key=lambda entry: (-entry[1].total(), entry[0]))


def aligned(rows: Sequence[tuple[str, ...]]) -> str:
    """Return rows, of which the first is the head, as lines with aligned columns.

    Cells that begin with a digit are right-aligned, and so is the head of a column that has only such cells.
    """
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = (
        "  ".join(
            cell.rjust(width)
            if cell[:1].isdigit() or is_column_of_numbers(rows, column)
            else cell.ljust(width)
            for column, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    )
    return "\n".join(lines)


def is_column_of_numbers(rows: Sequence[tuple[str, ...]], column: int) -> bool:
    """Whether all cells below the head of a column begin with a digit."""
    return len(rows) > 1 and all(row[column][:1].isdigit() for row in rows[1:])
