r"""Measure decoder steps and encodings by rows and variant, with the server's own runner.

Variants alternate after a few calls, so that other load on the machine affects them equally. Prints medians with the
ratio to the first variant, and writes them as JSON.

    python -m benchmarks.step --bundle bundles/en-de --variants int8-standard,int8-standard-fused \
        --json benchmarks/results/step_fused.json
    python -m benchmarks.step --preset base --vocab-size 8000 --variants int8,int8-standard,int8-standard-fused,fp32
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, cast, get_args

import numpy as np
from tqdm import tqdm

from app.bundle import Bundle, Manifest, load_bundle
from app.errors import BundleError, SettingsError
from app.graphs import KernelChoice, Precision
from app.runtime.interface import StepInput
from app.runtime.native import cpu
from app.runtime.native_runner import MAX_CANDIDATES
from app.runtime.ort_runner import LoadedRunner, load_runner
from app.runtime.session import UNFUSED_ATTENTION
from app.text.tokenizer import PLACEHOLDER_SYMBOLS
from benchmarks.machine import describe_run
from model.config import PRESETS, UNK_ID, ConfigError
from model.data_arguments import positive

# Lengths of targets and sources of typical sentences, in subwords.
SHORTEST, LONGEST = 5, 40
# The lowest id of the random subwords. Below it are the special tokens and the placeholder symbols.
FIRST_ID = UNK_ID + 1 + len(PLACEHOLDER_SYMBOLS)
FUSED, STANDARD = "-fused", "-standard"
# The kernels that each suffix of a variant selects.
KERNELS: dict[str, KernelChoice] = {
    "": "auto",
    FUSED: "auto",
    STANDARD: "standard",
    STANDARD + FUSED: "standard",
    **{f"-{target}": cast(KernelChoice, target) for target in cpu.TARGETS},
}
CALLS_A_TURN = 4


@dataclass(frozen=True)
class Measurement:
    """One case of one variant: milliseconds per call, and the ratio of its median to the first variant's."""

    case: str
    variant: str
    median_ms: float
    fastest_ms: float
    ratio: float


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Arguments of the command."""
    add = parser.add_argument
    add("--bundle", type=Path, help="time this bundle's graphs (default: random weights of --preset)")
    add("--preset", choices=PRESETS, default="small", help="preset of the random model (default: small)")
    add(
        "--vocab-size",
        type=positive,
        default=8000,
        help="vocabulary size of the random model (default: 8000)",
    )
    add(
        "--variants",
        type=variants,
        default="int8,fp32",
        help="precisions to compare; the suffix -standard selects ONNX Runtime's own operators, and -standard-fused "
        f"also its fused attention; {', '.join(f'-{target}' for target in cpu.TARGETS)} select the native operators "
        "for these instructions (default: int8,fp32)",
    )
    add("--rows", type=numbers, default="1,8,32,64", help="rows of a step (default: 1,8,32,64)")
    add(
        "--sentences",
        type=encodings,
        default="1x6,1x12,1x25,8x12,8x25,1x100",
        help="COUNTxLENGTH of encodings, in subwords",
    )
    add(
        "--num-candidates",
        type=positive,
        default=8,
        help="k of the top-k (default: 8; a beam of n takes n + 1)",
    )
    add("--num-threads", type=positive, default=1, help="threads of an operator (default: 1)")
    add("--num-rounds", type=positive, default=20, help="turns of each variant in each case (default: 20)")
    add("--json", type=output_file, help="write the result to this file")


def variants(text: str) -> list[str]:
    """Parse variants, separated by commas. Raises ArgumentTypeError."""
    names = text.split(",")
    for name in names:
        if precision_of(name) not in get_args(Precision) or suffix_of(name) not in KERNELS:
            raise argparse.ArgumentTypeError(
                f"{name!r} is no variant: it needs one of {', '.join(get_args(Precision))}, and then nothing or one of "
                f"{', '.join(filter(None, KERNELS))}"
            )
    return names


def numbers(text: str) -> list[int]:
    """Parse whole numbers of at least 1, separated by commas. Raises ArgumentTypeError."""
    return [positive(number) for number in text.split(",")]


def encodings(text: str) -> list[tuple[int, int]]:
    """Parse pairs COUNTxLENGTH, separated by commas. Raises ArgumentTypeError."""
    found = []
    for pair in text.split(","):
        count, separator, length = pair.partition("x")
        if not separator:
            raise argparse.ArgumentTypeError(f"{pair!r} is not COUNTxLENGTH")
        found.append((positive(count), positive(length)))
    return found


def output_file(text: str) -> Path:
    """Parse the path of a file to write. Raises ArgumentTypeError if its folder is missing."""
    path = Path(text)
    if path.is_dir() or not path.parent.is_dir():
        raise argparse.ArgumentTypeError(f"{text!r} is not a file in an existing folder")
    return path


def problems(args: argparse.Namespace, manifest: Manifest) -> Iterator[str]:
    """Yield what is beyond the model's limits."""
    vocab_size = manifest.dimensions.vocab_size
    if vocab_size <= FIRST_ID:
        yield f"the model has {vocab_size} subwords, and at least {FIRST_ID + 1} are needed"
    if args.num_candidates > (most := min(MAX_CANDIDATES, vocab_size)):
        yield f"--num-candidates must be at most {most}"
    longest = max(length for _, length in args.sentences)
    if longest > manifest.max_source_length:
        yield f"--sentences has {longest} subwords, more than the model's {manifest.max_source_length}"
    for side, limit in (("sources", manifest.max_source_length), ("targets", manifest.max_target_length)):
        if limit < LONGEST:
            yield f"the model's {side} are limited to {limit} subwords, and {LONGEST} are needed"


def random_bundle(
    preset_name: str, vocab_size: int, precisions: Sequence[Precision], folder: Path, **changes: Any
) -> Bundle:
    """A bundle with random weights. Its steps take as long as a trained bundle's. Its folder has no manifest.

    changes: fields of `ModelConfig`.
    """
    import torch

    from app.bundle import Training
    from export.bundle_writer import BundleRequest, make_manifest, write_variant
    from export.model_card import Facts
    from export.weights import weights_of
    from model.config import preset
    from model.transformer import Transformer

    torch.manual_seed(1)
    model = Transformer(preset(preset_name, vocab_size, **changes))
    weights = weights_of(model)
    variants = {precision: write_variant(folder, weights, precision) for precision in precisions}
    facts = Facts(
        summary="random weights",
        good_at=("benchmarks",),
        bad_at=("translating",),
        weights_licence="none",
        training=Training(commit="none", num_steps=0, data=()),
    )
    request = BundleRequest("random", "0", "en", "de", tuple(precisions), facts)
    return Bundle(folder, make_manifest(model.config, request, variants, folder), ())


def load_variant(bundle: Bundle, variant: str, *, num_rows: int, num_threads: int) -> LoadedRunner:
    """Load a variant's runner. ONNX Runtime reads the variable UNFUSED_ATTENTION when it creates the sessions."""
    os.environ[UNFUSED_ATTENTION] = "0" if variant.endswith(FUSED) else "1"
    kernels = KERNELS[suffix_of(variant)]
    return load_runner(
        bundle,
        precision=precision_of(variant),
        device="cpu" if kernels in cpu.TARGETS else "auto",
        kernels=kernels,
        num_rows=num_rows,
        num_threads=num_threads,
    )


def precision_of(variant: str) -> Precision:
    """The precision of a variant: int8 of int8-standard-fused."""
    return cast(Precision, variant.partition("-")[0])


def suffix_of(variant: str) -> str:
    """The suffix of a variant: -standard-fused of int8-standard-fused."""
    return variant.removeprefix(precision_of(variant))


def step_case(runner: LoadedRunner, num_rows: int, num_candidates: int) -> Callable[[], object]:
    """A function that runs one decoder step of rows with random lengths."""
    random_numbers = np.random.default_rng(num_rows)
    vocab_size = runner.limits.vocab_size
    sources = [
        random_numbers.integers(FIRST_ID, vocab_size, n)
        for n in random_numbers.integers(SHORTEST, LONGEST, num_rows)
    ]
    step = StepInput(
        ids=random_numbers.integers(FIRST_ID, vocab_size, num_rows).astype(np.int32),
        positions=random_numbers.integers(SHORTEST, LONGEST, num_rows).astype(np.int32),
        num_candidates=num_candidates,
    )

    runner.encode([source.astype(np.int32) for source in sources], list(range(num_rows)))
    return lambda: runner.decode(step)


def encode_case(runner: LoadedRunner, count: int, length: int) -> Callable[[], object]:
    """A function that encodes `count` sentences of `length` subwords."""
    sources = [np.full(length, FIRST_ID, np.int32)] * count
    return lambda: runner.encode(sources, list(range(count)))


def measure(
    name: str, calls: dict[str, Callable[[], object]], num_rounds: int, *, on_round: Callable[[], object]
) -> list[Measurement]:
    """Alternate the variants for `num_rounds` rounds; each turn's first call only warms the CPU caches."""
    times: dict[str, list[float]] = {variant: [] for variant in calls}
    for _ in range(num_rounds):
        for variant, call in calls.items():
            call()
            for _ in range(CALLS_A_TURN):
                started_at = time.perf_counter()
                call()
                times[variant].append((time.perf_counter() - started_at) * 1e3)
        on_round()
    medians = {variant: statistics.median(values) for variant, values in times.items()}
    first = next(iter(medians.values()))
    return [
        Measurement(
            name,
            variant,
            round(medians[variant], 4),
            round(min(values), 4),
            round(medians[variant] / first, 3),
        )
        for variant, values in times.items()
    ]


def run(args: argparse.Namespace, bundle: Bundle) -> list[Measurement]:
    """Time every case."""
    num_rows = max(*args.rows, *(count for count, _ in args.sentences))
    runners = {
        variant: load_variant(bundle, variant, num_rows=num_rows, num_threads=args.num_threads)
        for variant in args.variants
    }
    found: list[Measurement] = []
    total = (len(args.rows) + len(args.sentences)) * args.num_rounds
    with tqdm(total=total, unit=" rounds") as progress:
        for number in args.rows:
            steps = {name: step_case(runner, number, args.num_candidates) for name, runner in runners.items()}
            found += measure(f"step, {number} rows", steps, args.num_rounds, on_round=progress.update)
        for count, length in args.sentences:
            calls = {name: encode_case(runner, count, length) for name, runner in runners.items()}
            found += measure(f"encode {count} x {length}", calls, args.num_rounds, on_round=progress.update)
    return found


def main(arguments: Sequence[str] | None = None) -> int:
    """Time, print a table, write JSON."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add_arguments(parser)
    args = parser.parse_args(arguments)
    if args.vocab_size <= FIRST_ID:
        parser.error(f"--vocab-size must be above {FIRST_ID}")
    head = describe_run("benchmarks.step", arguments)
    precisions = list(dict.fromkeys(precision_of(name) for name in args.variants))
    with tempfile.TemporaryDirectory() as folder:
        try:
            bundle = (
                load_bundle(args.bundle)
                if args.bundle
                else random_bundle(args.preset, args.vocab_size, precisions, Path(folder))
            )
            if found_problems := list(problems(args, bundle.manifest)):
                parser.error("; ".join(found_problems))
            found = run(args, bundle)
        except (BundleError, SettingsError, ConfigError) as error:
            parser.error(str(error))
    print(f"{'case':<18} {'variant':<12} {'median ms':>10} {'fastest':>9} {'ratio':>6}")
    for m in found:
        print(f"{m.case:<18} {m.variant:<12} {m.median_ms:>10.3f} {m.fastest_ms:>9.3f} {m.ratio:>6.2f}")
    if args.json:
        result = {**head, "measurements": [asdict(m) for m in found]}
        args.json.write_text(json.dumps(result, indent=1) + "\n", "utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
