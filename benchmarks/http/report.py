"""The result of `benchmarks.http` as Markdown."""

from __future__ import annotations

from typing import Any

from benchmarks.engine.report import table
from benchmarks.http.goals import Parts, findings, losses, short_p99_ms, title_of
from benchmarks.http.subjects import ECHO, OURS

NOT_MEASURED = "Not measured yet."


def render(result: dict[str, Any]) -> str:
    """Every table."""
    parts = result["parts"]
    sections = [
        "# Over HTTP",
        measured_on(parts),
        "## Goals\n\n" + goals_table(parts),
        "## Where Transduce is behind\n\n" + losses_table(parts),
        "## One stream, saturation, starts, memory\n\nServer and tester have a core each.\n\n"
        + latency_table(parts),
        "## Mixed-length traffic\n\nServer and tester have a core each.\n\n"
        + goodput_table(parts, "goodput"),
        "## Short sentences while long ones run\n\n" + bimodal_table(parts),
        "## All cores, shared with the tester\n\n" + together_table(parts),
        "### Mixed-length traffic\n\n" + goodput_table(parts, "together"),
        "## Cost\n\n" + cost_table(parts),
        "## Ten words\n\n" + overhead_table(parts),
        "## Rows, threads, replicas\n\n" + scaling_tables(parts),
        "## Settings\n\n" + settings_table(parts),
    ]
    return "\n\n".join(sections) + "\n"


def measured_on(parts: Parts) -> str:
    """Machine, versions and command of each part, and whether it may be quoted."""
    if not parts:
        return NOT_MEASURED
    lines = []
    for name, part in parts.items():
        machine = part["machine"]
        packages = ", ".join(f"{package} {version}" for package, version in part["versions"].items())
        quick = " A quick run: to see that it works, not to be quoted." if part["effort"]["is_quick"] else ""
        missing = part.get("libretranslate_is_missing")
        lines.append(
            f"- {name}: {machine['cpu']}, {machine['num_cores']} cores, {machine['memory_gb']} GB, Linux "
            f"{machine['kernel']}, load before {machine['load_average_before']}, {machine['measured_at']}, "
            f"{part['seconds']:.0f} s, commit {part['commit']}; {packages}. `{part['command']}`. {kept(part)}{quick}"
            + (f" LibreTranslate was not measured: {missing}." if missing else "")
        )
    return "\n".join(lines)


def kept(part: dict[str, Any]) -> str:
    """How many of our sentences did not come from the model; a run where any did is not written."""
    shares = [part["kept_share"]] if "kept_share" in part else [row["kept_share"] for row in part["models"]]
    return f"Sentences of ours answered from a store or with another's answer: {max(shares):.1%}."


def goals_table(parts: Parts) -> str:
    """A line for each goal."""
    words = {None: "-", True: "yes", False: "no"}
    lines = [(each.name, each.goal, each.found, words[each.is_met]) for each in findings(parts)]
    return table(("", "goal", "found", "reached"), lines)


def losses_table(parts: Parts) -> str:
    """Every figure in which a peer is ahead, or that there is none."""
    lines = losses(parts)
    if not parts:
        return NOT_MEASURED
    return table(("", "Transduce", "best peer"), lines) if lines else "In none of the figures on this page."


def latency_table(parts: Parts) -> str:
    """A line for each server."""
    if "latency" not in parts:
        return NOT_MEASURED
    part = parts["latency"]
    header = (
        "", "one stream, median ms", "p95 ms", "32 clients, answers/s", "median ms", "ready, s", "first answer, s",
        "memory PSS (RSS) MB", "BLEU", "chrF",
    )  # fmt: skip
    note = quality_note(part)
    return table(header, (latency_line(part, name) for name in part["alone"])) + (
        f"\n\n{note}" if note else ""
    )


def latency_line(part: dict[str, Any], name: str) -> tuple[str, ...]:
    """One server's figures."""
    alone, many = part["alone"][name], part["saturated"][name]
    memory, starts = part["memory"][name]["after_load"], part["starts"][name]
    scores = (part["quality"] or {}).get("servers", {}).get(name)
    return (
        title_of(name),
        f"{alone['p50_ms']:.1f}",
        f"{alone['p95_ms']:.1f}",
        f"{many['per_s']:.1f}",
        f"{many['p50_ms']:.0f}",
        f"{starts['ready_s']:.2f}",
        f"{starts['first_answer_s']:.2f}",
        f"{memory['pss_mb']:.0f} ({memory['rss_mb']:.0f})",
        *((f"{scores['bleu']:.2f}", f"{scores['chrf']:.2f}") if scores else ("", "")),
    )


def quality_note(part: dict[str, Any]) -> str:
    """What the scores are of."""
    quality = part["quality"]
    if not quality:
        return ""
    signatures = " and ".join(f"`{signature}`" for signature in quality["signatures"])
    return f"BLEU and chrF of {quality['num_sentences']} sentences of {quality['data']} at 32 clients: {signatures}."


def goodput_table(parts: Parts, name: str) -> str:
    """A line for each server: the highest rate that held, and what the trials were."""
    if name not in parts:
        return NOT_MEASURED
    part = parts[name]
    own = part["goodput"][OURS]["per_s"]
    lines = []
    for server, found in part["goodput"].items():
        trials = found["trials"]
        held = [trial for trial in trials if trial["holds"]]
        at = max(held, key=lambda trial: float(trial["rate"])) if held else None
        lines.append((
            title_of(server),
            f"{found['per_s']:.1f}",
            "-" if found["failed_at"] is None else f"{found['failed_at']:.1f}",
            f"{own / found['per_s']:.2f}" if found["per_s"] and server != OURS else "",
            f"{at['p50_ms']:.0f}" if at else "",
            f"{at['p99_ms']:.0f}" if at else "",
            str(len(trials)),
            str(sum(trial["is_tester_late"] for trial in trials)),
        ))  # fmt: skip
    header = ("", f"requests/s with {part['slo']}", "lowest that failed", "Transduce over it", "median ms there",
              "p99 ms there", "trials", "of them with a late tester")  # fmt: skip
    return table(header, lines)


def bimodal_table(parts: Parts) -> str:
    """A line for each server, medians of the rounds."""
    if "bimodal" not in parts:
        return NOT_MEASURED
    part = parts["bimodal"]
    names = ("short_p50_ms", "short_p99_ms", "long_p50_ms", "long_p99_ms")
    lines = []
    for server, rounds in part["servers"].items():
        own = short_p99_ms(rounds)
        medians = [_median([float(each[name]) for each in rounds]) for name in names]
        failed = sum(each["num_failed"] for each in rounds)
        cells = [f"{value:.0f}" for value in medians]
        lines.append((title_of(server), cells[0], f"{own:.0f}", *cells[2:], str(failed)))
    header = (
        "",
        "short, median ms",
        "short, p99 ms",
        "long, median ms",
        "long, p99 ms",
        "not answered in 5 s",
    )
    swamped = [
        f"{title_of(name)} ({most:.1f}/s)" for name, most in part["saturated"].items() if most <= part["rate"]
    ]
    return (
        f"{part['rate']:.1f} requests/s for everybody, four short sentences to each long one: "
        f"{part['share_of_window']:.0%} of what the window batcher does of them at most.\n\n{table(header, lines)}"
        + (f"\n\nNot asked, as they do less at saturation: {', '.join(swamped)}." if swamped else "")
    )


def _median(values: list[float]) -> float:
    ordered = sorted(values)
    return (ordered[(len(ordered) - 1) // 2] + ordered[len(ordered) // 2]) / 2


def together_table(parts: Parts) -> str:
    """A line for each server."""
    if "together" not in parts:
        return NOT_MEASURED
    part = parts["together"]
    header = ("", "one stream, median ms", "p95 ms", "32 clients, answers/s", "median ms", "memory PSS MB")
    return table(
        header,
        (
            (
                title_of(name),
                f"{part['alone'][name]['p50_ms']:.1f}",
                f"{part['alone'][name]['p95_ms']:.1f}",
                f"{part['saturated'][name]['per_s']:.1f}",
                f"{part['saturated'][name]['p50_ms']:.0f}",
                f"{part['memory'][name]['after_load']['pss_mb']:.0f}",
            )
            for name in part["alone"]
        ),
    )


def cost_table(parts: Parts) -> str:
    """A worked example: what a million characters cost at the goodput on all cores, at a stated price."""
    if "together" not in parts:
        return NOT_MEASURED
    part = parts["together"]
    lines = []
    for server, found in part["goodput"].items():
        characters = found["per_s"] * part["characters_per_request"]
        cost = f"{cost_of(characters, part['price_per_hour']):.4f}" if characters else "no rate held"
        lines.append((title_of(server), f"{found['per_s']:.1f}", f"{characters:,.0f}", cost))
    return (
        f"An assumption, not a measurement: this machine at {part['price_per_hour']:.2f} an hour, busy at its goodput "
        "all the time. At a tenth of that traffic a character costs ten times as much.\n\n"
        + table(("", "requests/s", "characters/s", "cost of a million characters"), lines)
    )


def cost_of(characters_per_s: float, price_per_hour: float) -> float:
    """Of a million characters, in the price's currency."""
    return price_per_hour / 3600 / characters_per_s * 1e6


def overhead_table(parts: Parts) -> str:
    """A line for each model."""
    if "overhead" not in parts:
        return NOT_MEASURED
    part = parts["overhead"]
    header = ("", "request, ms", "network, ms", "overhead, ms", "share", "of it around the engine, ms", "share",
              "steps")  # fmt: skip
    lines = [
        (
            row["model"],
            f"{row['total_ms']:.2f}",
            f"{row['network_ms']:.2f}",
            f"{row['overhead_ms']:.2f}",
            f"{row['overhead_share']:.1%}",
            f"{row['around_engine_ms']:.2f}",
            f"{row['around_engine_share']:.1%}",
            f"{row['steps_mean']:.1f}",
        )
        for row in part["models"]
    ]
    left_out = max(row.get("num_sentences_left_out", 0) for row in part["models"])
    words = f" Left out: {left_out} of the sentences, which are decoded twice." if left_out else ""
    return f"{table(header, lines)}\n\nThe echo answers such a request in {part['echo']:.2f} ms.{words}"


def scaling_tables(parts: Parts) -> str:
    """Rows with the model beside them, and layouts."""
    if "scaling" not in parts:
        return NOT_MEASURED
    part = parts["scaling"]
    rows = table(
        ("rows", "answers/s", "model"),
        ((row["rows"], f"{row['per_s']:.1f}", f"{row['model_per_s']:.1f}") for row in part["rows"]),
    )
    model = part["rows_model"]
    words = (
        f"Model: n rows give n / ({model['a_ms']:.2f} ms + {model['b_ms']:.3f} ms n) answers a second, "
        f"within {model['worst']:.0%} of what was measured."
    )
    layouts = table(
        ("replicas x threads", "answers/s"), ((row["name"], f"{row['per_s']:.1f}") for row in part["layouts"])
    )
    shares = (
        f"\n\nTwo threads do what a server does {part['parallel_share']:.0%} of whose work runs on both (Amdahl); two "
        f"replicas do {part['replica_share']:.0%} of twice one, the tester on the same cores."
        if "parallel_share" in part
        else ""
    )
    return f"{rows}\n\n{words}\n\n{layouts}{shares}"


def settings_table(parts: Parts) -> str:
    """What each server was run with, by part."""
    lines = [
        (name, title_of(server), settings)
        for name, part in parts.items()
        for server, settings in part.get("settings", {}).items()
        if server != ECHO
    ]
    return table(("part", "", "settings"), lines) if lines else NOT_MEASURED
