r"""Compare the training speeds of Transduce, of a plain torch.nn.Transformer loop and of Hugging Face's Marian.

The trainers take turns. All train a model of the size of the preset `small` on the same encoded pairs. The figure is
target subwords per second, without padding. A batch of Transduce has sentences of similar lengths. Its sources, and its
targets, have up to 4,096 subwords with the padding. A batch of the others has 128 random sentences.

    python -m benchmarks.training --data train.tsv.xz --tokenizer bundles/en-de/source.spm \
        --hf-python .venv-hf/bin/python --output benchmarks/results/training.json
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from itertools import islice
from pathlib import Path

from app.text.tokenizer import Tokenizer
from benchmarks.machine import ROOT, describe_run
from benchmarks.training.encoded import Encoded
from model.corpus import Filter, encode_corpus, read_data

OURS, PLAIN, MARIAN = "ours", "plain_torch", "marian"


def parse_arguments() -> argparse.Namespace:
    """The command's arguments."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0], allow_abbrev=False)
    parser.add_argument(
        "--data", required=True, metavar="FILES", help="sentence pairs, as for `transduce train`"
    )
    parser.add_argument("--tokenizer", type=Path, required=True, metavar="FILE.spm")
    parser.add_argument(
        "--limit", type=int, default=40_000, help="read only the first N pairs (default: 40000)"
    )
    parser.add_argument(
        "--precisions",
        default="bf16,fp32",
        help="measure each trainer in each of these; the ratios compare all speeds with Transduce's in the first "
        "(default: bf16,fp32; give fp32 on a processor without instructions for bf16)",
    )
    parser.add_argument("--hf-python", type=Path, help="Python of an environment with torch and transformers")
    parser.add_argument("--turns", type=int, default=3, help="measurements of each trainer (default: 3)")
    parser.add_argument("--seconds", type=float, default=20.0, help="duration of a measurement (default: 20)")
    parser.add_argument(
        "--threads",
        type=int,
        default=len(os.sched_getaffinity(0)),
        help="threads (default: one per core)",
    )
    parser.add_argument("--output", type=Path, help="JSON file")
    return parser.parse_args()


def measure(python: str, subject: str, precision: str, data: Path, args: argparse.Namespace) -> float:
    """Run one trainer in a separate process. Returns its target subwords/s. Raises CalledProcessError."""
    command = [python, "-m", f"benchmarks.training.{subject}", "--data", str(data)]
    options = ["--seconds", str(args.seconds), "--threads", str(args.threads), "--precision", precision]
    done = subprocess.run([*command, *options], check=True, stdout=subprocess.PIPE, text=True, cwd=ROOT)
    return float(json.loads(done.stdout.splitlines()[-1])["target_subwords_per_s"])


def main() -> None:
    """Measure the trainers alternately, print medians and ratios, and write the result."""
    args = parse_arguments()
    run = describe_run("benchmarks.training")
    tokenizer = Tokenizer(args.tokenizer)
    pairs = islice(read_data(args.data), args.limit)
    corpus = encode_corpus(pairs, tokenizer, keep=Filter(strange_share=0.0))
    precisions = args.precisions.split(",")
    pythons = [(sys.executable, OURS), (sys.executable, PLAIN)]
    if args.hf_python is not None:
        pythons.append((str(args.hf_python.absolute()), MARIAN))
    subjects = [(python, name, precision) for python, name in pythons for precision in precisions]
    speeds: dict[str, list[float]] = {f"{name} {precision}": [] for _, name, precision in subjects}
    with tempfile.TemporaryDirectory() as folder:
        data = Path(folder) / "encoded.npz"
        Encoded(corpus.ids, corpus.starts, tokenizer.vocab_size).save(data)
        for _ in range(args.turns):
            for python, name, precision in subjects:
                speeds[f"{name} {precision}"].append(measure(python, name, precision, data, args))
    medians = {name: statistics.median(values) for name, values in speeds.items()}
    own_speed = medians[f"{OURS} {precisions[0]}"]
    for name, median in medians.items():
        print(
            f"{name:18} {median:8,.0f} target subwords/s   Transduce {precisions[0]} / this {own_speed / median:5.2f}"
        )
    if args.output is not None:
        result = {
            **run,
            "num_pairs": len(corpus),
            "threads": args.threads,
            "target_subwords_per_s": {k: [round(v, 1) for v in values] for k, values in speeds.items()},
            f"ours_{precisions[0]}_over": {
                name: round(own_speed / median, 2) for name, median in medians.items()
            },
        }
        args.output.write_text(json.dumps(result, indent=2) + "\n", "utf-8")


if __name__ == "__main__":
    main()
