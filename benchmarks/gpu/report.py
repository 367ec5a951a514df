"""Formats the results of all parts as one Markdown table with the goals."""

from __future__ import annotations

from typing import Any


def render(result: dict[str, Any]) -> str:
    """The result as Markdown."""
    machine = result["machine"]
    lines = [
        "# On a GPU" if result["device"] == "cuda" else "# The GPU's measurements, tried on a CPU",
        "",
        (
            f"{machine.get('gpu') or machine['cpu']}; onnxruntime {_runtime(result['versions'])}; "
            f"commit {result['commit']}."
        ),
        "",
        f"```\n{result['command']}\n```",
        "",
        "| what | measured | goal |",
        "|---|---|---|",
    ]
    for name, part in result["parts"].items():
        if part["status"] != "ok":
            reason = str(part["reason"]).replace("|", "/").replace("\n", " ")[:300]
            lines.append(f"| {name} | {part['status']}: {reason} | |")
        else:
            lines += [f"| {what} | {measured} | {goal} |" for what, measured, goal in ROWS[name](part)]
    return "\n".join(lines)


def _runtime(versions: dict[str, str]) -> str:
    return versions.get("onnxruntime-gpu") or versions.get("onnxruntime") or "?"


Rows = list[tuple[str, str, str]]


def _cases(part: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """The cases of a part, by name: its entries that are dicts. Its other entries are about the whole part."""
    return {name: case for name, case in part.items() if isinstance(case, dict)}


def _placement(part: dict[str, Any]) -> Rows:
    return [("nodes elsewhere than on the device", str(part["elsewhere"]), "0")]


def _agreement(part: dict[str, Any]) -> Rows:
    rows = [
        ("ids equal to PyTorch fp32", f"{part['ids_equal_share']:.2%} of {part['sentences']}", ">= 99 %"),
        ("log-probability of target subwords off by", f"{part['largest_gap_of_targets']:.4f}", "<= 0.02"),
        ("log-probability of likely subwords off by", f"{part['largest_gap_of_likely']:.4f}", "<= 0.02"),
    ]
    if "bleu_fp16" in part:
        difference = part["bleu_fp16"] - part["bleu_pytorch_fp32"]
        rows.append(("BLEU, fp16 less PyTorch fp32", f"{part['bleu_fp16']:.2f} ({difference:+.2f})", "+-0.1"))
    return rows


def _batch_consistency(part: dict[str, Any]) -> Rows:
    return [
        (
            f"differ alone and together, beam {beam}",
            (
                f"{part[f'beam_{beam}']['differing']} of {part[f'beam_{beam}']['sentences']}, "
                f"apart by {part[f'beam_{beam}']['largest_margin']:.4f} at most"
            ),
            "near-ties only",
        )
        for beam in (1, 4)
    ]


def _steps(part: dict[str, Any]) -> Rows:
    return [
        (
            f"step, {step['rows']} rows, beam {step['beam']}, graphs {'on' if step['graphs'] else 'off'}",
            (
                f"{step['step_ms']:.3f} ms; {step['megabytes']:.0f} MB ({step['share_of_bandwidth']:.1%}), "
                f"{step['gflop']:.1f} GFLOP ({step['share_of_matrix_rate']:.2%})"
            ),
            "<= 0.35 ms" if step["rows"] == 1 and step["graphs"] else "",
        )
        for step in part["steps"]
    ]


def _kernels(part: dict[str, Any]) -> Rows:
    rows = []
    for name, call in _cases(part).items():
        most = ", ".join(f"{row['kernel'][:40]} {row['us']:.0f}" for row in call["kernels"][:3])
        what = f"{call['us']:.0f} us in {call['launches']:.0f} launches; most: {most}"
        rows.append((f"kernels, {name.replace('_', ' ')}", what.replace("|", "/"), ""))
    return rows


def _throughput(part: dict[str, Any]) -> Rows:
    return [
        (
            f"offline, {name.replace('_', ' ')}",
            f"{case['target_tokens_per_s']:,.0f} target tokens/s, {case['ms_per_step']:.2f} ms a step",
            ">= 40,000" if name.endswith("beam_4") else ">= 100,000",
        )
        for name, case in _cases(part).items()
    ]


def _memory(part: dict[str, Any]) -> Rows:
    measured = f"{part['slope_mb_per_min']:+.1f} MB/min over {part['seconds']:.0f} s"
    return [("memory of the device", measured, "no growth")]


def _http(part: dict[str, Any]) -> Rows:
    return [
        (
            (
                f"HTTP, {case['clients']} clients, {case['sentences_of_a_request']} sentences a request, "
                f"beam {case['beam_size']}"
            ),
            (
                f"{case['target_tokens_per_s']:,.0f} target tokens/s, "
                f"median {case['latency_median_ms']:.0f} ms"
            ),
            ">= 20,000" if case["beam_size"] == 4 else ">= 50,000",
        )
        for case in _cases(part).values()
    ]


ROWS = {
    "placement": _placement,
    "agreement": _agreement,
    "batch_consistency": _batch_consistency,
    "steps": _steps,
    "kernels": _kernels,
    "throughput": _throughput,
    "memory": _memory,
    "http": _http,
}
