"""Formats the tables of docs/performance.md and docs/operations.md about the server."""

from __future__ import annotations

from typing import Any

from benchmarks.attack_cases import ATTACKS
from benchmarks.engine.report import table

# Key in footprint.json, label with unit, and format of the value.
STARTS = (
    ("ready_s", "command until ready, s", "{:.2f}"),
    ("answer_1_ms", "first answer, ms", "{:.1f}"),
    ("answer_4_ms", "fourth answer, ms", "{:.1f}"),
    ("ready_rss_mb", "resident when ready, MB", "{:.0f}"),
    ("ready_pss_mb", "PSS when ready, MB", "{:.0f}"),
)
# Kinds of private memory in soak.json -> label. The workers share the operators' weights.
KINDS = {
    "row caches": "row caches",
    "kernels": "operators' scratch memory",
    "copied": "pages written since the fork",
    "allocator": "allocator",
}
# Cases in model_shares.json -> label.
MODEL_LOADS = {
    "only model of its server": "server with one model",
    "first alone": "server with two models, load only on the first",
    "second alone": "server with two models, load only on the second",
    "both, first": "load on both: first",
    "both, second": "load on both: second",
}
SOAK_MINUTES = (1, 5, 10)
SIZES_KB = (10, 20, 40, 80)
# The number of clients in results of `benchmarks.overload` that do not state it.
OVERLOAD_CLIENTS = 64


def measured_on(result: dict[str, Any]) -> str:
    """Machine, commit and command in one sentence."""
    machine = result["machine"]
    return (
        f"Measured on {machine['num_cores']} cores of {machine['cpu']}, commit {result['commit']}, load average before "
        f"it {machine['load_average_before']}: `{result['command']}`."
    )


def num_cores(result: dict[str, Any]) -> str:
    """The number of the machine's cores in words."""
    number = result["machine"]["num_cores"]
    return {1: "one core", 2: "two cores"}.get(number, f"{number} cores")


def starts_table(result: dict[str, Any]) -> str:
    """Medians of the starts on one core and on all cores, then the memory under load."""
    one, every = result["medians"], result["medians_on_all_cores"]
    lines = [(words, form.format(one[key]), form.format(every[key])) for key, words, form in STARTS]
    memory = result["memory"]["under load, twice as long"]
    lines.append(("PSS under load of 32 clients, MB", "", f"{memory['pss']:.0f}"))
    return f"{table(('', 'one core', num_cores(result)), lines)}\n\n{measured_on(result)}"


def steps_table(result: dict[str, Any]) -> str:
    """The steps of a start, in order, in one process."""
    return table(
        ("step", "ms", "MB"),
        ((step["step"], f"{step['ms']:.0f}", f"{step['rss_mb']:.0f}") for step in result["steps"]),
    )


def soak_table(result: dict[str, Any]) -> str:
    """Private memory of each worker by kind, and of the server's allocator, after one, five and ten minutes."""
    samples = [min(result["samples"], key=lambda each: abs(each["minutes"] - at)) for at in SOAK_MINUTES]
    lines = [
        (f"worker {number}", words, *(f"{sample['processes'][number][key]:.1f}" for sample in samples))
        for number in range(1, len(samples[0]["processes"]))
        for key, words in KINDS.items()
    ]
    server = (f"{sample['processes'][0]['allocator']:.1f}" for sample in samples)
    lines.append(("server", KINDS["allocator"], *server))
    header = ("process", "kind", *(f"{at} min, MB" for at in SOAK_MINUTES))
    return f"{table(header, lines)}\n\n{measured_on(result)}"


def fairness_table(result: dict[str, Any]) -> str:
    """A quiet caller's latency, alone and beside another caller's load."""
    header = ("the other caller's load", "alone, p99 ms", "beside it, p99 ms", "times the median", "times the p99",
              "refused")  # fmt: skip
    lines = [
        (
            one["case"], f"{one['alone']['p99_ms']:.0f}", f"{one['beside']['p99_ms']:.0f}", one["times_p50"],
            one["times_p99"], sum(count for status, count in one["statuses"].items() if status != "200"),
        )
        for one in result["figures"]
    ]  # fmt: skip
    note = f" {result['note'][0].upper()}{result['note'][1:]}." if "note" in result else ""
    return f"{table(header, lines)}\n\n{measured_on(result)}{note}"


def event_loop_table(result: dict[str, Any]) -> str:
    """Latency of `/livez` beside large requests."""
    lines = [
        (
            one["case"],
            *(f"{one['probes'][key]:.0f}" for key in ("p50_ms", "p99_ms", "max_ms")),
            ", ".join(f"{status}: {count}" for status, count in one["statuses"].items()),
        )
        for one in result["figures"]
    ]
    header = ("load", "median, ms", "p99, ms", "longest, ms", "responses by status")
    return f"{table(header, lines)}\n\n{measured_on(result)}"


def overload_tables(result: dict[str, Any]) -> str:
    """Outcomes of the requests at each rate, and their latencies."""
    figures = result["figures"]
    rates = [(f"{one['offered_per_s']:.0f}", one) for name, one in figures.items() if name.endswith(" x")]
    counts = table(
        ("offered, requests/s", "answered in time, requests/s", "answered in time", "late", "429", "503"),
        (
            (
                rate,
                f"{one['goodput_per_s']:.0f}",
                one["statuses"].get("200", 0) - one["num_late"],
                one["statuses"].get("504", 0) + one["num_late"],
                *(one["statuses"].get(status, 0) for status in ("429", "503")),
            )
            for rate, one in rates
        ),
    )
    times = table(
        (
            "offered, requests/s", "answer, median ms", "answer, p99 ms", "refusal, median ms",
            "share of a core that the event loop uses",
        ),
        (
            (
                rate, f"{one['answered']['p50_ms']:.0f}", f"{one['answered']['p99_ms']:.0f}",
                f"{one['refused']['p50_ms']:.0f}" if one["refused"] else "",
                f"{one['event_loops_share_of_a_core']:.0%}",
            )
            for rate, one in rates
        ),
    )  # fmt: skip
    num_clients = figures.get("num_clients", OVERLOAD_CLIENTS)
    words = (
        f"At first {num_clients} clients, which keep their connections and wait for their answers, get "
        f"{figures['capacity_per_s']:.0f} answers a second. Then each request comes on a new connection and has a "
        f"deadline of {figures['timeout_ms']} ms."
    )
    return f"{words} {measured_on(result)}\n\n{counts}\n\n{times}"


def small_files_table(result: dict[str, Any]) -> str:
    """CPU time of the file worker by size, for files that repeat one fragment."""
    groups: dict[str, list[dict[str, Any]]] = {}
    for run in result["runs"]:
        groups.setdefault(run["case"], []).append(run)
    lines = [
        (f"`{case}`", *map(_small_file_cell, runs), max(run["livez_ms"] for run in runs))
        for case, runs in groups.items()
    ]
    header = ("format and fragment", *(f"{size} KB, s" for size in SIZES_KB), "`/livez` at most, ms")
    return f"{table(header, lines)}\n\n{measured_on(result)}"


def _small_file_cell(run: dict[str, Any]) -> str:
    """The CPU seconds of a file, and its status if it was refused."""
    return f"{run['cpu_s']:.2f}" + ("" if run["status"] == 200 else f" ({run['status']})")


def large_files_table(result: dict[str, Any]) -> str:
    """CPU time and memory of large files, and of small archives with large content."""
    header = ("file", "bytes", "status", "processor time, s", "worker's memory, MB", "`/livez` at most, ms")
    lines = [
        (
            one["case"],
            f"{one['bytes']:,}",
            one["status"],
            f"{one['cpu_s']:.1f}",
            one["worker_mb"],
            one["livez_ms"],
        )
        for one in result["large"]
    ]
    return table(header, lines)


def many_models_table(result: dict[str, Any]) -> str:
    """A server that holds fewer models than it serves, beside a server that serves only the popular models."""
    budget, resident = result["figures"]["budget"], result["figures"]["resident"]
    lines = [
        (f"{name}, ms", *(f"{one['warm'][key]:.0f}" for one in (budget, resident)))
        for name, key in (("warm request, median", "p50_ms"), ("warm request, p99", "p99_ms"))
    ]
    waited = budget["waited_for_load"]
    lines += [
        ("request that waits for a load, median, ms", f"{waited['p50_ms']:.0f}", ""),
        ("request that waits for a load, p99, ms", f"{waited['p99_ms']:.0f}", ""),
        ("loads", budget["num_loads"], ""),
        ("errors", budget["num_errors"], resident["num_errors"]),
        ("budget, MB", f"{budget['budget_mb']:.0f}", ""),
        ("PSS of all processes at most, MB", f"{budget['peak_mb']:.0f}", f"{resident['peak_mb']:.0f}"),
    ]
    load = result["load"]
    header = (
        "",
        f"{load['bundles']} models, memory for {load['loaded']}",
        f"the {load['loaded']} most popular ones",
    )
    return f"{table(header, lines)}\n\n{measured_on(result)}"


def swaps_sentences(result: dict[str, Any]) -> str:
    """Models that replace each other under load."""
    figures = result["figures"]
    by_version = figures["answers_by_version"]
    swaps = figures["swap_s"]
    answers = " and ".join(f"{number:,} of {version}" for version, number in by_version.items())
    return (
        f"{len(swaps)} replacements in {figures['seconds']:.0f} s at {figures['offered_per_s']:.0f} requests/s, of a "
        f"capacity of {figures['capacity_per_s']:.0f}: {figures['num_answers']:,} answers ({answers}), "
        f"{figures['num_failures']} failed requests, {figures['num_not_of_named_version']} answers that differ from "
        f"the answer of the version they name. A replacement takes {min(swaps):.1f} to {max(swaps):.1f} s. Latency: "
        f"median {figures['answered']['p50_ms']:.0f} ms, p99 {figures['answered']['p99_ms']:.0f} ms. "
        f"{measured_on(result)}"
    )


def model_shares_table(result: dict[str, Any]) -> str:
    """Requests/s of two models in one server, alone and together."""
    figures = result["figures"]
    lines = [
        (MODEL_LOADS[case], " ".join(f"{rate:.0f}" for rate in rates))
        for case, rates in figures["requests_per_s"].items()
    ]
    words = (
        f"With load on both models, the slower model has {figures['smaller_of_larger_rate']:.2f} times the rate of the "
        f"other, and the sum of their rates is {figures['both_over_alone']:.2f} times the rate of the first model with "
        f"load only on it. With load only on the first of two models, its rate is {figures['alone_over_only']:.2f} "
        "times that of the server with one model."
    )
    return f"{table(('server and load', 'requests/s in each round'), lines)}\n\n{words} {measured_on(result)}"


def attacks_table(result: dict[str, Any]) -> str:
    """Each attack with what stops it, what happens, and what another caller notices."""
    # The limits in their current words. The words in the result may be older.
    limits = {attack.name: attack.limit for attack in ATTACKS}
    header = ("attack", "limit", "what happens", "another caller's texts", "the slowest, ms")
    lines = []
    for one in result["figures"]:
        neighbour = one.get("neighbour")
        noticed = ("", "")
        if neighbour is not None:
            num_lines = neighbour["num_answered"] + neighbour["num_failures"]
            noticed = (f"{neighbour['num_answered']} of {num_lines} answered", f"{neighbour['max_ms']}")
        limit = limits.get(one["attack"], one["limit"])
        lines.append((one["attack"], limit, one["seen"], *noticed))
    return f"{table(header, lines)}\n\n{measured_on(result)}"


def traces_table(result: dict[str, Any]) -> str:
    """The rates of servers that trace, as shares of the rate of a server that does not trace."""
    rows = [
        (
            case["case"],
            f"{case['answers_per_s_without_traces']:,.0f}",
            *(_share_and_range(one["over_without"]) for one in case["traced"]),
            _share_and_range(case["without_traces_over_itself"]),
        )
        for case in result["figures"]["cases"]
    ]
    header = ("sentences", "answers/s without traces", "1 % traced", "all traced", "without traces again")
    return "\n".join([
        table(header, rows),
        "",
        "Rates as shares of the rate without traces, in turns: medians, and in brackets the least and the largest. "
        "The last column shows how much the machine itself varied. " + measured_on(result),
    ])  # fmt: skip


def _share_and_range(found: dict[str, float]) -> str:
    return f"{found['median']:.3f} ({found['least']:.2f} to {found['largest']:.2f})"


def deaths_table(result: dict[str, Any]) -> str:
    """Failed and wrong answers, and latencies, with and without deaths of workers."""
    found = result["figures"]
    runs = (("undisturbed", found["undisturbed"]), ("with deaths", found["with_deaths"]))
    rows = [
        (
            name,
            f"{one['num_answers']:,}",
            str(one["num_failures"]),
            str(one["num_other_answers"]),
            *(f"{one['answered'][percentile]:.0f}" for percentile in ("p50_ms", "p99_ms")),
        )
        for name, one in runs
    ]
    near = found["near_a_death"]
    slowest = ""
    if near["max_ms"] < (longest := found["with_deaths"]["answered"]["max_ms"]):
        slowest = (
            f"The slowest answers, up to {longest:.0f} ms, went to other requests. Their cause is not known. "
        )
    return "\n".join([
        table(("", "answers", "failed", "other text", "p50, ms", "p99, ms"), rows),
        "",
        f"A random worker of two got SIGKILL {found['num_kills']} times in {found['seconds_each']:.0f} s, at "
        f"{found['offered_per_s'] / found['capacity_per_s']:.0%} of the capacity. Requests in progress at a death, or "
        f"due within two seconds after it, took {near['p50_ms']:.0f} ms (p50), {near['p99_ms']:.0f} ms (p99) and at "
        f"most {near['max_ms']:.0f} ms. {slowest}" + measured_on(result),
    ])  # fmt: skip
