"""The report of a result file for a terminal."""

from __future__ import annotations

from typing import Any

from transduce.loadtest.document import Document

WIDTH = 22
SHOWN = ("p50", "p90", "p99", "p99_9")


def text_report(document: Document) -> str:
    """The most important figures, one per line."""
    reason = f": {document['failure']}" if document["failure"] else ""
    lines = [f"{document['label']}: {document['verdict'].upper()}{reason}"]
    lines += [f"  not valid: {problem}" for problem in document["problems"]]
    for threshold in document["thresholds"]:
        word = "met" if threshold["is_met"] else "MISSED"
        lines.append(f"  {word}: {threshold['name']}: {threshold['found']}, required {threshold['needed']}")
    sweep = document["sweep"]
    if sweep is not None:
        lines += _sweep_lines(sweep)
        lines.append(_line("seed", str(document["plan"]["seed"])))
    if document["runs"]:
        lines += _run_lines(document)
    return "\n".join(lines)


def _sweep_lines(sweep: dict[str, Any]) -> list[str]:
    lines = []
    if sweep["saturation"]:
        saturated = sweep["saturation"]["achieved_rate"]
        lines.append(_line("saturation", f"{saturated:.1f} requests/s in a closed loop"))
    for point in sorted(sweep["points"], key=lambda one: float(one["rate"])):
        latency = point["result"]["latency"]
        verdict = "misses the objective" if point["result"]["is_valid"] else "not valid"
        if point["holds"]:
            verdict = "meets the objective"
        figures = _percentiles(latency["percentiles"]) if latency else "no answers"
        lines.append(_line(f"{point['rate']:.2f} requests/s", f"{verdict:20} {figures}"))
    return lines


def _run_lines(document: Document) -> list[str]:
    summary = document["summary"]
    first = document["runs"][0]
    outcomes: dict[str, int] = {}
    for one in document["runs"]:
        for name, count in one["outcomes"].items():
            outcomes[name] = outcomes.get(name, 0) + count
    lines = [_line("sent", ", ".join(f"{count} {name}" for name, count in outcomes.items()))]
    lines += [
        _line(name.replace("_", " "), f"{_spread(summary[name])} requests/s")
        for name in ("offered_rate", "achieved_rate", "goodput")
        if name in summary
    ]
    kinds = (
        ("latency", "latency"),
        ("uncorrected_latency", "  uncorrected"),
        ("first_text", "to the first text"),
        ("lag", "lag of the tester"),
    )
    for name, title in kinds:
        found = {key: summary[f"{name}_{key}_ms"]["median"] for key in SHOWN if f"{name}_{key}_ms" in summary}
        if found:
            lines.append(_line(title, _percentiles(found)))
    amounts = [f"{_spread(summary[f'{name}_per_s'])} {name.replace('_', ' ')}" for name in first["per_s"]]
    lines.append(_line("per second", ", ".join(amounts)))
    if outcomes["ok"]:
        lines.append(
            _line("from the cache", describe_cached([one["cached_share"] for one in document["runs"]]))
        )
    lines.append(_line("seed", ", ".join(str(one["seed"]) for one in document["runs"])))
    lines += [
        _line("quality under load", _quality(one["quality"])) for one in document["runs"] if one["quality"]
    ]
    return lines


def describe_cached(shares: list[float | None]) -> str:
    """The share of sentences that the server answered from its cache, for each run."""
    if all(share is None for share in shares):
        return "not reported by the server"
    percentages = ", ".join("?" if share is None else f"{share:.1%}" for share in shares)
    return f"{percentages} of the sentences"


def _quality(quality: dict[str, Any]) -> str:
    if quality["chrf"] is None:
        return (
            f"nothing to compare: all {quality['num_known']} responses have sentences from the server's cache"
        )
    return (
        f"chrF {quality['chrf']:.1f}, {quality['exact_share']:.1%} exact, against {quality['against']}, "
        f"{quality['num_texts']} texts"
    )


def _percentiles(percentiles: dict[str, float]) -> str:
    return ", ".join(
        f"{name.replace('_', '.')} {_without_exponent(percentiles[name])} ms"
        for name in SHOWN
        if name in percentiles
    )


def _without_exponent(value: float) -> str:
    """A number of at least four significant digits."""
    return f"{value:.4g}" if value < 1000 else f"{value:.0f}"


def _spread(figures: dict[str, float]) -> str:
    if figures["min"] == figures["max"]:
        return f"{figures['median']:.1f}"
    return f"{figures['median']:.1f} ({figures['min']:.1f} to {figures['max']:.1f})"


def _line(title: str, text: str) -> str:
    return f"  {title:{WIDTH}}{text}"


def describe_load(load: dict[str, Any]) -> str:
    """A plan's load on one line."""
    if load["mode"] == "closed":
        return f"{load['num_clients']} clients in a closed loop, {load['duration_s']:g} s"
    phases = ", then ".join(
        f"{one['rate']:g} requests/s for {one['duration_s']:g} s" for one in load["phases"]
    )
    shape = f", burstiness {load['burstiness']:g}" if load["kind"] == "bursty" else ""
    return f"open loop ({load['kind']}{shape}): {phases}"


def describe_workload(workload: dict[str, Any]) -> str:
    """A plan's workload on one line."""
    distinct = "every text distinct" if workload["is_distinct"] else "texts repeat"
    share = workload["disconnect_share"]
    cancelled = f", {share:.0%} cancelled at a random time if not answered by then" if share else ""
    return f"{workload['name']}: {workload['num_requests']} requests, {distinct}{cancelled}"
