"""docs/performance.md and docs/operations.md have the figures of the committed results."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from benchmarks.engine.goals import goal_lines
from benchmarks.engine.page import BLOCKS, NOT_MEASURED, PAGES, RESULTS, filled
from benchmarks.engine.page_tables import target_table
from benchmarks.page_blocks import BLOCK
from tests.house_rules.project import ROOT


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.name)
def test_every_figure_is_in_the_committed_results(path: Path) -> None:
    page = path.read_text("utf-8")
    assert filled(page, RESULTS) == page, "run python -m benchmarks.engine.page"


def test_the_pages_have_every_block_once() -> None:
    names = [match[2] for page in PAGES for match in BLOCK.finditer(page.read_text("utf-8"))]
    assert sorted(names) == sorted(BLOCKS)


def test_a_changed_figure_is_detected(tmp_path: Path) -> None:
    page = "before\n<!-- figures: memory -->\n12 MB\n<!-- end -->\nafter\n"
    assert filled(page, tmp_path) == page.replace("12 MB", NOT_MEASURED)
    (tmp_path / "engine_memory.json").write_text(
        json.dumps({
            "minutes": 10.0, "num_sentences": 1234, "least_mb": 300.0, "most_mb": 301.0, "slope_mb_per_minute": 0.01,
            "standard_error": 0.02, "is_flat": True, "machine": {"cpu": "a processor"}, "commit": "c", "command": "x",
        }),
        "utf-8",
    )  # fmt: skip
    assert "1,234 sentences: 300.0 to 301.0 MB resident, +0.010 MB a minute" in filled(page, tmp_path)


def test_a_targets_table_has_the_ratios_of_the_fastest_calls() -> None:
    times = {"int8-standard": 3.0, "int8-avx2": 2.0}
    result = {
        "measurements": [
            {"case": "step, 1 rows", "variant": name, "fastest_ms": ms, "median_ms": 9.0} for name, ms in times.items()
        ],
        "machine": {"num_cores": 2, "cpu": "a processor", "load_average_before": 1.0}, "commit": "c", "command": "x",
    }  # fmt: skip
    lines = target_table(result, "avx2").splitlines()
    assert lines[0] == "| case | int8, ms | times as fast |"
    assert lines[2] == "| step, 1 rows | 2.00 | 1.50 |"


def row(precision: str, *, num_sentences: int, ratio: float, python_share: float) -> dict[str, Any]:
    return {
        "model": "m", "precision": precision, "case": "25 to 30", "num_sentences": num_sentences, "beam_size": 1,
        "ratio": ratio, "where": {"step_python_share": python_share},
    }  # fmt: skip


@pytest.fixture
def result() -> dict[str, Any]:
    cases = [
        row("int8", num_sentences=1, ratio=3.0, python_share=0.1),
        row("int8", num_sentences=1, ratio=3.5, python_share=0.2),
        row("fp32", num_sentences=1, ratio=2.99, python_share=0.05),
    ]
    return {
        "plan": {},
        "cases": cases,
        "arrivals": [],
        "machine": {"cpu": "AMD EPYC (AVX2)", "vendor": "AuthenticAMD"},
    }


def test_a_goal_names_the_cases_that_miss_it(result: dict[str, Any]) -> None:
    int8, fp32 = ({line[0]: line[1:] for line in goal_lines(result, name)} for name in ("int8", "fp32"))
    assert int8["1 sentence, greedy"] == ("at least 2.5", "3.00 to 3.50", "2 of 2", "")
    assert fp32["1 sentence, greedy"] == ("at least 1.5", "2.99", "1 of 1", "")
    assert int8["Python of a step, 1 row"] == ("at most 10%", "10.0% to 20.0%", "1 of 2", "m: 20.0%")


def test_a_figure_is_never_rounded_to_the_goal_that_it_misses(result: dict[str, Any]) -> None:
    result["cases"][1]["ratio"] = 2.499
    line = next(goal_lines(result, "int8"))
    assert line[2:] == ("2.499 to 3.000", "1 of 2", "m: 2.499")


def test_a_missed_case_names_its_number_of_sentences_if_the_goal_has_several(result: dict[str, Any]) -> None:
    for case, size in zip(result["cases"], (1, 8, 1), strict=True):
        case.update(beam_size=4, num_sentences=size, ratio=1.0)
    assert next(goal_lines(result, "int8"))[4] == "m x 1: 1.00; m x 8: 1.00"


def test_a_missed_case_names_its_limit(result: dict[str, Any]) -> None:
    result["cases"][0].update(ratio=2.0, peer_ms=40.0, num_groups=3, floor={"seconds": 0.03})
    result["cases"][1]["where"]["step_python_share"] = 0.05
    lines = {line[0]: line[4] for line in goal_lines(result, "int8")}
    assert lines == {"1 sentence, greedy": "m: 2.00 (4.00)", "Python of a step, 1 row": ""}


@pytest.mark.parametrize(
    ("cpu", "vendor", "least"),
    [
        ("AMD EPYC (AVX-512, AVX-512 VNNI)", "AuthenticAMD", "at least 5"),
        (
            "Intel(R) Xeon(R) Processor (AVX2, AVX-512, AVX-512 VNNI, tile registers)",
            "GenuineIntel",
            "at least 3",
        ),
        ("Intel(R) Xeon(R) Processor (AVX-512 VNNI, tile registers)", "GenuineIntel", "at least 3"),
        ("Intel(R) Xeon(R) Processor (AVX2, AVX-512)", "GenuineIntel", "at least 2.5"),
        ("AMD EPYC", "AuthenticAMD", "at least 5"),
    ],
)
def test_the_goal_depends_on_the_processor(result: dict[str, Any], cpu: str, vendor: str, least: str) -> None:
    result["machine"] = {"cpu": cpu, "vendor": vendor}
    assert next(goal_lines(result, "int8"))[1] == least


def test_a_goal_without_cases_has_no_line(result: dict[str, Any]) -> None:
    assert [line[0] for line in goal_lines(result, "int8")] == [
        "1 sentence, greedy",
        "Python of a step, 1 row",
    ]


def test_no_table_of_the_docs_has_more_than_six_columns() -> None:
    pages = sorted((ROOT / "docs").glob("*.md"))
    assert set(PAGES) <= set(pages)
    lines = {page.name: page.read_text("utf-8").splitlines() for page in pages}
    wide = [
        f"{name}: {line}"
        for name, page in lines.items()
        for line in page
        if line.startswith("| ") and len(re.findall(r"(?<!\\)\|", line)) > 7
    ]
    assert wide == []
