"""Formats the result of `benchmarks.http` as Markdown: the whole result, and single tables for docs/comparison.md."""

from __future__ import annotations

from collections.abc import Iterable
from statistics import median
from typing import Any

from benchmarks.engine.report import table
from benchmarks.http.goals import (
    LEAST_FOR_P95,
    LEAST_FOR_P99,
    LEAST_FOR_RATIO,
    Parts,
    findings,
    late_bounds,
    losses,
    num_answers,
    range_text,
    ratio_of,
    short_p99_ms,
    title_of,
    trial_at,
)
from benchmarks.http.rate_search import PRECISION
from benchmarks.http.subjects import ECHO, MARIAN_ALONE, OURS, WINDOW

NOT_MEASURED = "Not measured yet."
WORDS = {None: "Not measured", True: "Reached", False: "Missed"}


def render(result: dict[str, Any]) -> str:
    """The whole result as Markdown."""
    parts = result["parts"]
    sections = [
        "# Over HTTP",
        runs_table(parts),
        "## Goals\n\n" + goals_list(parts),
        "## Where Transduce is behind\n\n" + losses_table(parts),
        "## A core each for server and tester",
        "### Speed\n\n" + speed_table(parts, "latency"),
        "### Mixed-length traffic\n\n" + goodput_table(parts, "goodput"),
        "### Short sentences beside long ones\n\n" + bimodal_table(parts),
        "### Start and memory\n\n" + footprint_table(parts, "latency"),
        "### Quality\n\n" + quality_table(parts),
        "## All cores shared by server and tester",
        "### Speed\n\n" + speed_table(parts, "together"),
        "### Mixed-length traffic\n\n" + goodput_table(parts, "together"),
        "### Memory\n\n" + footprint_table(parts, "together"),
        "### Cost\n\n" + cost_table(parts),
        "## Ten words\n\n" + overhead_table(parts),
        "## Rows, threads, replicas\n\n" + scaling_tables(parts),
        "## Settings\n\n" + settings_table(parts),
    ]
    return "\n\n".join(sections) + "\n"


def goals_list(parts: Parts) -> str:
    """A line for each goal."""
    return "\n".join(
        f"- **{WORDS[each.is_met]}**: {each.name}. Goal: {each.goal}. Found: {each.found}."
        for each in findings(parts)
    )


def losses_table(parts: Parts) -> str:
    """Every figure in which a peer is better, or a note that there is none."""
    if not parts:
        return NOT_MEASURED
    lines = losses(parts)
    header = ("", "Transduce", "best other server", "which")
    return table(header, lines) if lines else "In none of the figures on this page."


def speed_table(parts: Parts, name: str) -> str:
    """Latency of 1 client, and throughput and latency of 32 clients."""
    if name not in parts:
        return NOT_MEASURED
    alone, many = parts[name]["alone"], parts[name]["saturated"]
    header = ("", "1 client, median ms", "1 client, p95 ms", "32 clients, answers/s", "32 clients, median ms")
    nums = {server: num_answers(row) for server, row in alone.items()}
    lines = table(
        header,
        (
            (
                title_of(server), f"{alone[server]['p50_ms']:.1f}",
                f"{alone[server]['p95_ms']:.1f}" if nums[server] >= LEAST_FOR_P95 else "",
                f"{many[server]['per_s']:.1f}", f"{many[server]['p50_ms']:.0f}",
            )
            for server in alone
        ),
    )  # fmt: skip
    few = [f"{title_of(server)} ({num})" for server, num in nums.items() if num < LEAST_FOR_P95]
    note = (
        f"\n\nNo p95, because 1 client got fewer than {LEAST_FOR_P95} answers in a round: {'; '.join(few)}."
        if few
        else ""
    )
    return lines + note + _one_core_note(parts[name])


def _one_core_note(part: Parts) -> str:
    """A note if Marian without the window batcher has several cores and can use only one of them."""
    processes, _, threads = part["settings"].get(MARIAN_ALONE, "").partition(",")[0].partition(" x ")
    if processes != "1" or threads == "1":
        return ""
    return (
        f"\n\n{title_of(MARIAN_ALONE)}, uses only one core: it has one process, which translates one sentence at a "
        "time on one thread."
    )


def throughput_line(parts: Parts) -> str:
    """Transduce's throughput with 32 clients, as a multiple of the throughput of the best other server."""
    if not {"latency", "together"} <= parts.keys():
        return NOT_MEASURED
    times = []
    for name in ("latency", "together"):
        rates = {server: row["per_s"] for server, row in parts[name]["saturated"].items() if server != ECHO}
        times.append(rates.pop(OURS) / max(rates.values()))
    return (
        f"With 32 clients Transduce answers {times[0]:.1f} times as many requests as the best other server with a core "
        f"each, and {times[1]:.1f} times as many with shared cores."
    )


def footprint_table(parts: Parts, name: str) -> str:
    """Memory after load. Also the start times, if the part has them."""
    if name not in parts:
        return NOT_MEASURED
    part = parts[name]
    has_starts = bool(part["starts"])
    header = ("", *(("ready, s", "first answer, s") if has_starts else ()), "PSS, MB", "RSS, MB")

    def line(server: str) -> Iterable[str]:
        yield title_of(server)
        if has_starts:
            starts = part["starts"][server]
            yield from (f"{starts['ready_s']:.2f}", f"{starts['first_answer_s']:.2f}")
        memory = part["memory"][server]["after_load"]
        yield from (f"{memory['pss_mb']:.0f}", f"{memory['rss_mb']:.0f}")

    return table(header, (tuple(line(server)) for server in part["alone"]))


def quality_table(parts: Parts) -> str:
    """BLEU and chrF with 32 clients, the test set, and the metrics' signatures."""
    quality = (parts.get("latency") or {}).get("quality")
    if not quality:
        return NOT_MEASURED
    lines = (
        (title_of(server), f"{row['bleu']:.2f}", f"{row['chrf']:.2f}")
        for server, row in quality["servers"].items()
    )
    signatures = " and ".join(f"`{signature}`" for signature in quality["signatures"])
    return (
        f"{table(('', 'BLEU', 'chrF'), lines)}\n\nBLEU and chrF of {quality['num_sentences']} sentences of "
        f"{quality['data']} at 32 clients: {signatures}."
    )


def goodput_table(parts: Parts, name: str) -> str:
    """The highest successful rate of each server, and notes about the search and the tester."""
    if name not in parts:
        return NOT_MEASURED
    part = parts[name]
    lines, late, marked = [], [], []
    for server, found in part["goodput"].items():
        trials, at = found["trials"], trial_at(found, found["per_s"])
        held, failed = (
            "-" if found[bound] is None else f"{found[bound]:.1f}{_mark(found, found[bound])}"
            for bound in ("per_s", "failed_at")
        )
        lines.append((
            title_of(server),
            held,
            failed,
            "" if server == OURS else _times(part["goodput"][OURS], found),
            f"{at['p50_ms']:.0f}" if at else "",
            f"{at['p99_ms']:.0f}" if at and at["num_ok"] >= LEAST_FOR_P99 else "",
        ))  # fmt: skip
        num_late = sum(trial["is_tester_late"] for trial in trials)
        late.append(f"{title_of(server)} {num_late} of {len(trials)}")
        marked += [
            f"{title_of(server)} {trial['lag_p99_ms']:.1f} ms ({trial['rate']:.1f}/s)"
            for trial in late_bounds(found)
        ]
    header = ("", f"goodput ({part['slo']}), requests/s", "lowest rate that failed", "Transduce, times as many",
              "median at goodput, ms", "p99 at goodput, ms")  # fmt: skip
    note = f"\n\n\\* The tester sent requests late in this trial. The p99 of its delay: {'; '.join(marked)}."
    return (
        f"{table(header, lines)}{note if marked else ''}\n\nTrials in which the tester sent requests late: "
        f"{'; '.join(late)}.{_wide_note(part['goodput'])}{_one_core_note(part)}"
    )


def _mark(found: Parts, rate: float) -> str:
    """A mark for a rate whose trial had a late tester."""
    return " *" if any(trial["rate"] == rate for trial in late_bounds(found)) else ""


def _times(ours: Parts, peer: Parts) -> str:
    """Transduce's goodput as a multiple of the peer's: an interval, or a rough number if the peer had few requests."""
    at = trial_at(peer, peer["per_s"])
    if at and at["num_sent"] < LEAST_FOR_RATIO:
        rough = float(f"{ours['per_s'] / peer['per_s']:.1g}")
        return f"about {rough:.0f}"
    return range_text(*ratio_of(ours, [peer]), 2)


def _wide_note(searches: Parts) -> str:
    """A note if searches ended before their interval was as narrow as PRECISION."""
    bounds = [(float(each["per_s"]), each["failed_at"]) for each in searches.values()]
    num = sum(failed is None or failed > held * (1 + PRECISION) for held, failed in bounds)
    if not num:
        return ""
    return f" {num} of {len(bounds)} searches ended before their interval was {PRECISION:.0%} wide."


def bimodal_table(parts: Parts) -> str:
    """Latencies of short sentences beside long ones: medians over the rounds."""
    if "bimodal" not in parts:
        return NOT_MEASURED
    part = parts["bimodal"]
    names = ("short_p50_ms", "long_p50_ms", "long_p99_ms")
    lines = []
    for server, rounds in part["servers"].items():
        short, *long = (f"{median(float(each[name]) for each in rounds):.0f}" for name in names)
        failed = sum(each["num_failed"] for each in rounds)
        lines.append((title_of(server), short, f"{short_p99_ms(rounds):.0f}", *long, failed))
    header = (
        "",
        "short, median ms",
        "short, p99 ms",
        "long, median ms",
        "long, p99 ms",
        "not answered in 5 s",
    )
    too_slow = [
        f"{title_of(server)} ({per_s:.1f}/s)"
        for server, per_s in part["saturated"].items()
        if per_s <= part["rate"]
    ]
    note = (
        f"\n\nLeft out, because with 32 clients they answer no more than this rate: {', '.join(too_slow)}."
        if too_slow
        else ""
    )
    return (
        f"Every server gets {part['rate']:.1f} requests/s. This is {part['share_of_window']:.0%} of the rate at which "
        f"{title_of(WINDOW)}, answers the same sentences from 32 clients. Four short sentences come with each long "
        f"one. The figures are medians of {len(part['servers'][OURS])} rounds, each with about "
        f"{median(each['num_short'] for each in part['servers'][OURS]):.0f} short sentences."
        f"\n\n{table(header, lines)}{note}"
    )


def cost_table(parts: Parts) -> str:
    """The cost of a million characters at each server's goodput on all cores, at the assumed price."""
    if "together" not in parts:
        return NOT_MEASURED
    part = parts["together"]
    price = part["price_per_hour"]
    lines = []
    for server, found in part["goodput"].items():
        characters = found["per_s"] * part["characters_per_request"]
        cost = f"{cost_of(characters, price):.4f}" if characters else "no rate held"
        lines.append((title_of(server), f"{found['per_s']:.1f}", f"{characters:,.0f}", cost))
    return (
        f"The cost is not measured. It assumes that the machine costs {price:.2f} an hour, in any currency, and always "
        "works at its goodput. At a tenth of that traffic a character costs ten times as much.\n\n"
        + table(("", "requests/s", "characters/s", "cost of a million characters"), lines)
    )


def cost_of(characters_per_s: float, price_per_hour: float) -> float:
    """The cost of a million characters in the price's currency."""
    return price_per_hour / 3600 / characters_per_s * 1e6


def overhead_table(parts: Parts) -> str:
    """The overhead of a ten-word request. It has a line for each figure and a column for each model."""
    if "overhead" not in parts:
        return NOT_MEASURED
    models = parts["overhead"]["models"]
    figures = (
        ("whole request, ms", "total_ms", "{:.2f}"),
        ("neural network, ms", "network_ms", "{:.2f}"),
        ("overhead with scheduling and search, ms", "overhead_ms", "{:.2f}"),
        ("overhead with scheduling and search, share", "overhead_share", "{:.1%}"),
        ("overhead without them, ms", "around_engine_ms", "{:.2f}"),
        ("overhead without them, share", "around_engine_share", "{:.1%}"),
        ("decoder steps, mean", "steps_mean", "{:.1f}"),
    )
    lines = ((words, *(form.format(row[key]) for row in models)) for words, key, form in figures)
    left_out = [f"{row.get('num_sentences_left_out', 0)} ({row['model']})" for row in models]
    words = f" Sentences left out, because the server decodes them twice: {', '.join(left_out)}."
    return (
        f"{table(('', *(row['model'] for row in models)), lines)}\n\n"
        f"The echo server answers such a request in {parts['overhead']['echo']:.2f} ms.{words}"
    )


def scaling_tables(parts: Parts) -> str:
    """Throughput by rows, with a fitted formula, and by replicas and threads."""
    if "scaling" not in parts:
        return NOT_MEASURED
    part = parts["scaling"]
    rows = table(
        ("rows", "measured, answers/s", "formula, answers/s"),
        ((row["rows"], f"{row['per_s']:.1f}", f"{row['model_per_s']:.1f}") for row in part["rows"]),
    )
    model = part["rows_model"]
    words = (
        f"The formula is n / ({model['a_ms']:.2f} ms + {model['b_ms']:.3f} ms n) answers a second for n rows. It is "
        f"within {model['worst']:.0%} of every measured value."
    )
    layouts = table(
        ("replicas x threads", "answers/s"), ((row["name"], f"{row['per_s']:.1f}") for row in part["layouts"])
    )
    shares = (
        f"\n\nBy Amdahl's law, {part['parallel_share']:.0%} of one server's work runs on both threads. The throughput "
        f"of two replicas is {part['replica_share']:.0%} of twice the throughput of one. The tester runs on the same "
        "cores."
        if "parallel_share" in part
        else ""
    )
    return f"{rows}\n\n{words}\n\n{layouts}{shares}"


def runs_table(parts: Parts) -> str:
    """The machine and versions of each part."""
    if not parts:
        return NOT_MEASURED
    places: dict[str, None] = {}
    notes: list[str] = []
    lines = []
    for name, part in parts.items():
        machine = part["machine"]
        packages = ", ".join(f"{package} {version}" for package, version in part["versions"].items())
        place = (
            f"{machine['cpu']}, {machine['num_cores']} cores, {machine['memory_gb']} GB, Linux {machine['kernel']}; "
            f"{packages}."
        )
        places[place] = None
        lines.append((
            name, machine["measured_at"], part["commit"], f"{part['seconds']:.0f}", machine["load_average_before"],
            f"{_cached_share(part):.1%}",
        ))  # fmt: skip
        if part["effort"]["is_quick"]:
            notes.append(f"{name} is a quick run: it shows that the benchmark works and is not to be quoted.")
        if part.get("libretranslate_is_missing"):
            notes.append(f"{name} lacks LibreTranslate: {part['libretranslate_is_missing']}.")
    header = (
        "part",
        "measured at",
        "commit",
        "seconds",
        "load average before",
        "answers from Transduce's cache",
    )
    commands = dict.fromkeys(f"`{part['command']}`" for part in parts.values())
    facts = "\n".join(f"- {fact}" for fact in [*notes, *places, *commands])
    return f"{table(header, lines)}\n\n{facts}"


def _cached_share(part: dict[str, Any]) -> float:
    """The largest share of sentences that Transduce answered from the cache or coalesced."""
    results = [part] if "not_decoded_share" in part else part["models"]
    return max(float(result["not_decoded_share"]) for result in results)


def settings_table(parts: Parts) -> str:
    """Each server's settings, by part."""
    lines = [
        (name, title_of(server), settings)
        for name, part in parts.items()
        for server, settings in part.get("settings", {}).items()
        if server != ECHO
    ]
    return table(("part", "server", "settings"), lines) if lines else NOT_MEASURED
