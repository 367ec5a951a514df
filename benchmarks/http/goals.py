"""The server's performance goals over HTTP, the measured figures, and the figures in which a peer is better."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from benchmarks.http.subjects import ECHO, OURS, TITLES, WINDOW

Parts = dict[str, Any]
# Goodput: at least LEAST_GOODPUT times the best other server's. p99 of short sentences: at most MOST_P99 times the p99
# of CTranslate2 with the window batcher. Memory: at most MOST_MEMORY times the smallest of the other servers.
LEAST_GOODPUT, MOST_P99, MOST_MEMORY = 2.5, 0.1, 2.0
# A p95, a p99 and a ratio of goodputs are stated only for a run with at least this number of requests.
LEAST_FOR_P95, LEAST_FOR_P99, LEAST_FOR_RATIO = 100, 300, 100
# The maximum overhead of a ten-word request: a share of its time (base size), and milliseconds (bundled model).
MOST_SHARE, MOST_MS = 0.15, 2.0


@dataclass(frozen=True)
class Finding:
    """A goal and the measured figure. is_met: None if it was not measured."""

    name: str
    goal: str
    found: str
    is_met: bool | None


@dataclass(frozen=True)
class Figure:
    """A figure of Transduce and its peers. values: by server. is_less_better: whether a lower value is better."""

    name: str
    values: dict[str, float]
    is_less_better: bool


def title_of(name: str) -> str:
    """A server's label for a table. A name may end with `@` and the thread layout: workers x threads of each."""
    kind, _, layout = name.partition("@")
    return TITLES[kind] + (f", {layout} threads" if layout else "")


def findings(parts: Parts) -> Iterator[Finding]:
    """All goals with their measured figures, in order."""
    for part, where in (("goodput", "a core each"), ("together", "all cores shared")):
        yield _goodput(parts.get(part), where)
    yield _bimodal(parts.get("bimodal"))
    for part, where in (("latency", "a core each"), ("together", "all cores shared")):
        yield _alone(parts.get(part), where)
    yield _memory(parts.get("latency"))
    yield _start(parts.get("latency"))
    yield from _overhead(parts.get("overhead"))


def _goodput(part: Parts | None, where: str) -> Finding:
    name, goal = (
        f"goodput of mixed-length traffic, {where}",
        f"at least {LEAST_GOODPUT} times the best other server's",
    )
    if part is None:
        return Finding(name, goal, "not measured", None)
    ours = part["goodput"][OURS]
    peers = {each: found for each, found in part["goodput"].items() if each != OURS}
    best = max(peers, key=lambda each: float(peers[each]["per_s"]))
    if not peers[best]["per_s"]:
        words = f"{ours['per_s']:.1f}/s; no peer kept the objective at any rate tried"
        return Finding(name, goal, words, ours["per_s"] > 0)
    low, high = ratio_of(ours, peers.values())
    late = [f"{trial['rate']:.1f}/s" for found in (ours, peers[best]) for trial in late_bounds(found)]
    return Finding(
        name,
        goal,
        f"{range_text(low, high, 2)} times, {_rates(ours)}/s against {_rates(peers[best])}/s of {title_of(best)}"
        + (f"; the tester sent requests late at {' and '.join(late)}" if late else ""),
        low >= LEAST_GOODPUT,
    )


def ratio_of(ours: Parts, peers: Iterable[Parts]) -> tuple[float, float]:
    """The minimum and the maximum ratio of Transduce's goodput to the best peer's, as far as the searches know them.

    ours, peers: searches' results. A goodput lies between the highest rate that held and the lowest that failed.
    """
    found = list(peers)
    upper = max(_failed_at(each) for each in found)
    lower = max(float(each["per_s"]) for each in found)
    return float(ours["per_s"]) / upper, _failed_at(ours) / lower if lower else math.inf


def _failed_at(found: Parts) -> float:
    """The lowest rate that failed. Infinite if none failed."""
    return math.inf if found["failed_at"] is None else float(found["failed_at"])


def range_text(low: float, high: float, digits: int) -> str:
    """An interval as text. An unknown `low` is 0, and an unknown `high` is infinite."""
    if math.isinf(high):
        return f"at least {low:.{digits}f}"
    return f"{low:.{digits}f} to {high:.{digits}f}" if low else f"at most {high:.{digits}f}"


def _rates(found: Parts) -> str:
    """The interval of a goodput."""
    return range_text(float(found["per_s"]), _failed_at(found), 1)


def trial_at(found: Parts, rate: float | None) -> Parts | None:
    """The trial that counts at a rate, which is the last one. None if there is none."""
    trials = [each for each in found["trials"] if each["rate"] == rate]
    return trials[-1] if trials else None


def late_bounds(found: Parts) -> list[Parts]:
    """The trials with a late tester among two trials: of the highest rate that held, and of the lowest that failed."""
    bounds = (trial_at(found, found[name]) for name in ("per_s", "failed_at"))
    return [each for each in bounds if each is not None and each["is_tester_late"]]


def num_answers(found: Parts) -> int:
    """The number of answers in the round of closed-loop clients with the fewest answers."""
    return min(int(each["num_answers"]) for each in found["rounds"])


def _bimodal(part: Parts | None) -> Finding:
    name, goal = (
        "p99 of short sentences while long ones run",
        f"at most {MOST_P99} of that of {title_of(WINDOW)}",
    )
    if part is None:
        return Finding(name, goal, "not measured", None)
    ours, window = (short_p99_ms(part["servers"][each]) for each in (OURS, WINDOW))
    return Finding(
        name,
        goal,
        f"{ours / window:.2f} of it, {ours:.0f} ms against {window:.0f} ms",
        ours <= MOST_P99 * window,
    )


def short_p99_ms(rounds: list[dict[str, Any]]) -> float:
    """The median over the rounds of the short sentences' p99 latency."""
    values = sorted(float(each["short_p99_ms"]) for each in rounds)
    return (values[(len(values) - 1) // 2] + values[len(values) // 2]) / 2


def _alone(part: Parts | None, where: str) -> Finding:
    name, goal = f"median latency of one stream, {where}", "the lowest"
    if part is None:
        return Finding(name, goal, "not measured", None)
    ours, least, best = _lowest({each: found["p50_ms"] for each, found in part["alone"].items()})
    return Finding(name, goal, f"{ours:.1f} ms against {least:.1f} ms of {best}", ours < least)


def _memory(part: Parts | None) -> Finding:
    name, goal = "memory after load (PSS), a core each", f"at most {MOST_MEMORY:g} times the smallest"
    if part is None:
        return Finding(name, goal, "not measured", None)
    sizes = {each: found["after_load"]["pss_mb"] for each, found in part["memory"].items()}
    ours, least, best = _lowest(sizes)
    found = f"{ours / least:.2f} times, {ours:.0f} MB against {least:.0f} MB of {best}"
    return Finding(name, goal, found, ours <= MOST_MEMORY * least)


def _start(part: Parts | None) -> Finding:
    name, goal = "start until ready, a core each", "no later than the quickest"
    if part is None:
        return Finding(name, goal, "not measured", None)
    ours, least, best = _lowest({each: found["ready_s"] for each, found in part["starts"].items()})
    return Finding(name, goal, f"{ours:.2f} s against {least:.2f} s of {best}", ours <= least)


def _lowest(values: dict[str, float]) -> tuple[float, float, str]:
    """Transduce's value, the lowest of the other servers that translate, and that server's label. values: by server."""
    value, best = min((value, name) for name, value in values.items() if name not in (OURS, ECHO))
    return values[OURS], value, title_of(best)


def _overhead(part: Parts | None) -> Iterator[Finding]:
    """Each overhead goal twice: for the time outside the engine, and for all time outside the neural network."""
    rows = {} if part is None else {row["model"]: row for row in part["models"]}
    for kind, words in (
        ("around_engine", "overhead without scheduling and search"),
        ("overhead", "overhead with scheduling and search"),
    ):
        for model, goal in (
            ("base size", f"below {MOST_SHARE * 100:g} %"),
            ("bundled", f"below {MOST_MS:g} ms"),
        ):
            name = f"ten words, {model}: {words}"
            if not rows:
                yield Finding(name, goal, "not measured", None)
                continue
            share, ms, total_ms = (rows[model][key] for key in (f"{kind}_share", f"{kind}_ms", "total_ms"))
            is_met = share < MOST_SHARE if model == "base size" else ms < MOST_MS
            yield Finding(name, goal, f"{ms:.2f} of {total_ms:.1f} ms, {share:.1%}", is_met)


def figures(parts: Parts) -> Iterator[Figure]:
    """All figures that Transduce and its peers have. The echo server is not a peer."""
    for part, where in (("latency", "a core each"), ("together", "all cores shared")):
        if part in parts:
            yield from _common(parts[part], where)
    for part, where in (("goodput", "a core each"), ("together", "all cores shared")):
        if part in parts:
            rates = {name: found["per_s"] for name, found in parts[part]["goodput"].items()}
            yield Figure(f"goodput, {where}", rates, is_less_better=False)
    if "bimodal" in parts:
        short = {name: short_p99_ms(rounds) for name, rounds in parts["bimodal"]["servers"].items()}
        yield Figure("p99 of short sentences beside long ones, ms", short, is_less_better=True)


def _common(part: Parts, where: str) -> Iterator[Figure]:
    names = [name for name in part["alone"] if name != ECHO]
    rules: list[tuple[str, Callable[[str], float], bool]] = [
        (f"median latency of one stream, {where}, ms", lambda name: part["alone"][name]["p50_ms"], True),
        (f"saturation, {where}, answers/s", lambda name: part["saturated"][name]["per_s"], False),
        (
            f"memory after load (PSS), {where}, MB",
            lambda name: part["memory"][name]["after_load"]["pss_mb"],
            True,
        ),
    ]
    if part["starts"]:
        rules.append((f"start until ready, {where}, s", lambda name: part["starts"][name]["ready_s"], True))
        rules.append(
            (
                f"start until the first answer, {where}, s",
                lambda name: part["starts"][name]["first_answer_s"],
                True,
            )
        )
    for title, value, is_less_better in rules:
        yield Figure(title, {name: value(name) for name in names}, is_less_better)
    enough = [name for name in names if num_answers(part["alone"][name]) >= LEAST_FOR_P95]
    if OURS in enough:
        p95_ms = {name: part["alone"][name]["p95_ms"] for name in enough}
        yield Figure(f"p95 latency of one stream, {where}, ms", p95_ms, is_less_better=True)
    scores = (part["quality"] or {}).get("servers", {})
    for score in ("bleu", "chrf") if scores else ():
        yield Figure(
            f"{score} under load", {name: row[score] for name, row in scores.items()}, is_less_better=False
        )


def losses(parts: Parts) -> list[tuple[str, str, str, str]]:
    """Each figure in which a peer is better: its name, Transduce's value, the best peer's value, and that peer."""
    found = []
    for figure in figures(parts):
        ours = figure.values[OURS]
        peers = {name: value for name, value in figure.values.items() if name != OURS}
        if not peers:
            continue
        best = min(peers, key=lambda name: peers[name] if figure.is_less_better else -peers[name])
        is_behind = ours > peers[best] if figure.is_less_better else ours < peers[best]
        if is_behind:
            found.append((figure.name, f"{ours:.4g}", f"{peers[best]:.4g}", title_of(best)))
    return found
