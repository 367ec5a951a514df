"""Compare the engine with CTranslate2 on the same weights. The two alternate within one run.

Prints tables, and writes the result as JSON and the tables as Markdown. Linux only. Needs PyTorch and CTranslate2. The
option --imported also needs transformers.

    python -m benchmarks.engine --quick
    python -m benchmarks.engine --bundle bundles/en-de --output benchmarks/results/engine.json
    python -m benchmarks.engine --imported --output benchmarks/results/engine_imported.json
"""

from __future__ import annotations

import argparse
import functools
import json
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict
from importlib import metadata
from pathlib import Path
from typing import Any

from app.bundle import Bundle, load_bundle
from app.bundle_folders import find_bundles
from app.errors import BundleError, SettingsError
from app.graphs import Precision
from app.runtime.machine import num_usable_cores
from app.settings import load_settings
from benchmarks.engine.breakdown import profile, where_time_goes
from benchmarks.engine.cases import (
    Case,
    corpus_cases,
    encode,
    read_corpora,
    real_cases,
    synthetic_cases,
)
from benchmarks.engine.compare import ComparisonOptions, compare, print_progress
from benchmarks.engine.floor import Machine, measure_machine
from benchmarks.engine.goals import LEAST_TRIAL_S
from benchmarks.engine.rates import search_rates
from benchmarks.engine.report import render
from benchmarks.engine.weights import ModelPair, discard, prepare, random_model, trained_model
from benchmarks.machine import describe_run
from benchmarks.serving import rounded
from benchmarks.tagged_tokenizer import TaggedTokenizer

# The value of --imported without FOLDER: a model with random weights.
RANDOM = Path("-")
RESULT = Path(__file__).resolve().parents[1] / "results" / "engine.json"
BUFFER_SIZES_MIB = (8, 16, 32, 64, 128, 256)
FULL: dict[str, Any] = {
    "vocab_sizes": "8000,32000",
    "precisions": "int8,fp32",
    "sizes": "1,8,32,128",
    "num_rounds": 5,
    "case_budget": 5.0,
    "num_corpus": 500,
    "arrivals": LEAST_TRIAL_S,
}
QUICK: dict[str, Any] = {
    "vocab_sizes": "8000",
    "precisions": "int8",
    "sizes": "1,32",
    "num_rounds": 3,
    "case_budget": 1.0,
    "num_corpus": 100,
    "arrivals": 0.0,
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Arguments of the command. An option that is None gets its value from FULL or QUICK."""
    add = parser.add_argument
    add(
        "--quick",
        action="store_true",
        help="a test run of one or two minutes: int8, one vocabulary size, two group sizes, and two backends of "
        "CTranslate2",
    )
    limits = parser.add_mutually_exclusive_group()
    for target, name in {"avx2": "AVX2", "avxvnni": "AVX2 and AVX-VNNI"}.items():
        limits.add_argument(
            f"--{target}",
            dest="target",
            action="store_const",
            const=target,
            help=f"both engines use no instructions beyond {name}, even if the processor has AVX-512; the report "
            "then has no lower bounds",
        )
    add("--bundle", type=Path, help="bundle with the trained weights (default: the bundled model)")
    add(
        "--imported",
        nargs="?",
        type=Path,
        const=RANDOM,
        metavar="FOLDER",
        help="measure a Marian model in the format of Hugging Face instead; both engines read the same files "
        "(without FOLDER: a model with the layout and size of OPUS-MT and random weights)",
    )
    add(
        "--data",
        type=Path,
        help="folder of test.NAME.tsv.xz; the source side of each is translated as a corpus",
    )
    add("--output", type=Path, default=RESULT, help="JSON file; the tables are written beside it as .md")
    add("--preset", default="base", help="preset of the model with random weights (default: base)")
    add(
        "--vocab-sizes",
        help=f"vocabulary sizes of the models with random weights ({_defaults('vocab_sizes')})",
    )
    add("--precisions", help=f"precisions to compare, of int8 and fp32 ({_defaults('precisions')})")
    add(
        "--sizes",
        help=f"group sizes: numbers of sentences that an engine translates at once ({_defaults('sizes')})",
    )
    add(
        "--num-threads",
        type=int,
        default=num_usable_cores(),
        help="threads of each engine (default: one per core)",
    )
    add("--num-rows", type=int, default=128, help="Transduce's cache rows (default: 128)")
    add(
        "--num-rounds",
        type=int,
        help=f"rounds of a case; each engine runs once per round ({_defaults('num_rounds')})",
    )
    add(
        "--case-budget",
        type=float,
        metavar="S",
        help=f"after two rounds of a case, start no further one if S seconds have passed ({_defaults('case_budget')})",
    )
    add(
        "--num-corpus",
        type=int,
        help=f"largest number of sentences of a corpus; 0: measure random weights only ({_defaults('num_corpus')})",
    )
    add(
        "--arrivals",
        type=float,
        metavar="S",
        help=f"seconds of Poisson arrivals at each rate, at least {LEAST_TRIAL_S:g}; 0: no arrivals "
        f"({_defaults('arrivals')})",
    )


def _defaults(name: str) -> str:
    return f"default: {FULL[name]}, quick: {QUICK[name]}"


def measure(args: argparse.Namespace, bundle: Bundle) -> dict[str, Any]:
    """Measure everything. Returns the content of the JSON file."""
    options = ComparisonOptions(
        args.num_threads,
        args.num_rows,
        args.num_rounds,
        args.case_budget,
        is_quick=args.quick,
        target=args.target,
    )
    # ONNX Runtime's product, which gives the lower bound's rate, uses all instructions that the processor has.
    precisions: tuple[Precision, ...] = () if args.target else ("int8", "fp32")
    machine = measure_machine(
        options.num_threads, BUFFER_SIZES_MIB, precisions=precisions, is_quick=options.is_quick
    )
    print_progress(f"measured: {rounded(asdict(machine))}")
    result: dict[str, Any] = {
        "plan": asdict(options),
        "measured": asdict(machine),
        "cases": [],
        "arrivals": [],
    }
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        if args.imported is not None:
            result["cases"] = imported_cases(args, options, machine, folder)
            return result
        for vocab_size in map(int, args.vocab_sizes.split(",")):
            model = random_model(args.preset, vocab_size)
            for precision in precisions_of(args):
                prepared = prepare(
                    model, f"{args.preset}-{vocab_size}", [precision], folder, has_no_end_token=True
                )
                cases = synthetic_cases(vocab_size, sizes=sizes_of(args))
                result["cases"] += measure_cases(prepared[0], cases, options, machine)
                discard(prepared)
        if args.num_corpus:
            add_trained(result, bundle, args, options, folder)
    return result


def imported_cases(
    args: argparse.Namespace, options: ComparisonOptions, machine: Machine, folder: Path
) -> list[dict[str, Any]]:
    """Measure the model of --imported with random sentences and forced lengths."""
    from benchmarks.engine import imported

    model_folder = args.imported
    if model_folder == RANDOM:
        model_folder = folder / "opus-mt"
        imported.write_opus_mt(model_folder)
    model = imported.imported_model(model_folder)
    rows = []
    for precision in precisions_of(args):
        prepared = prepare(
            model,
            model_folder.name,
            [precision],
            folder,
            has_no_end_token=True,
            write_peer=functools.partial(imported.convert, model_folder),
        )
        rows += measure_cases(
            prepared[0], synthetic_cases(model.config.vocab_size, sizes=sizes_of(args)), options, machine
        )
        discard(prepared)
    return rows


def add_trained(
    result: dict[str, Any], bundle: Bundle, args: argparse.Namespace, options: ComparisonOptions, folder: Path
) -> None:
    """Measure trained weights and add the figures to `result`: groups of sentences, whole corpora, arrivals.

    Arrivals are measured in the first precision only.
    """
    # The corpus "own" has the sentences that ship with the benchmarks. The others are those of --data.
    corpora = encoded_corpora(bundle, args)
    longest = bundle.manifest.max_target_length
    trained = trained_model(bundle)
    for number, precision in enumerate(precisions_of(args)):
        prepared = prepare(trained, bundle.manifest.name, [precision], folder, has_no_end_token=False)
        cases = [*real_cases(corpora["own"], longest, sizes=sizes_of(args)), *corpus_cases(corpora, longest)]
        rows = measure_cases(prepared[0], cases, options, Machine(**result["measured"]))
        result["cases"] += rows
        if args.arrivals and not number:
            own_rows = [row for row in rows if row["case"] == "corpus own"]
            result["arrivals"] = search_rates(
                prepared[0], corpora["own"], own_rows, options, seconds=args.arrivals
            )
        discard(prepared)


def sizes_of(args: argparse.Namespace) -> tuple[int, ...]:
    """The group sizes of the option --sizes, ascending as `PeerPool.search` requires."""
    return tuple(sorted(map(int, args.sizes.split(","))))


def precisions_of(args: argparse.Namespace) -> list[Precision]:
    """The option --precisions, in the order of measurement."""
    chosen: list[Precision] = args.precisions.split(",")
    return chosen


def encoded_corpora(bundle: Bundle, args: argparse.Namespace) -> dict[str, list[list[int]]]:
    """The sentences of every corpus as subword ids, by the corpus's name."""
    tokenizer = TaggedTokenizer(bundle)
    texts = read_corpora(args.data, limit=args.num_corpus)
    longest = bundle.manifest.max_source_length
    return {name: encode(tokenizer, corpus, max_subwords=longest) for name, corpus in texts.items()}


def measure_cases(
    prepared: ModelPair, cases: list[Case], options: ComparisonOptions, machine: Machine
) -> list[dict[str, Any]]:
    """Compare both engines, then profile Transduce on the same cases."""
    rows = compare(prepared, cases, options, machine)
    profiled, operators = profile(prepared, cases, options)
    for row, times in zip(rows, profiled, strict=True):
        row["where"] = where_time_goes(row, times, options.num_threads)
        row["operators"] = operators
    return rows


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, write JSON and Markdown, and print the tables. Returns the exit code."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add_arguments(parser)
    args = parser.parse_args(arguments)
    for name, value in (QUICK if args.quick else FULL).items():
        if getattr(args, name) is None:
            setattr(args, name, value)
    if args.arrivals and args.arrivals < LEAST_TRIAL_S:
        parser.error(
            f"--arrivals must be 0 or at least {LEAST_TRIAL_S:g}, ten times the limit of the latency"
        )
    try:
        bundle = load_bundle(args.bundle or find_bundles(load_settings())[0])
    except (BundleError, SettingsError) as error:
        parser.exit(2, "".join(f"{problem}\n" for problem in error.problems))
    run = describe_run("benchmarks.engine", arguments)
    started_at = time.perf_counter()
    result = {
        **run,
        "machine": {**run["machine"], "vendor": cpu_vendor()},
        "versions": {**run["versions"], **package_versions()},
        **measure(args, bundle),
        "seconds": round(time.perf_counter() - started_at, 1),
    }
    result = rounded(result)
    table = render(result)
    args.output.parent.mkdir(parents=True, exist_ok=True)
    args.output.write_text(json.dumps(result, indent=1, ensure_ascii=False) + "\n", "utf-8")
    args.output.with_suffix(".md").write_text(table, "utf-8")
    print(table)
    return 0


def cpu_vendor() -> str:
    """The processor's vendor. By default, CTranslate2 uses MKL only on `GenuineIntel`."""
    lines = Path("/proc/cpuinfo").read_text("utf-8").splitlines()
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("vendor_id")), "unknown")


def package_versions() -> dict[str, str]:
    """Versions of the packages that `describe_run` does not list."""
    return {name: metadata.version(name) for name in ("ctranslate2", "torch")}


if __name__ == "__main__":
    sys.exit(main())
