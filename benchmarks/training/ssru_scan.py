"""Compare forms of the SSRU's scan over time, forward and backward, on a CPU. The forms take turns.

python -m benchmarks.training.ssru_scan --output benchmarks/results/ssru_scan.json
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor

from benchmarks.machine import describe_run
from model.ssru import scan

D_MODEL = 256
# The number of sentences, and the subwords of each sentence. A batch has about 4,000 subwords.
SHAPES = ((170, 24), (64, 64), (40, 100))
NUM_TURNS = 11


def indexed_loop(f: Tensor, z: Tensor) -> Tensor:
    """`scan` with an index at each step instead of `unbind`."""
    before = torch.zeros_like(z[:, 0])
    c = []
    for t in range(z.size(1)):
        before = torch.lerp(z[:, t], before, f[:, t])
        c.append(before)
    return torch.stack(c, dim=1)


def doubling(f: Tensor, z: Tensor) -> Tensor:
    """`scan` in ceil(log2(length)) passes over all positions (Hillis and Steele 1986)."""
    factor, total, step = f, (1 - f) * z, 1
    while step < z.size(1):
        total = torch.cat([total[:, :step], factor[:, step:] * total[:, :-step] + total[:, step:]], dim=1)
        factor = torch.cat([factor[:, :step], factor[:, step:] * factor[:, :-step]], dim=1)
        step *= 2
    return total


FORMS: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "loop over unbind": scan,
    "loop over indices": indexed_loop,
    "doubling": doubling,
}


def measure(num_sentences: int, length: int) -> dict[str, float]:
    """Median milliseconds of each form. Raises RuntimeError if the forms' results differ."""
    torch.manual_seed(1)
    f, z = (torch.rand(num_sentences, length, D_MODEL, requires_grad=True) for _ in range(2))
    gradient = torch.randn(num_sentences, length, D_MODEL)
    expected = scan(f, z)
    times_ms: dict[str, list[float]] = {name: [] for name in FORMS}
    for _ in range(NUM_TURNS):
        for name, form in FORMS.items():
            f.grad = z.grad = None
            started_at = time.perf_counter()
            found = form(f, z)
            torch.autograd.backward(found, gradient)
            times_ms[name].append((time.perf_counter() - started_at) * 1e3)
            if not torch.allclose(found, expected, atol=1e-4):
                raise RuntimeError(f"{name} gives another result")
    return {name: round(statistics.median(times), 2) for name, times in times_ms.items()}


def main() -> int:
    """Measure, print, write JSON."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--output", type=Path, help="JSON file")
    args = parser.parse_args()
    head = describe_run("benchmarks.training.ssru_scan")
    found = [{"sentences": n, "length": length, "ms": measure(n, length)} for n, length in SHAPES]
    for one in found:
        print(one)
    if args.output:
        args.output.write_text(
            json.dumps({**head, "d_model": D_MODEL, "scans": found}, indent=1) + "\n", "utf-8"
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
