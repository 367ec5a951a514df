"""Compare translation quality: BLEU of both engines on test sets, and the number of equal outputs.

Both engines have the same weights, precision, beam size and length normalisation. So a difference comes from the
engine: from its rounding in int8, or from its order of summation in fp32.

    python -m benchmarks.engine.quality --data FOLDER --output benchmarks/results/engine_quality.json
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sacrebleu.metrics.bleu import BLEU
from sacrebleu.significance import PairedTest, Result

from app.bundle import Bundle, load_bundle
from app.bundle_folders import find_bundles
from app.errors import BundleError, SettingsError
from app.runtime.machine import num_usable_cores
from app.settings import load_settings
from app.text.tokenizer import Encoded
from benchmarks.engine.cases import BEAM_SIZES, read_pairs
from benchmarks.engine.compare import ComparisonOptions, arguments_of, print_progress
from benchmarks.engine.jobs import Job, PeerSettings
from benchmarks.engine.report import quality_table
from benchmarks.engine.weights import QUANTIZATION, prepare, trained_model
from benchmarks.engine.worker import Worker
from benchmarks.machine import describe_run
from benchmarks.serving import read_sentences
from benchmarks.tagged_tokenizer import TaggedTokenizer
from model.evaluate import score

RESULT = Path(__file__).resolve().parents[1] / "results" / "engine_quality.json"
OWN = "own sentences"
NUM_RESAMPLES = 1000


@dataclass(frozen=True)
class TestSet:
    """Encoded sentences and their references. targets: empty without references."""

    name: str
    sources: list[Encoded]
    targets: list[str]


def read_test_sets(bundle: Bundle, data: Path | None, names: list[str], limit: int) -> list[TestSet]:
    """The first `limit` sentences of `sentences.tsv`, and of each named test set of the folder.

    Sentences with more runs of unknown characters than placeholder symbols are left out, and so are sentences that are
    too long for the model.
    """
    tokenizer = TaggedTokenizer(bundle)
    longest = bundle.manifest.max_source_length
    own = [tokenizer.encode(text) for text in read_sentences()[:limit] if tokenizer.can_encode(text)]
    found = [TestSet(OWN, [source for source in own if len(source.ids) <= longest], [])]
    for name in names if data else ():
        pairs = read_pairs(Path(data or "") / f"test.{name}.tsv.xz")[:limit]
        kept = [
            (tokenizer.encode(source), target) for source, target in pairs if tokenizer.can_encode(source)
        ]
        kept = [(source, target) for source, target in kept if len(source.ids) <= longest]
        found.append(TestSet(name, [source for source, _ in kept], [target for _, target in kept]))
    return found


def measure(args: argparse.Namespace, bundle: Bundle) -> list[dict[str, Any]]:
    """Compare with each precision, test set and beam size. Returns a row for each."""
    tokenizer = TaggedTokenizer(bundle)
    test_sets = read_test_sets(bundle, args.data, args.test_sets.split(","), args.num_sentences)
    options = ComparisonOptions(args.num_threads, 128, num_rounds=1, case_budget_s=0.0, is_quick=False)
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        prepared = prepare(
            trained_model(bundle),
            bundle.manifest.name,
            ["int8", "fp32"],
            Path(folder),
            has_no_end_token=False,
        )
        for each in prepared:
            peer_arguments = {"model": str(each.peer), "compute_type": QUANTIZATION[each.precision]}
            with Worker("ours", arguments_of(each, options)) as ours, Worker("peer", peer_arguments) as peer:
                for test_set in test_sets:
                    for beam_size in BEAM_SIZES:
                        longest = bundle.manifest.max_target_length
                        job = job_of(test_set, beam_size, longest)
                        row = compare(ours, peer, test_set, job, tokenizer, num_threads=args.num_threads)
                        rows.append({"precision": each.precision, **row})
                        print_progress(str(rows[-1]))
    return rows


def job_of(test_set: TestSet, beam_size: int, max_target_length: int) -> Job:
    """A job that translates all sentences in one call."""
    sources = [list(source.ids) for source in test_set.sources]
    return Job([sources], beam_size, max_target_length, is_forced=False, is_warmed=False)


def compare(
    ours: Worker, peer: Worker, test_set: TestSet, job: Job, tokenizer: TaggedTokenizer, *, num_threads: int
) -> dict[str, Any]:
    """Translate with both engines, and compare the outputs and their BLEU. num_threads: threads of CTranslate2."""
    sides = {
        "ours": ours.translate(job).ids,
        "peer": peer.translate(job, PeerSettings(1, num_threads, 2048, "tokens")).ids,
    }
    last = job.max_target_length - 1  # subwords that Transduce returns for a sentence at the length limit
    pairs = list(zip(sides["ours"], sides["peer"], strict=True))
    row: dict[str, Any] = {
        "test_set": test_set.name,
        "beam_size": job.beam_size,
        "num_sentences": len(pairs),
        "num_equal": sum(ours == theirs[:last] for ours, theirs in pairs),
    }
    if test_set.targets:
        texts = {
            side: [
                tokenizer.decode(found[:last], source.verbatim_spans)
                for found, source in zip(ids, test_set.sources, strict=True)
            ]
            for side, ids in sides.items()
        }
        for side, translations in texts.items():
            scores = score(translations, test_set.targets)
            row[f"{side}_bleu"], row["signature"] = scores.bleu, scores.bleu_signature
        row["p"] = p_of_difference(texts["ours"], texts["peer"], test_set.targets)
    return row


def p_of_difference(translations: list[str], others: list[str], references: list[str]) -> float:
    """The p-value of a difference in BLEU, by paired bootstrap resampling of sentences. 1 for equal scores.

    Koehn, "Statistical Significance Tests for Machine Translation Evaluation", 2004.
    """
    bleu = BLEU()
    if bleu.corpus_score(translations, [references]).score == bleu.corpus_score(others, [references]).score:
        return 1.0  # for equal scores, sacrebleu counts no resample as different, which gives its smallest p-value
    systems: list[tuple[str, Sequence[str]]] = [("others", others), ("translations", translations)]
    test = PairedTest(systems, {"BLEU": BLEU()}, [references], test_type="bs", n_samples=NUM_RESAMPLES)
    result = test()[1]["BLEU"][1]
    assert isinstance(result, Result)
    assert result.p_value is not None
    return result.p_value


def render(result: dict[str, Any]) -> str:
    """The result as Markdown."""
    packages = ", ".join(f"{name} {version}" for name, version in result["versions"].items())
    return (
        f"# Quality with the same weights\n\n{result['model']}; {result['machine']['cpu']}, commit "
        f"{result['commit']}; {packages}; {result['machine']['measured_at']}.\n\n```\n{result['command']}\n```\n\n"
        f"{quality_table(result)}\n\n{result['signature']}\n"
    )


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, write JSON and Markdown, and print the table. Returns the exit code."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("--bundle", type=Path, help="the bundle that is measured (default: the bundled model)")
    add("--data", type=Path, help="folder with test.NAME.tsv.xz; without it there is no BLEU")
    add("--test-sets", default="newstest2013,tatoeba2020", help="names (default: newstest2013,tatoeba2020)")
    add("--num-sentences", type=int, help="use only the first N sentences of each test set, for a test run")
    add(
        "--num-threads",
        type=int,
        default=num_usable_cores(),
        help="threads of each engine (default: one per core)",
    )
    add("--output", type=Path, default=RESULT, help="JSON file; the table is written beside it as .md")
    args = parser.parse_args(arguments)
    try:
        bundle = load_bundle(args.bundle or find_bundles(load_settings())[0])
    except (BundleError, SettingsError) as error:
        parser.exit(2, "".join(f"{problem}\n" for problem in error.problems))
    run = describe_run("benchmarks.engine.quality", arguments)
    rows = measure(args, bundle)
    result = {
        **run,
        "model": f"{bundle.manifest.name} {bundle.manifest.version}",
        "signature": next((row.pop("signature") for row in rows if "signature" in row), ""),
        "rows": [{name: value for name, value in row.items() if name != "signature"} for row in rows],
    }
    args.output.parent.mkdir(parents=True, exist_ok=True)
    args.output.write_text(json.dumps(result, indent=1, ensure_ascii=False) + "\n", "utf-8")
    args.output.with_suffix(".md").write_text(render(result), "utf-8")
    print(render(result))
    return 0


if __name__ == "__main__":
    sys.exit(main())
