"""Formats the summary of docs/performance.md: a figure of each section, its goal, and whether it is reached."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from benchmarks.engine.goals import GOALS, Goal, Row, least_ratio, valid_arrivals
from benchmarks.engine.report import table
from benchmarks.event_loop import GOAL_MS
from benchmarks.fairness import GOAL
from benchmarks.server_tables import num_cores

Result = dict[str, Any]
# Returns the content of a result file by its name.
Read = Callable[[str], Result]
Line = tuple[str, str, str, str]

# Words for a result that another run contradicts. The other run is in the history of the result file.
BUT_NOT_BEFORE = "yes, but not in an earlier run"


def summary_table(read: Read) -> str:
    """The table of all lines."""
    lines = [*_engine(read), *_marian(read), *_server(read)]
    return table(("what", "figure", "goal", "reached"), lines)


def _engine(read: Read) -> Iterable[Line]:
    of_ctranslate2 = ": times as fast as CTranslate2"
    for name, file in (
        ("Intel", "engine.json"),
        ("Zen 5", "engine_amd.json"),
        ("Zen 4", "engine_zen4.json"),
        ("AVX-VNNI", "engine_avxvnni.json"),
        ("AVX2", "engine_avx2.json"),
    ):
        result, anchor = read(file), _anchor(name)
        for precision in ("int8", "fp32"):
            rows = [row for row in result["cases"] if row["precision"] == precision]
            if rows:
                goals = [least_ratio(_goal_of(row).kind, precision, result) for row in rows]
                reached = sum(row["ratio"] >= goal for row, goal in zip(rows, goals, strict=True))
                yield (
                    f"[{precision} on {name}]({anchor}){of_ctranslate2}",
                    _range(row["ratio"] for row in rows),
                    _at_least(goals),
                    _cases(reached, len(rows)),
                )
                of_ctranslate2 = ""
    (goal,) = (one for one in GOALS if one.rows == "arrivals")
    for name, file in (
        ("Intel", "engine.json"),
        ("Zen 5", "engine_amd.json"),
        ("Zen 4", "engine_zen4.json"),
    ):
        result = read(file)
        ratios = [row["ratio"] for row in valid_arrivals(result)]
        least = least_ratio(goal.kind, "int8", result)
        what = f"[highest rate of arrivals on {name}]({_anchor(name)}): times CTranslate2's"
        yield what, _range(ratios), _at_least([least]), _yes(min(ratios) >= least)


def _anchor(name: str) -> str:
    """The section of docs/performance.md about this kind of processor."""
    return f"#on-{name.replace(' ', '-').lower()}"


def _goal_of(row: Row) -> Goal:
    """The goal for the ratio of a case."""
    (found,) = (one for one in GOALS if one.most is None and one.rows == "cases" and one.applies_to(row))
    return found


def _marian(read: Read) -> Iterable[Line]:
    of_marian = ": times as fast as Marian"
    for name, file in (("Intel", "marian_intel.json"), ("AMD, Zen 5", "marian.json")):
        ratios = [one["ratio"] for one in read(file)["comparisons"] if one["has_shortlist"]]
        what = f"[int8 with a shortlist on {name}](#marian-as-firefox-builds-it){of_marian}"
        yield what, _range(ratios), _at_least([2]), _cases(sum(ratio >= 2 for ratio in ratios), len(ratios))
        of_marian = ""


def _server(read: Read) -> Iterable[Line]:
    serving, footprint, many = (read(f"{name}.json") for name in ("serving", "footprint", "many_models"))
    loads = [serving["load"][f"beam_{size}"] for size in (4, 1)]
    ratios = [load["ratio"] for load in loads]
    what = "[32 clients on one core](#one-server-core): times the rate of one client"
    yield what, _range(ratios), _at_least([4]), _yes(min(ratios) >= 4)
    rate = loads[0]["many_clients"]["sentences_per_s"]
    yield "[sentences/s of one core](#one-server-core), 32 clients, beam 4", f"{rate:.1f}", "none", ""
    answers = [
        serving["batch_consistency"]["int8"]["answers"][name] for name in ("32 clients", "random arrival")
    ]
    different, compared = (sum(one[key] for one in answers) for key in ("num_different", "num_compared"))
    what = "[sentences whose answer depends on the others in the batch](#correctness)"
    yield what, f"{different} of {compared:,}", "0", _yes(not different)
    checks = [one for one in read("verify.en-de.json")["checks"] if "BLEU" in one["name"]]
    loss, most = max(one["value"] for one in checks), checks[0]["limit"]
    what = "[BLEU that int8 loses](#correctness) against fp32"
    yield what, f"{loss:.2f} at most", f"at most {most:g}", _yes(loss <= most)
    ready_s = footprint["medians_on_all_cores"]["ready_s"]
    cores = num_cores(footprint)
    yield f"[start until ready](#start-and-memory), {cores}", f"{ready_s:.2f} s", "none", ""
    pss_mb = footprint["memory"]["under load, twice as long"]["pss"]
    yield f"[memory under load](#start-and-memory) (PSS), {cores}", f"{pss_mb:.0f} MB", "none", ""
    times = max(one["times_p99"] for one in read("fairness.json")["figures"])
    what = "[p99 latency beside another caller's load](#several-callers): times that without the load"
    yield what, f"{times:.2f} at most", f"at most {GOAL:g}", BUT_NOT_BEFORE if times <= GOAL else "no"
    wait_ms = max(one["probes"]["max_ms"] for one in read("event_loop.json")["figures"])
    reached = "yes, but not in earlier runs on AVX2" if wait_ms <= GOAL_MS else "no"
    yield (
        "[longest wait for the event loop](#event-loop)",
        f"{wait_ms:.0f} ms",
        f"at most {GOAL_MS:g} ms",
        reached,
    )
    budget, resident = (many["figures"][name]["warm"]["p99_ms"] for name in ("budget", "resident"))
    what = (
        "[more models than memory](#several-models): p99 of requests whose model is in memory, times that of a server "
        "with all its models in memory"
    )
    yield what, f"{budget / resident:.1f}", "at most 1.2", _yes(budget / resident <= 1.2)
    swaps = read("swaps.json")["figures"]
    failed = swaps["num_failures"] + swaps["num_not_of_named_version"] + swaps["num_of_neither_version"]
    what = "[failed or wrong answers](#several-models) while models are replaced"
    yield what, f"{failed} of {swaps['num_answers']:,}", "0", _yes(not failed)
    for case, words in zip(read("traces.json")["figures"]["cases"], ("decoded", "cached"), strict=True):
        (share,) = (one["over_without"]["median"] for one in case["traced"] if one["share"] == 0.01)
        what = f"[rate with 1 % of requests traced](#traces), {words} sentences"
        yield what, f"{share:.3f}", _at_least([0.99]), _yes(share >= 0.99)


def _range(values: Iterable[float], form: str = "{:.2f}") -> str:
    ordered = sorted(values)
    lowest, highest = form.format(ordered[0]), form.format(ordered[-1])
    return lowest if lowest == highest else f"{lowest} to {highest}"


def _at_least(goals: Iterable[float]) -> str:
    """The goals of all cases as a lower bound, with "by case" if they differ."""
    values = set(goals)
    bound = f"at least {_range(values, '{:g}')}"
    return f"{bound}, by case" if len(values) > 1 else bound


def _cases(num_reached: int, num_cases: int) -> str:
    return f"in {num_reached} of {num_cases} cases"


def _yes(is_reached: bool) -> str:
    return "yes" if is_reached else "no"
