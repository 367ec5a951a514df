"""Compare Transduce with Marian as Firefox builds it: the same int8 model, the same shortlist, in turns.

The model has base size, SSRUs in the decoder and random weights. `transduce import` reads the weights and the shortlist
that Marian reads. Every case runs with and without the shortlist. Every source has 25 subwords, and every target 30.
Both engines use all cores. Marian has one graph for each thread. It runs with several batch sizes, and the batch size
with the shortest time counts.

    benchmarks/marian/build.sh build-marian
    python -m benchmarks.marian --programs build-marian/build --output benchmarks/results/marian.json
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
from contextlib import closing
from dataclasses import asdict, dataclass
from pathlib import Path

from tqdm import tqdm

from app.bundle import load_bundle
from app.bundle_tokenizers import load_tokenizers
from app.runtime.machine import num_usable_cores
from app.shortlist_file import SHORTLIST, read_shortlists
from benchmarks.engine.jobs import Job
from benchmarks.engine.worker import Worker
from benchmarks.machine import describe_run
from benchmarks.marian.model import LENGTH_FACTOR, MarianModel, run, write_model
from benchmarks.marian.process import MarianError, MarianProcess
from export.bundle_shortlist import write_with_shortlist
from model.config import EOS_ID

NUM_ROWS = 128
BEAM_SIZES, NUM_SENTENCES = (1, 4), (1, 8, 32)
# Every translation has a log-probability above this. So none is decoded again without the shortlist.
NEVER = -1e9
# The minimum number of sentences that an engine translates in a turn. A case with fewer sentences repeats its call
# within a turn, because a single short call is noisy.
SENTENCES_A_TURN = 8


@dataclass(frozen=True)
class Comparison:
    """Medians over the turns of one case.

    num_steps: subwords of each translation. batch_size: the one with which Marian is fastest. marian_ms, ours_ms: the
    time to translate all sentences. ratio: Marian's time divided by ours, as the median over pairs of turns.
    A pair is one turn of each. least_ratio: the smallest of these ratios.
    """

    beam_size: int
    num_sentences: int
    has_shortlist: bool
    num_steps: int
    batch_size: int
    marian_ms: float
    ours_ms: float
    ratio: float
    least_ratio: float


class TimedMarian:
    """Marian in another process, which measures the time of each call itself.

    The sources are the sentences of `MarianModel.source`.
    """

    def __init__(self, model: MarianModel, beam_size: int, *, has_shortlist: bool) -> None:
        self.beam_size, self.has_shortlist = beam_size, has_shortlist
        options = [
            "--normalize", 0.6, "--beam-size", beam_size, "--max-length-factor", LENGTH_FACTOR,
            "--cpu-threads", num_usable_cores(), "--workspace", 256,
        ]  # fmt: skip
        shortlist = ["--shortlist", model.shortlist, 0] if has_shortlist else []
        environment = {"BENCH_SOURCE": str(model.source)}
        self._process = MarianProcess(model.files, [*options, *shortlist], environment)

    def translate(self, batch_size: int, num_sentences: int, num_calls: int) -> tuple[list[float], int]:
        """Milliseconds of each call, and the number of subwords of a translation. Raises MarianError."""
        self._process.write(f"{batch_size} {num_sentences} {num_calls}\n")
        answer = json.loads(self._process.read_line())
        if answer["shortest"] != answer["longest"] or answer["sentences"] != num_sentences:
            raise MarianError(f"the translations differ in length: {answer}")
        return answer["ms"], answer["longest"]

    def close(self) -> None:
        """End the process."""
        self._process.close()


def measure_case(marian: TimedMarian, ours: Worker, sources: list[list[int]], num_turns: int) -> Comparison:
    """The figures of a case. Marian and Transduce take turns."""
    count = len(sources)
    num_calls = max(1, SENTENCES_A_TURN // count)
    batch_sizes = sorted(
        {max(1, count // num_batches) for num_batches in (1, num_usable_cores(), 2 * num_usable_cores())}
    )
    times: dict[int, list[float]] = {size: [] for size in batch_sizes}
    ours_ms: list[float] = []
    _, num_steps = marian.translate(batch_sizes[0], count, 1)
    # Transduce counts the step of the end token, and Marian's output does not show it.
    job = Job(
        [sources],
        marian.beam_size,
        num_steps + 1,
        is_forced=True,
        num_calls=num_calls,
        has_shortlist=marian.has_shortlist,
    )
    for number in range(num_turns):
        for side in ("marian", "ours") if number % 2 else ("ours", "marian"):
            if side == "ours":
                ours_ms.append(statistics.median(ours.translate(job).times_s) * 1e3)
                continue
            for size in batch_sizes:
                marian.translate(size, count, 1)
                times[size].append(statistics.median(marian.translate(size, count, num_calls)[0]))
    best = min(batch_sizes, key=lambda size: statistics.median(times[size]))
    ratios = [theirs / own for theirs, own in zip(times[best], ours_ms, strict=True)]
    return Comparison(
        beam_size=marian.beam_size,
        num_sentences=count,
        has_shortlist=marian.has_shortlist,
        num_steps=num_steps,
        batch_size=best,
        marian_ms=round(statistics.median(times[best]), 2),
        ours_ms=round(statistics.median(ours_ms), 2),
        ratio=round(statistics.median(ratios), 3),
        least_ratio=round(min(ratios), 3),
    )


def measure(programs: Path, folder: Path, num_turns: int) -> list[Comparison]:
    """Write the model, import it and measure every case."""
    model = write_model(folder, programs)
    bundle = folder / "bundle"
    languages = ["--source", "en", "--target", "de", "--licence", "CC0-1.0", "--precisions", "int8"]
    run([sys.executable, "-m", "transduce", "import", model.ours, "--output", bundle, *languages])
    tables = read_shortlists(bundle / SHORTLIST)
    # Transduce decodes an improbable translation again without the shortlist, and Marian does not. With random weights,
    # every translation is improbable. So NEVER turns this off.
    write_with_shortlist(load_bundle(bundle), bundle, dict(enumerate(tables)), NEVER)
    tokenizer = load_tokenizers(load_bundle(bundle))[0]
    sources = [[*map(tokenizer.id_of, pieces), EOS_ID] for pieces in model.sentences]
    found = []
    arguments = {
        "bundle": str(bundle),
        "precision": "int8",
        "num_rows": NUM_ROWS,
        "num_threads": num_usable_cores(),
    }
    num_cases = 2 * len(BEAM_SIZES) * len(NUM_SENTENCES)
    with Worker("ours", arguments) as ours, tqdm(total=num_cases, unit=" cases") as progress:
        for has_shortlist in (True, False):
            for beam_size in BEAM_SIZES:
                with closing(TimedMarian(model, beam_size, has_shortlist=has_shortlist)) as marian:
                    for count in NUM_SENTENCES:
                        found.append(measure_case(marian, ours, sources[:count], num_turns))
                        progress.update()
    return found


def main() -> int:
    """Measure, print the cases, write JSON."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--programs", type=Path, required=True, help="the folder of Marian's programs")
    parser.add_argument(
        "--num-turns", type=int, default=11, help="turns of each engine in a case (default: 11)"
    )
    parser.add_argument("--output", type=Path, help="JSON file")
    args = parser.parse_args()
    head = describe_run("benchmarks.marian")
    with tempfile.TemporaryDirectory() as folder:
        found = measure(args.programs.resolve(), Path(folder), args.num_turns)
    result = {**head, "comparisons": [asdict(one) for one in found]}
    for one in found:
        print(json.dumps(asdict(one)))
    if args.output:
        args.output.write_text(json.dumps(result, indent=1) + "\n", "utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
