"""The HTTP comparison's tables: goals, figures in which peers are ahead, and a page with the result's blocks."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from benchmarks.http import page
from benchmarks.http.goals import findings, losses
from benchmarks.http.report import cost_of, goodput_table, render, speed_table, throughput_line
from benchmarks.http.subjects import ECHO, LIBRETRANSLATE, MARIAN_ALONE, OURS, WINDOW
from benchmarks.page_blocks import BLOCK


def test_a_million_characters_cost_the_price_of_their_hours() -> None:
    assert cost_of(1000.0, price_per_hour=3.6) == pytest.approx(1.0)


def figures(p50_ms: float, per_s: float, *, num_answers: int = 100) -> dict[str, Any]:
    rounds = [{"num_answers": num_answers}] * 2
    return {"p50_ms": p50_ms, "p95_ms": 2 * p50_ms, "per_s": per_s, "rounds": rounds}


def memory(pss_mb: float) -> dict[str, Any]:
    return {"after_load": {"pss_mb": pss_mb, "rss_mb": pss_mb + 10}}


def trial(rate: float, *, holds: bool, is_late: bool = False, num: int = 600) -> dict[str, Any]:
    return {
        "rate": rate, "holds": holds, "p50_ms": 100.0, "p99_ms": 900.0, "is_tester_late": is_late,
        "lag_p99_ms": 6.04 if is_late else 0.2, "num_sent": num, "num_ok": num,
    }  # fmt: skip


@pytest.fixture
def parts() -> dict[str, Any]:
    """The figures of Transduce, the window batcher and the echo server.

    Transduce is faster than the window batcher, and takes more memory. `bimodal` also has LibreTranslate, which is too
    slow for the rate of `bimodal`.
    """
    common = {
        "command": "python -m benchmarks.http", "commit": "c", "versions": {"python": "3"}, "seconds": 1.0,
        "machine": {
            "cpu": "a processor", "num_cores": 2, "memory_gb": 8.0, "kernel": "6", "load_average_before": 0.1,
            "measured_at": "then",
        },
        "effort": {"is_quick": False}, "price_per_hour": 3.6, "not_decoded_share": 0.0,
        "settings": {OURS: "defaults", WINDOW: "2 x 1"},
    }  # fmt: skip
    together = {
        "alone": {OURS: figures(10.0, 100.0), WINDOW: figures(15.0, 60.0), ECHO: figures(0.3, 2000.0)},
        "saturated": {OURS: figures(200.0, 150.0), WINDOW: figures(400.0, 70.0), ECHO: figures(9.0, 3000.0)},
        "memory": {OURS: memory(200.0), WINDOW: memory(80.0), ECHO: memory(50.0)},
        "starts": {}, "quality": {},
    }  # fmt: skip
    goodput = {
        "slo": "p99=1000ms", "characters_per_request": 60.0,
        "goodput": {
            OURS: {
                "per_s": 150.0, "failed_at": 158.0, "trials": [trial(150.0, holds=True), trial(158.0, holds=False)],
            },
            WINDOW: {"per_s": 60.0, "failed_at": 70.0, "trials": [trial(60.0, holds=True), trial(70.0, holds=False)]},
        },
    }  # fmt: skip
    short = {"num_short": 80, "num_failed": 0, "short_p50_ms": 10.0, "long_p50_ms": 50.0, "long_p99_ms": 90.0}
    return {
        "goodput": {**common, **goodput},
        "together": {**common, **together, **goodput},
        "bimodal": {
            **common, "rate": 10.0, "share_of_window": 0.5,
            "saturated": {OURS: 50.0, WINDOW: 20.0, LIBRETRANSLATE: 9.0},
            "servers": {OURS: [{**short, "short_p99_ms": 40.0}], WINDOW: [{**short, "short_p99_ms": 110.0}]},
        },
    }  # fmt: skip


def test_a_goal_is_reached_or_not_or_not_measured(parts: dict[str, Any]) -> None:
    found = {each.name: each for each in findings(parts)}
    assert found["p99 of short sentences while long ones run"].is_met is False
    assert found["median latency of one stream, a core each"].is_met is None
    assert found["median latency of one stream, all cores shared"].is_met is True
    assert found["ten words, base size: overhead without scheduling and search"].is_met is None
    assert found["start until ready, a core each"].is_met is None
    starts = {name: {"ready_s": seconds} for name, seconds in ((OURS, 0.8), (WINDOW, 0.9), (ECHO, 0.5))}
    parts["latency"] = {**parts["together"], "starts": starts}
    found = {each.name: each for each in findings(parts)}
    assert found["start until ready, a core each"].is_met is True
    assert found["memory after load (PSS), a core each"].is_met is False
    assert "2.50 times, 200 MB against 80 MB" in found["memory after load (PSS), a core each"].found
    parts["overhead"] = {
        "models": [
            {"model": "bundled", **overhead(1.9, 2.0, total_ms=12.0)},
            {"model": "base size", **overhead(5.9, 6.0, total_ms=40.0)},
        ]
    }
    met = {each.name: each.is_met for each in findings(parts) if each.name.startswith("ten words")}
    assert met == {
        "ten words, base size: overhead without scheduling and search": True,
        "ten words, bundled: overhead without scheduling and search": True,
        "ten words, base size: overhead with scheduling and search": False,
        "ten words, bundled: overhead with scheduling and search": False,
    }


def test_a_goodput_goal_is_reached_if_the_whole_interval_reaches_it(parts: dict[str, Any]) -> None:
    searches = parts["goodput"]["goodput"]
    found = next(findings(parts))
    assert found.found == (
        "2.14 to 2.63 times, 150.0 to 158.0/s against 60.0 to 70.0/s of CTranslate2 behind FastAPI, window batcher"
    )
    assert found.is_met is False
    searches[WINDOW]["failed_at"] = 60.0
    assert next(findings(parts)).is_met is True
    searches[WINDOW]["failed_at"] = None
    assert next(findings(parts)).is_met is False
    assert next(findings(parts)).found.startswith(
        "at most 2.63 times, 150.0 to 158.0/s against at least 60.0/s"
    )
    searches[OURS] = {"per_s": 150.0, "failed_at": None, "trials": [trial(150.0, holds=True, is_late=True)]}
    searches[WINDOW]["failed_at"] = 70.0
    found = next(findings(parts))
    assert found.found.startswith("at least 2.14 times")
    assert found.found.endswith("; the tester sent requests late at 150.0/s")


def overhead(around_ms: float, all_ms: float, *, total_ms: float) -> dict[str, float]:
    return {
        "around_engine_ms": around_ms, "around_engine_share": around_ms / total_ms,
        "overhead_ms": all_ms, "overhead_share": all_ms / total_ms, "total_ms": total_ms,
    }  # fmt: skip


def test_the_figures_in_which_a_peer_is_better_are_listed(parts: dict[str, Any]) -> None:
    (memory_line,) = losses(parts)
    assert memory_line[:2] == ("memory after load (PSS), all cores shared, MB", "200")
    parts["together"]["saturated"][OURS]["per_s"] = 69.0
    assert next(name for name, *_ in losses(parts)) == "saturation, all cores shared, answers/s"


def test_the_tables_hold_the_figures(parts: dict[str, Any]) -> None:
    text = render({"parts": parts})
    assert "| Transduce | 150.0 | 158.0 |  | 100 | 900 |" in text
    assert "| CTranslate2 behind FastAPI, window batcher | 60.0 | 70.0 | 2.14 to 2.63 | 100 | 900 |" in text
    assert "sent requests late: Transduce 0 of 2; CTranslate2 behind FastAPI, window batcher 0 of 2." in text
    assert "1 of 2 searches ended before their interval was 6% wide." in text
    assert "| Transduce | 150.0 | 9,000 | 0.1111 |" in text
    assert "Not measured yet." in text
    assert render({"parts": {}}).count("Not measured yet.") >= 8
    parts["goodput"]["effort"]["is_quick"] = True
    assert "not to be quoted" in render({"parts": parts})


def test_a_rate_at_which_the_tester_was_late_is_marked(parts: dict[str, Any]) -> None:
    """A trial with a late tester does not count if the tester was in time in the repetition."""
    searches = parts["goodput"]["goodput"]
    searches[OURS]["trials"] = [trial(150.0, holds=True), trial(150.0, holds=True, is_late=True)]
    searches[WINDOW]["trials"] = [trial(60.0, holds=False, is_late=True), trial(60.0, holds=True)]
    text = goodput_table(parts, "goodput")
    assert "| Transduce | 150.0 * |" in text
    assert "window batcher | 60.0 |" in text
    assert "The p99 of its delay: Transduce 6.0 ms (150.0/s)." in text
    searches[WINDOW]["trials"] = [trial(60.0, holds=True), trial(70.0, holds=False, is_late=True)]
    assert "window batcher | 60.0 | 70.0 * |" in goodput_table(parts, "goodput")
    assert next(findings(parts)).found.endswith("; the tester sent requests late at 150.0/s and 70.0/s")


def test_figures_of_few_requests_are_left_out_or_rough(parts: dict[str, Any]) -> None:
    found = parts["goodput"]["goodput"][WINDOW]
    found["trials"] = [trial(60.0, holds=True, num=299)]
    assert "| 2.14 to 2.63 | 100 |  |" in goodput_table(parts, "goodput")
    found["trials"] = [trial(60.0, holds=True, num=99)]
    assert "| about 2 | 100 |  |" in goodput_table(parts, "goodput")
    alone = parts["together"]["alone"]
    alone[WINDOW] = figures(5.0, 60.0, num_answers=99)
    text = speed_table(parts, "together")
    assert "window batcher | 5.0 |  | 70.0 |" in text
    assert "fewer than 100 answers in a round: CTranslate2 behind FastAPI, window batcher (99)." in text
    names = [name for name, *_ in losses(parts)]
    assert "median latency of one stream, all cores shared, ms" in names
    assert "p95 latency of one stream, all cores shared, ms" not in names
    alone[WINDOW] = figures(5.0, 60.0)
    assert "p95 latency of one stream, all cores shared, ms" in [name for name, *_ in losses(parts)]
    assert "fewer than 100 answers" not in speed_table(parts, "together")


def test_marian_on_one_of_several_cores_is_noted(parts: dict[str, Any]) -> None:
    together = parts["together"]
    for layout, is_noted in (("1 x 2", True), ("2 x 1", False), ("1 x 1", False)):
        together["settings"] = {MARIAN_ALONE: f"{layout}, 1 examples"}
        for table in (speed_table, goodput_table):
            assert ("uses only one core" in table(parts, "together")) is is_noted, layout


def test_the_blocks_of_the_page_are_made_from_the_committed_result() -> None:
    text = page.PAGE.read_text("utf-8")
    assert page.filled(text, page.RESULT) == text, "run python -m benchmarks.http.page"
    names = [match[2] for match in BLOCK.finditer(text)]
    assert sorted(names) == sorted(page.BLOCKS)


@pytest.mark.parametrize("name", [page.RESULT.name, *page.OTHER_RESULTS.values()])
def test_the_tables_beside_a_result_are_made_from_it(name: str) -> None:
    path = page.RESULT.with_name(name)
    text = render(json.loads(path.read_text("utf-8")))
    assert path.with_suffix(".md").read_text("utf-8") == text, "run python -m benchmarks.http.page"


def test_a_line_compares_the_throughput_with_the_best_other_server(parts: dict[str, Any]) -> None:
    assert throughput_line(parts) == "Not measured yet."
    saturated = {OURS: figures(1.0, 90.0), LIBRETRANSLATE: figures(1.0, 9.0), WINDOW: figures(1.0, 60.0)}
    parts["latency"] = {"saturated": saturated}
    line = throughput_line(parts)
    assert "1.5 times as many requests as the best other server with a core each" in line
    assert line.endswith("and 2.1 times as many with shared cores.")


def test_the_page_follows_its_result(tmp_path: Path, parts: dict[str, Any]) -> None:
    text = "before\n<!-- figures: bimodal -->\n12 ms\n<!-- end -->\nafter\n"
    path = tmp_path / "http.json"
    assert page.filled(text, path) == text.replace("12 ms", "Not measured yet.")
    path.write_text(json.dumps({"parts": parts}), "utf-8")
    assert "| Transduce | 10 | 40 |" in page.filled(text, path)
    assert "they answer no more than this rate: LibreTranslate (9.0/s)." in page.filled(text, path)


def test_a_result_that_is_missing_has_no_markdown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, parts: dict[str, Any]
) -> None:
    monkeypatch.setattr("sys.argv", ["page"])
    monkeypatch.setattr(page, "PAGE", tmp_path / "comparison.md")
    monkeypatch.setattr(page, "RESULT", tmp_path / "http.json")
    page.PAGE.write_text("<!-- figures: goals-intel -->\n<!-- end -->\n", "utf-8")
    page.RESULT.write_text(json.dumps({"parts": parts}), "utf-8")
    assert page.main() == 0
    assert "Not measured" in page.PAGE.read_text("utf-8")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["comparison.md", "http.json", "http.md"]


def test_a_committed_result_is_no_quick_run() -> None:
    found = json.loads(page.RESULT.read_text("utf-8"))["parts"]
    assert not any(part["effort"]["is_quick"] for part in found.values())
