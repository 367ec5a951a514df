"""Measure the quality of translations of 300 texts that newcomers type (`first_words.tsv`), through a real server.

Each entry whose direction the server has is one request to POST /v1/translate, with the default options. Prints the
share of acceptable answers (all, by direction, by kind) and each failure. Counts the empty answers, and the answers
that lack a number of their source. `benchmarks.first_words_score` has the rule of comparison.

    python -m benchmarks.first_words --bundle bundles/en-de --json benchmarks/results/first_words.json

--url uses a running server instead of starting one.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections import defaultdict
from collections.abc import Iterable, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import httpx

from benchmarks.first_words_score import FILE, Entry, Verdict, judge, read_entries
from benchmarks.machine import describe_run
from benchmarks.server_process import ServeOptions, ServerProcess

TIMEOUT_S = 60.0


@dataclass(frozen=True)
class ScoredAnswer:
    """An entry, its translation by the server, and the verdict of the rules."""

    entry: Entry
    answer: str
    verdict: Verdict


@dataclass
class Tally:
    """Counts over a group of answers."""

    num_entries: int = 0
    num_acceptable: int = 0
    num_empty: int = 0
    num_dropping_a_number: int = 0

    def add(self, verdict: Verdict) -> None:
        """Count one more answer."""
        self.num_entries += 1
        self.num_acceptable += verdict.is_acceptable
        self.num_empty += verdict.is_empty
        self.num_dropping_a_number += verdict.drops_number

    @property
    def share(self) -> float:
        """The share of acceptable answers, 0 to 1. It is 0 if there are no answers."""
        return self.num_acceptable / self.num_entries if self.num_entries else 0.0


def tallies(answers: Iterable[ScoredAnswer]) -> dict[str, Tally]:
    """The counts by group: `all`, then each direction, then each kind, in the order of the answers."""
    answers = list(answers)
    found: dict[str, Tally] = defaultdict(Tally)
    for group in (lambda _: "all", lambda entry: entry.direction, lambda entry: entry.kind):
        for answered in answers:
            found[group(answered.entry)].add(answered.verdict)
    return dict(found)


def served_model(http: httpx.Client) -> tuple[dict[str, Any], set[str]]:
    """The server's only model, as JSON, and its directions, such as `en-de`. Raises ValueError for several models."""
    (model,) = http.get("/v1/models").raise_for_status().json()["models"]
    return model, {f"{pair['source']}-{pair['target']}" for pair in model["language_pairs"]}


def translate(http: httpx.Client, entries: Iterable[Entry]) -> list[ScoredAnswer]:
    """Translate the entries one by one. Raises httpx.HTTPError for an error response or a lost connection."""
    found = []
    for entry in entries:
        source, target = entry.direction.split("-")
        body = {"text": entry.source, "source": source, "target": target}
        answer = http.post("/v1/translate", json=body).raise_for_status().json()["translations"][0]["text"]
        found.append(ScoredAnswer(entry, answer, judge(entry, answer)))
    return found


def table(groups: dict[str, Tally]) -> str:
    """The counts in Markdown."""
    return "\n".join([
        "| | entries | acceptable | share | empty | drop a number |",
        "|---|---|---|---|---|---|",
        *(
            f"| {name} | {tally.num_entries} | {tally.num_acceptable} | {tally.share:.1%} "
            f"| {tally.num_empty} | {tally.num_dropping_a_number} |"
            for name, tally in groups.items()
        ),
    ])  # fmt: skip


def failures(answers: Iterable[ScoredAnswer]) -> list[dict[str, Any]]:
    """The answers that are not acceptable, each with an acceptable answer and the missing pieces."""
    return [
        {
            "id": answered.entry.id,
            "kind": answered.entry.kind,
            "source": answered.entry.source,
            "answer": answered.answer,
            "acceptable": answered.entry.example,
            "missing": list(answered.verdict.missing),
        }
        for answered in answers
        if not answered.verdict.is_acceptable
    ]


def main(arguments: Sequence[str] | None = None) -> int:
    """Translate, print the table and the failures, and write JSON if --json is set. Returns the exit code."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    where = parser.add_mutually_exclusive_group()
    where.add_argument("--bundle", type=Path, help="the bundle that is served (default: the bundled model)")
    where.add_argument("--url", help="root of a running server, such as http://127.0.0.1:8000")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the result to this file")
    args = parser.parse_args(arguments)
    run = describe_run("benchmarks.first_words", arguments)
    entries = read_entries()
    with ExitStack() as stack:
        url = args.url or stack.enter_context(ServerProcess(ServeOptions(sys.executable, args.bundle))).url
        http = stack.enter_context(httpx.Client(base_url=url, timeout=TIMEOUT_S, trust_env=False))
        model, directions = served_model(http)
        answers = translate(http, [entry for entry in entries if entry.direction in directions])
    if not answers:
        sys.exit(f"{FILE.name} has no entry of the server's pairs: {', '.join(sorted(directions))}")
    groups = tallies(answers)
    failed = failures(answers)
    for failure in failed:
        missing = f"  (lacks {', '.join(failure['missing'])})" if failure["missing"] else ""
        print(f"{failure['id']} {failure['kind']}: {failure['source']!r} -> {failure['answer']!r}{missing}")
    num_left = len(entries) - len(answers)
    print(f"\n{table(groups)}\n\n{num_left} entries are of pairs that the server does not have.")
    if args.json:
        result = {
            **run,
            "model": {name: model[name] for name in ("name", "version", "precision", "defaults")},
            "num_entries_of_other_pairs": num_left,
            "groups": {
                name: {**asdict(tally), "share": round(tally.share, 4)} for name, tally in groups.items()
            },
            "failures": failed,
        }
        args.json.parent.mkdir(parents=True, exist_ok=True)
        args.json.write_text(json.dumps(result, indent=1, ensure_ascii=False) + "\n", "utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
